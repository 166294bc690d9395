/* Shapes of images and volumes: (N, C) and one to three dims of space. */
#include "ops/nn/spatial.h"

#include <limits.h>
#include <string.h>

#include "ops/dispatch/rows.h"

/* (N, C, space...) resized. */
static int spatial_resized(struct ah_call *c, const struct ah_value *space)
{
    const struct ah_tensor *x = c->arg[0].tensor;
    int64_t size[AH_MAX_DIMS];
    int count = space->ints.count;
    if (count < 1 || count > 3 || x->ndim != count + 2) {
        return ah_fail(AH_EINVAL, "%s: sizes %s do not fit %s, expected (N, C) and 1 to 3 dims of space", c->op->name,
                       ah_shape_text(space->ints.at, count), ah_shape(x));
    }
    memcpy(size, x->size, sizeof size);
    for (int d = 0; d < count; d++) {
        size[2 + d] = space->ints.at[d];
        if (x->size[2 + d] < 1 || size[2 + d] < 1 || x->size[2 + d] > INT_MAX || size[2 + d] > INT_MAX) {
            return ah_fail(AH_EINVAL, "interpolate: cannot resize %s to %s", ah_shape(x),
                           ah_shape_text(space->ints.at, count));
        }
    }
    return ah_call_single(c, size, x->ndim, x->dtype);
}

int ah_forward_resample(struct ah_call *c)
{
    const struct ah_args_resample *arg = ah_args(c, resample);
    if (strncmp(arg->mode.string, "nearest", 7))
        AH_TRY(ah_call_expect_float(c, 0));
    return spatial_resized(c, &arg->size);
}

int ah_forward_resample_adjoint(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    return spatial_resized(c, &ah_args(c, resample_adjoint)->input_size);
}

/* input (N, C, space...), grid (N, output space..., coordinates) */
static int expect_grid(const struct ah_call *c, const struct ah_tensor *x, const struct ah_tensor *grid)
{
    int space = x->ndim - 2;
    if (space < 2 || space > 3 || grid->ndim != x->ndim || grid->size[grid->ndim - 1] != space ||
        grid->size[0] != x->size[0]) {
        return ah_fail(AH_EINVAL, "grid_sample: expected input (N, C, H, W) with grid (N, H_out, W_out, 2) or input "
                       "(N, C, D, H, W) with grid (N, D_out, H_out, W_out, 3), got %s and %s", ah_shape(x),
                       ah_shape(grid));
    }
    if (!ah_dtype_is_float(x->dtype) || x->dtype != grid->dtype) {
        return ah_fail(AH_EINVAL, "grid_sample: expected input and grid of one floating dtype, got %s and %s",
                       ah_dtype_name(x->dtype), ah_dtype_name(grid->dtype));
    }
    for (int d = 2; d < x->ndim; d++)
        if (x->size[d] < 1 || x->size[d] > INT_MAX)
            return ah_fail(AH_EINVAL, "grid_sample: input %s has no space to sample", ah_shape(x));
    if (space == 3 && !strcmp(c->arg[c->op->param_count - 3].string, "bicubic"))
        return ah_fail(AH_EINVAL, "grid_sample: mode 'bicubic': expected 4-d input, got %s", ah_shape(x));
    return 0;
}

int ah_forward_grid_sample(struct ah_call *c)
{
    const struct ah_args_grid_sample *arg = ah_args(c, grid_sample);
    const struct ah_tensor *x = arg->input.tensor, *grid = arg->grid.tensor;
    AH_TRY(expect_grid(c, x, grid));
    int64_t size[AH_MAX_DIMS] = {x->size[0], x->size[1]};
    for (int d = 2; d < x->ndim; d++)
        size[d] = grid->size[d - 1];
    return ah_call_single(c, size, x->ndim, x->dtype);
}

/* The gradients of input and grid. */
int ah_forward_grid_sample_backward(struct ah_call *c)
{
    const struct ah_args_grid_sample_backward *arg = ah_args(c, grid_sample_backward);
    const struct ah_tensor *x = arg->input.tensor, *grid = arg->grid.tensor;
    AH_TRY(expect_grid(c, x, grid));
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    AH_TRY(ah_call_output(c, 1, grid->size, grid->ndim, grid->dtype));
    return ah_call_kernel(c);
}

/* Return the op's name in scripts. */
static const char *name_of(const struct ah_call *c)
{
    return c->op->id == AH_OP_im2col ? "unfold" : "fold";
}

static int spatial_pair(int64_t *to, const struct ah_call *c, int at, int64_t low)
{
    const struct ah_value *v = &c->arg[at];
    if (v->ints.count != 1 && v->ints.count != 2) {
        return ah_fail(AH_EINVAL, "%s: %s: expected one or two integers, got %d", name_of(c), c->op->param[at].name,
                       v->ints.count);
    }
    for (int i = 0; i < 2; i++) {
        to[i] = v->ints.at[v->ints.count == 1 ? 0 : i];
        if (to[i] < low || to[i] > INT_MAX) {
            return ah_fail(AH_EINVAL, "%s: %s: expected integers of at least %lld, got %lld", name_of(c),
                           c->op->param[at].name, (long long)low, (long long)to[i]);
        }
    }
    return 0;
}

int ah_patches_of(struct ah_patches *p, const struct ah_call *c, int at, int64_t h, int64_t w)
{
    AH_TRY(spatial_pair(p->kernel, c, at, 1));
    AH_TRY(spatial_pair(p->dilation, c, at + 1, 1));
    AH_TRY(spatial_pair(p->padding, c, at + 2, 0));
    AH_TRY(spatial_pair(p->stride, c, at + 3, 1));
    p->h = h;
    p->w = w;
    int64_t space_h = h + 2 * p->padding[0] - p->dilation[0] * (p->kernel[0] - 1) - 1;
    int64_t space_w = w + 2 * p->padding[1] - p->dilation[1] * (p->kernel[1] - 1) - 1;
    if (h < 1 || w < 1 || h > INT_MAX || w > INT_MAX || space_h < 0 || space_w < 0) {
        return ah_fail(AH_EINVAL, "%s: no window of kernel_size %s, dilation %s fits into (%lld, %lld) with padding %s",
                       name_of(c), ah_shape_text(p->kernel, 2), ah_shape_text(p->dilation, 2), (long long)h,
                       (long long)w, ah_shape_text(p->padding, 2));
    }
    p->oh = space_h / p->stride[0] + 1;
    p->ow = space_w / p->stride[1] + 1;
    return 0;
}

/* (N, C, H, W) or (C, H, W) to (N, C * kernel, windows) */
int ah_forward_im2col(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, im2col)->input.tensor;
    struct ah_patches p;
    if (x->ndim != 3 && x->ndim != 4)
        return ah_fail(AH_EINVAL, "%s: expected (N, C, H, W) or (C, H, W), got %s", name_of(c), ah_shape(x));
    AH_TRY(ah_patches_of(&p, c, 1, x->size[x->ndim - 2], x->size[x->ndim - 1]));
    int64_t size[3] = {x->size[0], x->size[x->ndim - 3] * p.kernel[0] * p.kernel[1], p.oh * p.ow};
    return ah_call_single(c, size + (x->ndim == 3), x->ndim - 1, x->dtype);
}

int ah_forward_col2im(struct ah_call *c)
{
    const struct ah_args_col2im *arg = ah_args(c, col2im);
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_patches p;
    int64_t space[2];
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(spatial_pair(space, c, 1, 1));
    AH_TRY(ah_patches_of(&p, c, 2, space[0], space[1]));
    int64_t window = p.kernel[0] * p.kernel[1];
    if (x->ndim < 2 || x->ndim > 3 || x->size[x->ndim - 2] % window || x->size[x->ndim - 1] != p.oh * p.ow) {
        return ah_fail(AH_EINVAL, "%s: expected (N, C * %lld, %lld) or without N for output_size %s, got %s",
                       name_of(c), (long long)window, (long long)(p.oh * p.ow), ah_shape_text(space, 2), ah_shape(x));
    }
    int64_t size[4] = {x->size[0], x->size[x->ndim - 2] / window, space[0], space[1]};
    return ah_call_single(c, size + (x->ndim == 2), x->ndim + 1, x->dtype);
}
