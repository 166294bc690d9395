/* The kernel of each real dtype, of a name with its suffix:
 * static struct ah_cuda_kernel step[] = AH_CUDA_REALS("optim", "optim_step"); then &step[dtype]. */
#pragma once

#include "base/numeric/dtype.h"
#include "cuda/driver/stream/launch.h"
#include "tensor/tensor.h"

#define AH_CUDA_REALS(file, name)                                                                          \
    {[AH_F16] = AH_CUDA_KERNEL(file, name "_f16"), [AH_BF16] = AH_CUDA_KERNEL(file, name "_bf16"),         \
     [AH_F32] = AH_CUDA_KERNEL(file, name "_f32"), [AH_F64] = AH_CUDA_KERNEL(file, name "_f64")}

static inline uint64_t ah_cuda_address(const void *at)
{
    return (uint64_t)(uintptr_t)at;
}

/* The address of a tensor's first element; 0 without a tensor. */
static inline uint64_t ah_cuda_data(const struct ah_tensor *tensor)
{
    return tensor ? ah_cuda_address(ah_tensor_data(tensor)) : 0;
}
