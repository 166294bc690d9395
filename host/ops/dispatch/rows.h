/* Prototypes of every row's forward, from the op table: ah_forward_FORWARD. */
#pragma once

#include "ops/dispatch/op.h"

#define OP(name, forward, kernel, signature, flags) int ah_forward_##forward(struct ah_call *call);
#include "ops/schema/table.def"
#undef OP

/* Define a forward by an expression of its call `c`; ..._WITH also has the arguments `arg` of `row`. */
#define AH_FORWARD(forward, expression)            \
    int ah_forward_##forward(struct ah_call *c)    \
    {                                              \
        return expression;                         \
    }
#define AH_FORWARD_WITH(forward, row, expression)            \
    int ah_forward_##forward(struct ah_call *c)              \
    {                                                        \
        const struct ah_args_##row *arg = ah_args(c, row);   \
        return expression;                                   \
    }
