/* The kernel column of CUDA devices: for each op the function of the kernel that its schema names. */
#include "cuda/driver/api/device.h"
#include "cuda/ops/lib/host_kernel.h"
#include "cuda/ops/lib/ops.h"
#include "ops/dispatch/op.h"

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
#include "cuda/ops/lib/kernels.def"
#undef DRAW
#undef HOST

#define ah_cuda_none NULL

const ah_kernel ah_cuda_kernels[AH_OP_COUNT + 1] = {
#define OP(name, forward, kernel, signature, flags) [AH_OP_##name] = ah_cuda_##kernel,
#include "ops/schema/table.def"
#undef OP
};
