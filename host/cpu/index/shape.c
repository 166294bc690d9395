/* Copies that rearrange: cat, stack, flip, repeat and the adjoints of views, each as strided copies into new memory
 * whose shape the op has checked. */
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

/* Copy src into the window of dst that starts `offset` elements after dst's own first one and has
 * src's shape. */
static void copy_into(struct ah_tensor *dst, int64_t offset, const int64_t *stride,
                      const struct ah_tensor *src)
{
    size_t item = ah_dtype_size(dst->dtype);
    ah_strided_copy((char *)ah_tensor_data(dst) + offset * (int64_t)item, stride,
                    ah_tensor_data(src), src->stride, src->size, src->ndim, item);
}

/* The same where dtypes differ: element by element, since cat of mixed dtypes is rare. */
static void convert_into(struct ah_tensor *dst, int64_t offset, const int64_t *stride,
                         const struct ah_tensor *src)
{
    struct ah_tensor window = *dst;
    window.ndim = src->ndim;
    window.numel = src->numel;
    window.offset += offset;
    memcpy(window.size, src->size, sizeof window.size);
    memcpy(window.stride, stride, sizeof window.stride);
    bool whole = ah_dtype_category(dst->dtype) == AH_CATEGORY_INT;
    for (int64_t i = 0; i < src->numel; i++) {
        if (whole)
            ah_tensor_set_int(&window, i, ah_tensor_get_int(src, i));
        else
            ah_tensor_set(&window, i, ah_tensor_get(src, i));
    }
}

static void shape_place(struct ah_tensor *dst, int64_t offset, const int64_t *stride, const struct ah_tensor *src)
{
    if (src->dtype == dst->dtype)
        copy_into(dst, offset, stride, src);
    else
        convert_into(dst, offset, stride, src);
}

int ah_cpu_reshape_copy(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, reshape_copy)->input.tensor;
    int64_t stride[AH_MAX_DIMS];
    ah_contiguous_strides(x->size, x->ndim, stride);
    copy_into(c->out[0], 0, stride, x);
    return 0;
}

int ah_cpu_cat(struct ah_call *c)
{
    const struct ah_args_cat *arg = ah_args(c, cat);
    struct ah_tensor *out = c->out[0];
    int dim = c->state.join.dim;
    int64_t at = 0;
    for (int i = 0; i < arg->tensors.list.count; i++) {
        const struct ah_tensor *x = arg->tensors.list.item[i];
        if (x->numel == 0)
            continue;
        shape_place(out, at * out->stride[dim], out->stride, x);
        at += x->size[dim];
    }
    return 0;
}

int ah_cpu_stack(struct ah_call *c)
{
    const struct ah_args_stack *arg = ah_args(c, stack);
    struct ah_tensor *out = c->out[0];
    int dim = c->state.join.dim;
    int64_t stride[AH_MAX_DIMS] = {0};
    for (int d = 0, k = 0; d < out->ndim; d++)
        if (d != dim)
            stride[k++] = out->stride[d];
    for (int i = 0; i < arg->tensors.list.count; i++)
        shape_place(out, i * out->stride[dim], stride, arg->tensors.list.item[i]);
    return 0;
}

int ah_cpu_flip(struct ah_call *c)
{
    const struct ah_args_flip *arg = ah_args(c, flip);
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_tensor *out = c->out[0];
    int64_t stride[AH_MAX_DIMS], start = 0;
    if (x->numel == 0)
        return 0;
    memcpy(stride, x->stride, sizeof stride);
    for (int k = 0; k < arg->dims.ints.count; k++) {
        int dim = 0;
        AH_TRY(ah_wrap_dim("flip", arg->dims.ints.at[k], x->ndim, &dim));
        if (x->ndim == 0)
            continue;
        start += (x->size[dim] - 1) * x->stride[dim];
        stride[dim] = -x->stride[dim];
    }
    size_t item = ah_dtype_size(x->dtype);
    ah_strided_copy(ah_tensor_data(out), out->stride,
                    (char *)ah_tensor_data(x) + start * (int64_t)item, stride, x->size, x->ndim,
                    item);
    return 0;
}

int ah_cpu_repeat(struct ah_call *c)
{
    const struct ah_args_repeat *arg = ah_args(c, repeat);
    /* Each dim twice: the copies, which do not move the source, and the dim itself. */
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_tensor *out = c->out[0];
    int64_t size[2 * AH_MAX_DIMS], ds[2 * AH_MAX_DIMS], ss[2 * AH_MAX_DIMS];
    int lead = out->ndim - x->ndim;
    for (int d = 0; d < out->ndim; d++) {
        int64_t n = d < lead ? 1 : x->size[d - lead];
        size[2 * d] = arg->repeats.ints.at[d];
        ds[2 * d] = n * out->stride[d];
        ss[2 * d] = 0;
        size[2 * d + 1] = n;
        ds[2 * d + 1] = out->stride[d];
        ss[2 * d + 1] = d < lead ? 0 : x->stride[d - lead];
    }
    ah_strided_copy(ah_tensor_data(out), ds, ah_tensor_data(x), ss, size, 2 * out->ndim,
                    ah_dtype_size(x->dtype));
    return 0;
}

static void shape_zero(struct ah_tensor *out)
{
    ah_zero_fill(ah_tensor_data(out), ah_tensor_bytes(out));
}

/* Zeros before the slice, the slice, zeros after it, for each index of the leading dims. */
struct slice_job {
    char *out;
    const char *grad;
    size_t before, middle, after;
};

static void slice_rows(void *context, int64_t begin, int64_t end)
{
    const struct slice_job *job = context;
    size_t row = job->before + job->middle + job->after;
    for (int64_t i = begin; i < end; i++) {
        char *to = job->out + (size_t)i * row;
        memset(to, 0, job->before);
        memcpy(to + job->before, job->grad + (size_t)i * job->middle, job->middle);
        memset(to + job->before + job->middle, 0, job->after);
    }
}

int ah_cpu_slice_backward(struct ah_call *c)
{
    const struct ah_args_slice_backward *arg = ah_args(c, slice_backward);
    const struct ah_tensor *grad = arg->grad.tensor;
    struct ah_tensor *out = c->out[0];
    int dim = (int)arg->dim.integer;
    int64_t start = arg->start.integer, step = arg->step.integer;
    if (out->numel == 0)
        return 0;
    if (step == 1 && ah_tensor_is_contiguous(grad)) {
        size_t inner = (size_t)out->stride[dim] * ah_dtype_size(out->dtype);
        size_t row = inner * (size_t)out->size[dim];
        struct slice_job job = {.out = ah_tensor_data(out),
                                .grad = ah_tensor_data(grad),
                                .before = (size_t)start * inner,
                                .middle = (size_t)grad->size[dim] * inner};
        job.after = row - job.before - job.middle;
        int64_t rows = out->numel / (out->stride[dim] * out->size[dim]);
        ah_parallel_units(rows, (int64_t)row / (int64_t)sizeof(float), AH_SHARE_LIGHT, slice_rows, &job);
        return 0;
    }
    int64_t stride[AH_MAX_DIMS];
    memcpy(stride, out->stride, sizeof stride);
    stride[dim] *= step;
    shape_zero(out);
    copy_into(out, start * out->stride[dim], stride, grad);
    return 0;
}

int ah_cpu_diagonal_backward(struct ah_call *c)
{
    const struct ah_args_diagonal_backward *arg = ah_args(c, diagonal_backward);
    const struct ah_tensor *grad = arg->grad.tensor;
    struct ah_tensor *out = c->out[0];
    int64_t offset = arg->offset.integer, stride[AH_MAX_DIMS] = {0};
    int a = (int)arg->dim1.integer, b = (int)arg->dim2.integer, k = 0;
    for (int d = 0; d < out->ndim; d++)
        if (d != a && d != b)
            stride[k++] = out->stride[d];
    stride[k] = out->stride[a] + out->stride[b];
    shape_zero(out);
    copy_into(out, offset >= 0 ? offset * out->stride[b] : -offset * out->stride[a], stride, grad);
    return 0;
}

/* The place of storage position `at` in a tensor of the given geometry, as a flat row-major index;
 * -1 when the tensor has no such element. `order` lists its dims by falling stride, so that each
 * quotient is that dim's index. */
static int64_t place_of(int64_t at, const int64_t *size, const int64_t *stride, const int *order,
                        int ndim)
{
    int64_t index[AH_MAX_DIMS], flat = 0;
    if (at < 0)
        return -1;
    for (int k = 0; k < ndim; k++) {
        int d = order[k];
        index[d] = stride[d] > 0 && size[d] > 1 ? at / stride[d] : 0;
        if (index[d] >= size[d])
            return -1;
        at -= index[d] * stride[d];
    }
    for (int d = 0; d < ndim; d++)
        flat = flat * size[d] + index[d];
    return at == 0 ? flat : -1;
}

int ah_cpu_as_strided_positions(struct ah_call *c)
{
    const struct ah_args_as_strided_positions *arg = ah_args(c, as_strided_positions);
    const int64_t *size = arg->input_size.ints.at, *geometry = arg->input_stride.ints.at, *stride = arg->stride.ints.at;
    int ndim = arg->input_size.ints.count, order[AH_MAX_DIMS];
    int64_t total = 1, shift = arg->storage_offset.integer - arg->input_offset.integer;
    for (int d = 0; d < ndim; d++) {
        int k = d;
        for (; k > 0 && geometry[order[k - 1]] < geometry[d]; k--)
            order[k] = order[k - 1];
        order[k] = d;
        total *= size[d];
    }
    struct ah_tensor *out = c->out[0];
    int64_t *to = ah_tensor_data(out);
    for (int64_t flat = 0; flat < out->numel; flat++) {
        int64_t at = shift;
        for (int64_t d = out->ndim - 1, rest = flat; d >= 0; d--) {
            at += rest % out->size[d] * stride[d];
            rest /= out->size[d];
        }
        int64_t found = total > 0 ? place_of(at, size, geometry, order, ndim) : -1;
        to[flat] = found < 0 ? total : found; /* one past the end: the rule cuts that slot off */
    }
    return 0;
}
