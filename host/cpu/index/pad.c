/* Padding. With a constant: a fill and a strided copy. With edges (reflect, replicate, circular): a table for each
 * padded dim maps a place of the output to that of the input; the inner part of a row is copied as a whole, and the
 * adjoint sums in the order of the output. Threads own planes, from the first padded dim on. */
#include <stdlib.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

static int pad_fill(struct ah_tensor *out, double value)
{
    AH_OWNED struct ah_tensor *one = NULL;
    if (value == 0) {
        ah_zero_fill(ah_tensor_data(out), ah_tensor_bytes(out));
        return 0;
    }
    AH_TRY(ah_tensor_scalar(&one, value, out->dtype, &ah_cpu));
    return ah_copy(out, one);
}

int ah_cpu_constant_pad(struct ah_call *c)
{
    const struct ah_args_constant_pad *arg = ah_args(c, constant_pad);
    const struct ah_tensor *x = arg->input.tensor;
    struct ah_tensor *out = c->out[0];
    int64_t size[AH_MAX_DIMS], to = 0, from = 0, copied = 1;
    for (int d = 0; d < x->ndim; d++) {
        int64_t before = arg->before.ints.at[d], after = arg->after.ints.at[d];
        size[d] = x->size[d] + (before < 0 ? before : 0) + (after < 0 ? after : 0);
        size[d] = size[d] < 0 ? 0 : size[d];
        to += (before > 0 ? before : 0) * out->stride[d];
        from += (before < 0 ? -before : 0) * x->stride[d];
        copied *= size[d];
    }
    size_t item = ah_dtype_size(x->dtype);
    if (copied < out->numel)
        AH_TRY(pad_fill(out, arg->value.number));
    if (copied > 0)
        ah_strided_copy((char *)ah_tensor_data(out) + (size_t)to * item, out->stride,
                        (const char *)ah_tensor_data(x) + (size_t)from * item, x->stride, size, x->ndim, item);
    return 0;
}

struct pad {
    int ndim;                                         /* of a plane */
    int64_t size[AH_MAX_DIMS], padded[AH_MAX_DIMS];   /* of a plane, without and with padding */
    const int64_t *at[AH_MAX_DIMS];                   /* by place of the output: the place of the input */
    int64_t *places, planes, rows, plane, padded_plane; /* rows of a padded plane; elements of planes */
    int64_t begin, end;                               /* range of the last dim that is copied unchanged */
    const char *input;
    char *out;
    size_t item;
};

static int64_t place_of(char mode, int64_t p, int64_t n)
{
    switch (mode) {
    case 'c': return (p % n + n) % n;
    case 'r': return p < 0 ? -p : p < n ? p : 2 * (n - 1) - p;
    default: return p < 0 ? 0 : p < n ? p : n - 1;
    }
}

/* 'c'ircular, 'r'eflect or re'p'licate. `size` is that of the input. */
static int pad_open(struct pad *pad, const int64_t *size, int ndim, const struct ah_value *before,
                    const struct ah_value *after, const char *mode)
{
    int first = 0, last = ndim - 1;
    int64_t total = 0;
    while (first < last && before->ints.at[first] == 0 && after->ints.at[first] == 0)
        first++;
    *pad = (struct pad){.ndim = ndim - first, .planes = 1, .rows = 1, .plane = 1, .padded_plane = 1};
    for (int d = 0; d < ndim; d++) {
        int64_t wide = size[d] + before->ints.at[d] + after->ints.at[d];
        if (d < first) {
            pad->planes *= size[d];
            continue;
        }
        pad->size[d - first] = size[d];
        pad->padded[d - first] = wide;
        pad->plane *= size[d];
        pad->padded_plane *= wide;
        pad->rows *= d < last ? wide : 1;
        total += wide;
    }
    pad->places = malloc((size_t)(total ? total : 1) * sizeof *pad->places);
    AH_TRY_MEMORY(pad->places, "pad: out of memory");
    int64_t *at = pad->places;
    char kind = mode[0] == 'r' && mode[2] == 'p' ? 'p' : mode[0];
    for (int d = 0; d < pad->ndim; d++) {
        pad->at[d] = at;
        for (int64_t p = 0; p < pad->padded[d]; p++)
            *at++ = place_of(kind, p - before->ints.at[first + d], pad->size[d]);
    }
    int64_t left = before->ints.at[last], right = after->ints.at[last];
    int64_t wide = pad->padded[pad->ndim - 1];
    pad->begin = left < 0 ? 0 : left < wide ? left : wide;
    pad->end = wide - (right > 0 ? right : 0);
    pad->end = pad->end < pad->begin ? pad->begin : pad->end;
    return 0;
}

/* Return the offset in an input plane of the source of an output row. */
static int64_t row_start(const struct pad *pad, int64_t row)
{
    int last = pad->ndim - 1;
    int64_t start = 0, stride = pad->size[last];
    for (int d = last - 1; d >= 0; d--) {
        start += pad->at[d][row % pad->padded[d]] * stride;
        row /= pad->padded[d];
        stride *= pad->size[d];
    }
    return start;
}

#define COPY_ENDS(type)                                                                  \
    do {                                                                                 \
        for (int64_t i = 0; i < pad->begin; i++)                                         \
            ((type *)to)[i] = ((const type *)from)[at[i]];                               \
        for (int64_t i = pad->end; i < wide; i++)                                        \
            ((type *)to)[i] = ((const type *)from)[at[i]];                               \
    } while (0)

static void pad_planes(void *context, int64_t begin, int64_t end)
{
    const struct pad *pad = context;
    const int64_t *at = pad->at[pad->ndim - 1], wide = pad->padded[pad->ndim - 1];
    size_t item = pad->item;
    for (int64_t k = begin * pad->rows; k < end * pad->rows; k++) {
        char *to = pad->out + (size_t)(k * wide) * item;
        const char *from =
            pad->input + (size_t)(k / pad->rows * pad->plane + row_start(pad, k % pad->rows)) * item;
        switch (item) {
        case 1: COPY_ENDS(uint8_t); break;
        case 2: COPY_ENDS(uint16_t); break;
        case 4: COPY_ENDS(uint32_t); break;
        default: COPY_ENDS(uint64_t); break;
        }
        if (pad->end > pad->begin)
            memcpy(to + (size_t)pad->begin * item, from + (size_t)at[pad->begin] * item,
                   (size_t)(pad->end - pad->begin) * item);
    }
}

int ah_cpu_edge_pad(struct ah_call *c)
{
    const struct ah_args_edge_pad *arg = ah_args(c, edge_pad);
    struct ah_tensor *x = arg->input.tensor;
    AH_CLEANUP(ah_dense_close) struct ah_dense dense = {0};
    struct pad pad = {0};
    if (c->out[0]->numel == 0)
        return 0;
    AH_TRY(ah_dense_open_as_is(&dense, x));
    AH_TRY(pad_open(&pad, x->size, x->ndim, &arg->before, &arg->after, arg->mode.string));
    pad.input = dense.data;
    pad.out = ah_tensor_data(c->out[0]);
    pad.item = ah_dtype_size(x->dtype);
    ah_parallel_for(pad.planes, ah_grain(pad.padded_plane, AH_SHARE_COPY), pad_planes, &pad);
    free(pad.places);
    return 0;
}

#define FOLD_PLANES(suffix, real)                                                                              \
    static void fold_planes_##suffix(void *context, int64_t begin, int64_t end)                                \
    {                                                                                                          \
        const struct pad *pad = context;                                                                       \
        const int64_t *at = pad->at[pad->ndim - 1], wide = pad->padded[pad->ndim - 1];                         \
        for (int64_t plane = begin; plane < end; plane++) {                                                    \
            real *out = (real *)pad->out + plane * pad->plane;                                                 \
            const real *g = (const real *)pad->input + plane * pad->padded_plane;                              \
            memset(out, 0, (size_t)pad->plane * sizeof *out);                                                  \
            for (int64_t row = 0; row < pad->rows; row++, g += wide) {                                         \
                real *to = out + row_start(pad, row), *middle = to + (wide > 0 ? at[pad->begin % wide] : 0);   \
                for (int64_t i = 0; i < pad->begin; i++)                                                       \
                    to[at[i]] += g[i];                                                                         \
                _Pragma("omp simd") for (int64_t i = pad->begin; i < pad->end; i++)                            \
                    middle[i - pad->begin] += g[i];                                                            \
                for (int64_t i = pad->end; i < wide; i++)                                                      \
                    to[at[i]] += g[i];                                                                         \
            }                                                                                                  \
        }                                                                                                      \
    }
FOLD_PLANES(f32, float)
FOLD_PLANES(f64, double)

int ah_cpu_edge_pad_backward(struct ah_call *c)
{
    const struct ah_args_edge_pad_backward *arg = ah_args(c, edge_pad_backward);
    struct ah_tensor *g = arg->grad.tensor, *gx = c->out[0];
    struct pad pad = {0};
    if (gx->numel == 0)
        return 0;
    AH_TRY(pad_open(&pad, gx->size, gx->ndim, &arg->before, &arg->after, arg->mode.string));
    struct ah_arrays a = {0};
    pad.input = ah_array_in(&a, g);
    pad.out = ah_array_out(&a, gx);
    if (a.status == 0)
        ah_parallel_for(pad.planes, ah_grain(pad.plane, AH_SHARE_MIDDLE),
                        ah_compute_dtype(g->dtype) == AH_F64 ? fold_planes_f64 : fold_planes_f32, &pad);
    free(pad.places);
    return ah_arrays_close(&a);
}
