/* The CPU as a device, but for its kernels: blocks of base/memory/alloc.h, memcpy, the default generator. Everything
 * happens at once, so there is nothing to wait for. */
#include <string.h>

#include "tensor/device.h"
#include "tensor/rng.h"
#include "tensor/transpose.h"

static int cpu_memory_count(void)
{
    return 1;
}

static int cpu_memory_open(struct ah_device *device)
{
    return 0;
}

static void cpu_memory_close(struct ah_device *device)
{
}

static int cpu_memory_allocate(struct ah_device *device, size_t bytes, void **out)
{
    return ah_block_alloc(bytes, out);
}

static void cpu_memory_release(struct ah_device *device, void *block, size_t bytes)
{
    ah_block_free(block, bytes);
}

static int cpu_memory_copy(struct ah_device *device, void *to, struct ah_device *to_device, const void *from,
                           struct ah_device *from_device, size_t bytes, void *stream)
{
    if (bytes)
        memmove(to, from, bytes);
    return 0;
}

static int cpu_memory_fill(struct ah_device *device, void *to, int byte, size_t bytes)
{
    if (bytes)
        memset(to, byte, bytes);
    return 0;
}

static int cpu_memory_transpose(struct ah_device *device, void *to, const void *from, int64_t batch, int64_t rows,
                                int64_t columns, size_t item)
{
    if (item == sizeof(float)) {
        ah_transpose_f32(to, from, batch, rows, columns);
        return 0;
    }
    if (item == sizeof(uint16_t)) {
        ah_transpose_16(to, from, batch, rows, columns);
        return 0;
    }
    for (int64_t b = 0; b < batch; b++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                memcpy((char *)to + (size_t)((b * columns + c) * rows + r) * item,
                       (const char *)from + (size_t)((b * rows + r) * columns + c) * item, item);
    return 0;
}

static int cpu_memory_synchronise(struct ah_device *device, void *stream)
{
    return 0;
}

static void cpu_memory_seed(struct ah_device *device, uint64_t value)
{
    ah_generator_seed(ah_default_generator(), value);
}

static int get_state(struct ah_device *device, uint8_t *state)
{
    ah_generator_get_state(ah_default_generator(), state);
    return 0;
}

static int set_state(struct ah_device *device, const uint8_t *state)
{
    return ah_generator_set_state(ah_default_generator(), state, AH_RNG_STATE_BYTES);
}

static void memory_stats(struct ah_device *device, struct ah_memory_stats *stats)
{
    *stats = ah_memory_stats();
}

static void cpu_memory_trim(struct ah_device *device)
{
    ah_block_trim();
}

static const struct ah_device_type cpu_type = {
    .abi = AH_DEVICE_ABI,
    .collects = true,
    .name = "cpu",
    .count = cpu_memory_count,
    .open = cpu_memory_open,
    .close = cpu_memory_close,
    .allocate = cpu_memory_allocate,
    .release = cpu_memory_release,
    .copy = cpu_memory_copy,
    .fill = cpu_memory_fill,
    .transpose = cpu_memory_transpose,
    .synchronise = cpu_memory_synchronise,
    .state_bytes = AH_RNG_STATE_BYTES,
    .seed = cpu_memory_seed,
    .get_state = get_state,
    .set_state = set_state,
    .memory_stats = memory_stats,
    .trim = cpu_memory_trim,
};

struct ah_device ah_cpu = {.type = &cpu_type, .name = "cpu"};
