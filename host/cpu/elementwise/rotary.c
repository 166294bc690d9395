/* Rotary position embeddings: each row of a head is read once, where it is stored, and rotated by cosines and sines
 * that heads share. */
#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

/* A row: the first half is a, the second b. */
#define ROTARY_ROW(name, item, real, wide, narrow)                                                              \
    static void rotary_row_##name(const void *from, const void *cosines, const void *sines, void *to, int64_t half) \
    {                                                                                                           \
        const item *restrict x = from;                                                                          \
        const real *restrict cos = cosines, *restrict sin = sines;                                              \
        item *restrict y = to;                                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < half; i++) {                                                \
            real a = wide(x[i]), b = wide(x[half + i]);                                                         \
            y[i] = narrow(a * cos[i] + b * sin[i]);                                                             \
            y[half + i] = narrow(b * cos[half + i] + a * sin[half + i]);                                        \
        }                                                                                                       \
    }
ROTARY_ROW(f32, float, float, , )
ROTARY_ROW(f64, double, double, , )
ROTARY_ROW(bf16, uint16_t, float, ah_bf16_to_f32, ah_f32_to_bf16)
ROTARY_ROW(f16, uint16_t, float, ah_f16_to_f32, ah_f32_to_f16)

typedef void (*rotary_row_fn)(const void *from, const void *cosines, const void *sines, void *to, int64_t half);
static const rotary_row_fn rotary_rows[AH_DTYPE_COUNT] = {
    [AH_F32] = rotary_row_f32, [AH_F64] = rotary_row_f64, [AH_BF16] = rotary_row_bf16, [AH_F16] = rotary_row_f16};

/* The rows of a call: places of input, cosines and sines in bytes, by the dims before the last. */
enum { INPUT, COS, SIN, READ };
struct rotary {
    rotary_row_fn run;
    const char *data[READ];
    char *out;
    int ndim;
    int64_t size[AH_MAX_DIMS], stride[READ][AH_MAX_DIMS];
    int64_t half, row_bytes;
};

/* The next row: indices and places. */
static void rotary_advance(const struct rotary *r, int64_t *at, int64_t *place)
{
    for (int d = r->ndim - 1; d >= 0; d--) {
        bool more = ++at[d] < r->size[d];
        for (int k = 0; k < READ; k++)
            place[k] += more ? r->stride[k][d] : -(at[d] - 1) * r->stride[k][d];
        if (more)
            return;
        at[d] = 0;
    }
}

static void rotary_range(void *context, int64_t begin, int64_t end)
{
    const struct rotary *r = context;
    int64_t at[AH_MAX_DIMS], place[READ] = {0}, rest = begin;
    for (int d = r->ndim - 1; d >= 0; rest /= r->size[d], d--) {
        at[d] = rest % r->size[d];
        for (int k = 0; k < READ; k++)
            place[k] += at[d] * r->stride[k][d];
    }
    for (int64_t row = begin; row < end; row++, rotary_advance(r, at, place))
        r->run(r->data[INPUT] + place[INPUT], r->data[COS] + place[COS], r->data[SIN] + place[SIN],
               r->out + row * r->row_bytes, r->half);
}

/* Set the places of a tensor's rows, of which those with gaps between numbers are copied. */
static void rotary_open(struct rotary *r, struct ah_arrays *a, struct ah_tensor *t, int which, const int64_t *size,
                        int ndim)
{
    int64_t item = (int64_t)ah_dtype_size(t->dtype), stride[AH_MAX_DIMS];
    struct ah_tensor rows = *t;
    if (t->stride[t->ndim - 1] == 1 && ah_tensor_row_major(t) == 0) {
        r->data[which] = ah_tensor_data(t);
    } else {
        r->data[which] = ah_array_as_is(a, t);
        ah_contiguous_strides(rows.size, rows.ndim, rows.stride);
    }
    ah_broadcast_strides(&rows, size, ndim, stride);
    for (int d = 0; d < r->ndim; d++)
        r->stride[which][d] = stride[d] * item;
}

int ah_cpu_rotary(struct ah_call *c)
{
    const struct ah_args_rotary *arg = ah_args(c, rotary);
    struct ah_tensor *x = arg->input.tensor, *y = c->out[0];
    int64_t width = x->size[x->ndim - 1];
    struct ah_arrays a = {0};
    struct rotary r = {.run = rotary_rows[x->dtype], .out = ah_tensor_data(y), .ndim = x->ndim - 1, .half = width / 2,
                       .row_bytes = width * (int64_t)ah_dtype_size(x->dtype)};
    if (y->numel == 0)
        return 0;
    for (int d = 0; d < r.ndim; d++)
        r.size[d] = x->size[d];
    rotary_open(&r, &a, x, INPUT, x->size, x->ndim);
    rotary_open(&r, &a, arg->cos.tensor, COS, x->size, x->ndim);
    rotary_open(&r, &a, arg->sin.tensor, SIN, x->size, x->ndim);
    if (a.status == 0)
        ah_parallel_units(y->numel / width, width, AH_SHARE_LIGHT, rotary_range, &r);
    return ah_arrays_close(&a);
}
