/* Rules of sums of bags of rows: bag_sum is linear in the table and in the scale, and so is its adjoint. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

/* The gradient of the scale: the products of the rows with the gradients of their bags. */
static struct ah_tensor *embedding_bag_products(struct ah_rule *r, const struct ah_value *input,
                                                struct ah_tensor *table, struct ah_tensor *starts, struct ah_tensor *g,
                                                const struct ah_value *padding)
{
    const struct ah_tensor *flat = ah_given(input);
    int64_t count = starts ? starts->size[0] - 1 : 0, total = flat ? flat->numel : 0;
    struct ah_tensor *ends = ah_r(r, AH_OP_narrow, AH_T(starts), AH_I(0), AH_I(1), AH_I(count));
    struct ah_tensor *sizes = ah_r_sub(r, ends, ah_r(r, AH_OP_narrow, AH_T(starts), AH_I(0), AH_I(0), AH_I(count)));
    struct ah_tensor *spread = ah_r(r, AH_OP_repeat_interleave, AH_T(g), AH_T(sizes), AH_I(0));
    struct ah_tensor *rows = ah_r(r, AH_OP_embedding, *input, AH_T(table));
    if (spread && spread->size[0] < total) { /* elements after the last bag */
        int64_t after[2] = {total - spread->size[0], 0}, before[2] = {0, 0};
        spread = ah_r(r, AH_OP_constant_pad, AH_T(spread), AH_INTS_OF(before, 2), AH_INTS_OF(after, 2), AH_N(0));
    }
    struct ah_tensor *sums = ah_r(r, AH_OP_sum, AH_T(ah_r_mul(r, spread, rows)), AH_I(1));
    if (padding->kind == AH_NONE)
        return sums;
    return ah_r(r, AH_OP_masked_fill, AH_T(sums), AH_T(ah_r(r, AH_OP_eq, *input, *padding)), AH_N(0));
}

void ah_backward_bag_sum(struct ah_rule *r)
{
    const struct ah_args_bag_sum *arg = ah_args(r, bag_sum);
    const struct ah_input_meta *table = ah_rule_input(r, 1);
    struct ah_tensor *g = r->grad_out[0];
    ah_r_give(r, 1, ah_r(r, AH_OP_bag_sum_backward, AH_T(g), arg->input, arg->starts, arg->scale,
                         AH_INTS_OF(table->size, table->ndim), arg->padding_idx));
    if (r->input_count > 3 && r->needs[3])
        ah_r_give(r, 3,
                  embedding_bag_products(r, &arg->input, ah_given(&arg->weight), ah_given(&arg->starts), g,
                                         &arg->padding_idx));
}

void ah_backward_bag_sum_backward(struct ah_rule *r)
{
    const struct ah_args_bag_sum_backward *arg = ah_args(r, bag_sum_backward);
    struct ah_tensor *gg = r->grad_out[0];
    ah_r_give(r, 0, ah_r(r, AH_OP_bag_sum, arg->input, AH_T(gg), arg->starts, arg->scale, arg->padding_idx));
    if (r->input_count > 3 && r->needs[3])
        ah_r_give(r, 3,
                  embedding_bag_products(r, &arg->input, gg, ah_given(&arg->starts), ah_given(&arg->grad),
                                         &arg->padding_idx));
}
