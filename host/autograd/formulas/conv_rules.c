/* Rules of the convolutions. */
#include "autograd/graph/rules.h"

/* A convolution and its two adjoints are the three faces of one trilinear form
 *     f(x, w, g) = sum of conv2d(x, w) * g,
 * so the gradients of each are the other two. */

static struct ah_value size_of_input(const struct ah_rule *r, int i)
{
    const struct ah_input_meta *meta = ah_rule_input(r, i);
    return AH_INTS_OF(meta->size, meta->ndim);
}

/* The rows of a kind of convolution: it and its two adjoints. */
struct conv_rows {
    enum ah_opid forward, grad_input, grad_weight;
};
static const struct conv_rows conv_images = {AH_OP_conv2d, AH_OP_conv2d_grad_input, AH_OP_conv2d_grad_weight};
static const struct conv_rows conv_volumes = {AH_OP_conv_volume, AH_OP_conv_volume_grad_input,
                                              AH_OP_conv_volume_grad_weight};

#define OPTIONS arg->stride, arg->padding, arg->dilation, arg->groups

/* The gradient of a bias. */
static struct ah_tensor *conv_bias_gradient(struct ah_rule *r, struct ah_tensor *g)
{
    if (g->ndim == 5) {
        const int64_t size[4] = {g->size[0], g->size[1], g->size[2] * g->size[3], g->size[4]};
        g = ah_r(r, AH_OP_reshape, AH_T(g), AH_INTS_OF(size, 4));
    }
    return ah_r(r, AH_OP_channel_sum, AH_T(g));
}

static void conv_backward(struct ah_rule *r, const struct conv_rows *rows)
{
    const struct ah_args_conv2d *arg = ah_args(r, conv2d);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input), *w = ah_given(&arg->weight);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, rows->grad_input, AH_T(g), AH_T(w), size_of_input(r, 0), OPTIONS);
    if (r->needs[1])
        ah_r_place(r, 1, rows->grad_weight, AH_T(g), AH_T(x), size_of_input(r, 1), OPTIONS);
    if (r->input_count > 2 && r->needs[2])
        r->grad_in[2] = conv_bias_gradient(r, g);
}

static void conv_input_backward(struct ah_rule *r, const struct conv_rows *rows)
{
    const struct ah_args_conv2d_grad_input *arg = ah_args(r, conv2d_grad_input);
    struct ah_tensor *x = r->grad_out[0], *g = ah_given(&arg->grad), *w = ah_given(&arg->weight);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, rows->forward, AH_T(x), AH_T(w), AH_NIL, OPTIONS);
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, rows->grad_weight, AH_T(g), AH_T(x), size_of_input(r, 1), OPTIONS);
}

static void conv_weight_backward(struct ah_rule *r, const struct conv_rows *rows)
{
    const struct ah_args_conv2d_grad_weight *arg = ah_args(r, conv2d_grad_weight);
    struct ah_tensor *w = r->grad_out[0], *g = ah_given(&arg->grad), *x = ah_given(&arg->input);
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, rows->forward, AH_T(x), AH_T(w), AH_NIL, OPTIONS);
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, rows->grad_input, AH_T(g), AH_T(w), size_of_input(r, 1), OPTIONS);
}

AH_BACKWARD(conv2d, conv_backward(r, &conv_images))
AH_BACKWARD(conv2d_grad_input, conv_input_backward(r, &conv_images))
AH_BACKWARD(conv2d_grad_weight, conv_weight_backward(r, &conv_images))
AH_BACKWARD(conv_volume, conv_backward(r, &conv_volumes))
AH_BACKWARD(conv_volume_grad_input, conv_input_backward(r, &conv_volumes))
AH_BACKWARD(conv_volume_grad_weight, conv_weight_backward(r, &conv_volumes))

void ah_backward_channel_sum(struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    int64_t size[3] = {meta->size[meta->ndim - 3], 1, 1};
    struct ah_tensor *g = ah_r(r, AH_OP_reshape, AH_T(r->grad_out[0]), AH_INTS_OF(size, 3));
    r->grad_in[0] = ah_r(r, AH_OP_expand, AH_T(g), AH_INTS_OF(meta->size, meta->ndim));
}
