/* Quantised weights have no kernels here. */
#include "base/status/status.h"
#include "cuda/ops/lib/ops.h"

int ah_cuda_quantized_matmul(struct ah_call *call)
{
    return ah_fail(AH_ENOTIMPL, "%s: quantised weights are computed with on the CPU alone: keep the model on \"cpu\", "
                   "or load it without quantization_config", call->op->name);
}
