/* Prototypes of the kernels of CUDA devices, from the op table and kernels.def: ah_cuda_KERNEL, ah_cuda_draw_KERNEL,
 * ah_cuda_solve_KERNEL. */
#pragma once

#include "ops/dispatch/op.h"

#define OP(name, forward, kernel, signature, flags) int ah_cuda_##kernel(struct ah_call *call);
#include "ops/schema/table.def"
#undef OP

#define DRAW(name) int ah_cuda_draw_##name(struct ah_call *call);
#define SOLVE(name) int ah_cuda_solve_##name(struct ah_call *call);
#define HOST(name, reason)
#include "cuda/ops/lib/kernels.def"
#undef SOLVE
#undef DRAW
#undef HOST

/* Define a kernel by an expression of its call `c`; ..._WITH also has the arguments `arg` of `row`. */
#define AH_CUDA_OP(kernel, expression)           \
    int ah_cuda_##kernel(struct ah_call *c)      \
    {                                            \
        return expression;                       \
    }
#define AH_CUDA_OP_WITH(kernel, row, expression)             \
    int ah_cuda_##kernel(struct ah_call *c)                  \
    {                                                        \
        const struct ah_args_##row *arg = ah_args(c, row);   \
        return expression;                                   \
    }
