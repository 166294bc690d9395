/* Steps of an optimizer whose states are in pinned memory of the host (`offloaded` in optim/kernels.h).
 *
 * States are copied to the device in blocks, updated there by the step's kernel, and copied back. A block has one of
 * three buffers: while it is updated the next one arrives on the copy stream and the one before leaves on the fetch
 * stream. The buffers are the allocator's, from the beginning of the step to its end, and have at most 3 x 16 MiB
 * ($ACCELHOST_CUDA_OFFLOAD_BLOCK sets the bytes of one). The host waits for the last copy, since it may read the states
 * afterwards. */
#pragma once

#include "cuda/driver/api/device.h"
#include "optim/kernels.h"

struct ah_offloaded_step {
    struct ah_device *device;
    enum ah_optim_kind kind;
    const struct ah_optim_options *options;
    enum ah_dtype dtype;
    /* The step of segments whose states are on the device. */
    int (*resident)(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                    const struct ah_optim_segment *segment, int count, enum ah_dtype dtype);
};

/* Step segments with offloaded states, and wait until these have been copied back. */
int ah_cuda_step_offloaded(const struct ah_offloaded_step *step, const struct ah_optim_segment *segment, int count);
