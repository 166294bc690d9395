/* Passes over 8 bits each, lowest first, between two pairs of buffers; one block sorts as many keys as fit it. */
#include "cuda/ops/index/radix.h"

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/index/radix.h"

static struct ah_cuda_kernel count_kernel[] = {AH_CUDA_KERNEL("radix", "radix_count_32"),
                                               AH_CUDA_KERNEL("radix", "radix_count_64")};
static struct ah_cuda_kernel place_kernel[] = {AH_CUDA_KERNEL("radix", "radix_place_32"),
                                               AH_CUDA_KERNEL("radix", "radix_place_64")};
static struct ah_cuda_kernel tile_kernel[] = {AH_CUDA_KERNEL("radix", "radix_tile_32"),
                                              AH_CUDA_KERNEL("radix", "radix_tile_64")};
static struct ah_cuda_kernel scan_kernel = AH_CUDA_KERNEL("radix", "radix_scan");

static int radix_pass(struct ah_device *device, const char *op_name, const struct ah_radix_args *args, int wide)
{
    struct ah_cuda_grid tiles = {ah_cuda_blocks(args->tiles, 1), AH_RADIX_THREADS, 0};
    struct ah_cuda_grid digits = {AH_RADIX_DIGITS, AH_RADIX_THREADS, 0};
    AH_TRY(ah_cuda_launch(device, &count_kernel[wide], op_name, tiles, args));
    AH_TRY(ah_cuda_launch(device, &scan_kernel, op_name, digits, args));
    return ah_cuda_launch(device, &place_kernel[wide], op_name, tiles, args);
}

static int radix_passes(struct ah_device *device, const char *op_name, const uint32_t *order, struct ah_radix_args args,
                        int wide, struct ah_cuda_sorted *out)
{
    struct ah_cuda_memory *memory = ah_cuda_state(device)->memory;
    void *counts, *pair[2] = {out->keys, out->block[0]};
    int from = 0, status = 0;
    AH_TRY(ah_cuda_memory_take(memory, (size_t)(args.tiles + 1) * AH_RADIX_DIGITS * sizeof(uint32_t), &counts));
    args.counts = ah_cuda_address(counts);
    args.totals = args.counts + (uint64_t)args.tiles * AH_RADIX_DIGITS * sizeof(uint32_t);
    for (; status == 0 && args.shift < args.bits; args.shift += 8, from ^= 1) {
        args.keys = ah_cuda_address(pair[from]);
        args.to_keys = ah_cuda_address(pair[from ^ 1]);
        args.values = ah_cuda_address(args.shift ? out->block[1 + from] : order);
        args.to_values = ah_cuda_address(out->block[1 + (from ^ 1)]);
        status = radix_pass(device, op_name, &args, wide);
    }
    out->keys = pair[from];
    out->order = out->block[1 + from];
    ah_cuda_memory_give(memory, counts);
    return status;
}

static int one_tile(struct ah_device *device, const char *op_name, const uint32_t *order, struct ah_radix_args args,
                    int wide, struct ah_cuda_sorted *out)
{
    args.keys = ah_cuda_address(out->keys);
    args.to_keys = ah_cuda_address(out->block[0]);
    args.values = ah_cuda_address(order);
    args.to_values = ah_cuda_address(out->block[1]);
    for (args.padded = 1; args.padded < args.n; args.padded *= 2)
        ;
    out->keys = out->block[0];
    out->order = out->block[1];
    return ah_cuda_launch(device, &tile_kernel[wide], op_name, ah_cuda_grid_of(1, AH_RADIX_THREADS, 0), &args);
}

int ah_cuda_sort_keys(struct ah_device *device, const char *op_name, void *keys, const uint32_t *order, int64_t n,
                      int item, int bits, struct ah_cuda_sorted *out)
{
    struct ah_cuda_memory *memory = ah_cuda_state(device)->memory;
    struct ah_radix_args args = {.n = n, .tiles = (n + AH_RADIX_TILE - 1) / AH_RADIX_TILE, .bits = bits};
    size_t places = (size_t)n * sizeof(uint32_t);
    int status;
    *out = (struct ah_cuda_sorted){.device = device, .keys = keys};
    if (n >= (int64_t)1 << 32)
        return ah_fail(AH_EINVAL, "%s: %lld elements are too many to sort on %s", op_name, (long long)n,
                       device->name);
    AH_TRYGO(ah_cuda_memory_take(memory, (size_t)n * (size_t)item, &out->block[0]), out);
    AH_TRYGO(ah_cuda_memory_take(memory, places, &out->block[1]), out);
    if (args.tiles > 1)
        AH_TRYGO(ah_cuda_memory_take(memory, places, &out->block[2]), out);
    out->order = out->block[1];
    if (n == 0)
        status = 0;
    else if (args.tiles == 1)
        status = one_tile(device, op_name, order, args, item == 8, out);
    else
        status = radix_passes(device, op_name, order, args, item == 8, out);
out:
    if (status < 0)
        ah_cuda_sorted_release(out);
    return status;
}

void ah_cuda_sorted_release(struct ah_cuda_sorted *sorted)
{
    for (int i = 0; i < 3 && sorted->device; i++)
        ah_cuda_memory_give(ah_cuda_state(sorted->device)->memory, sorted->block[i]);
    *sorted = (struct ah_cuda_sorted){0};
}
