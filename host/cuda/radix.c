/* Passes over 8 bits each, lowest first, between two pairs of buffers. */
#include "cuda/radix.h"

#include "cuda/kernels/radix.h"
#include "cuda/memory.h"
#include "cuda/reals.h"

static struct ah_cuda_kernel count_kernel[] = {AH_CUDA_KERNEL("radix", "radix_count_32"),
                                               AH_CUDA_KERNEL("radix", "radix_count_64")};
static struct ah_cuda_kernel place_kernel[] = {AH_CUDA_KERNEL("radix", "radix_place_32"),
                                               AH_CUDA_KERNEL("radix", "radix_place_64")};
static struct ah_cuda_kernel scan_kernel = AH_CUDA_KERNEL("radix", "radix_scan");

static int pass(struct ah_device *device, const char *who, const struct ah_radix_args *args, int wide)
{
    struct ah_cuda_grid tiles = {ah_cuda_blocks(args->tiles, 1), AH_RADIX_THREADS, 0};
    struct ah_cuda_grid digits = {AH_RADIX_DIGITS, AH_RADIX_THREADS, 0};
    AH_TRY(ah_cuda_launch(device, &count_kernel[wide], who, tiles, args, sizeof *args));
    AH_TRY(ah_cuda_launch(device, &scan_kernel, who, digits, args, sizeof *args));
    return ah_cuda_launch(device, &place_kernel[wide], who, tiles, args, sizeof *args);
}

int ah_cuda_sort_keys(struct ah_device *device, const char *who, void *keys, const uint32_t *order, int64_t n, int item,
                 int bits, struct ah_cuda_sorted *out)
{
    struct ah_cuda_memory *memory = ah_cuda_state(device)->memory;
    int64_t tiles = (n + AH_RADIX_TILE - 1) / AH_RADIX_TILE;
    size_t places = (size_t)n * sizeof(uint32_t);
    void *counts = NULL;
    int status = 0;
    *out = (struct ah_cuda_sorted){.keys = keys};
    if (n >= (int64_t)1 << 32)
        return ah_fail(AH_EINVAL, "%s: %lld elements are too many to be put in order on %s", who, (long long)n,
                       device->name);
    AH_TRYGO(ah_cuda_memory_take(memory, (size_t)n * (size_t)item, &out->block[0]), out);
    AH_TRYGO(ah_cuda_memory_take(memory, places, &out->block[1]), out);
    AH_TRYGO(ah_cuda_memory_take(memory, places, &out->block[2]), out);
    AH_TRYGO(ah_cuda_memory_take(memory, (size_t)(tiles + 1) * AH_RADIX_DIGITS * sizeof(uint32_t), &counts), out);
    void *pair[2] = {keys, out->block[0]};
    int from = 0;
    for (int shift = 0; status == 0 && n > 0 && shift < bits; shift += 8, from ^= 1) {
        struct ah_radix_args args = {.keys = ah_cuda_address(pair[from]), .to_keys = ah_cuda_address(pair[from ^ 1]),
                                     .values = ah_cuda_address(shift ? out->block[1 + from] : order),
                                     .to_values = ah_cuda_address(out->block[1 + (from ^ 1)]),
                                     .counts = ah_cuda_address(counts), .n = n, .tiles = tiles, .shift = shift};
        args.totals = args.counts + (uint64_t)tiles * AH_RADIX_DIGITS * sizeof(uint32_t);
        status = pass(device, who, &args, item == 8);
    }
    out->keys = pair[from];
    out->order = out->block[1 + from];
out:
    ah_cuda_memory_give(memory, counts);
    if (status < 0)
        ah_cuda_sorted_release(device, out);
    return status;
}

void ah_cuda_sorted_release(struct ah_device *device, struct ah_cuda_sorted *sorted)
{
    for (int i = 0; i < 3; i++)
        ah_cuda_memory_give(ah_cuda_state(device)->memory, sorted->block[i]);
    *sorted = (struct ah_cuda_sorted){0};
}
