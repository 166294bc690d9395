/* Writing gradient rules.
 *
 * A rule is a function `void ah_backward_NAME(struct ah_rule *r)`. It reads r->grad_out[k] (NULL when output k had no
 * gradient), the saved values, and sets r->grad_in[i] for every input i with r->needs[i]. Inputs are counted over the
 * tensor arguments in order, the items of a list one by one.
 *
 * Rules are expressions: every ah_r call returns a tensor owned by the rule (freed when it ends) and NULL once anything
 * failed, and accepts NULL as input, so no call needs checking; the engine reports the first error. With create_graph
 * the calls are recorded, so a rule made of differentiable ops has a second derivative; differentiating the result of a
 * kernel without a derivative is an error. */
#pragma once

#include "ops/dispatch/op.h"

enum { AH_RULE_TEMPS = 96 }; /* without an allocation; a rule of cat makes one per input */

struct ah_node;

/* The slice of a tensor that begins at `start` of `dim`, with the length of its gradient; dim -1: the whole tensor. */
struct ah_slice {
    int dim;
    int64_t start;
};

/* Where an input's gradient goes in the end: the sum of its leaf's gradients that have arrived in this backward, or the
 * leaf's slot in the gradient arena. */
struct ah_destination {
    struct ah_tensor *slot; /* of the input's shape; NULL: there is none */
    bool is_sum;            /* it is that sum */
    bool adds;              /* it has a sum, to which the gradient is added; else its contents are undefined */
    bool exact;             /* it then has the bits that it has where all gradients are added before it is written */
    bool written;           /* set by the rule that has stored the gradient there, and then leaves grad_in[i] NULL */
};

struct ah_rule {
    struct ah_node *node;
    const struct ah_value *arg; /* the call's arguments (ah_args); tensors only where saved, else kind AH_NONE */
    const union ah_state *state;
    struct ah_tensor **extra;   /* the forward's call->extra */
    struct ah_tensor **out;     /* saved outputs, else NULL */
    struct ah_tensor **grad_out;
    struct ah_tensor **grad_in; /* set to tensors of the rule (the engine retains them) */
    struct ah_slice place;      /* of grad_in[0] in the gradient of input 0, which is zero elsewhere */
    struct ah_destination *into; /* [input_count]; NULL: no input has one */
    const bool *needs;
    bool last;                  /* the node's saved values are freed after this run */
    int input_count, output_count;
    int status;
    struct ah_tensor **temp; /* own_temp, or grown by ah_rule_keep */
    size_t temp_count, temp_room;
    struct ah_tensor *own_temp[AH_RULE_TEMPS];
};

/* Run an op inside a rule: ah_r(r, AH_OP_mul, AH_T(g), AH_T(x)). Any AH_T(NULL) for a required tensor, or an earlier
 * failure, returns NULL. */
#define ah_r(rule, id, ...)                                                 \
    ah_rule_op((rule), (id), (const struct ah_value[]){__VA_ARGS__},        \
               (int)(sizeof((struct ah_value[]){__VA_ARGS__}) / sizeof(struct ah_value)))
struct ah_tensor *ah_rule_op(struct ah_rule *rule, enum ah_opid id, const struct ah_value *args, int count);

/* The same for ops with several outputs; fills out[] with tensors of the rule. */
void ah_rule_ops(struct ah_rule *rule, enum ah_opid id, const struct ah_value *args, int count,
                 struct ah_tensor **out, int out_count);

/* The same, written over argument 0, a saved tensor, where it is not read again; the kernel must support it. */
#define ah_r_over(rule, id, ...)                                                 \
    ah_rule_op_over((rule), (id), (const struct ah_value[]){__VA_ARGS__},        \
                    (int)(sizeof((struct ah_value[]){__VA_ARGS__}) / sizeof(struct ah_value)))
struct ah_tensor *ah_rule_op_over(struct ah_rule *rule, enum ah_opid id, const struct ah_value *args, int count);

/* Hand a tensor to the rule to be released with it; returns it. */
struct ah_tensor *ah_rule_keep(struct ah_rule *rule, struct ah_tensor *tensor);

/* A tensor that the rule made is not read any more, nor is a view of it: free them before the rule ends. */
void ah_rule_free(struct ah_rule *rule, const struct ah_tensor *made);

/* Argument i is not read any more by this run of the rule, nor is a view of it: free it, if it was computed again for
 * the rule, and the rule's views. */
void ah_rule_done(struct ah_rule *rule, int i);

/* Everyday expressions. */
struct ah_tensor *ah_r_add(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b);
struct ah_tensor *ah_r_sub(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b);
struct ah_tensor *ah_r_mul(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b);
struct ah_tensor *ah_r_div(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b);
struct ah_tensor *ah_r_neg(struct ah_rule *r, struct ah_tensor *a);
struct ah_tensor *ah_r_scale(struct ah_rule *r, struct ah_tensor *a, double factor);  /* a * factor */
struct ah_tensor *ah_r_shift(struct ah_rule *r, struct ah_tensor *a, double addend);  /* a + addend */
struct ah_tensor *ah_r_matmul(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b);
struct ah_tensor *ah_r_unary(struct ah_rule *r, enum ah_opid op, struct ah_tensor *x);
struct ah_tensor *ah_r_compare(struct ah_rule *r, enum ah_opid op, struct ah_tensor *x, double number);
/* x where the mask is set, else `other`; x with zeros where the mask is set. */
struct ah_tensor *ah_r_where(struct ah_rule *r, struct ah_tensor *mask, struct ah_tensor *x, struct ah_value other);
struct ah_tensor *ah_r_masked(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *mask);
struct ah_tensor *ah_r_transpose(struct ah_rule *r, struct ah_tensor *a, int64_t d0, int64_t d1);

/* Convert a gradient to the shape, dtype and device of input i (undoes broadcasting and promotion). */
struct ah_tensor *ah_r_to_input(struct ah_rule *r, struct ah_tensor *grad, int i);

/* Shape, dtype and device of input i, known even when it was not saved. */
struct ah_input_meta {
    int ndim;
    enum ah_dtype dtype;
    struct ah_device *device;
    int64_t size[AH_MAX_DIMS];
};
const struct ah_input_meta *ah_rule_input(const struct ah_rule *rule, int i);

/* Set the gradient of input i to the result of the expression, which is evaluated only where one is wanted. */
#define ah_r_give(r, i, ...) ((r)->needs[i] ? ah_rule_set((r), (i), (__VA_ARGS__)) : (void)0)
void ah_rule_set(struct ah_rule *r, int i, struct ah_tensor *grad);

/* The same, and store it in its slot, converted, where it has one. */
void ah_rule_store(struct ah_rule *r, int i, struct ah_tensor *grad);

/* Set the gradient of input i to the op's result, which is stored in its slot where it may overwrite that: on the CPU
 * only where the slot is exact. */
#define ah_r_place(rule, i, id, ...)                                                 \
    ah_rule_op_place((rule), (i), (id), (const struct ah_value[]){__VA_ARGS__},      \
                     (int)(sizeof((struct ah_value[]){__VA_ARGS__}) / sizeof(struct ah_value)))
void ah_rule_op_place(struct ah_rule *rule, int i, enum ah_opid id, const struct ah_value *args, int count);

/* The gradient of input 0 is that of one of its slices, `grad`, and zero elsewhere. */
void ah_r_give_slice(struct ah_rule *r, struct ah_tensor *grad, int64_t dim, int64_t start);

/* The tensor zeros(shape of input i), of the rule. */
struct ah_tensor *ah_r_zeros_input(struct ah_rule *r, int i);
