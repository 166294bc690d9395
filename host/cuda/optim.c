/* The optimizers' passes. */
#include <stdlib.h>

#include "base/alloc.h"
#include "cuda/device.h"
#include "optim/kernels.h"

/* Bytes of the device in the host's memory. */
static int fetch(struct ah_device *device, const void *from, size_t bytes, void **out)
{
    AH_TRY(ah_block_alloc(bytes, out));
    int status = ah_device_copy(*out, &ah_cpu, from, device, bytes);
    if (status < 0)
        ah_block_free(*out, bytes);
    return status;
}

/* Bring an edited copy back, unless something failed before, and drop it. */
static int put(struct ah_device *device, void *to, void *copy, size_t bytes, int status)
{
    if (status == 0)
        status = ah_device_copy(to, device, copy, &ah_cpu, bytes);
    ah_block_free(copy, bytes);
    return status;
}

static int step_segment(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                        const struct ah_optim_segment *segment, enum ah_dtype dtype)
{
    size_t bytes = (size_t)segment->n * ah_dtype_size(dtype);
    struct ah_optim_segment near = *segment;
    void *copies[2 + AH_OPTIM_STATES] = {NULL};
    void *const places[2 + AH_OPTIM_STATES] = {segment->param, (void *)(uintptr_t)segment->grad, segment->state[0],
                                               segment->state[1], segment->state[2]};
    int status = 0, count = 0;
    for (; status == 0 && count < 2 + AH_OPTIM_STATES; count++)
        if (places[count])
            status = fetch(device, places[count], bytes, &copies[count]);
    if (status < 0)
        copies[--count] = NULL;
    near.param = copies[0];
    near.grad = copies[1];
    for (int k = 0; k < AH_OPTIM_STATES; k++)
        near.state[k] = copies[2 + k];
    if (status == 0)
        status = ah_cpu.optim->step(&ah_cpu, kind, options, &near, 1, dtype);
    for (int i = 0; i < count; i++)
        if (copies[i])
            status = put(device, places[i], copies[i], bytes, status);
    return status;
}

static int step(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                const struct ah_optim_segment *segment, int count, enum ah_dtype dtype)
{
    for (int i = 0; i < count; i++)
        AH_TRY(step_segment(device, kind, options, &segment[i], dtype));
    return 0;
}

static int norm_sum(struct ah_device *device, const void *x, int64_t n, double p, enum ah_dtype dtype, double *sum)
{
    size_t bytes = (size_t)n * ah_dtype_size(dtype);
    void *near;
    AH_TRY(fetch(device, x, bytes, &near));
    int status = ah_cpu.optim->norm_sum(&ah_cpu, near, n, p, dtype, sum);
    ah_block_free(near, bytes);
    return status;
}

static int scale(struct ah_device *device, void *x, int64_t n, double factor, enum ah_dtype dtype, bool *overflow)
{
    size_t bytes = (size_t)n * ah_dtype_size(dtype);
    void *near;
    AH_TRY(fetch(device, x, bytes, &near));
    return put(device, x, near, bytes, ah_cpu.optim->scale(&ah_cpu, near, n, factor, dtype, overflow));
}

static int clamp(struct ah_device *device, void *x, int64_t n, double limit, enum ah_dtype dtype)
{
    size_t bytes = (size_t)n * ah_dtype_size(dtype);
    void *near;
    AH_TRY(fetch(device, x, bytes, &near));
    return put(device, x, near, bytes, ah_cpu.optim->clamp(&ah_cpu, near, n, limit, dtype));
}

const struct ah_optim_kernels ah_cuda_optim = {.step = step, .norm_sum = norm_sum, .scale = scale, .clamp = clamp};
