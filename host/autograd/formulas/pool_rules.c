/* Rules of pooling: a maximum's gradient goes to its place, an average's is spread. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

static struct ah_value size_of(const struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    return AH_INTS_OF(meta->size, meta->ndim);
}

/* Every gradient to the place of its maximum in the plane, by an op that has derivatives. */
static void to_places(struct ah_rule *r, struct ah_tensor *place)
{
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    int planes = input->ndim - 2;
    int64_t windows[AH_MAX_DIMS], plane[AH_MAX_DIMS];
    for (int d = 0; d < planes; d++)
        windows[d] = plane[d] = input->size[d];
    const struct ah_tensor *out = r->grad_out[0];
    windows[planes] = out->size[out->ndim - 2] * out->size[out->ndim - 1];
    plane[planes] = input->size[planes] * input->size[planes + 1];
    struct ah_value flat = AH_INTS_OF(windows, planes + 1);
    struct ah_tensor *g = ah_r(r, AH_OP_reshape, AH_T(r->grad_out[0]), flat);
    place = ah_r(r, AH_OP_reshape, AH_T(place), flat);
    g = ah_r(r, AH_OP_gather_backward, AH_T(g), AH_INTS_OF(plane, planes + 1), AH_I(planes), AH_T(place));
    r->grad_in[0] = ah_r(r, AH_OP_reshape, AH_T(g), size_of(r));
}

static void max_pool2d_by_ops(struct ah_rule *r)
{
    const struct ah_args_max_pool2d *arg = ah_args(r, max_pool2d);
    to_places(r, ah_r(r, AH_OP_max_pool2d_positions, AH_T(r->extra[0]), size_of(r), arg->kernel_size,
                      arg->stride, arg->padding, arg->dilation, arg->ceil_mode));
}

AH_BACKWARD(adaptive_max_pool2d, to_places(r, r->extra[0]))

void ah_backward_max_pool2d(struct ah_rule *r)
{
    const struct ah_args_max_pool2d *arg = ah_args(r, max_pool2d);
    if (ah_grad_enabled) {
        max_pool2d_by_ops(r);
        return;
    }
    r->grad_in[0] = ah_r(r, AH_OP_max_pool2d_backward, AH_T(r->grad_out[0]), AH_T(r->extra[0]), size_of(r),
                         arg->kernel_size, arg->stride, arg->padding, arg->dilation, arg->ceil_mode);
}

/* Averages are linear: the adjoint's adjoint is the average again. */

AH_GRADIENT_WITH(avg_pool2d, avg_pool2d,
                 ah_r(r, AH_OP_avg_pool2d_backward, AH_T(r->grad_out[0]), size_of(r), arg->kernel_size, arg->stride,
                      arg->padding, arg->ceil_mode, arg->count_include_pad, arg->divisor_override))
AH_GRADIENT_WITH(avg_pool2d_backward, avg_pool2d_backward,
                 ah_r(r, AH_OP_avg_pool2d, AH_T(r->grad_out[0]), arg->kernel_size, arg->stride, arg->padding,
                      arg->ceil_mode, arg->count_include_pad, arg->divisor_override))
AH_GRADIENT_WITH(adaptive_avg_pool2d, adaptive_avg_pool2d,
                 ah_r(r, AH_OP_adaptive_avg_pool2d_backward, AH_T(r->grad_out[0]), size_of(r), arg->output_size))
AH_GRADIENT_WITH(adaptive_avg_pool2d_backward, adaptive_avg_pool2d_backward,
                 ah_r(r, AH_OP_adaptive_avg_pool2d, AH_T(r->grad_out[0]), arg->output_size))
