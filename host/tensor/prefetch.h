/* Tensors on their way to a device whose type has prefetch functions (tensor/device.h): pinned ones on the CPU, and
 * those on the device that are filled in its queue of copies. */
#pragma once

#include "tensor/tensor.h"

/* An uninitialised row-major tensor on the CPU in memory that `device` reads by itself. AH_EINVAL when it cannot. */
int ah_tensor_empty_pinned(struct ah_tensor **out, const int64_t *size, int ndim, enum ah_dtype dtype,
                           struct ah_device *device);

/* Is a tensor in pinned memory of any device? */
bool ah_tensor_is_pinned(const struct ah_tensor *tensor);

/* A tensor on `device` that is being filled with the values of one on the CPU, which is contiguous: not to be used
 * before ah_prefetch_join. When that one is pinned its memory is read after the return, also after its release. */
int ah_prefetch_tensor(struct ah_tensor **out, const struct ah_tensor *tensor, struct ah_device *device);

/* Make kernels launched from now on wait for all tensors fed so far. */
int ah_prefetch_join(struct ah_device *device);
