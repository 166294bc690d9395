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

/* Return the offset in the input of a plane of the output's last two dims, or -1 where the input has none. */
static int64_t plane_start(const struct pad *pad, int64_t plane)
{
    int64_t start = 0;
    for (int d = pad->ndim - 3; d >= 0; d--) {
        int64_t at = pad->at[d][plane % pad->padded[d]];
        if (at < 0)
            return -1;
        start += at * pad->stride[d];
        plane /= pad->padded[d];
    }
    return start;
}

/* The rows of the output, of `wide` items: at both ends by the table, between them a copy. */
#define PAD_ROWS(type)                                                                                        \
    static inline void pad_row_##type(const struct pad *pad, type *to, const type *from, const int64_t *at)   \
    {                                                                                                         \
        const int64_t begin = pad->begin, end = pad->end, wide = pad->padded[pad->ndim - 1];                  \
        const type constant = (type)pad->constant;                                                            \
        for (int64_t i = 0; i < begin; i++)                                                                   \
            to[i] = at[i] < 0 ? constant : from[at[i]];                                                       \
        for (int64_t i = end; i < wide; i++)                                                                  \
            to[i] = at[i] < 0 ? constant : from[at[i]];                                                       \
        if (end > begin)                                                                                      \
            ah_copy_bytes((char *)(to + begin), (const char *)(from + at[begin]),                             \
                          (size_t)(end - begin) * sizeof *to);                                                \
    }                                                                                                         \
    static void pad_rows_##type(const struct pad *pad, int64_t begin, int64_t end)                            \
    {                                                                                                         \
        const int last = pad->ndim - 1;                                                                       \
        const int64_t wide = pad->padded[last], tall = last > 0 ? pad->padded[last - 1] : 1;                  \
        const int64_t stride = last > 0 ? pad->stride[last - 1] : 0;                                          \
        const int64_t *rows = last > 0 ? pad->at[last - 1] : NULL, *at = pad->at[last];                       \
        type *to = (type *)pad->out + begin * wide;                                                           \
        for (int64_t k = begin, next; k < end; k = next) {                                                    \
            int64_t plane = k / tall, start = plane_start(pad, plane);                                        \
            next = (plane + 1) * tall < end ? (plane + 1) * tall : end;                                       \
            for (; k < next; k++, to += wide) {                                                               \
                int64_t row = rows ? rows[k - plane * tall] : 0;                                              \
                if (start >= 0 && row >= 0)                                                                   \
                    pad_row_##type(pad, to, (const type *)pad->input + start + row * stride, at);             \
                else                                                                                          \
                    for (int64_t i = 0; i < wide; i++)                                                        \
                        to[i] = (type)pad->constant;                                                          \
            }                                                                                                 \
        }                                                                                                     \
    }
PAD_ROWS(uint8_t)
PAD_ROWS(uint16_t)
PAD_ROWS(uint32_t)
PAD_ROWS(uint64_t)

static void pad_rows(void *context, int64_t begin, int64_t end)
{
    const struct pad *pad = context;
    switch (pad->item) {
    case 1: pad_rows_uint8_t(pad, begin, end); break;
    case 2: pad_rows_uint16_t(pad, begin, end); break;
    case 4: pad_rows_uint32_t(pad, begin, end); break;
    default: pad_rows_uint64_t(pad, begin, end); break;
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
    ah_parallel_units(rows, pad->padded[last], AH_SHARE_COPY, pad_rows, pad);
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
        ah_parallel_units(pad.planes, pad.plane, AH_SHARE_MIDDLE,
                          ah_compute_dtype(g->dtype) == AH_F64 ? fold_planes_f64 : fold_planes_f32, &pad);
    free(pad.places);
    return ah_arrays_close(&a);
}
