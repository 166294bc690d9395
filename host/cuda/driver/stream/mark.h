/* Marks in the order of what a device is asked to do (tensor/device.h). */
#ifndef AH_CUDA_MARK_H
#define AH_CUDA_MARK_H

#include "cuda/driver/api/device.h"

extern const struct ah_mark_functions ah_cuda_mark_functions;

#endif
