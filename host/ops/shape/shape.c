/* Views: each row computes sizes, strides and offset, and checks that they stay inside the storage. No element is
 * touched, so this file works for tensors of any device. Products of sizes must be checked for overflow before they
 * are compared. */
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/shape/shape.h"

int ah_give_view(struct ah_call *c, const int64_t *size, const int64_t *stride, int ndim, int64_t offset)
{
    int status = ah_tensor_view(&c->out[0], c->arg[0].tensor, size, stride, ndim, offset);
    if (status < 0)
        return ah_fail_prefix(status, "%s", c->op->name);
    c->out_count = 1;
    return 0;
}

/* Return the result of a composite, which another op wrote to out[0]. */
static int shape_give(struct ah_call *c)
{
    c->out_count = 1;
    return 0;
}

/* Resolve one -1 in a wanted shape and check the element count. */
static int resolve_shape(const char *op, const struct ah_tensor *x, const int64_t *wanted, int ndim,
                         int64_t *size)
{
    int64_t known = 1;
    int open = -1;
    for (int d = 0; d < ndim; d++) {
        size[d] = wanted[d];
        if (wanted[d] >= 0) {
            if (__builtin_mul_overflow(known, wanted[d], &known))
                return ah_fail(AH_EINVAL, "%s: shape %s is too large", op, ah_shape_text(wanted, ndim));
        } else if (wanted[d] == -1 && open < 0) {
            open = d;
        } else {
            return ah_fail(
                AH_EINVAL, "%s: shape %s is not valid: %s", op, ah_shape_text(wanted, ndim),
                wanted[d] == -1 ? "only one size may be -1" : "sizes are -1 or not negative");
        }
    }
    if (open >= 0 && known > 0 && x->numel % known == 0) {
        size[open] = x->numel / known;
        return 0;
    }
    if (open >= 0 && known == 0 && x->numel == 0)
        return ah_fail(AH_EINVAL, "%s: shape %s leaves the size of -1 open", op,
                       ah_shape_text(wanted, ndim));
    if (open >= 0 || known != x->numel) {
        return ah_fail(AH_EINVAL, "%s: shape %s does not hold the %lld elements of %s", op,
                       ah_shape_text(wanted, ndim), (long long)x->numel, ah_shape(x));
    }
    return 0;
}

/* The strides with which x's elements read in order make up `size`; false when no strides do. Runs of dims of x without
 * gaps are matched against runs of the new shape, from the last dim
 * on. */
static bool view_strides(const struct ah_tensor *x, const int64_t *size, int ndim, int64_t *stride)
{
    if (x->numel == 0 || x->ndim == 0) {
        ah_contiguous_strides(size, ndim, stride);
        return true;
    }
    int64_t base = x->stride[x->ndim - 1], run = 1, covered = 1;
    int at = ndim - 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        run *= x->size[d];
        if (d > 0 && (x->size[d - 1] == 1 || x->stride[d - 1] == run * base))
            continue;
        while (at >= 0 && (covered < run || size[at] == 1)) {
            stride[at] = covered * base;
            covered *= size[at--];
        }
        if (covered != run)
            return false;
        if (d > 0) {
            base = x->stride[d - 1];
            run = covered = 1;
        }
    }
    return at < 0;
}

int ah_forward_view(struct ah_call *c)
{
    const struct ah_args_view *arg = ah_args(c, view);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    int ndim = arg->size.ints.count;
    AH_TRY(resolve_shape("view", x, arg->size.ints.at, ndim, size));
    if (!view_strides(x, size, ndim, stride)) {
        return ah_fail(AH_EINVAL,
                       "view: shape %s is not compatible with strides %s of %s; use reshape",
                       ah_shape_text(size, ndim), ah_shape_text(x->stride, x->ndim), ah_shape(x));
    }
    return ah_give_view(c, size, stride, ndim, x->offset);
}

int ah_forward_view_as(struct ah_call *c)
{
    const struct ah_args_view_as *arg = ah_args(c, view_as);
    const struct ah_tensor *other = arg->other.tensor;
    AH_TRY(ah_op1(AH_OP_view, &c->out[0], arg->input, AH_INTS_OF(other->size, other->ndim)));
    return shape_give(c);
}

int ah_reshaped(const char *op, struct ah_tensor **out, struct ah_tensor *x, const int64_t *wanted,
                int ndim)
{
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    AH_TRY(ah_tensor_row_major(x));
    AH_TRY(resolve_shape(op, x, wanted, ndim, size));
    enum ah_opid id = view_strides(x, size, ndim, stride) ? AH_OP_view : AH_OP_reshape_copy;
    return ah_op1(id, out, AH_T(x), AH_INTS_OF(size, ndim));
}

int ah_forward_reshape(struct ah_call *c)
{
    const struct ah_args_reshape *arg = ah_args(c, reshape);
    AH_TRY(ah_reshaped("reshape", &c->out[0], arg->input.tensor, arg->shape.ints.at,
                       arg->shape.ints.count));
    return shape_give(c);
}

int ah_forward_reshape_as(struct ah_call *c)
{
    const struct ah_args_reshape_as *arg = ah_args(c, reshape_as);
    const struct ah_tensor *other = arg->other.tensor;
    AH_TRY(ah_reshaped("reshape_as", &c->out[0], arg->input.tensor, other->size, other->ndim));
    return shape_give(c);
}

int ah_forward_reshape_copy(struct ah_call *c)
{
    const struct ah_args_reshape_copy *arg = ah_args(c, reshape_copy);
    int64_t size[AH_MAX_DIMS];
    AH_TRY(
        resolve_shape("reshape", arg->input.tensor, arg->shape.ints.at, arg->shape.ints.count, size));
    return ah_call_single(c, size, arg->shape.ints.count, arg->input.tensor->dtype);
}

int ah_forward_flatten(struct ah_call *c)
{
    const struct ah_args_flatten *arg = ah_args(c, flatten);
    struct ah_tensor *x = arg->input.tensor;
    int first, last, ndim = 0;
    AH_TRY(ah_wrap_dim("flatten", arg->start_dim.integer, x->ndim, &first));
    AH_TRY(ah_wrap_dim("flatten", arg->end_dim.integer, x->ndim, &last));
    if (first > last)
        return ah_fail(AH_EINVAL, "flatten: start_dim %d is after end_dim %d", first, last);
    if (first == last && x->ndim > 0) { /* the tensor itself, as in PyTorch */
        c->out[0] = ah_tensor_retain(x);
        c->out_count = 1;
        return 0;
    }
    int64_t size[AH_MAX_DIMS], run = 1;
    for (int d = 0; d < x->ndim; d++) {
        run = d > first && d <= last ? run * x->size[d] : x->size[d];
        if (d > first && d <= last)
            ndim--;
        size[ndim++] = run;
    }
    if (x->ndim == 0)
        size[ndim++] = 1;
    AH_TRY(ah_reshaped("flatten", &c->out[0], x, size, ndim));
    return shape_give(c);
}

int ah_forward_unflatten(struct ah_call *c)
{
    const struct ah_args_unflatten *arg = ah_args(c, unflatten);
    struct ah_tensor *x = arg->input.tensor;
    const int64_t *parts = arg->sizes.ints.at;
    int dim, count = arg->sizes.ints.count;
    AH_TRY(ah_wrap_dim("unflatten", arg->dim.integer, x->ndim, &dim));
    if (x->ndim == 0 || count == 0 || x->ndim - 1 + count > AH_MAX_DIMS) {
        return ah_fail(AH_EINVAL, "unflatten: cannot split dim %d of %s into %s", dim, ah_shape(x),
                       ah_shape_text(parts, count));
    }
    int64_t size[AH_MAX_DIMS], known = 1;
    int open = -1, ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d != dim) {
            size[ndim++] = x->size[d];
            continue;
        }
        for (int k = 0; k < count; k++) {
            if (parts[k] == -1 && open < 0)
                open = ndim;
            else if (parts[k] < 0 || __builtin_mul_overflow(known, parts[k], &known))
                known = -1; /* fits nothing */
            size[ndim++] = parts[k];
        }
    }
    if (open >= 0 && known > 0)
        size[open] = x->size[dim] / known, known *= size[open];
    if (known != x->size[dim]) {
        return ah_fail(AH_EINVAL, "unflatten: sizes %s do not multiply to %lld (dim %d of %s)",
                       ah_shape_text(parts, count), (long long)x->size[dim], dim, ah_shape(x));
    }
    AH_TRY(ah_reshaped("unflatten", &c->out[0], x, size, ndim));
    return shape_give(c);
}

int ah_forward_transpose(struct ah_call *c)
{
    const struct ah_args_transpose *arg = ah_args(c, transpose);
    const struct ah_tensor *x = arg->input.tensor;
    int a, b;
    AH_TRY(ah_wrap_dim("transpose", arg->dim0.integer, x->ndim, &a));
    AH_TRY(ah_wrap_dim("transpose", arg->dim1.integer, x->ndim, &b));
    AH_TRY(ah_give_view(c, x->size, x->stride, x->ndim, x->offset));
    if (x->ndim > 0) {
        struct ah_tensor *out = c->out[0];
        out->size[a] = x->size[b], out->stride[a] = x->stride[b];
        out->size[b] = x->size[a], out->stride[b] = x->stride[a];
    }
    return 0;
}

int ah_forward_swapaxes(struct ah_call *c)
{
    AH_TRY(ah_op1(AH_OP_transpose, &c->out[0], ah_args(c, swapaxes)->input, c->arg[1], c->arg[2]));
    return shape_give(c);
}

int ah_forward_t(struct ah_call *c)
{
    const struct ah_args_t *arg = ah_args(c, t);
    const struct ah_tensor *x = arg->input.tensor;
    if (x->ndim > 2)
        return ah_fail(AH_EINVAL, "t: expected at most 2 dims, got %s; use transpose", ah_shape(x));
    AH_TRY(ah_op1(AH_OP_transpose, &c->out[0], arg->input, AH_I(0), AH_I(x->ndim == 2)));
    return shape_give(c);
}

int ah_forward_permute(struct ah_call *c)
{
    const struct ah_args_permute *arg = ah_args(c, permute);
    const struct ah_tensor *x = arg->input.tensor;
    const int64_t *dims = arg->dims.ints.at;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    unsigned seen = 0;
    if (arg->dims.ints.count != x->ndim) {
        return ah_fail(AH_EINVAL, "permute: expected %d dims for %s, got %s", x->ndim, ah_shape(x),
                       ah_shape_text(dims, arg->dims.ints.count));
    }
    for (int d = 0; d < x->ndim; d++) {
        int from;
        AH_TRY(ah_wrap_dim("permute", dims[d], x->ndim, &from));
        if (seen >> from & 1)
            return ah_fail(AH_EINVAL, "permute: dim %d is repeated in %s", from,
                           ah_shape_text(dims, x->ndim));
        seen |= 1u << from;
        size[d] = x->size[from];
        stride[d] = x->stride[from];
    }
    return ah_give_view(c, size, stride, x->ndim, x->offset);
}

int ah_forward_movedim(struct ah_call *c)
{
    const struct ah_args_movedim *arg = ah_args(c, movedim);
    const struct ah_tensor *x = arg->input.tensor;
    int count = arg->source.ints.count, place[AH_MAX_DIMS];
    bool moved[AH_MAX_DIMS] = {false};
    if (count != arg->destination.ints.count) {
        return ah_fail(AH_EINVAL, "movedim: %d source dims but %d destination dims", count,
                       arg->destination.ints.count);
    }
    for (int d = 0; d < AH_MAX_DIMS; d++)
        place[d] = -1;
    for (int k = 0; k < count; k++) {
        int from, to;
        AH_TRY(ah_wrap_dim("movedim", arg->source.ints.at[k], x->ndim, &from));
        AH_TRY(ah_wrap_dim("movedim", arg->destination.ints.at[k], x->ndim, &to));
        if (moved[from] || place[to] >= 0)
            return ah_fail(AH_EINVAL, "movedim: dim %d is repeated", moved[from] ? from : to);
        moved[from] = true;
        place[to] = from;
    }
    int64_t dims[AH_MAX_DIMS];
    for (int d = 0, next = 0; d < x->ndim; d++) {
        while (next < x->ndim && moved[next])
            next++;
        dims[d] = place[d] >= 0 ? place[d] : next++;
    }
    AH_TRY(ah_op1(AH_OP_permute, &c->out[0], arg->input, AH_INTS_OF(dims, x->ndim)));
    return shape_give(c);
}

int ah_forward_squeeze(struct ah_call *c)
{
    const struct ah_args_squeeze *arg = ah_args(c, squeeze);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    int ndim = 0;
    unsigned named = arg->dim.kind == AH_INTS ? 0 : ~0u;
    for (int k = 0; arg->dim.kind == AH_INTS && k < arg->dim.ints.count; k++) {
        int dim;
        AH_TRY(ah_wrap_dim("squeeze", arg->dim.ints.at[k], x->ndim, &dim));
        if (named >> dim & 1)
            return ah_fail(AH_EINVAL, "squeeze: dim %d is repeated", dim);
        named |= 1u << dim;
    }
    for (int d = 0; d < x->ndim; d++) {
        if (x->size[d] == 1 && (named >> d & 1))
            continue;
        size[ndim] = x->size[d];
        stride[ndim++] = x->stride[d];
    }
    return ah_give_view(c, size, stride, ndim, x->offset);
}

int ah_forward_unsqueeze(struct ah_call *c)
{
    const struct ah_args_unsqueeze *arg = ah_args(c, unsqueeze);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t size[AH_MAX_DIMS + 1], stride[AH_MAX_DIMS + 1];
    int at;
    AH_TRY(ah_wrap_dim("unsqueeze", arg->dim.integer, x->ndim + 1, &at));
    for (int d = 0; d <= x->ndim; d++) {
        int from = d < at ? d : d - 1;
        size[d] = d == at ? 1 : x->size[from];
        if (d == at)
            stride[d] = at < x->ndim ? x->size[at] * x->stride[at] : 1;
        else
            stride[d] = x->stride[from];
    }
    return ah_give_view(c, size, stride, x->ndim + 1, x->offset);
}

int ah_forward_expand(struct ah_call *c)
{
    const struct ah_args_expand *arg = ah_args(c, expand);
    const struct ah_tensor *x = arg->input.tensor;
    const int64_t *wanted = arg->size.ints.at;
    int ndim = arg->size.ints.count, lead = ndim - x->ndim;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    bool fits = lead >= 0;
    for (int d = 0; fits && d < ndim; d++) {
        int64_t have = d < lead ? 1 : x->size[d - lead];
        size[d] = wanted[d] == -1 && d >= lead ? have : wanted[d];
        fits = size[d] >= 0 && (have == 1 || have == size[d]);
    }
    if (!fits)
        return ah_fail(AH_EINVAL, "expand: %s does not expand to %s", ah_shape(x),
                       ah_shape_text(wanted, ndim));
    ah_broadcast_strides(x, size, ndim, stride);
    return ah_give_view(c, size, stride, ndim, x->offset);
}

int ah_forward_expand_as(struct ah_call *c)
{
    const struct ah_args_expand_as *arg = ah_args(c, expand_as);
    const struct ah_tensor *other = arg->other.tensor;
    AH_TRY(ah_op1(AH_OP_expand, &c->out[0], arg->input, AH_INTS_OF(other->size, other->ndim)));
    return shape_give(c);
}

int ah_forward_broadcast_to(struct ah_call *c)
{
    const struct ah_args_broadcast_to *arg = ah_args(c, broadcast_to);
    AH_TRY(ah_op1(AH_OP_expand, &c->out[0], arg->input, arg->size));
    return shape_give(c);
}

static int wrap_index(const char *op, int64_t index, const struct ah_tensor *x, int dim,
                      int64_t *out)
{
    int64_t n = x->size[dim];
    if (index < -n || index >= n) {
        return ah_fail(AH_EINVAL, "%s: index %lld is outside %lld..%lld (dim %d of %s)", op,
                       (long long)index, (long long)-n, (long long)n - 1, dim, ah_shape(x));
    }
    *out = index < 0 ? index + n : index;
    return 0;
}

int ah_forward_select(struct ah_call *c)
{
    const struct ah_args_select *arg = ah_args(c, select);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS], index = 0;
    int dim, ndim = 0;
    if (x->ndim == 0)
        return ah_fail(AH_EINVAL, "select: a 0-dim tensor cannot be indexed; use item()");
    AH_TRY(ah_wrap_dim("select", arg->dim.integer, x->ndim, &dim));
    AH_TRY(wrap_index("select", arg->index.integer, x, dim, &index));
    for (int d = 0; d < x->ndim; d++) {
        if (d == dim)
            continue;
        size[ndim] = x->size[d];
        stride[ndim++] = x->stride[d];
    }
    return ah_give_view(c, size, stride, ndim, x->offset + index * x->stride[dim]);
}

int ah_forward_narrow(struct ah_call *c)
{
    const struct ah_args_narrow *arg = ah_args(c, narrow);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t start = arg->start.integer, length = arg->length.integer;
    int dim;
    if (x->ndim == 0)
        return ah_fail(AH_EINVAL, "narrow: a 0-dim tensor cannot be narrowed");
    AH_TRY(ah_wrap_dim("narrow", arg->dim.integer, x->ndim, &dim));
    int64_t n = x->size[dim], first = start < 0 ? start + n : start;
    if (first < 0 || first > n || length < 0 || length > n - first) {
        return ah_fail(AH_EINVAL, "narrow: start %lld and length %lld exceed dim %d of %s",
                       (long long)start, (long long)length, dim, ah_shape(x));
    }
    AH_TRY(ah_give_view(c, x->size, x->stride, x->ndim, x->offset + first * x->stride[dim]));
    struct ah_tensor *out = c->out[0];
    out->size[dim] = length;
    out->numel = 1;
    for (int d = 0; d < out->ndim; d++)
        out->numel *= out->size[d];
    return 0;
}

/* A bound of a slice as Python reads it: negative from the end, clamped. */
static int64_t clamp_bound(const struct ah_value *bound, int64_t n, int64_t fallback)
{
    if (bound->kind != AH_INT)
        return fallback;
    int64_t at = bound->integer < 0 ? bound->integer + n : bound->integer;
    return at < 0 ? 0 : at > n ? n : at;
}

int ah_forward_slice(struct ah_call *c)
{
    const struct ah_args_slice *arg = ah_args(c, slice);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t step = arg->step.integer, size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    int dim;
    if (x->ndim == 0)
        return ah_fail(AH_EINVAL, "slice: a 0-dim tensor cannot be sliced");
    AH_TRY(ah_wrap_dim("slice", arg->dim.integer, x->ndim, &dim));
    if (step < 1)
        return ah_fail(AH_EINVAL, "slice: step must be at least 1, got %lld", (long long)step);
    int64_t n = x->size[dim], start = clamp_bound(&arg->start, n, 0),
            end = clamp_bound(&arg->end_, n, n);
    for (int d = 0; d < x->ndim; d++) {
        size[d] = x->size[d];
        stride[d] = x->stride[d];
    }
    size[dim] = end > start ? (end - start - 1) / step + 1 : 0;
    if (size[dim] > 1) /* else the step is not used, and a long one might overflow */
        stride[dim] *= step;
    return ah_give_view(c, size, stride, x->ndim, x->offset + start * x->stride[dim]);
}

int ah_forward_detach(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, detach)->input.tensor;
    return ah_give_view(c, x->size, x->stride, x->ndim, x->offset);
}

int ah_check_padded_rows(const char *op, const struct ah_tensor *at, int64_t n, int64_t rows)
{
    if (!ah_on_cpu(at) || at->dtype != AH_I64 || at->ndim != 1 || at->numel != n || !ah_tensor_is_contiguous(at))
        return ah_fail(AH_EINVAL, "%s: expected rows of the padded batch as int64 (%lld,) on the CPU, got %s %s", op,
                       (long long)n, ah_dtype_name(at->dtype), ah_shape(at));
    const int64_t *row = ah_tensor_data(at);
    for (int64_t i = 0, before = -1; i < n; before = row[i++])
        if (row[i] <= before || row[i] >= rows)
            return ah_fail(AH_EINVAL, "%s: row %lld of the padded batch is out of order or not below %lld", op,
                           (long long)row[i], (long long)rows);
    return 0;
}
