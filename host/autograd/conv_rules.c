/* Rules of the convolutions. */
#include "autograd/rules.h"

/* conv2d and its two adjoints are the three faces of one trilinear form
 *     f(x, w, g) = sum of conv2d(x, w) * g,
 * so the gradients of each are the other two. */

static struct ah_value size_of_input(const struct ah_rule *r, int i)
{
    const struct ah_input_meta *meta = ah_rule_input(r, i);
    return AH_INTS_OF(meta->size, meta->ndim);
}

/* `at`: where stride, padding, dilation, groups begin among the arguments. */
#define OPTIONS(r, at) (r)->arg[at], (r)->arg[(at) + 1], (r)->arg[(at) + 2], (r)->arg[(at) + 3]

int ah_backward_conv2d(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0], *x = ah_r_saved(r, 0), *w = ah_r_saved(r, 1);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_conv2d_grad_input, AH_T(g), AH_T(w), size_of_input(r, 0), OPTIONS(r, 3));
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_conv2d_grad_weight, AH_T(g), AH_T(x), size_of_input(r, 1), OPTIONS(r, 3));
    if (r->input_count > 2 && r->needs[2])
        r->grad_in[2] = ah_r(r, AH_OP_channel_sum, AH_T(g));
    return r->status;
}

int ah_backward_conv2d_grad_input(struct ah_rule *r)
{
    struct ah_tensor *x = r->grad_out[0], *g = ah_r_saved(r, 0), *w = ah_r_saved(r, 1);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_conv2d, AH_T(x), AH_T(w), AH_NIL, OPTIONS(r, 3));
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_conv2d_grad_weight, AH_T(g), AH_T(x), size_of_input(r, 1), OPTIONS(r, 3));
    return r->status;
}

int ah_backward_conv2d_grad_weight(struct ah_rule *r)
{
    struct ah_tensor *w = r->grad_out[0], *g = ah_r_saved(r, 0), *x = ah_r_saved(r, 1);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_conv2d, AH_T(x), AH_T(w), AH_NIL, OPTIONS(r, 3));
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_conv2d_grad_input, AH_T(g), AH_T(w), size_of_input(r, 1), OPTIONS(r, 3));
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
