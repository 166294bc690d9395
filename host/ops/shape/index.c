/* Picking and placing by index: shapes, dtypes and overlap are checked here, the indices themselves by the kernels,
 * which read them anyway. In place nothing that is read may be written (refuse_overlap), since indices are checked
 * before. */
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/shape/shape.h"
#include "tensor/overlap.h"

static int expect_index(const struct ah_call *c, int arg)
{
    enum ah_dtype dtype = c->arg[arg].tensor->dtype;
    if (dtype == AH_I64 || dtype == AH_I32)
        return 0;
    return ah_fail(AH_EINVAL, "%s: %s must be int64 or int32, got %s", c->op->name,
                   c->op->param[arg].name, ah_dtype_name(dtype));
}

static int expect_mask(const struct ah_call *c, int arg)
{
    if (c->arg[arg].tensor->dtype == AH_BOOL)
        return 0;
    return ah_fail(AH_EINVAL, "%s: mask must be bool, got %s", c->op->name,
                   ah_dtype_name(c->arg[arg].tensor->dtype));
}

static int expect_same_dtype(const struct ah_call *c, int arg)
{
    const struct ah_tensor *x = ah_args(c, scatter)->input.tensor, *other = c->arg[arg].tensor;
    if (other->dtype == x->dtype)
        return 0;
    return ah_fail(AH_EINVAL, "%s: %s is %s but %s is %s", c->op->name, c->op->param[arg].name,
                   ah_dtype_name(other->dtype), c->op->param[0].name, ah_dtype_name(x->dtype));
}

/* dim and a 1-d index, for the index_* rows. A wrapped dim goes to the kernel in arg[dim_arg]. */
static int check_list(struct ah_call *c, int ndim, int dim_arg, int index_arg, int *dim)
{
    const struct ah_tensor *index = c->arg[index_arg].tensor;
    AH_TRY(ah_wrap_dim(c->op->name, c->arg[dim_arg].integer, ndim, dim));
    AH_TRY(expect_index(c, index_arg));
    if (index->ndim > 1)
        return ah_fail(AH_EINVAL, "%s: index must have at most one dim, got %s", c->op->name,
                       ah_shape(index));
    c->arg[dim_arg].integer = *dim;
    return 0;
}

/* In place, the elements of arg[0] are written in the order of an index while the other arguments are read: PyTorch
 * refuses memory that is both. */
static int refuse_overlap(const struct ah_call *c)
{
    if (!c->inplace)
        return 0;
    for (int i = 1; i < c->op->param_count; i++) {
        const struct ah_tensor *x = ah_args(c, scatter)->input.tensor, *other = c->arg[i].tensor;
        if (c->arg[i].kind == AH_TENSOR && ah_memory_meets(x, other)) {
            return ah_fail(AH_EINVAL, "%s_: %s %s shares memory with %s %s, which is written; clone() it first",
                           c->op->name, c->op->param[i].name, ah_shape(other), c->op->param[0].name, ah_shape(x));
        }
    }
    return 0;
}

static int run_like(struct ah_call *c, const struct ah_tensor *like)
{
    AH_TRY(refuse_overlap(c));
    return ah_call_single(c, like->size, like->ndim, like->dtype);
}

int ah_forward_index_select(struct ah_call *c)
{
    const struct ah_args_index_select *arg = ah_args(c, index_select);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t size[AH_MAX_DIMS];
    int dim;
    AH_TRY(check_list(c, x->ndim, 1, 2, &dim));
    memcpy(size, x->size, sizeof size);
    if (x->ndim > 0)
        size[dim] = arg->index.tensor->numel;
    else if (arg->index.tensor->numel != 1)
        return ah_fail(AH_EINVAL, "index_select: expected one index for a 0-dim input, got %lld",
                       (long long)arg->index.tensor->numel);
    return ah_call_single(c, size, x->ndim, x->dtype);
}

/* source has input's shape, except along dim, where it has one entry per index. */
static int check_source(struct ah_call *c)
{
    const struct ah_args_index_add *arg = ah_args(c, index_add);
    const struct ah_tensor *x = arg->input.tensor, *index = arg->index.tensor,
                           *source = arg->source.tensor;
    int dim;
    AH_TRY(check_list(c, x->ndim, 1, 2, &dim));
    AH_TRY(expect_same_dtype(c, 3));
    bool fits = source->ndim == x->ndim && (x->ndim > 0 || index->numel == 1);
    for (int d = 0; fits && d < x->ndim; d++)
        fits = source->size[d] == (d == dim ? index->numel : x->size[d]);
    if (!fits) {
        return ah_fail(AH_EINVAL, "%s: source %s does not fit %lld indices on dim %d of %s",
                       c->op->name, ah_shape(source), (long long)index->numel, dim, ah_shape(x));
    }
    return 0;
}

int ah_forward_index_add(struct ah_call *c)
{
    AH_TRY(check_source(c));
    return run_like(c, ah_args(c, index_add)->input.tensor);
}

int ah_forward_index_copy(struct ah_call *c)
{
    AH_TRY(check_source(c));
    return run_like(c, ah_args(c, index_copy)->input.tensor);
}

int ah_forward_index_fill(struct ah_call *c)
{
    const struct ah_args_index_fill *arg = ah_args(c, index_fill);
    int dim;
    AH_TRY(check_list(c, arg->input.tensor->ndim, 1, 2, &dim));
    AH_TRY(ah_call_expect_fits(c, 3, arg->input.tensor->dtype));
    return run_like(c, arg->input.tensor);
}

/* gather and scatter: index has as many dims as the others and, outside dim, no more entries. */
static int check_lines(struct ah_call *c, const struct ah_tensor *index)
{
    struct ah_args_gather *arg = ah_args(c, gather);
    const struct ah_tensor *x = arg->input.tensor;
    int dim;
    AH_TRY(ah_wrap_dim(c->op->name, arg->dim.integer, x->ndim, &dim));
    if (index->numel > 0)
        AH_TRY(expect_index(c, 2));
    arg->dim.integer = dim;
    bool fits = (index->ndim ? index->ndim : 1) == (x->ndim ? x->ndim : 1) || index->numel == 0;
    for (int d = 0; fits && index->numel > 0 && d < x->ndim && d < index->ndim; d++)
        fits = d == dim || index->size[d] <= x->size[d];
    if (!fits) {
        return ah_fail(AH_EINVAL, "%s: index %s does not fit %s outside dim %d", c->op->name,
                       ah_shape(index), ah_shape(x), dim);
    }
    return 0;
}

int ah_forward_gather(struct ah_call *c)
{
    const struct ah_args_gather *arg = ah_args(c, gather);
    const struct ah_tensor *index = arg->index.tensor;
    AH_TRY(check_lines(c, index));
    return ah_call_single(c, index->size, index->ndim, arg->input.tensor->dtype);
}

static int check_scatter(struct ah_call *c)
{
    const struct ah_args_scatter *arg = ah_args(c, scatter);
    const struct ah_tensor *index = arg->index.tensor, *src = arg->src.tensor;
    AH_TRY(check_lines(c, index));
    if (src->wrapped)
        return ah_call_expect_fits(c, 3, arg->input.tensor->dtype);
    AH_TRY(expect_same_dtype(c, 3));
    bool fits = src->ndim == index->ndim || index->numel == 0;
    for (int d = 0; fits && index->numel > 0 && d < index->ndim; d++)
        fits = index->size[d] <= src->size[d];
    if (!fits) {
        return ah_fail(AH_EINVAL, "%s: index %s is larger than src %s", c->op->name,
                       ah_shape(index), ah_shape(src));
    }
    return 0;
}

int ah_forward_scatter(struct ah_call *c)
{
    const struct ah_value *given = &ah_args(c, scatter)->reduce;
    const char *reduce = given->kind == AH_STRING ? given->string : NULL;
    AH_TRY(check_scatter(c));
    if (reduce && strcmp(reduce, "add") && strcmp(reduce, "multiply")) {
        return ah_fail(AH_EINVAL, "scatter: reduce: expected 'add' or 'multiply', got '%s' (scatter_reduce knows "
                       "'sum', 'prod', 'mean', 'amax' and 'amin')", reduce);
    }
    return run_like(c, ah_args(c, scatter)->input.tensor);
}

int ah_forward_scatter_add(struct ah_call *c)
{
    AH_TRY(check_scatter(c));
    return run_like(c, ah_args(c, scatter_add)->input.tensor);
}

/* reduce is "prod", "amax" or "amin"; index and src are of one shape. */
int ah_forward_scatter_fold(struct ah_call *c)
{
    AH_TRY(check_scatter(c));
    return run_like(c, ah_args(c, scatter_fold)->input.tensor);
}

/* Return the number of dims of x (from dim on) that an index tensor replaces: one, or those of a mask.
 */
static int covered_dims(const char *op, const struct ah_tensor *x, int dim,
                        const struct ah_tensor *index, int *out)
{
    *out = 1;
    if (index->dtype == AH_I64 || index->dtype == AH_I32) {
        if (x->ndim > 0)
            return 0;
        return ah_fail(AH_EINVAL, "%s: a 0-dim tensor has no dim to index", op);
    }
    if (index->dtype != AH_BOOL) {
        return ah_fail(AH_EINVAL, "%s: an index must be int64, int32 or bool, got %s", op,
                       ah_dtype_name(index->dtype));
    }
    bool fits = dim + index->ndim <= x->ndim;
    for (int d = 0; fits && d < index->ndim; d++)
        fits = index->size[d] == x->size[dim + d];
    if (!fits) {
        return ah_fail(AH_EINVAL, "%s: mask %s does not match the dims of %s from dim %d on", op,
                       ah_shape(index), ah_shape(x), dim);
    }
    *out = index->ndim;
    return 0;
}

/* out = x with `covered` dims from dim on replaced by `with`[0..count). */
static int replaced_shape(const struct ah_tensor *x, int dim, int covered, const int64_t *with,
                          int count, int64_t *size)
{
    int ndim = 0, total = x->ndim - covered + count;
    if (total > AH_MAX_DIMS)
        return ah_fail(AH_EINVAL, "index: the result would have %d dims", total);
    for (int d = 0; d < dim; d++)
        size[ndim++] = x->size[d];
    for (int k = 0; k < count; k++)
        size[ndim++] = with[k];
    for (int d = dim + covered; d < x->ndim; d++)
        size[ndim++] = x->size[d];
    return ndim;
}

int ah_forward_index(struct ah_call *c)
{
    const struct ah_args_index *arg = ah_args(c, index);
    struct ah_tensor *x = arg->input.tensor, *index = arg->index.tensor;
    AH_OWNED struct ah_tensor *at = NULL, *flat = NULL, *picked = NULL;
    int64_t size[AH_MAX_DIMS], run = 1;
    int dim, covered = 1, ndim;
    AH_TRY(ah_wrap_dim("index", arg->dim.integer, x->ndim, &dim));
    AH_TRY(covered_dims("index", x, dim, index, &covered));
    AH_TRY(ah_op1(AH_OP_index_positions, &at, AH_T(x), AH_I(dim), AH_T(index)));
    for (int d = dim; d < dim + covered; d++)
        run *= x->size[d];
    AH_TRY(ndim = replaced_shape(x, dim, covered, &run, 1, size));
    AH_TRY(ah_reshaped("index", &flat, x, size, ndim));
    AH_TRY(ah_op1(AH_OP_index_select, &picked, AH_T(flat), AH_I(dim), AH_T(at)));
    if (index->dtype == AH_BOOL)
        AH_TRY(ndim = replaced_shape(x, dim, covered, &at->numel, 1, size));
    else
        AH_TRY(ndim = replaced_shape(x, dim, covered, index->size, index->ndim, size));
    AH_TRY(ah_reshaped("index", &c->out[0], picked, size, ndim));
    c->out_count = 1;
    return 0;
}

int ah_forward_index_put(struct ah_call *c)
{
    const struct ah_args_index_put *arg = ah_args(c, index_put);
    struct ah_tensor *x = arg->input.tensor, *index = arg->index.tensor, *values = arg->values.tensor;
    int64_t size[AH_MAX_DIMS];
    int covered = 1, ndim;
    AH_TRY(covered_dims("index_put", x, 0, index, &covered));
    AH_TRY(ah_call_expect_fits(c, 2, x->dtype));
    if (!values->wrapped)
        AH_TRY(expect_same_dtype(c, 2));
    AH_TRY(ah_op1(AH_OP_index_positions, &c->extra[0], AH_T(x), AH_I(0), AH_T(index)));
    if (index->dtype == AH_BOOL)
        AH_TRY(ndim = replaced_shape(x, 0, covered, &c->extra[0]->numel, 1, size));
    else
        AH_TRY(ndim = replaced_shape(x, 0, covered, index->size, index->ndim, size));
    int lead = ndim - values->ndim;
    bool fits = lead >= 0;
    for (int d = 0; fits && d < values->ndim; d++)
        fits = values->size[d] == 1 || values->size[d] == size[d + lead];
    if (!fits) {
        return ah_fail(AH_EINVAL, "index_put: values %s do not broadcast to %s", ah_shape(values),
                       ah_shape_text(size, ndim));
    }
    /* The kernel and the rule read the shape that the values fill from a tensor without elements of
     * its own. */
    AH_TRY(
        ah_tensor_view(&c->extra[1], c->extra[0], size, (const int64_t[AH_MAX_DIMS]){0}, ndim, 0));
    c->state.place.covered = covered;
    return run_like(c, x);
}

int ah_forward_take(struct ah_call *c)
{
    const struct ah_args_take *arg = ah_args(c, take);
    AH_OWNED struct ah_tensor *flat = NULL;
    AH_TRY(ah_reshaped("take", &flat, arg->input.tensor, (const int64_t[]){-1}, 1));
    AH_TRY(ah_op1(AH_OP_index, &c->out[0], AH_T(flat), arg->index, AH_I(0)));
    c->out_count = 1;
    return 0;
}

/* Indices below 0 count from the end. */
static int from_the_end(struct ah_tensor **out, struct ah_tensor *index, int64_t n)
{
    AH_OWNED struct ah_tensor *below = NULL, *moved = NULL;
    AH_TRY(ah_op1(AH_OP_lt, &below, AH_T(index), AH_I(0)));
    AH_TRY(ah_op1(AH_OP_add, &moved, AH_T(index), AH_I(n)));
    return ah_op1(AH_OP_where, out, AH_T(below), AH_T(moved), AH_T(index));
}

int ah_forward_take_along_dim(struct ah_call *c)
{
    const struct ah_args_take_along_dim *arg = ah_args(c, take_along_dim);
    struct ah_tensor *x = arg->input.tensor, *index = arg->indices.tensor;
    AH_OWNED struct ah_tensor *a = NULL, *b = NULL, *turned = NULL;
    int64_t size[AH_MAX_DIMS], all = -1;
    int dim = 0, ndim;
    if (arg->dim.kind != AH_INT) {
        AH_TRY(ah_reshaped("take_along_dim", &a, x, &all, 1));
        AH_TRY(ah_reshaped("take_along_dim", &b, index, &all, 1));
    } else {
        if (x->ndim != index->ndim) {
            return ah_fail(AH_EINVAL,
                           "take_along_dim: indices %s must have as many dims as input %s",
                           ah_shape(index), ah_shape(x));
        }
        AH_TRY(ah_wrap_dim("take_along_dim", arg->dim.integer, x->ndim, &dim));
        struct ah_tensor like = *x; /* broadcast all dims but dim */
        if (x->ndim > 0)
            like.size[dim] = 1;
        AH_TRY(ah_broadcast_shapes("take_along_dim", &like, index, size, &ndim));
        AH_TRY(from_the_end(&turned, index, x->ndim > 0 ? x->size[dim] : 1));
        AH_TRY(ah_op1(AH_OP_expand, &b, AH_T(turned), AH_INTS_OF(size, ndim)));
        if (x->ndim > 0)
            size[dim] = x->size[dim];
        AH_TRY(ah_op1(AH_OP_expand, &a, AH_T(x), AH_INTS_OF(size, ndim)));
    }
    AH_TRY(ah_op1(AH_OP_gather, &c->out[0], AH_T(a), AH_I(dim), AH_T(b)));
    c->out_count = 1;
    return 0;
}

int ah_forward_masked_select(struct ah_call *c)
{
    const struct ah_args_masked_select *arg = ah_args(c, masked_select);
    int64_t size[AH_MAX_DIMS];
    int ndim;
    AH_TRY(expect_mask(c, 1));
    AH_TRY(ah_broadcast_shapes("masked_select", arg->input.tensor, arg->mask.tensor, size, &ndim));
    return ah_call_kernel(c);
}

int ah_forward_masked_scatter(struct ah_call *c)
{
    const struct ah_args_masked_scatter *arg = ah_args(c, masked_scatter);
    const struct ah_tensor *x = arg->input.tensor, *mask = arg->mask.tensor;
    int64_t size[AH_MAX_DIMS];
    int ndim;
    AH_TRY(expect_mask(c, 1));
    AH_TRY(expect_same_dtype(c, 2));
    AH_TRY(ah_broadcast_shapes("masked_scatter", x, mask, size, &ndim));
    AH_TRY(refuse_overlap(c));
    return ah_call_single(c, size, ndim, x->dtype);
}

int ah_forward_sort(struct ah_call *c)
{
    struct ah_args_sort *arg = ah_args(c, sort);
    const struct ah_tensor *x = arg->input.tensor;
    int dim;
    AH_TRY(ah_wrap_dim("sort", arg->dim.integer, x->ndim, &dim));
    arg->dim.integer = dim;
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    AH_TRY(ah_call_output(c, 1, x->size, x->ndim, AH_I64));
    return ah_call_kernel(c);
}

int ah_forward_argsort(struct ah_call *c)
{
    struct ah_args_argsort *arg = ah_args(c, argsort);
    const struct ah_tensor *x = arg->input.tensor;
    int dim;
    AH_TRY(ah_wrap_dim("argsort", arg->dim.integer, x->ndim, &dim));
    arg->dim.integer = dim;
    return ah_call_single(c, x->size, x->ndim, AH_I64);
}

int ah_forward_argrank(struct ah_call *c)
{
    struct ah_args_argrank *arg = ah_args(c, argrank);
    const struct ah_tensor *x = arg->input.tensor, *rank = arg->rank.tensor;
    int dim;
    AH_TRY(ah_wrap_dim("argrank", arg->dim.integer, x->ndim, &dim));
    arg->dim.integer = dim;
    bool fits = x->ndim > 0 && rank->ndim == x->ndim && rank->dtype == AH_I64;
    for (int d = 0; d < x->ndim && fits; d++)
        fits = d == dim ? x->size[d] > 0 || rank->numel == 0 : rank->size[d] == x->size[d];
    if (!fits) {
        return ah_fail(AH_EINVAL, "argrank: rank: expected int64 of the input's shape %s but for dim %d, got %s %s",
                       ah_shape(x), dim, ah_dtype_name(rank->dtype), ah_shape(rank));
    }
    return ah_call_single(c, rank->size, rank->ndim, AH_I64);
}

int ah_forward_topk(struct ah_call *c)
{
    struct ah_args_topk *arg = ah_args(c, topk);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t k = arg->k.integer, size[AH_MAX_DIMS];
    int dim;
    AH_TRY(ah_wrap_dim("topk", arg->dim.integer, x->ndim, &dim));
    arg->dim.integer = dim;
    int64_t n = x->ndim > 0 ? x->size[dim] : 1;
    if (k < 0 || k > n) {
        return ah_fail(AH_EINVAL, "topk: k is %lld, but dim %d of %s has %lld entries",
                       (long long)k, dim, ah_shape(x), (long long)n);
    }
    memcpy(size, x->size, sizeof size);
    if (x->ndim > 0)
        size[dim] = k;
    AH_TRY(ah_call_output(c, 0, size, x->ndim, x->dtype));
    AH_TRY(ah_call_output(c, 1, size, x->ndim, AH_I64));
    return ah_call_kernel(c);
}

int ah_forward_bincount(struct ah_call *c)
{
    const struct ah_args_bincount *arg = ah_args(c, bincount);
    const struct ah_tensor *x = arg->input.tensor,
                           *weights = arg->weights.kind == AH_TENSOR ? arg->weights.tensor : NULL;
    if (x->ndim != 1 || ah_dtype_category(x->dtype) != AH_CATEGORY_INT) {
        return ah_fail(AH_EINVAL, "bincount: expected a 1-d integer tensor, got %s %s",
                       ah_dtype_name(x->dtype), ah_shape(x));
    }
    if (weights && !ah_same_shape(weights, x)) {
        return ah_fail(AH_EINVAL, "bincount: weights %s do not match input %s", ah_shape(weights),
                       ah_shape(x));
    }
    if (arg->minlength.integer < 0)
        return ah_fail(AH_EINVAL, "bincount: minlength must not be negative");
    return ah_call_kernel(c);
}

int ah_forward_searchsorted(struct ah_call *c)
{
    const struct ah_args_searchsorted *arg = ah_args(c, searchsorted);
    const struct ah_tensor *edges = arg->sorted_sequence.tensor, *x = arg->input.tensor;
    bool fits = edges->ndim == 1 || edges->ndim == x->ndim;
    for (int d = 0; fits && edges->ndim > 1 && d < edges->ndim - 1; d++)
        fits = edges->size[d] == x->size[d];
    if (!fits || edges->ndim == 0) {
        return ah_fail(
            AH_EINVAL,
            "searchsorted: sorted_sequence %s must be 1-d or match %s in all dims but the last",
            ah_shape(edges), ah_shape(x));
    }
    return ah_call_single(c, x->size, x->ndim, arg->out_int32.flag ? AH_I32 : AH_I64);
}
