/* The device type's copy, fill, transpose and synchronise (tensor/device.h). */
#pragma once

#include "cuda/driver/api/device.h"

/* As tensor/device.h promises of each. */
int ah_cuda_copy(struct ah_device *device, void *to, struct ah_device *to_device, const void *from,
                 struct ah_device *from_device, size_t bytes, void *stream);
int ah_cuda_fill(struct ah_device *device, void *to, int byte, size_t bytes);
int ah_cuda_transpose(struct ah_device *device, void *to, const void *from, int64_t batch, int64_t rows,
                      int64_t columns, size_t item);
int ah_cuda_synchronise(struct ah_device *device, void *stream);

/* Queue a copy of pageable memory to the device, through pinned blocks. */
int ah_cuda_copy_staged(struct ah_cuda_device *cuda, void *to, const void *from, size_t bytes, CUstream stream);
