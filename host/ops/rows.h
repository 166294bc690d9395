/* Prototypes of every row's functions, from the op table: ah_forward_NAME and ah_backward_NAME. */
#ifndef AH_OPS_ROWS_H
#define AH_OPS_ROWS_H

#include "ops/op.h"

struct ah_rule;

#define OP(name, signature, saves, flags)          \
    int ah_forward_##name(struct ah_call *call);   \
    int ah_backward_##name(struct ah_rule *rule);
#define OP_NOGRAD(name, signature, flags) int ah_forward_##name(struct ah_call *call);
#include "ops/table.def"
#undef OP
#undef OP_NOGRAD

#endif
