/* The position of a device's generator is two numbers on the host, which kernels get by value; a captured step counts
 * from 0 instead, and reads its begin from device memory. */
#include "cuda/driver/stream/philox.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/stream/launch.h"

struct ah_philox_place ah_cuda_philox_take(struct ah_cuda_device *cuda, uint64_t numbers)
{
    struct ah_cuda_generator *g = &cuda->generator;
    uint64_t *next = g->through ? &g->within : &g->offset;
    struct ah_philox_place place = {.seed = g->seed, .offset = *next, .through = g->through};
    *next += (numbers + 3) / 4 * 4;
    return place;
}

void ah_cuda_philox_capture(struct ah_cuda_device *cuda, uint64_t at)
{
    cuda->generator.through = at;
    cuda->generator.within = 0;
}

uint64_t ah_cuda_philox_captured(struct ah_cuda_device *cuda)
{
    cuda->generator.through = 0;
    return cuda->generator.within;
}

int ah_cuda_philox_replay(struct ah_cuda_device *cuda, uint64_t at, uint64_t used)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("philox", "philox_write");
    struct ah_cuda_generator *g = &cuda->generator;
    struct ah_philox_write_args args = {.to = at, .state = {g->seed, g->offset}};
    AH_TRY(ah_cuda_launch(cuda->device, &kernel, "replay", ah_cuda_grid_of(1, 32, 0), &args));
    g->offset += used;
    return 0;
}

/* The state of a generator is PyTorch's: the seed and the offset. */

void ah_cuda_philox_seed(struct ah_device *device, uint64_t seed)
{
    struct ah_cuda_generator *g = &ah_cuda_state(device)->generator;
    g->seed = seed;
    g->offset = 0;
}

int ah_cuda_philox_get_state(struct ah_device *device, uint8_t *state)
{
    const struct ah_cuda_generator *g = &ah_cuda_state(device)->generator;
    memcpy(state, &g->seed, sizeof g->seed);
    memcpy(state + sizeof g->seed, &g->offset, sizeof g->offset);
    return 0;
}

int ah_cuda_philox_set_state(struct ah_device *device, const uint8_t *state)
{
    struct ah_cuda_generator *g = &ah_cuda_state(device)->generator;
    uint64_t offset;
    memcpy(&offset, state + sizeof g->seed, sizeof offset);
    if (offset % 4)
        return ah_fail(AH_EINVAL, "%s: not a state of this generator: its offset is no multiple of 4", device->name);
    if (g->through)
        return ah_fail(AH_ESTATE, "%s: the generator cannot be set within a step that is being captured; set it before",
                       device->name);
    memcpy(&g->seed, state, sizeof g->seed);
    g->offset = offset;
    return 0;
}
