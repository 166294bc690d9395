/* Rules of picking and placing by index, of masks and of sorting: where values were read from, gradients are added. */
#include <string.h>

#include "autograd/graph/rules.h"
#include "base/status/status.h"

/* Inputs are counted over the tensor arguments: input, index, source. */
enum { INPUT = 0, SOURCE = 2 };

static struct ah_value size_of(const struct ah_input_meta *input)
{
    return AH_INTS_OF(input->size, input->ndim);
}

static struct ah_value dim_of(const struct ah_rule *r, const struct ah_value *dim)
{
    const struct ah_input_meta *input = ah_rule_input(r, 0);
    return AH_I(dim->integer < 0 ? dim->integer + (input->ndim > 0 ? input->ndim : 1)
                                 : dim->integer);
}

AH_GRADIENT_WITH(index_select, index_select,
                 ah_r(r, AH_OP_index_select_backward, AH_T(r->grad_out[0]),
                      size_of(ah_rule_input(r, 0)), dim_of(r, &arg->dim), arg->index))
AH_GRADIENT_WITH(index_select_backward, index_select_backward,
                 ah_r(r, AH_OP_index_select, AH_T(r->grad_out[0]), arg->dim, arg->index))

void ah_backward_index_add(struct ah_rule *r)
{
    const struct ah_args_index_add *arg = ah_args(r, index_add);
    if (r->needs[INPUT])
        r->grad_in[INPUT] = r->grad_out[0];
    if (r->needs[SOURCE]) {
        struct ah_tensor *picked =
            ah_r(r, AH_OP_index_select, AH_T(r->grad_out[0]), arg->dim, arg->index);
        r->grad_in[SOURCE] = ah_r_scale(r, picked, arg->alpha.number);
    }
}

void ah_backward_index_copy(struct ah_rule *r)
{
    const struct ah_args_index_copy *arg = ah_args(r, index_copy);
    if (r->needs[INPUT])
        r->grad_in[INPUT] =
            ah_r(r, AH_OP_index_fill, AH_T(r->grad_out[0]), arg->dim, arg->index, AH_N(0));
    if (r->needs[SOURCE])
        r->grad_in[SOURCE] =
            ah_r(r, AH_OP_index_select, AH_T(r->grad_out[0]), arg->dim, arg->index);
}

AH_GRADIENT_WITH(index_fill, index_fill, ah_r(r, AH_OP_index_fill, AH_T(r->grad_out[0]), arg->dim, arg->index, AH_N(0)))
AH_GRADIENT_WITH(gather, gather,
                 ah_r(r, AH_OP_gather_backward, AH_T(r->grad_out[0]),
                      size_of(ah_rule_input(r, 0)), dim_of(r, &arg->dim), arg->index))
AH_GRADIENT_WITH(gather_backward, gather_backward, ah_r(r, AH_OP_gather, AH_T(r->grad_out[0]), arg->dim, arg->index))

/* Return the gradient of src: that of its elements that were read, and zeros where src is larger than the index. */
static struct ah_tensor *gradient_of_src(struct ah_rule *r)
{
    const struct ah_args_scatter *arg = ah_args(r, scatter);
    const struct ah_input_meta *src = ah_rule_input(r, SOURCE);
    struct ah_tensor *grad = ah_r(r, AH_OP_gather, AH_T(r->grad_out[0]), arg->dim, arg->index);
    for (int d = 0; grad && d < src->ndim; d++) {
        if (grad->size[d] == src->size[d])
            continue;
        struct ah_value size = AH_INTS_OF(grad->size, grad->ndim);
        size.ints.at[d] = src->size[d];
        grad = ah_r(r, AH_OP_slice_backward, AH_T(grad), size, AH_I(d), AH_I(0), AH_I(1));
    }
    return grad;
}

void ah_backward_scatter(struct ah_rule *r)
{
    const struct ah_args_scatter *arg = ah_args(r, scatter);
    if (arg->reduce.kind == AH_STRING && strcmp(arg->reduce.string, "add")) {
        r->status = ah_fail(AH_ENOTIMPL, "backward of scatter: reduce = '%s' has no derivative, scatter_reduce has",
                            arg->reduce.string);
        return;
    }
    if (arg->reduce.kind == AH_STRING) {
        ah_backward_scatter_add(r);
        return;
    }
    if (r->needs[INPUT])
        r->grad_in[INPUT] =
            ah_r(r, AH_OP_scatter, AH_T(r->grad_out[0]), arg->dim, arg->index, AH_I(0));
    if (r->needs[SOURCE])
        r->grad_in[SOURCE] = gradient_of_src(r);
}

void ah_backward_scatter_add(struct ah_rule *r)
{
    if (r->needs[INPUT])
        r->grad_in[INPUT] = r->grad_out[0];
    if (r->needs[SOURCE])
        r->grad_in[SOURCE] = gradient_of_src(r);
}

/* extra[0]: the places in the leading dims, as one flat dim; extra[1]: the shape that the
 * values filled. */
void ah_backward_index_put(struct ah_rule *r)
{
    const struct ah_input_meta *input = ah_rule_input(r, INPUT);
    int covered = r->state->place.covered, ndim = 1;
    int64_t flat[AH_MAX_DIMS] = {1};
    for (int d = 0; d < input->ndim; d++) {
        if (d < covered)
            flat[0] *= input->size[d];
        else
            flat[ndim++] = input->size[d];
    }
    struct ah_tensor *grad = ah_r(r, AH_OP_reshape, AH_T(r->grad_out[0]), AH_INTS_OF(flat, ndim));
    if (r->needs[INPUT] && ah_args(r, index_put)->accumulate.flag) {
        r->grad_in[INPUT] = r->grad_out[0];
    } else if (r->needs[INPUT]) {
        struct ah_tensor *kept =
            ah_r(r, AH_OP_index_fill, AH_T(grad), AH_I(0), AH_T(r->extra[0]), AH_N(0));
        r->grad_in[INPUT] = ah_r(r, AH_OP_reshape, AH_T(kept), size_of(input));
    }
    if (r->needs[SOURCE]) {
        const struct ah_tensor *shape = r->extra[1];
        struct ah_tensor *read =
            ah_r(r, AH_OP_index_select, AH_T(grad), AH_I(0), AH_T(r->extra[0]));
        read = ah_r(r, AH_OP_reshape, AH_T(read), AH_INTS_OF(shape->size, shape->ndim));
        r->grad_in[SOURCE] = ah_r_to_input(r, read, SOURCE);
    }
}

/* The shape to which input and mask broadcast. */
static struct ah_value broadcast_size(const struct ah_input_meta *input,
                                      const struct ah_tensor *mask)
{
    struct ah_value size = AH_INTS_OF(mask->size, mask->ndim);
    int lead = input->ndim - mask->ndim;
    if (lead > 0) {
        size = size_of(input);
        for (int d = 0; d < mask->ndim; d++)
            size.ints.at[lead + d] = mask->size[d];
    }
    for (int d = 1; d <= input->ndim; d++)
        if (size.ints.at[size.ints.count - d] == 1)
            size.ints.at[size.ints.count - d] = input->size[input->ndim - d];
    return size;
}

void ah_backward_masked_select(struct ah_rule *r)
{
    struct ah_tensor *mask = ah_args(r, masked_select)->mask.tensor;
    struct ah_tensor *placed = ah_r(r, AH_OP_masked_select_backward, AH_T(r->grad_out[0]),
                                    AH_T(mask), broadcast_size(ah_rule_input(r, 0), mask));
    r->grad_in[0] = ah_r_to_input(r, placed, 0);
}

void ah_backward_masked_select_backward(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_masked_select, AH_T(r->grad_out[0]), ah_args(r, masked_select_backward)->mask);
}

void ah_backward_masked_scatter(struct ah_rule *r)
{
    struct ah_tensor *mask = ah_args(r, masked_scatter)->mask.tensor;
    if (r->needs[INPUT]) {
        struct ah_tensor *kept =
            ah_r(r, AH_OP_masked_fill, AH_T(r->grad_out[0]), AH_T(mask), AH_I(0));
        r->grad_in[INPUT] = ah_r_to_input(r, kept, INPUT);
    }
    if (r->needs[SOURCE]) { /* the first values of source were used; the rest gets zeros */
        const struct ah_input_meta *source = ah_rule_input(r, SOURCE);
        int64_t total = 1;
        for (int d = 0; d < source->ndim; d++)
            total *= source->size[d];
        struct ah_tensor *read = ah_r(r, AH_OP_masked_select, AH_T(r->grad_out[0]), AH_T(mask));
        if (read && read->numel < total)
            read = ah_r(r, AH_OP_slice_backward, AH_T(read), AH_INTS_OF(&total, 1), AH_I(0),
                        AH_I(0), AH_I(1));
        r->grad_in[SOURCE] = ah_r(r, AH_OP_reshape, AH_T(read), size_of(source));
    }
}

/* sort and topk return values and their indices: the values' gradient is scattered to these. */
static void back_along(struct ah_rule *r, const struct ah_value *dim)
{
    if (r->grad_out[0])
        r->grad_in[0] = ah_r(r, AH_OP_gather_backward, AH_T(r->grad_out[0]),
                             size_of(ah_rule_input(r, 0)), dim_of(r, dim), AH_T(r->out[1]));
}

AH_BACKWARD(sort, back_along(r, &ah_args(r, sort)->dim))
AH_BACKWARD(topk, back_along(r, &ah_args(r, topk)->dim))

/* The running extreme's index is an output: its gradient is added there. */
AH_BACKWARD(cumextreme, back_along(r, &ah_args(r, cumextreme)->dim))

/* Of an extreme, all that equal the result share its gradient. */
static void give_shares(struct ah_rule *r, const struct ah_args_scatter_fold *arg)
{
    struct ah_tensor *out = r->out[0], *src = ah_given(&arg->src);
    struct ah_tensor *own = ah_r(r, AH_OP_eq, arg->input, AH_T(out));
    struct ah_tensor *hit = ah_r(r, AH_OP_eq, AH_T(src), AH_T(ah_r(r, AH_OP_gather, AH_T(out), arg->dim, arg->index)));
    enum ah_dtype dtype = r->grad_out[0]->dtype;
    struct ah_tensor *count = ah_r(r, AH_OP_scatter_add, AH_T(ah_r(r, AH_OP_to, AH_T(own), AH_D(dtype))), arg->dim,
                                   arg->index, AH_T(ah_r(r, AH_OP_to, AH_T(hit), AH_D(dtype))));
    struct ah_tensor *share = ah_r_div(r, r->grad_out[0], ah_r(r, AH_OP_clamp_min, AH_T(count), AH_I(1)));
    ah_r_give(r, INPUT, ah_r(r, AH_OP_where, AH_T(own), AH_T(share), AH_N(0)));
    ah_r_give(r, SOURCE, ah_r(r, AH_OP_where, AH_T(hit),
                              AH_T(ah_r(r, AH_OP_gather, AH_T(share), arg->dim, arg->index)), AH_N(0)));
}

/* The sum over all of src that goes to the same place, for each element of src. */
static struct ah_tensor *sum_at_place(struct ah_rule *r, const struct ah_args_scatter_fold *arg, struct ah_tensor *src)
{
    struct ah_tensor *none = ah_r(r, AH_OP_zeros_like, AH_T(ah_given(&arg->input)));
    struct ah_tensor *sum = ah_r(r, AH_OP_scatter_add, AH_T(none), arg->dim, arg->index, AH_T(src));
    return ah_r(r, AH_OP_gather, AH_T(sum), arg->dim, arg->index);
}

/* Each factor's slope is the product of the others: the result over the factor where that is not 0; at a zero the
 * product of the nonzero ones, times the other zero where there are two. So the second derivatives are right as
 * well. */
static struct ah_tensor *slope_of_factors(struct ah_rule *r, const struct ah_args_scatter_fold *arg)
{
    struct ah_tensor *g = r->grad_out[0], *src = ah_given(&arg->src);
    struct ah_tensor *zero = ah_r(r, AH_OP_eq, AH_T(src), AH_N(0));
    struct ah_tensor *solid = ah_r(r, AH_OP_masked_fill, AH_T(src), AH_T(zero), AH_N(1));
    struct ah_tensor *rest = ah_r(r, AH_OP_scatter_fold, arg->input, arg->dim, arg->index, AH_T(solid), AH_S("prod"));
    struct ah_tensor *count = sum_at_place(r, arg, ah_r(r, AH_OP_to, AH_T(zero), AH_D(g->dtype)));
    struct ah_tensor *zeros = ah_r(r, AH_OP_where, AH_T(zero), AH_T(src), AH_N(0));
    struct ah_tensor *other = ah_r_sub(r, sum_at_place(r, arg, zeros), zeros);
    other = ah_r(r, AH_OP_where, AH_T(ah_r(r, AH_OP_eq, AH_T(count), AH_N(2))), AH_T(other), AH_N(0));
    other = ah_r(r, AH_OP_where, AH_T(ah_r(r, AH_OP_eq, AH_T(count), AH_N(1))), AH_N(1), AH_T(other));
    struct ah_tensor *at_zero = ah_r(r, AH_OP_gather, AH_T(ah_r_mul(r, g, rest)), arg->dim, arg->index);
    struct ah_tensor *at_others = ah_r(r, AH_OP_gather, AH_T(ah_r_mul(r, g, r->out[0])), arg->dim, arg->index);
    return ah_r(r, AH_OP_where, AH_T(zero), AH_T(ah_r_mul(r, at_zero, other)), AH_T(ah_r_div(r, at_others, solid)));
}

static void give_factors(struct ah_rule *r, const struct ah_args_scatter_fold *arg)
{
    struct ah_tensor *g = r->grad_out[0], *src = ah_given(&arg->src), *x = ah_given(&arg->input);
    struct ah_value prod = AH_S("prod");
    if (r->needs[INPUT]) {
        struct ah_tensor *one = ah_r(r, AH_OP_ones_like, AH_T(x));
        struct ah_tensor *others = ah_r(r, AH_OP_scatter_fold, AH_T(one), arg->dim, arg->index, AH_T(src), prod);
        ah_r_give(r, INPUT, ah_r_mul(r, g, others));
    }
    ah_r_give(r, SOURCE, slope_of_factors(r, arg));
}

void ah_backward_scatter_fold(struct ah_rule *r)
{
    const struct ah_args_scatter_fold *arg = ah_args(r, scatter_fold);
    if (!strcmp(arg->reduce.string, "prod"))
        give_factors(r, arg);
    else
        give_shares(r, arg);
}
