/* Kernels whose work, and often the shape of whose result, is found by reading the values. */
#include <string.h>

#include "base/status/status.h"
#include "cpu/index/index.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

/* A tensor broadcast to a shape, row-major. */
static int mask_spread(struct ah_tensor *tensor, const int64_t *size, int ndim, struct ah_tensor **out)
{
    AH_OWNED struct ah_tensor *wide = NULL;
    int64_t stride[AH_MAX_DIMS];
    ah_broadcast_strides(tensor, size, ndim, stride);
    AH_TRY(ah_tensor_view(&wide, tensor, size, stride, ndim, tensor->offset));
    return ah_contiguous_as(out, wide, tensor->dtype);
}

static int64_t count_true(const struct ah_tensor *mask)
{
    const uint8_t *at = ah_tensor_data(mask);
    int64_t count = 0;
    for (int64_t i = 0; i < mask->numel; i++)
        count += at[i] != 0;
    return count;
}

int ah_cpu_index_positions(struct ah_call *c)
{
    const struct ah_args_index_positions *arg = ah_args(c, index_positions);
    struct ah_tensor *x = arg->input.tensor, *index = arg->index.tensor;
    AH_OWNED struct ah_tensor *list = NULL;
    int dim = (int)arg->dim.integer;
    if (index->dtype != AH_BOOL) {
        AH_TRY(ah_checked_index("index", index, x->size[dim], true, dim, x, &list));
        AH_TRY(ah_call_output(c, 0, &list->numel, 1, AH_I64));
        memcpy(ah_tensor_data(c->out[0]), ah_tensor_data(list), (size_t)list->numel * sizeof(int64_t));
        return 0;
    }
    AH_TRY(ah_contiguous_as(&list, index, AH_BOOL));
    int64_t count = count_true(list);
    AH_TRY(ah_call_output(c, 0, &count, 1, AH_I64));
    const uint8_t *mask = ah_tensor_data(list);
    int64_t *to = ah_tensor_data(c->out[0]), *end = to + count;
    for (int64_t i = 0; to < end; i++) { /* a branch on the mask is mispredicted at every other element */
        *to = i;
        to += mask[i] != 0;
    }
    return 0;
}

int ah_cpu_masked_select(struct ah_call *c)
{
    const struct ah_args_masked_select *arg = ah_args(c, masked_select);
    struct ah_tensor *x = arg->input.tensor;
    AH_OWNED struct ah_tensor *mask = NULL, *source = NULL;
    int64_t size[AH_MAX_DIMS];
    int ndim;
    AH_TRY(ah_broadcast_shapes("masked_select", x, arg->mask.tensor, size, &ndim));
    AH_TRY(mask_spread(arg->mask.tensor, size, ndim, &mask));
    AH_TRY(mask_spread(x, size, ndim, &source));
    int64_t count = count_true(mask);
    AH_TRY(ah_call_output(c, 0, &count, 1, x->dtype));
    const uint8_t *keep = ah_tensor_data(mask);
#define SELECT(type)                               \
    do {                                           \
        const type *from = ah_tensor_data(source); \
        type *to = ah_tensor_data(c->out[0]);      \
        type *end = to + count;                    \
        for (int64_t i = 0; to < end; i++) {       \
            *to = from[i];                         \
            to += keep[i] != 0;                    \
        }                                          \
    } while (0)
    AH_ITEM_TYPES(ah_dtype_size(x->dtype), SELECT)
#undef SELECT
    return 0;
}

/* Write the first `count` entries of `source` in order to the true places of `mask`, of which there are as many. */
static void place_masked(struct ah_tensor *dst, const struct ah_tensor *mask, const struct ah_tensor *source,
                         int64_t count)
{
    const uint8_t *keep = ah_tensor_data(mask);
#define PLACE(type)                                \
    do {                                           \
        type *to = ah_tensor_data(dst);            \
        const type *from = ah_tensor_data(source); \
        const type *end = from + count;            \
        for (int64_t i = 0; from < end; i++) {     \
            to[i] = keep[i] ? *from : to[i];       \
            from += keep[i] != 0;                  \
        }                                          \
    } while (0)
    AH_ITEM_TYPES(ah_dtype_size(dst->dtype), PLACE)
#undef PLACE
}

int ah_cpu_masked_select_backward(struct ah_call *c)
{
    const struct ah_args_masked_select_backward *arg = ah_args(c, masked_select_backward);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *mask = NULL, *grad = NULL;
    AH_TRY(mask_spread(arg->mask.tensor, out->size, out->ndim, &mask));
    AH_TRY(ah_contiguous_as(&grad, arg->grad.tensor, out->dtype));
    ah_zero_fill(ah_tensor_data(out), ah_tensor_bytes(out));
    place_masked(out, mask, grad, grad->numel);
    return 0;
}

int ah_cpu_masked_scatter(struct ah_call *c)
{
    const struct ah_args_masked_scatter *arg = ah_args(c, masked_scatter);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *mask = NULL, *source = NULL;
    struct ah_target target = {out, out};
    AH_TRY(mask_spread(arg->mask.tensor, out->size, out->ndim, &mask));
    AH_TRY(ah_contiguous_as(&source, arg->source.tensor, out->dtype));
    int64_t wanted = count_true(mask);
    if (wanted > source->numel)
        return ah_fail(AH_EINVAL, "masked_scatter: the mask wants %lld values, source %s has %lld", (long long)wanted,
                       ah_shape(source), (long long)source->numel);
    AH_TRY(ah_target_open(c, true, &target));
    place_masked(target.work, mask, source, wanted);
    return ah_target_close(&target, 0);
}

int ah_cpu_nonzero(struct ah_call *c)
{
    struct ah_tensor *x = ah_args(c, nonzero)->input.tensor;
    AH_OWNED struct ah_tensor *mask = NULL;
    AH_TRY(ah_contiguous_as(&mask, x, AH_BOOL));
    int64_t size[2] = {count_true(mask), x->ndim};
    AH_TRY(ah_call_output(c, 0, size, 2, AH_I64));
    const uint8_t *keep = ah_tensor_data(mask);
    int64_t *to = ah_tensor_data(c->out[0]), *end = to + size[0] * size[1];
    int64_t row[AH_MAX_DIMS] = {0}, inner = x->ndim > 0 ? x->size[x->ndim - 1] : 1;
    int lead = x->ndim > 0 ? x->ndim - 1 : 0;
    for (int64_t first = 0; to < end; first += inner) {
        for (int64_t i = 0; i < inner && to < end; i++) {
            for (int d = 0; d < lead; d++)
                to[d] = row[d];
            to[lead] = i;
            to += (keep[first + i] != 0) * x->ndim;
        }
        for (int d = lead - 1; d >= 0 && ++row[d] == x->size[d]; d--)
            row[d] = 0;
    }
    return 0;
}

/* Add 1 for each entry of `at`. With few bins every other entry is counted apart, so that equal neighbours do not wait
 * for each other's store. */
static void bincount_ones(int64_t *count, int64_t bins, const int64_t *at, int64_t n)
{
    enum { FEW = 1024 };
    int64_t i = 0;
    if (bins <= FEW && n >= 4 * bins) {
        int64_t apart[3][FEW] = {{0}};
        for (; i + 4 <= n; i += 4) {
            count[at[i]]++;
            apart[0][at[i + 1]]++;
            apart[1][at[i + 2]]++;
            apart[2][at[i + 3]]++;
        }
        for (int64_t b = 0; b < bins; b++)
            count[b] += apart[0][b] + apart[1][b] + apart[2][b];
    }
    for (; i < n; i++)
        count[at[i]]++;
}

int ah_cpu_bincount(struct ah_call *c)
{
    const struct ah_args_bincount *arg = ah_args(c, bincount);
    struct ah_tensor *x = arg->input.tensor,
                     *weights = arg->weights.kind == AH_TENSOR ? arg->weights.tensor : NULL;
    AH_OWNED struct ah_tensor *list = NULL, *weight = NULL;
    int64_t bins = arg->minlength.integer;
    AH_TRY(ah_contiguous_as(&list, x, AH_I64));
    const int64_t *at = ah_tensor_data(list);
    int64_t low = 0, high = 0;
    for (int64_t i = 0; i < list->numel; i++) {
        low = at[i] < low ? at[i] : low;
        high = at[i] > high ? at[i] : high;
    }
    for (int64_t i = 0; (low < 0 || high == INT64_MAX) && i < list->numel; i++) {
        if (at[i] < 0) {
            return ah_fail(AH_EINVAL,
                           "bincount: expected values of at least 0, got %lld at position %lld",
                           (long long)at[i], (long long)i);
        }
        if (at[i] == INT64_MAX) {
            return ah_fail(AH_EINVAL, "bincount: %lld, at position %lld, is too large to count to", (long long)at[i],
                           (long long)i);
        }
    }
    if (list->numel > 0 && high >= bins)
        bins = high + 1;
    enum ah_dtype dtype = !weights ? AH_I64 : weights->dtype == AH_F32 ? AH_F32 : AH_F64;
    AH_TRY(ah_call_output(c, 0, &bins, 1, dtype));
    ah_zero_fill(ah_tensor_data(c->out[0]), (size_t)bins * ah_dtype_size(dtype));
    if (weights)
        AH_TRY(ah_contiguous_as(&weight, weights, dtype));
    if (!weights)
        bincount_ones(ah_tensor_data(c->out[0]), bins, at, list->numel);
    else if (dtype == AH_F32)
        for (int64_t i = 0; i < list->numel; i++)
            ((float *)ah_tensor_data(c->out[0]))[at[i]] += ((const float *)ah_tensor_data(weight))[i];
    else
        for (int64_t i = 0; i < list->numel; i++)
            ((double *)ah_tensor_data(c->out[0]))[at[i]] += ((const double *)ah_tensor_data(weight))[i];
    return 0;
}
