/* Views of any geometry, diagonal and as_strided, and the adjoints that place a view's gradient into zeros. as_strided
 * is the only view that may overlap itself; it must not leave the storage. */
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/shape/shape.h"

/* The geometry of the diagonal of a tensor (sizes, strides): the two dims are removed, one is appended.
 */
static int diagonal_geometry(const char *op, const struct ah_tensor *x, int64_t offset,
                             int64_t dim1, int64_t dim2, int64_t *size, int64_t *stride,
                             int64_t *first)
{
    int a, b, ndim = 0;
    if (x->ndim < 2)
        return ah_fail(AH_EINVAL, "%s: expected at least 2 dims, got %s", op, ah_shape(x));
    AH_TRY(ah_wrap_dim(op, dim1, x->ndim, &a));
    AH_TRY(ah_wrap_dim(op, dim2, x->ndim, &b));
    if (a == b)
        return ah_fail(AH_EINVAL, "%s: dim1 and dim2 are both %d", op, a);
    for (int d = 0; d < x->ndim; d++) {
        if (d == a || d == b)
            continue;
        size[ndim] = x->size[d];
        stride[ndim++] = x->stride[d];
    }
    int64_t rows = x->size[a] + (offset < 0 ? offset : 0),
            columns = x->size[b] - (offset > 0 ? offset : 0);
    int64_t length = rows < columns ? rows : columns;
    size[ndim] = length > 0 ? length : 0;
    stride[ndim] = x->stride[a] + x->stride[b];
    *first = length <= 0 ? 0 : offset >= 0 ? offset * x->stride[b] : -offset * x->stride[a];
    return 0;
}

int ah_forward_diagonal(struct ah_call *c)
{
    const struct ah_args_diagonal *arg = ah_args(c, diagonal);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS], first = 0;
    AH_TRY(diagonal_geometry("diagonal", x, arg->offset.integer, arg->dim1.integer, arg->dim2.integer,
                             size, stride, &first));
    return ah_give_view(c, size, stride, x->ndim - 1, x->offset + first);
}

int ah_forward_as_strided(struct ah_call *c)
{
    const struct ah_args_as_strided *arg = ah_args(c, as_strided);
    const struct ah_tensor *x = arg->input.tensor;
    const int64_t *size = arg->size.ints.at, *stride = arg->stride.ints.at;
    int ndim = arg->size.ints.count;
    int64_t offset = arg->storage_offset.kind == AH_INT ? arg->storage_offset.integer : x->offset, last = offset;
    bool empty = false, negative = offset < 0;
    if (ndim != arg->stride.ints.count)
        return ah_fail(AH_EINVAL, "as_strided: %d sizes but %d strides", ndim,
                       arg->stride.ints.count);
    for (int d = 0; d < ndim; d++) {
        empty = empty || size[d] == 0;
        negative = negative || size[d] < 0 || stride[d] < 0;
        int64_t reach;
        negative = negative || __builtin_mul_overflow(size[d] - 1, stride[d], &reach) ||
                   __builtin_add_overflow(last, reach, &last);
    }
    if (negative || (!empty && last >= (int64_t)(x->storage->nbytes / ah_dtype_size(x->dtype)))) {
        return ah_fail(
            AH_EINVAL, "as_strided: sizes %s with strides %s from %lld leave the storage of %s",
            ah_shape_text(size, ndim), ah_shape_text(stride, ndim), (long long)offset, ah_shape(x));
    }
    if (c->recording) { /* the rule needs to know the input's own geometry in the storage */
        c->state.strided.offset = offset;
        c->state.strided.input_offset = x->offset;
        memcpy(c->state.strided.input_stride, x->stride, sizeof x->stride);
    }
    return ah_give_view(c, size, stride, ndim, offset);
}

/* The adjoints of views get their gradient from a rule, so its shape is right by construction. */
int ah_forward_adjoint(struct ah_call *c)
{
    int at = 1;
    while (c->op->param[at].kind != AH_INTS)
        at++;
    return ah_call_single(c, c->arg[at].ints.at, c->arg[at].ints.count, ah_args(c, adjoint)->grad.tensor->dtype);
}

AH_FORWARD_WITH(as_strided_positions, as_strided_positions,
                ah_call_single(c, arg->size.ints.at, arg->size.ints.count, AH_I64))

/* The bytes of x as another dtype. Where the sizes of elements differ the last dim absorbs the difference: it must be
 * without gaps, and everything else in whole elements. */
int ah_forward_view_dtype(struct ah_call *c)
{
    const struct ah_args_view_dtype *arg = ah_args(c, view_dtype);
    const struct ah_tensor *x = arg->input.tensor;
    enum ah_dtype dtype = arg->dtype.dtype;
    int64_t from = (int64_t)ah_dtype_size(x->dtype), to = (int64_t)ah_dtype_size(dtype), offset = x->offset;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    int last = x->ndim - 1;
    memcpy(size, x->size, sizeof size);
    memcpy(stride, x->stride, sizeof stride);
    if (dtype == AH_BOOL && x->dtype != AH_BOOL)
        return ah_fail(AH_EINVAL, "view: %s holds bytes that are no truth values; use ne(0)", ah_dtype_name(x->dtype));
    if (from != to) {
        bool fits = last >= 0 && (stride[last] == 1 || size[last] <= 1) && offset * from % to == 0;
        for (int d = 0; fits && d < last; d++)
            fits = stride[d] * from % to == 0;
        if (!fits || size[last] * from % to != 0) {
            return ah_fail(AH_EINVAL, "view: %s with strides %s cannot be read as %s: the last dim must be dense and a "
                           "whole number of elements", ah_shape(x), ah_shape_text(x->stride, x->ndim),
                           ah_dtype_name(dtype));
        }
        for (int d = 0; d < last; d++)
            stride[d] = stride[d] * from / to;
        size[last] = size[last] * from / to;
        stride[last] = 1;
        offset = offset * from / to;
    }
    AH_TRY(ah_give_view(c, size, stride, x->ndim, offset));
    c->out[0]->dtype = dtype;
    return 0;
}
