/* Slices along a dim, scaled down to a norm: contiguous ones each in one pass over memory, others by a reduction to
 * their norms first. Norms are folded in double, their factors computed in the dtype that is computed in and rounded to
 * the input's, as PyTorch does. */
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/reduce/reduce.h"
#include "ops/dispatch/op.h"
#include "ops/math/renorm.h"

enum { PART = 1024 }; /* halves that are converted at once */

/* (outer, n, inner), with a norm for each of the n slices. */
struct renorm {
    const struct ah_fold_loops *fold;
    double p, most;
    enum ah_dtype dtype;
    size_t item;
    int64_t n, inner;
    const char *x;
    char *y;
    void *factors; /* of the dtype that is computed in */
};

static double renorm_factor(const struct renorm *r, double folded)
{
    double norm = ah_norm_of(folded, r->p);
    if (r->dtype == AH_F64)
        return norm > r->most ? r->most / (norm + AH_RENORM_EPS) : 1;
    float single = (float)norm, most = (float)r->most;
    float factor = single > most ? most / (single + (float)AH_RENORM_EPS) : 1, rounded;
    if (r->dtype == AH_F32)
        return (double)factor;
    uint16_t half;
    ah_cast(1, &half, r->dtype, 1, &factor, AH_F32, 1);
    ah_cast(1, &rounded, AH_F32, 1, &half, r->dtype, 1);
    return (double)rounded;
}

/* y = x * factor, or, with `each`, each item by its own. y may be x. */
#define RENORM_SCALE(suffix, real)                                                                               \
    static void renorm_scale_##suffix(const real *x, real *y, int64_t n, const real *factors, bool each)         \
    {                                                                                                            \
        const real factor = *factors;                                                                            \
        if (each) {                                                                                              \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = x[i] * factors[i];                        \
        } else {                                                                                                 \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;                            \
        }                                                                                                        \
    }
RENORM_SCALE(f32, float)
RENORM_SCALE(f64, double)

static void renorm_scale(const struct renorm *r, int64_t at, int64_t n, const void *factors, bool each)
{
    const char *x = r->x + (size_t)at * r->item;
    char *y = r->y + (size_t)at * r->item;
    if (r->dtype == AH_F64)
        renorm_scale_f64((const double *)x, (double *)y, n, factors, each);
    else if (r->dtype == AH_F32)
        renorm_scale_f32((const float *)x, (float *)y, n, factors, each);
    else
        for (int64_t first = 0; first < n; first += PART) {
            float part[PART];
            int64_t count = n - first < PART ? n - first : PART;
            ah_cast(count, part, AH_F32, 1, x + (size_t)first * r->item, r->dtype, 1);
            renorm_scale_f32(part, part, count, (const float *)factors + (each ? first : 0), each);
            ah_cast(count, y + (size_t)first * r->item, r->dtype, 1, part, AH_F32, 1);
        }
}

static double renorm_factor_of(const struct renorm *r, int64_t slice)
{
    double folded = 0;
    r->fold->row(&folded, r->x + (size_t)(slice * r->inner) * r->item, r->inner, r->p);
    return renorm_factor(r, folded);
}

/* Slices of halves that fit a part: of short ones several are converted at once. */
static void renorm_short_halves(const struct renorm *r, int64_t begin, int64_t end)
{
    float part[PART];
    for (int64_t i = begin, count; i < end; i += count) {
        count = PART / r->inner < end - i ? PART / r->inner : end - i;
        size_t at = (size_t)(i * r->inner) * r->item;
        ah_cast(count * r->inner, part, AH_F32, 1, r->x + at, r->dtype, 1);
        for (int64_t k = 0; k < count; k++) {
            float factor = (float)renorm_factor_of(r, i + k);
            renorm_scale_f32(part + k * r->inner, part + k * r->inner, r->inner, &factor, false);
        }
        ah_cast(count * r->inner, r->y + at, r->dtype, 1, part, AH_F32, 1);
    }
}

static void renorm_slices(void *context, int64_t begin, int64_t end)
{
    const struct renorm *r = context;
    if (ah_compute_dtype(r->dtype) != r->dtype && r->inner <= PART) {
        renorm_short_halves(r, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        double factor = renorm_factor_of(r, i);
        float single = (float)factor;
        renorm_scale(r, i * r->inner, r->inner, r->dtype == AH_F64 ? (const void *)&factor : &single, false);
    }
}

/* Rows of n numbers, one of each slice. */
static void renorm_rows(void *context, int64_t begin, int64_t end)
{
    const struct renorm *r = context;
    for (int64_t i = begin; i < end; i++)
        renorm_scale(r, i * r->n, r->n, r->factors, true);
}

/* Runs of `inner` numbers of a slice. */
static void renorm_runs(void *context, int64_t begin, int64_t end)
{
    const struct renorm *r = context;
    size_t real = ah_dtype_size(ah_compute_dtype(r->dtype));
    for (int64_t i = begin; i < end; i++)
        renorm_scale(r, i * r->inner, r->inner, (const char *)r->factors + (size_t)(i % r->n) * real, false);
}

/* Set the factors of slices from their norms, and scale. */
static int renorm_scattered(struct renorm *r, struct ah_arrays *a, struct ah_tensor *x, uint32_t others)
{
    struct ah_reduction norms;
    AH_TRY(ah_reduce(&norms, x, others, ah_norm_fold(r->p), r->p));
    double *folded = norms.data;
    for (int64_t i = 0; i < r->n; i++)
        folded[i] = renorm_factor(r, folded[i]);
    enum ah_dtype real = ah_compute_dtype(r->dtype);
    r->factors = ah_array_scratch(a, (size_t)r->n * ah_dtype_size(real));
    if (r->factors)
        ah_cast(r->n, r->factors, real, 1, folded, AH_F64, 1);
    ah_reduction_free(&norms);
    AH_TRY(a->status);
    if (r->inner == 1)
        ah_parallel_units(x->numel / r->n, r->n, AH_SHARE_MIDDLE, renorm_rows, r);
    else
        ah_parallel_units(x->numel / r->inner, r->inner, AH_SHARE_MIDDLE, renorm_runs, r);
    return 0;
}

int ah_cpu_renorm(struct ah_call *c)
{
    const struct ah_args_renorm *arg = ah_args(c, renorm);
    struct ah_tensor *x = arg->input.tensor, *out = c->out[0];
    uint32_t others = c->state.reduce.dims;
    int dim = __builtin_ctz(~others);
    struct renorm r = {.p = arg->p.number, .most = arg->maxnorm.number, .dtype = x->dtype, .n = x->size[dim],
                       .inner = 1, .item = ah_dtype_size(x->dtype)};
    if (x->numel == 0)
        return 0;
    for (int d = dim + 1; d < x->ndim; d++)
        r.inner *= x->size[d];
    AH_OWNED struct ah_tensor *y = NULL;
    struct ah_arrays a = {0};
    r.x = ah_array_as_is(&a, x);
    if (ah_tensor_is_contiguous(out))
        y = ah_tensor_retain(out);
    else if (a.status == 0)
        a.status = ah_tensor_empty(&y, out->size, out->ndim, out->dtype, &ah_cpu);
    if (a.status < 0)
        return ah_arrays_close(&a);
    r.y = ah_tensor_data(y);
    r.fold = ah_fold_loops(x->dtype, ah_norm_fold(r.p));
    if (r.n * r.inner == x->numel)
        ah_parallel_units(r.n, r.inner, AH_SHARE_MIDDLE, renorm_slices, &r);
    else
        a.status = renorm_scattered(&r, &a, x, others);
    AH_TRY(ah_arrays_close(&a));
    return y == out ? 0 : ah_copy(out, y);
}
