/* Rules of views and joins: the gradient is cut or placed by the inverse. */
#include "autograd/graph/rules.h"

static struct ah_value size_of(const struct ah_input_meta *input)
{
    return AH_INTS_OF(input->size, input->ndim);
}

static int64_t shape_wrapped(int64_t at, int64_t n)
{
    return at < 0 ? at + n : at;
}

/* Views that only regroup elements: the gradient regrouped back. */
AH_GRADIENT(regroup, ah_r(r, AH_OP_reshape, AH_T(r->grad_out[0]), size_of(ah_rule_input(r, 0))))
AH_GRADIENT_WITH(transpose, transpose, ah_r_transpose(r, r->grad_out[0], arg->dim0.integer, arg->dim1.integer))

void ah_backward_permute(struct ah_rule *r)
{
    const struct ah_args_permute *arg = ah_args(r, permute);
    int ndim = arg->dims.ints.count;
    int64_t inverse[AH_MAX_DIMS];
    for (int d = 0; d < ndim; d++)
        inverse[shape_wrapped(arg->dims.ints.at[d], ndim)] = d;
    r->grad_in[0] = ah_r(r, AH_OP_permute, AH_T(r->grad_out[0]), AH_INTS_OF(inverse, ndim));
}

void ah_backward_select(struct ah_rule *r)
{
    const struct ah_args_select *arg = ah_args(r, select);
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    int64_t dim = shape_wrapped(arg->dim.integer, input->ndim);
    struct ah_tensor *slice = ah_r(r, AH_OP_unsqueeze, AH_T(r->grad_out[0]), AH_I(dim));
    ah_r_give_slice(r, slice, dim, shape_wrapped(arg->index.integer, input->size[dim]));
}

void ah_backward_narrow(struct ah_rule *r)
{
    const struct ah_args_narrow *arg = ah_args(r, narrow);
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    int64_t dim = shape_wrapped(arg->dim.integer, input->ndim);
    ah_r_give_slice(r, r->grad_out[0], dim, shape_wrapped(arg->start.integer, input->size[dim]));
}

void ah_backward_slice(struct ah_rule *r)
{
    const struct ah_args_slice *arg = ah_args(r, slice);
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    int64_t dim = shape_wrapped(arg->dim.integer, input->ndim), n = input->size[dim];
    int64_t start = arg->start.kind == AH_INT ? shape_wrapped(arg->start.integer, n) : 0;
    start = start < 0 ? 0 : start > n ? n : start;
    if (arg->step.integer == 1) {
        ah_r_give_slice(r, r->grad_out[0], dim, start);
        return;
    }
    r->grad_in[0] = ah_r(r, AH_OP_slice_backward, AH_T(r->grad_out[0]), size_of(input), AH_I(dim),
                         AH_I(start), arg->step);
}

void ah_backward_slice_backward(struct ah_rule *r)
{
    const struct ah_args_slice_backward *arg = ah_args(r, slice_backward);
    int64_t dim = arg->dim.integer, start = arg->start.integer, step = arg->step.integer;
    int64_t count = ah_rule_input(r, 0)->size[dim];
    int64_t end = count > 0 ? start + (count - 1) * step + 1 : start;
    r->grad_in[0] =
        ah_r(r, AH_OP_slice, AH_T(r->grad_out[0]), AH_I(dim), AH_I(start), AH_I(end), AH_I(step));
}

void ah_backward_diagonal(struct ah_rule *r)
{
    const struct ah_args_diagonal *arg = ah_args(r, diagonal);
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_diagonal_backward, AH_T(r->grad_out[0]), size_of(input),
                         arg->offset, AH_I(shape_wrapped(arg->dim1.integer, input->ndim)),
                         AH_I(shape_wrapped(arg->dim2.integer, input->ndim)));
}

AH_GRADIENT_WITH(diagonal_backward, diagonal_backward,
                 ah_r(r, AH_OP_diagonal, AH_T(r->grad_out[0]), arg->offset, arg->dim1, arg->dim2))

/* Compute the index of each element of the view in the input and sum the gradient there. Elements of the storage that
 * the view has and the input lacks are summed into one extra slot, which is dropped. */
void ah_backward_as_strided(struct ah_rule *r)
{
    const struct ah_args_as_strided *arg = ah_args(r, as_strided);
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    int64_t numel = 1, all = -1;
    for (int d = 0; d < input->ndim; d++)
        numel *= input->size[d];
    struct ah_tensor *position =
        ah_r(r, AH_OP_as_strided_positions, size_of(input),
             AH_INTS_OF(r->state->strided.input_stride, input->ndim), AH_I(r->state->strided.input_offset), arg->size,
             arg->stride, AH_I(r->state->strided.offset));
    struct ah_tensor *there = ah_r(r, AH_OP_to_device, AH_T(position), AH_DEV(input->device));
    struct ah_tensor *index = ah_r(r, AH_OP_reshape, AH_T(there), AH_INTS_OF(&all, 1));
    struct ah_tensor *grad = ah_r(r, AH_OP_reshape, AH_T(r->grad_out[0]), AH_INTS_OF(&all, 1));
    struct ah_tensor *sum =
        ah_r(r, AH_OP_index_select_backward, AH_T(grad), AH_I(numel + 1), AH_I(0), AH_T(index));
    struct ah_tensor *cut = ah_r(r, AH_OP_narrow, AH_T(sum), AH_I(0), AH_I(0), AH_I(numel));
    r->grad_in[0] = ah_r(r, AH_OP_reshape, AH_T(cut), size_of(input));
}

void ah_backward_cat(struct ah_rule *r)
{
    int64_t dim = r->state->join.dim, at = 0;
    for (int i = 0; i < r->input_count; i++) {
        const struct ah_input_meta *input = ah_rule_input(r, i);
        if (input->ndim == 1 && input->size[0] == 0) { /* cat accepts it with any shape */
            ah_r_give(r, i, ah_r_zeros_input(r, i));
            continue;
        }
        if (r->needs[i]) {
            struct ah_tensor *part = ah_r(r, AH_OP_narrow, AH_T(r->grad_out[0]), AH_I(dim),
                                          AH_I(at), AH_I(input->size[dim]));
            r->grad_in[i] = ah_r_to_input(r, part, i);
        }
        at += input->size[dim];
    }
}

void ah_backward_stack(struct ah_rule *r)
{
    for (int i = 0; i < r->input_count; i++) {
        if (!r->needs[i])
            continue;
        struct ah_tensor *part =
            ah_r(r, AH_OP_select, AH_T(r->grad_out[0]), AH_I(r->state->join.dim), AH_I(i));
        r->grad_in[i] = ah_r_to_input(r, part, i);
    }
}

AH_GRADIENT(flip, ah_r(r, AH_OP_flip, AH_T(r->grad_out[0]), ah_args(r, flip)->dims))

/* Dim by dim: (.., times * n, ..) seen as (times, n) and summed over the copies. Dims before `d`
 * are done. */
void ah_backward_repeat(struct ah_rule *r)
{
    const struct ah_args_repeat *arg = ah_args(r, repeat);
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    int ndim = arg->repeats.ints.count, lead = ndim - input->ndim;
    int64_t before = 1;
    struct ah_tensor *grad = r->grad_out[0];
    for (int d = 0; d < ndim; d++) {
        int64_t times = arg->repeats.ints.at[d], n = d < lead ? 1 : input->size[d - lead];
        int64_t after = n;
        for (int k = d + 1; k < ndim; k++)
            after *= arg->repeats.ints.at[k] * (k < lead ? 1 : input->size[k - lead]);
        if (times != 1) {
            int64_t split[] = {before, times, after}, summed[] = {before, 1, after};
            grad = ah_r(r, AH_OP_reshape, AH_T(grad), AH_INTS_OF(split, 3));
            grad = ah_r(r, AH_OP_sum_to, AH_T(grad), AH_INTS_OF(summed, 3));
        }
        before *= n;
    }
    r->grad_in[0] = ah_r(r, AH_OP_reshape, AH_T(grad), size_of(input));
}
