/* Prototypes of the functions that kernels.def names: ah_cuda_KERNEL, ah_cuda_draw_KERNEL. */
#ifndef AH_CUDA_OPS_H
#define AH_CUDA_OPS_H

#include "ops/dispatch/op.h"

#define KERNEL(name) int ah_cuda_##name(struct ah_call *call);
#define DRAW(name) int ah_cuda_draw_##name(struct ah_call *call);
#define HOST(name, reason)
#include "cuda/ops/lib/kernels.def"
#undef KERNEL
#undef DRAW
#undef HOST

#endif
