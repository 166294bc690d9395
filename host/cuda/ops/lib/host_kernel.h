/* Work of a device that is done on the CPU: for ops without their own kernel. The operands are copied to the host, the
 * CPU's kernel runs, and its possible outputs are copied back. */
#pragma once

#include "ops/dispatch/op.h"

/* Runs the CPU's kernel of call->op. A tensor that the kernel made moves to the device. */
int ah_cuda_on_host(struct ah_call *call);
