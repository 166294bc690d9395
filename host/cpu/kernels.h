/* Prototypes of all CPU kernels, from the op table: int ah_cpu_KERNEL(struct ah_call *call). */
#ifndef AH_CPU_KERNELS_H
#define AH_CPU_KERNELS_H

struct ah_call;

#define OP(name, forward, kernel, signature, flags) int ah_cpu_##kernel(struct ah_call *call);
#include "ops/schema/table.def"
#undef OP

#endif
