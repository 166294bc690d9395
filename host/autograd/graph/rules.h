/* The gradient rule of each op, and the values that the graph saves for it (autograd/graph/rules.def). */
#pragma once

#include "autograd/graph/rule.h"

/* Values to save: 8 bits per argument (0..5), the inputs whose gradient needs the argument, all ones for any; then one
 * bit per output. */
#define AH_SAVE_ARG_FOR(i, inputs) ((uint64_t)(inputs) << 8 * (i))
#define AH_SAVE_ARG(i) AH_SAVE_ARG_FOR(i, 0xff)
#define AH_SAVE_IN(i) (1u << (i))
#define AH_SAVE_OUT(k) (UINT64_C(1) << (48 + (k)))
/* Recorded only in place: the result is a constant, not even a new leaf wants to hear of it. */
#define AH_SAVE_IN_PLACE_ONLY (UINT64_C(1) << 63)
/* The rule reads the gradient of its float32 result in halves too. */
#define AH_READS_HALVES (UINT64_C(1) << 62)

/* The rule stores gradients in the slots of leaves (struct ah_destination). */
#define AH_WRITES_SLOTS (UINT64_C(1) << 61)

enum { AH_SAVED_ARGS = 6 };

struct ah_rule_row {
    void (*run)(struct ah_rule *rule); /* NULL: not differentiable */
    uint64_t saves;
};

/* Indexed by enum ah_opid. */
extern const struct ah_rule_row ah_rules[AH_OP_COUNT];

/* Every ah_backward_RULE of the column. */
#define RULE(op, rule, saves) void ah_backward_##rule(struct ah_rule *r);
#include "autograd/graph/rules.def"
#undef RULE

/* Define a rule by an expression of `r`, or by the gradient of its first input; ..._WITH also has the arguments `arg`
 * of `row`. */
#define AH_BACKWARD(rule, expression)              \
    void ah_backward_##rule(struct ah_rule *r)     \
    {                                              \
        expression;                                \
    }
#define AH_BACKWARD_WITH(rule, row, expression)              \
    void ah_backward_##rule(struct ah_rule *r)               \
    {                                                        \
        const struct ah_args_##row *arg = ah_args(r, row);   \
        expression;                                          \
    }
#define AH_GRADIENT(rule, gradient) AH_BACKWARD(rule, r->grad_in[0] = gradient)
#define AH_GRADIENT_WITH(rule, row, gradient) AH_BACKWARD_WITH(rule, row, r->grad_in[0] = gradient)
/* The same of an op of one input, by an expression of `r`, `arg` and the gradient `g`. */
#define AH_UNARY_RULE(name, gradient)                            \
    void ah_backward_##name(struct ah_rule *r)                   \
    {                                                            \
        const struct ah_args_##name *arg = ah_args(r, name);     \
        struct ah_tensor *g = r->grad_out[0];                    \
        (void)arg;                                               \
        ah_r_give(r, 0, gradient);                               \
    }
