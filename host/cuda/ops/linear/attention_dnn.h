/* Attention by cuDNN's fused kernels, where they support it and pay: fp16 and bf16 on cards of compute capability 9.0
 * and above, no mask but the causal one, no dropout, no window, sequences of one length. */
#pragma once

#include "cuda/driver/api/device.h"
#include "cuda/kernels/linear/attention.h"
#include "ops/dispatch/op.h"

/* Launch the attention of `args`: the forward pass, or, with args->grad_query, the gradients, for which args->delta is
 * scratch memory. `lse`: row-major (heads, rows), written or read. 1 done; 0 left to the program's own kernels, nothing
 * was written; negative an error. */
int ah_cuda_attention_dnn(struct ah_call *c, const struct ah_attention_args *args, enum ah_dtype dtype,
                          struct ah_tensor *lse);

/* Read $ACCELHOST_CUDA_ATTENTION; AH_EINVAL if it is none of the choices. */
int ah_cuda_attention_dnn_read(void);

/* Forget the plans of a device that is closed. */
void ah_cuda_attention_dnn_forget(const struct ah_cuda_device *cuda);
