/* Prototypes of all CPU kernels, from the op table: int ah_cpu_KERNEL(struct ah_call *call). */
#pragma once

struct ah_call;

#define OP(name, forward, kernel, signature, flags) int ah_cpu_##kernel(struct ah_call *call);
#include "ops/schema/table.def"
#undef OP
