/* Prototypes of all CPU kernels, from the op table: int ah_cpu_NAME(struct ah_call *call). */
#ifndef AH_CPU_KERNELS_H
#define AH_CPU_KERNELS_H

#include "ops/op.h"

#define OP(name, signature, flags) int ah_cpu_##name(struct ah_call *call);
#include "ops/table.def"
#undef OP

#endif
