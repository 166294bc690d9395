/* The kernel column of CUDA devices: for each op the function of the kernel that its schema names. */
#include "cuda/driver/api/device.h"
#include "cuda/ops/lib/host_kernel.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/vendor/solver.h"
#include "ops/dispatch/op.h"

/* Can cuSOLVER compute this call? Not where it is missing, or an operand is empty. */
static bool kernels_can_solve(struct ah_call *call)
{
    for (int i = 0; i < call->op->param_count; i++)
        if (call->arg[i].kind == AH_TENSOR && call->arg[i].tensor->numel == 0)
            return false;
    return ah_solver_open(ah_cuda_state(call->device)) != NULL;
}

#define HOST(name, reason)                   \
    int ah_cuda_##name(struct ah_call *call) \
    {                                        \
        return ah_cuda_on_host(call);        \
    }
#define DRAW(name)                                                                              \
    int ah_cuda_##name(struct ah_call *call)                                                    \
    {                                                                                           \
        bool here = ah_cuda_state(call->device)->generator.of_cpu;                              \
        return here ? ah_cuda_on_host(call) : ah_cuda_draw_##name(call);                        \
    }
#define SOLVE(name)                                                                             \
    int ah_cuda_##name(struct ah_call *call)                                                    \
    {                                                                                           \
        return kernels_can_solve(call) ? ah_cuda_solve_##name(call) : ah_cuda_on_host(call);    \
    }
#include "cuda/ops/lib/kernels.def"
#undef SOLVE
#undef DRAW
#undef HOST

#define ah_cuda_none NULL

const ah_kernel ah_cuda_kernels[AH_OP_COUNT + 1] = {
#define OP(name, forward, kernel, signature, flags) [AH_OP_##name] = ah_cuda_##kernel,
#include "ops/schema/table.def"
#undef OP
};
