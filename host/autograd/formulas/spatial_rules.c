/* Rules of resampling, of sampling on a grid and of windows as columns. */
#include "autograd/graph/rules.h"

/* The dims after (N, C). */
static struct ah_value space_of(const int64_t *size, int ndim)
{
    return AH_INTS_OF(size + 2, ndim - 2);
}

void ah_backward_resample(struct ah_rule *r)
{
    const struct ah_args_resample *arg = ah_args(r, resample);
    const struct ah_input_meta *x = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_resample_adjoint, AH_T(r->grad_out[0]), space_of(x->size, x->ndim), arg->scale0,
                         arg->scale1, arg->scale2, arg->mode, arg->align_corners, arg->antialias);
}

void ah_backward_resample_adjoint(struct ah_rule *r)
{
    const struct ah_args_resample_adjoint *arg = ah_args(r, resample_adjoint);
    const struct ah_input_meta *g = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_resample, AH_T(r->grad_out[0]), space_of(g->size, g->ndim), arg->scale0, arg->scale1,
                         arg->scale2, arg->mode, arg->align_corners, arg->antialias);
}

void ah_backward_grid_sample(struct ah_rule *r)
{
    const struct ah_args_grid_sample *arg = ah_args(r, grid_sample);
    struct ah_tensor *out[2] = {NULL};
    const struct ah_value args[] = {AH_T(r->grad_out[0]), arg->input, arg->grid, arg->mode, arg->padding_mode,
                                    arg->align_corners};
    ah_rule_ops(r, AH_OP_grid_sample_backward, args, 6, out, 2);
    for (int i = 0; i < 2; i++)
        if (r->needs[i])
            r->grad_in[i] = out[i];
}

void ah_backward_im2col(struct ah_rule *r)
{
    const struct ah_args_im2col *arg = ah_args(r, im2col);
    const struct ah_input_meta *x = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_col2im, AH_T(r->grad_out[0]), AH_INTS_OF(x->size + x->ndim - 2, 2), arg->kernel_size,
                         arg->dilation, arg->padding, arg->stride);
}

AH_GRADIENT_WITH(col2im, col2im,
                 ah_r(r, AH_OP_im2col, AH_T(r->grad_out[0]), arg->kernel_size, arg->dilation, arg->padding,
                      arg->stride))
