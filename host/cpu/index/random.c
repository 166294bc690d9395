/* Random kernels: PyTorch's streams, in its order: dense memory is filled in memory order, other tensors by descending
 * stride. fp16 and bf16 are drawn as float32. Every change here changes the numbers of a seed. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/memory/alloc.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "ops/dispatch/op.h"
#include "tensor/overlap.h"
#include "tensor/rng.h"

/* Draws n values into dense memory. */
typedef void (*draw_fn)(struct ah_generator *g, void *data, int64_t n, const void *context);

/* `out` with its dims in the order of its memory, largest stride first: PyTorch fills in that order. */
static int in_memory_order(struct ah_tensor **view, const struct ah_tensor *out)
{
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    for (int d = 0; d < out->ndim; d++) {
        int k = d;
        for (; k > 0 && stride[k - 1] < out->stride[d]; k--) {
            size[k] = size[k - 1];
            stride[k] = stride[k - 1];
        }
        size[k] = out->size[d];
        stride[k] = out->stride[d];
    }
    return ah_tensor_view(view, out, size, stride, out->ndim, out->offset);
}

/* Fill `out` by `draw`, which makes values of `dtype`: directly, or by way of a temporary. */
static int random_fill(struct ah_tensor *out, enum ah_dtype dtype, draw_fn draw, const void *context)
{
    struct ah_generator *g = ah_default_generator();
    if (out->dtype == dtype && ah_tensor_is_contiguous(out)) {
        draw(g, ah_tensor_data(out), out->numel, context);
        return 0;
    }
    AH_OWNED struct ah_tensor *drawn = NULL, *ordered = NULL;
    AH_TRY(ah_check_writable(out)); /* a failing call draws nothing */
    AH_TRY(in_memory_order(&ordered, out));
    AH_TRY(ah_tensor_empty(&drawn, ordered->size, ordered->ndim, dtype, &ah_cpu));
    draw(g, ah_tensor_data(drawn), drawn->numel, context);
    return ah_copy(ordered, drawn);
}

static void uniform_f32(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    ah_generator_fill_uniform_f32(g, data, n, numbers[0], numbers[1]);
}

static void uniform_f64(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    ah_generator_fill_uniform_f64(g, data, n, numbers[0], numbers[1]);
}

/* Halves are rounded float32 draws; as in PyTorch, one that rounds to the open end, numbers[2], becomes the other end.
 * numbers[3] is the dtype. */
static void uniform_half(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    enum ah_dtype dtype = (enum ah_dtype)numbers[3];
    float *x = data, from = (float)numbers[0], end = (float)numbers[2];
    uniform_f32(g, data, n, numbers);
    for (int64_t i = 0; i < n; i++)
        x[i] = ah_half_to_f32(ah_f32_to_half(x[i], dtype), dtype) == end ? from : x[i];
}

static int random_uniform(struct ah_tensor *out, double from, double to)
{
    double numbers[4] = {from, to, to, (double)out->dtype};
    if (out->dtype == AH_F64)
        return random_fill(out, AH_F64, uniform_f64, numbers);
    if (out->dtype == AH_F32)
        return random_fill(out, AH_F32, uniform_f32, numbers);
    numbers[2] = (double)ah_half_to_f32(ah_f32_to_half((float)to, out->dtype), out->dtype);
    return random_fill(out, AH_F32, uniform_half, numbers);
}

static void normal_f32(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    ah_generator_fill_normal_f32(g, data, n, numbers[0], numbers[1]);
}

static void normal_f64(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    ah_generator_fill_normal_f64(g, data, n, numbers[0], numbers[1]);
}

/* fp16 and bf16 are filled in blocks of 16, then the last 16 are drawn again; float32 draws all n before those 16. */
static void normal_half(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    float *x = data;
    if (n < 16) {
        normal_f32(g, x, n, numbers);
        return;
    }
    normal_f32(g, x, n / 16 * 16, numbers);
    if (n % 16)
        normal_f32(g, x + n - 16, 16, numbers);
}

/* Memory with gaps or in another order is filled number by number, in double. */
static void normal_each(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    double *x = data;
    for (int64_t i = 0; i < n; i++)
        x[i] = ah_generator_normal(g, numbers[0], numbers[1]);
}

static int random_normal(struct ah_tensor *out, double mean, double std)
{
    double numbers[2] = {mean, std};
    if (!ah_tensor_is_contiguous(out))
        return random_fill(out, AH_F64, normal_each, numbers);
    if (out->dtype == AH_F64)
        return random_fill(out, AH_F64, normal_f64, numbers);
    return random_fill(out, AH_F32, out->dtype == AH_F32 ? normal_f32 : normal_half, numbers);
}

AH_CPU_OP(rand, random_uniform(c->out[0], 0, 1))
AH_CPU_OP_WITH(uniform_, uniform_, random_uniform(c->out[0], arg->from.number, arg->to.number))
AH_CPU_OP(randn, random_normal(c->out[0], 0, 1))
AH_CPU_OP_WITH(normal_, normal_, random_normal(c->out[0], arg->mean.number, arg->std.number))

/* Ranges are passed as integers: they may exceed the range of exact doubles. */
static void random_range(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const int64_t *bounds = context;
    ah_generator_fill_range(g, data, n, bounds[0], bounds[1]);
}

static int fill_range(struct ah_tensor *out, int64_t low, int64_t high)
{
    return random_fill(out, AH_I64, random_range, (int64_t[]){low, high});
}

AH_CPU_OP_WITH(randint, randint, fill_range(c->out[0], arg->low.integer, arg->high.integer))

/* Without bounds: every whole number the dtype holds exactly. */
static void random_whole(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    static const uint64_t range[AH_DTYPE_COUNT] = {
        [AH_BOOL] = 2,           [AH_U8] = 1u << 8,        [AH_I32] = 1ull << 31,       [AH_I64] = 1ull << 63,
        [AH_F16] = (1u << 11) + 1, [AH_BF16] = (1u << 8) + 1, [AH_F32] = (1u << 24) + 1, [AH_F64] = (1ull << 53) + 1};
    enum ah_dtype dtype = *(const enum ah_dtype *)context;
    bool wide = dtype == AH_I64 || dtype == AH_F64;
    int64_t *x = data;
    for (int64_t i = 0; i < n; i++)
        x[i] = (int64_t)((wide ? ah_generator_u64(g) : ah_generator_u32(g)) % range[dtype]);
}

int ah_cpu_random_(struct ah_call *c)
{
    const struct ah_args_random_ *arg = ah_args(c, random_);
    const struct ah_value *from = &arg->from, *to = &arg->to;
    if (to->kind == AH_INT)
        return fill_range(c->out[0], from->kind == AH_INT ? from->integer : 0, to->integer);
    if (from->kind == AH_INT)
        return fill_range(c->out[0], 0, from->integer);
    return random_fill(c->out[0], AH_I64, random_whole, &c->out[0]->dtype);
}

int ah_cpu_randperm(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *drawn = NULL;
    AH_TRY(ah_tensor_empty(&drawn, out->size, out->ndim, AH_I64, &ah_cpu));
    ah_generator_fill_permutation(ah_default_generator(), ah_tensor_data(drawn), out->numel);
    return ah_copy(out, drawn);
}

static void random_keep(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    ah_generator_fill_keep(g, data, n, numbers[0]);
}

AH_CPU_OP(bernoulli_, random_fill(c->out[0], AH_BOOL, random_keep, &ah_args(c, bernoulli_)->p.number))

/* Hits of one chance per element; and the first that is none, or n. */
#define HITS(suffix, real)                                                                                    \
    static void random_hits_##suffix(struct ah_generator *g, void *data, int64_t n, const void *context)      \
    {                                                                                                         \
        const real *chance = context;                                                                         \
        real *x = data;                                                                                       \
        ah_generator_fill_uniform_##suffix(g, x, n, 0, 1);                                                    \
        for (int64_t i = 0; i < n; i++)                                                                       \
            x[i] = x[i] < chance[i];                                                                          \
    }                                                                                                         \
    static int64_t no_chance_##suffix(const real *chance, int64_t n)                                          \
    {                                                                                                         \
        int64_t wrong = 0, first = 0;                                                                         \
        for (int64_t i = 0; i < n; i++)                                                                       \
            wrong += !((chance[i] >= 0) & (chance[i] <= 1));                                                  \
        while (wrong && chance[first] >= 0 && chance[first] <= 1)                                             \
            first++;                                                                                          \
        return wrong ? first : n;                                                                             \
    }
HITS(f32, float)
HITS(f64, double)

/* One probability per element: the draw has the precision of the probabilities. */
int ah_cpu_bernoulli(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *p = NULL;
    bool wide = out->dtype == AH_F64;
    AH_TRY(ah_contiguous_as(&p, ah_args(c, bernoulli)->input.tensor, wide ? AH_F64 : AH_F32));
    const void *chance = ah_tensor_data(p);
    int64_t n = p->numel, at = wide ? no_chance_f64(chance, n) : no_chance_f32(chance, n);
    if (at < n)
        return ah_fail(AH_EINVAL, "bernoulli: expected probabilities in 0..1, got %g",
                       wide ? ((const double *)chance)[at] : (double)((const float *)chance)[at]);
    return random_fill(out, wide ? AH_F64 : AH_F32, wide ? random_hits_f64 : random_hits_f32, chance);
}

static double random_exponential(struct ah_generator *g, double lambd)
{
    return -1.0 / lambd * log(1.0 - ah_generator_double(g));
}

static void random_exponentials(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    double *x = data;
    for (int64_t i = 0; i < n; i++)
        x[i] = random_exponential(g, numbers[0]);
}

AH_CPU_OP(exponential_, random_fill(c->out[0], AH_F64, random_exponentials, &ah_args(c, exponential_)->lambd.number))

static void random_cauchys(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    double *x = data;
    for (int64_t i = 0; i < n; i++) { /* kept off the ends, where the tangent has none */
        double at = ah_generator_double(g);
        at = at > 1 - 0x1p-52 ? 1 - 0x1p-52 : at < 0x1p-52 ? 0x1p-52 : at;
        x[i] = numbers[0] + numbers[1] * tan(M_PI * (at - 0.5));
    }
}

AH_CPU_OP_WITH(cauchy_, cauchy_,
               random_fill(c->out[0], AH_F64, random_cauchys, (double[]){arg->median.number, arg->sigma.number}))

static void log_normals(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    double *x = data;
    for (int64_t i = 0; i < n; i++)
        x[i] = exp(ah_generator_normal(g, numbers[0], numbers[1]));
}

AH_CPU_OP_WITH(log_normal_, log_normal_,
               random_fill(c->out[0], AH_F64, log_normals, (double[]){arg->mean.number, arg->std.number}))

static void random_geometrics(struct ah_generator *g, void *data, int64_t n, const void *context)
{
    const double *numbers = context;
    double *x = data;
    for (int64_t i = 0; i < n; i++)
        x[i] = ceil(log(ah_generator_double(g)) / log1p(-numbers[0]));
}

AH_CPU_OP(geometric_, random_fill(c->out[0], AH_F64, random_geometrics, &ah_args(c, geometric_)->p.number))

/* For small rates by products of uniform numbers (Knuth), for others by transformed rejection (Hoermann 1993, PTRS). */
static double random_poisson(struct ah_generator *g, double rate)
{
    if (rate < 10) {
        double count = 0, product = 1, least = exp(-rate);
        if (rate == 0)
            return 0;
        for (;; count++) {
            product *= ah_generator_double(g);
            if (product <= least)
                return count;
        }
    }
    double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b, scale = 1.1239 + 1.1328 / (b - 3.4);
    double sure = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = ah_generator_double(g) - 0.5, v = ah_generator_double(g), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + rate + 0.43);
        int sign;
        if (us >= 0.07 && v <= sure)
            return k;
        if (k < 0 || (us < 0.013 && v > us))
            continue;
        if (log(v) + log(scale) - log(a / (us * us) + b) <= -rate + k * log(rate) - lgamma_r(k + 1, &sign))
            return k;
    }
}

int ah_cpu_poisson(struct ah_call *c)
{
    struct ah_generator *g = ah_default_generator();
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *rates = NULL;
    AH_TRY(ah_contiguous_as(&rates, ah_args(c, poisson)->input.tensor, AH_F64));
    const double *rate = ah_tensor_data(rates);
    for (int64_t i = 0; i < out->numel; i++) {
        if (!(rate[i] >= 0 && rate[i] < 0x1p53))
            return ah_fail(AH_EINVAL, "poisson: expected finite rates of 0 or more, got %g", rate[i]);
        ah_tensor_set(out, i, random_poisson(g, rate[i]));
    }
    return 0;
}

/* By squeezed rejection (Marsaglia and Tsang 2000); a concentration below 1 is raised by 1 and the number scaled.
 * `rounded` computes the constants as PyTorch does for float32. */
static double standard_gamma(struct ah_generator *g, double alpha, bool rounded)
{
    double scale = 1;
    if (alpha < 1) {
        if (alpha == 0)
            return 0;
        double power = rounded ? (double)(1.0f / (float)alpha) : 1 / alpha;
        scale *= pow(1 - ah_generator_double(g), power);
        alpha = rounded ? (double)((float)alpha + 1.0f) : alpha + 1;
    }
    double d = rounded ? (double)((float)alpha - 1.0f / 3.0f) : alpha - (double)(1.0f / 3.0f), c = 1 / sqrt(9 * d);
    for (;;) {
        double x, y;
        do {
            x = ah_generator_normal(g, 0, 1);
            y = 1 + c * x;
        } while (y <= 0);
        double v = y * y * y, u = 1 - ah_generator_double(g), xx = x * x;
        if (u < 1 - (double)0.0331f * xx * xx || log(u) < 0.5 * xx + d * (1 - v + log(v)))
            return scale * d * v;
    }
}

int ah_cpu_standard_gamma(struct ah_call *c)
{
    struct ah_generator *g = ah_default_generator();
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *alphas = NULL;
    bool wide = out->dtype == AH_F64;
    double least = wide ? DBL_MIN : FLT_MIN;
    AH_TRY(ah_contiguous_as(&alphas, ah_args(c, standard_gamma)->input.tensor, AH_F64));
    const double *alpha = ah_tensor_data(alphas);
    for (int64_t i = 0; i < out->numel; i++) {
        if (!(alpha[i] >= 0 && alpha[i] < INFINITY))
            return ah_fail(AH_EINVAL, "standard_gamma: expected finite concentrations of 0 or more, got %g", alpha[i]);
        ah_tensor_set(out, i, fmax(least, standard_gamma(g, alpha[i], !wide)));
    }
    return 0;
}

/* Without replacement (and for one sample): the largest of p / exponential, which is how PyTorch draws. */
static void draw_distinct(int64_t classes, double *score, int64_t samples, int64_t *out)
{
    for (int64_t k = 0; k < samples; k++) {
        int64_t best = 0;
        for (int64_t j = 1; j < classes; j++)
            if (score[j] > score[best])
                best = j;
        out[k] = best;
        score[best] = -1;
    }
}

/* With replacement: `running` has the cumulative sums of the weights. */
static void draw_repeated(struct ah_generator *g, int64_t classes, const double *running, int64_t samples, int64_t *out)
{
    for (int64_t k = 0; k < samples; k++) {
        double at = ah_generator_double(g) * running[classes - 1];
        int64_t low = 0, high = classes - 1;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (running[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        out[k] = low;
    }
}

/* Weights of one row: check them, count those above 0 and store their running sums. Returns whether all are finite and
 * none is below 0. Eight numbers are added at a time, so that a sum waits for one addition per eight. */
#define WEIGHTS(name, real)                                                                       \
    static bool name(const real *weight, int64_t n, int64_t *possible, double *running)           \
    {                                                                                             \
        enum { PART = 512, TOGETHER = 8 };                                                        \
        const real most = sizeof(real) == sizeof(float) ? (real)FLT_MAX : (real)DBL_MAX;          \
        double sum = 0;                                                                           \
        *possible = 0;                                                                            \
        for (int64_t begin = 0, count; begin < n; begin += count) {                               \
            int wrong = 0, positive = 0;                                                          \
            count = n - begin < PART ? n - begin : PART;                                          \
            const real *w = weight + begin;                                                       \
            for (int64_t j = 0; j < count; j++) {                                                 \
                wrong |= !(w[j] >= 0) | (w[j] > most);                                            \
                positive += w[j] > 0;                                                             \
            }                                                                                     \
            if (wrong)                                                                            \
                return false;                                                                     \
            *possible += positive;                                                                \
            double *to = running + begin;                                                         \
            int64_t j = 0;                                                                        \
            for (; j + TOGETHER <= count; j += TOGETHER) {                                        \
                double part[TOGETHER] = {(double)w[j]};                                           \
                for (int k = 1; k < TOGETHER; k++)                                                \
                    part[k] = part[k - 1] + (double)w[j + k];                                     \
                for (int k = 0; k < TOGETHER; k++)                                                \
                    to[j + k] = sum + part[k];                                                    \
                sum += part[TOGETHER - 1];                                                        \
            }                                                                                     \
            for (; j < count; j++)                                                                \
                to[j] = sum += (double)w[j];                                                      \
        }                                                                                         \
        return true;                                                                              \
    }
WEIGHTS(weights_add_f32, float)
WEIGHTS(weights_add_f64, double)

/* Weight i, of float32 or float64 ones. */
static inline double weight_at(const void *weights, bool single, int64_t i)
{
    return single ? (double)((const float *)weights)[i] : ((const double *)weights)[i];
}

/* Fail with the first weight of a row that is below 0 or not finite. */
static int weights_fail(const void *weights, bool single, int64_t i)
{
    double w = weight_at(weights, single, i);
    while (w >= 0 && !isinf(w))
        w = weight_at(weights, single, ++i);
    return ah_fail(AH_EINVAL, "multinomial: expected finite weights of 0 or more, got %g", w);
}

int ah_cpu_multinomial(struct ah_call *c)
{
    const struct ah_args_multinomial *arg = ah_args(c, multinomial);
    struct ah_generator *g = ah_default_generator();
    struct ah_tensor *input = arg->input.tensor;
    AH_OWNED struct ah_tensor *weights = NULL, *scores = NULL;
    int64_t classes = input->size[input->ndim - 1], rows = input->numel / classes, samples = arg->num_samples.integer;
    int64_t *out = ah_tensor_data(c->out[0]);
    bool repeated = arg->replacement.flag && samples > 1;
    bool single = input->dtype == AH_F32;
    AH_TRY(ah_contiguous_as(&weights, input, single ? AH_F32 : AH_F64));
    AH_TRY(ah_tensor_empty(&scores, input->size, input->ndim, AH_F64, &ah_cpu));
    const void *weight = ah_tensor_data(weights);
    double *score = ah_tensor_data(scores);
    for (int64_t r = 0; r < rows; r++) {
        int64_t possible, at = r * classes;
        bool fine = single ? weights_add_f32((const float *)weight + at, classes, &possible, score + at)
                           : weights_add_f64((const double *)weight + at, classes, &possible, score + at);
        if (!fine)
            return weights_fail(weight, single, at);
        if (possible == 0 || (!repeated && possible < samples))
            return ah_fail(AH_EINVAL, "multinomial: row %lld has %lld weights above 0, fewer than %lld samples",
                           (long long)r, (long long)possible, (long long)samples);
    }
    if (repeated) {
        for (int64_t r = 0; r < rows; r++)
            draw_repeated(g, classes, score + r * classes, samples, out + r * samples);
        return 0;
    }
    for (int64_t i = 0; i < rows * classes; i++) {
        /* PyTorch keeps the quotient in the weights' own dtype. */
        double w = weight_at(weight, single, i);
        if (input->dtype == AH_F64)
            score[i] = w / random_exponential(g, 1);
        else
            score[i] = (double)((float)w / (float)random_exponential(g, 1));
    }
    for (int64_t r = 0; r < rows; r++)
        draw_distinct(classes, score + r * classes, samples, out + r * samples);
    return 0;
}
