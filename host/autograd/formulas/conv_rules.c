/* Rules of the convolutions. */
#include "autograd/graph/rules.h"

/* conv2d and its two adjoints are the three faces of one trilinear form
 *     f(x, w, g) = sum of conv2d(x, w) * g,
 * so the gradients of each are the other two. */

static struct ah_value size_of_input(const struct ah_rule *r, int i)
{
    const struct ah_input_meta *meta = ah_rule_input(r, i);
    return AH_INTS_OF(meta->size, meta->ndim);
}

#define OPTIONS arg->stride, arg->padding, arg->dilation, arg->groups

int ah_backward_conv2d(struct ah_rule *r)
{
    const struct ah_args_conv2d *arg = ah_args(r, conv2d);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input), *w = ah_given(&arg->weight);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_conv2d_grad_input, AH_T(g), AH_T(w), size_of_input(r, 0), OPTIONS);
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_conv2d_grad_weight, AH_T(g), AH_T(x), size_of_input(r, 1), OPTIONS);
    if (r->input_count > 2 && r->needs[2])
        r->grad_in[2] = ah_r(r, AH_OP_channel_sum, AH_T(g));
    return r->status;
}

int ah_backward_conv2d_grad_input(struct ah_rule *r)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(r, conv2d_grad_input);
    struct ah_tensor *x = r->grad_out[0], *g = ah_given(&arg->grad), *w = ah_given(&arg->weight);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_conv2d, AH_T(x), AH_T(w), AH_NIL, OPTIONS);
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_conv2d_grad_weight, AH_T(g), AH_T(x), size_of_input(r, 1), OPTIONS);
    return r->status;
}

int ah_backward_conv2d_grad_weight(struct ah_rule *r)
{
    const struct ah_args_conv2d_grad_weight *arg = ah_args(r, conv2d_grad_weight);
    struct ah_tensor *w = r->grad_out[0], *g = ah_given(&arg->grad), *x = ah_given(&arg->input);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_conv2d, AH_T(x), AH_T(w), AH_NIL, OPTIONS);
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_conv2d_grad_input, AH_T(g), AH_T(w), size_of_input(r, 1), OPTIONS);
    return r->status;
}

int ah_backward_channel_sum(struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    int64_t size[3] = {meta->size[meta->ndim - 3], 1, 1};
    struct ah_tensor *g = ah_r(r, AH_OP_reshape, AH_T(r->grad_out[0]), AH_INTS_OF(size, 3));
    r->grad_in[0] = ah_r(r, AH_OP_expand, AH_T(g), AH_INTS_OF(meta->size, meta->ndim));
    return r->status;
}
