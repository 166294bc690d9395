/* Prototypes of all CPU kernels, from the op table: int ah_cpu_KERNEL(struct ah_call *call). */
#pragma once

struct ah_call;

#define OP(name, forward, kernel, signature, flags) int ah_cpu_##kernel(struct ah_call *call);
#include "ops/schema/table.def"
#undef OP

/* Define a kernel by an expression of its call `c`; ..._WITH also has the arguments `arg` of `row`. */
#define AH_CPU_OP(kernel, expression)            \
    int ah_cpu_##kernel(struct ah_call *c)       \
    {                                            \
        return expression;                       \
    }
#define AH_CPU_OP_WITH(kernel, row, expression)              \
    int ah_cpu_##kernel(struct ah_call *c)                   \
    {                                                        \
        const struct ah_args_##row *arg = ah_args(c, row);   \
        return expression;                                   \
    }
