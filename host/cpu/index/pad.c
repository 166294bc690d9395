/* Padding, with a constant or with edges (reflect, replicate, circular): a table for each dim maps a place of the
 * output to that of the input, or to none; the inner part of a row is copied as a whole. The adjoint of edges sums in
 * the order of the output; there threads own planes, from the first padded dim on. */
#include <stdlib.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

struct pad {
    int ndim;
    int64_t size[AH_MAX_DIMS], padded[AH_MAX_DIMS];   /* without and with padding */
    int64_t stride[AH_MAX_DIMS];                      /* of the input */
    const int64_t *at[AH_MAX_DIMS];                   /* by place of the output: the place of the input, or -1 */
    int64_t *places;
    int first;                                        /* dim from which on there is padding: that of planes */
    int64_t planes, rows, plane, padded_plane;        /* rows of a padded plane; elements of planes */
    int64_t begin, end;                               /* range of the last dim that is copied unchanged */
    const char *input;
    char *out;
    size_t item;
    uint64_t constant;                                /* the bits of an item */
};

static int64_t place_of(char mode, int64_t p, int64_t n)
{
    switch (mode) {
    case 'c': return (p % n + n) % n;
    case 'r': return p < 0 ? -p : p < n ? p : 2 * (n - 1) - p;
    case '0': return p < 0 || p >= n ? -1 : p;
    default: return p < 0 ? 0 : p < n ? p : n - 1;
    }
}

/* 'c'ircular, 'r'eflect, re'p'licate or '0' (a constant). `size` is that of the input. */
static int pad_open(struct pad *pad, const int64_t *size, int ndim, const struct ah_value *before,
                    const struct ah_value *after, char kind)
{
    int first = 0, last = ndim - 1;
    int64_t total = 0;
    while (first < last && before->ints.at[first] == 0 && after->ints.at[first] == 0)
        first++;
    *pad = (struct pad){.ndim = ndim, .first = first, .planes = 1, .rows = 1, .plane = 1, .padded_plane = 1};
    for (int d = 0; d < ndim; d++) {
        int64_t wide = size[d] + before->ints.at[d] + after->ints.at[d];
        pad->size[d] = size[d];
        pad->padded[d] = wide;
        total += wide;
        pad->planes *= d < first ? size[d] : 1;
        pad->plane *= d < first ? 1 : size[d];
        pad->padded_plane *= d < first ? 1 : wide;
        pad->rows *= d < first || d == last ? 1 : wide;
    }
    pad->places = malloc((size_t)(total ? total : 1) * sizeof *pad->places);
    AH_TRY_MEMORY(pad->places, "pad: out of memory");
    int64_t *at = pad->places;
    for (int d = 0; d < ndim; d++) {
        pad->at[d] = at;
        for (int64_t p = 0; p < pad->padded[d]; p++)
            *at++ = place_of(kind, p - before->ints.at[d], pad->size[d]);
    }
    int64_t left = before->ints.at[last], right = after->ints.at[last];
    int64_t wide = pad->padded[last];
    pad->begin = left < 0 ? 0 : left < wide ? left : wide;
    pad->end = wide - (right > 0 ? right : 0);
    pad->end = pad->end < pad->begin ? pad->begin : pad->end;
    return 0;
}

/* Rows of the output, one after the other: the place in each dim but the last, and, up to each dim, the offset of the
 * source in the input (-1: there is none). */
struct pad_rows {
    int64_t place[AH_MAX_DIMS], start[AH_MAX_DIMS];
};

static void rows_locate(const struct pad *pad, struct pad_rows *rows, int from)
{
    for (int d = from; d < pad->ndim - 1; d++) {
        int64_t before = d > 0 ? rows->start[d - 1] : 0, at = pad->at[d][rows->place[d]];
        rows->start[d] = before < 0 || at < 0 ? -1 : before + at * pad->stride[d];
    }
}

static void rows_begin(const struct pad *pad, struct pad_rows *rows, int64_t row)
{
    for (int d = pad->ndim - 2; d >= 0; d--) {
        rows->place[d] = row % pad->padded[d];
        row /= pad->padded[d];
    }
    rows_locate(pad, rows, 0);
}

static void rows_next(const struct pad *pad, struct pad_rows *rows)
{
    int d = pad->ndim - 2;
    for (; d > 0 && rows->place[d] + 1 == pad->padded[d]; d--)
        rows->place[d] = 0;
    if (d >= 0 && ++rows->place[d] < pad->padded[d])
        rows_locate(pad, rows, d);
}

/* Write places begin to end of a row. */
#define PAD_ENDS(type)                                                                                        \
    static inline void pad_ends_##type(const struct pad *pad, type *to, const type *from, int64_t begin,      \
                                       int64_t end)                                                           \
    {                                                                                                         \
        const int64_t *at = pad->at[pad->ndim - 1];                                                           \
        for (int64_t i = begin; i < end; i++)                                                                 \
            to[i] = from && at[i] >= 0 ? from[at[i]] : (type)pad->constant;                                   \
    }                                                                                                         \
    static void pad_row_##type(const struct pad *pad, char *row, const char *source)                          \
    {                                                                                                         \
        int64_t wide = pad->padded[pad->ndim - 1], begin = source ? pad->begin : wide, end = pad->end;        \
        type *to = (type *)row;                                                                               \
        const type *from = (const type *)source;                                                              \
        if (!from && pad->constant == 0)                                                                      \
            memset(to, 0, (size_t)wide * sizeof *to);                                                         \
        else                                                                                                  \
            pad_ends_##type(pad, to, from, 0, begin);                                                         \
        if (!from)                                                                                            \
            return;                                                                                           \
        if (end > begin)                                                                                      \
            ah_copy_bytes((char *)(to + begin), (const char *)(from + pad->at[pad->ndim - 1][begin]),         \
                          (size_t)(end - begin) * sizeof *to);                                                \
        pad_ends_##type(pad, to, from, end, wide);                                                            \
    }
PAD_ENDS(uint8_t)
PAD_ENDS(uint16_t)
PAD_ENDS(uint32_t)
PAD_ENDS(uint64_t)

static void pad_rows(void *context, int64_t begin, int64_t end)
{
    const struct pad *pad = context;
    size_t item = pad->item, bytes = (size_t)pad->padded[pad->ndim - 1] * item;
    struct pad_rows rows;
    rows_begin(pad, &rows, begin);
    for (int64_t k = begin; k < end; k++, rows_next(pad, &rows)) {
        int64_t start = pad->ndim > 1 ? rows.start[pad->ndim - 2] : 0;
        const char *from = start < 0 ? NULL : pad->input + (size_t)start * item;
        char *to = pad->out + (size_t)k * bytes;
        switch (item) {
        case 1: pad_row_uint8_t(pad, to, from); break;
        case 2: pad_row_uint16_t(pad, to, from); break;
        case 4: pad_row_uint32_t(pad, to, from); break;
        default: pad_row_uint64_t(pad, to, from); break;
        }
    }
}

/* Write `out` from x, whose rows are read where they are if their items are adjacent. */
static int pad_run(struct pad *pad, struct ah_tensor *out, struct ah_tensor *x)
{
    AH_CLEANUP(ah_dense_close) struct ah_dense dense = {0};
    int last = x->ndim - 1;
    int64_t rows = out->numel / pad->padded[last];
    memcpy(pad->stride, x->stride, sizeof pad->stride);
    pad->input = ah_tensor_data(x);
    if (x->size[last] > 1 && x->stride[last] != 1) {
        AH_TRY(ah_dense_open_as_is(&dense, x));
        ah_contiguous_strides(x->size, x->ndim, pad->stride);
        pad->input = dense.data;
    }
    pad->out = ah_tensor_data(out);
    pad->item = ah_dtype_size(x->dtype);
    ah_parallel_for(rows, ah_grain(pad->padded[last], AH_SHARE_COPY), pad_rows, pad);
    return 0;
}

int ah_cpu_constant_pad(struct ah_call *c)
{
    const struct ah_args_constant_pad *arg = ah_args(c, constant_pad);
    struct ah_tensor *x = arg->input.tensor, *out = c->out[0];
    if (out->numel == 0)
        return 0;
    if (x->ndim == 0)
        return ah_copy(out, x);
    struct pad pad = {0};
    AH_TRY(pad_open(&pad, x->size, x->ndim, &arg->before, &arg->after, '0'));
    ah_cast(1, &pad.constant, out->dtype, 1, &arg->value.number, AH_F64, 1);
    int status = pad_run(&pad, out, x);
    free(pad.places);
    return status;
}

static char edge_kind(const char *mode)
{
    return mode[0] == 'r' && mode[2] == 'p' ? 'p' : mode[0];
}

int ah_cpu_edge_pad(struct ah_call *c)
{
    const struct ah_args_edge_pad *arg = ah_args(c, edge_pad);
    struct ah_tensor *x = arg->input.tensor;
    struct pad pad = {0};
    if (c->out[0]->numel == 0)
        return 0;
    AH_TRY(pad_open(&pad, x->size, x->ndim, &arg->before, &arg->after, edge_kind(arg->mode.string)));
    int status = pad_run(&pad, c->out[0], x);
    free(pad.places);
    return status;
}

/* Return the offset in an input plane of the source of an output row. */
static int64_t row_start(const struct pad *pad, int64_t row)
{
    int last = pad->ndim - 1;
    int64_t start = 0, stride = pad->size[last];
    for (int d = last - 1; d >= pad->first; d--) {
        start += pad->at[d][row % pad->padded[d]] * stride;
        row /= pad->padded[d];
        stride *= pad->size[d];
    }
    return start;
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
    AH_TRY(pad_open(&pad, gx->size, gx->ndim, &arg->before, &arg->after, edge_kind(arg->mode.string)));
    struct ah_arrays a = {0};
    pad.input = ah_array_in(&a, g);
    pad.out = ah_array_out(&a, gx);
    if (a.status == 0)
        ah_parallel_for(pad.planes, ah_grain(pad.plane, AH_SHARE_MIDDLE),
                        ah_compute_dtype(g->dtype) == AH_F64 ? fold_planes_f64 : fold_planes_f32, &pad);
    free(pad.places);
    return ah_arrays_close(&a);
}
