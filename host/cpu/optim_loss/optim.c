/* The loops of optim_loops.h over segments cut into chunks for threads; small passes stay on one thread. Results do not
 * depend on the number of threads: steps are elementwise, and norms add up fixed chunks in order. */
#include "cpu/optim_loss/optim.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "cpu/loop/iterate.h"
#include "optim/scalars.h"

#define LOOPS "cpu/optim_loss/optim_loops.h"
#include "cpu/loop/for_reals.h"

enum {
    CHUNK = 8192,         /* elements of a norm's chunk: seven float arrays of it stay in the second cache */
    STEP_CHUNK = 1024,    /* a step's elements that are not divided */
    HALF_CHUNK = 256,     /* fp16 and bf16 are widened into buffers on the stack, while the next ones are fetched */
    ARRAYS = 2 + AH_OPTIM_STATES,
};

static void update_half(const struct scalars_f32 *scalars, enum ah_optim_kind kind,
                        const struct ah_optim_options *options, double step, uint16_t *const *array, int64_t n,
                        enum ah_dtype dtype)
{
    float buffer[ARRAYS][HALF_CHUNK], *wide[ARRAYS];
    for (int64_t begin = 0; begin < n; begin += HALF_CHUNK) {
        int64_t length = n - begin < HALF_CHUNK ? n - begin : HALF_CHUNK;
        for (int a = 0; a < ARRAYS; a++) {
            wide[a] = array[a] ? buffer[a] : NULL;
            if (array[a])
                ah_cast(length, buffer[a], AH_F32, 1, array[a] + begin, dtype, 1);
        }
        update_f32(scalars, kind, options, step, wide, length);
        for (int a = 0; a < ARRAYS; a++)
            if (a != 1 && array[a])
                ah_cast(length, array[a] + begin, dtype, 1, buffer[a], AH_F32, 1);
    }
}

static void update_part(enum ah_optim_kind kind, const struct ah_optim_options *options,
                        const struct ah_optim_segment *segment, int64_t begin, int64_t n, enum ah_dtype dtype)
{
    size_t skip = (size_t)begin * ah_dtype_size(dtype);
    void *array[ARRAYS] = {(char *)segment->param + skip, (char *)segment->grad + skip};
    for (int i = 0; i < AH_OPTIM_STATES; i++)
        array[2 + i] = segment->state[i] ? (char *)segment->state[i] + skip : NULL;
    if (dtype == AH_F64) {
        struct scalars_f64 scalars;
        set_scalars_f64(&scalars, kind, options, segment->step, segment->scalar);
        update_f64(&scalars, kind, options, segment->step, (double *const *)array, n);
        return;
    }
    struct scalars_f32 scalars;
    set_scalars_f32(&scalars, kind, options, segment->step, segment->scalar);
    if (dtype == AH_F32)
        update_f32(&scalars, kind, options, segment->step, (float *const *)array, n);
    else
        update_half(&scalars, kind, options, segment->step, (uint16_t *const *)array, n, dtype);
}

/* The segments laid end to end, cut into chunks that never cross a segment's border. */
struct pass {
    enum ah_optim_kind kind;
    const struct ah_optim_options *options;
    const struct ah_optim_segment *segment;
    int count;
    enum ah_dtype dtype;
};

static void run_chunks(void *context, int64_t begin, int64_t end)
{
    const struct pass *pass = context;
    int64_t first = 0; /* number of the segment's first chunk */
    for (int i = 0; i < pass->count && first < end; i++) {
        const struct ah_optim_segment *segment = &pass->segment[i];
        int64_t chunks = (segment->n + STEP_CHUNK - 1) / STEP_CHUNK;
        int64_t from = (begin > first ? begin - first : 0) * STEP_CHUNK;
        int64_t to = end - first < chunks ? (end - first) * STEP_CHUNK : segment->n;
        if (from < to)
            update_part(pass->kind, pass->options, segment, from, to - from, pass->dtype);
        first += chunks;
    }
}

static int optim_step(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                      const struct ah_optim_segment *segment, int count, enum ah_dtype dtype)
{
    struct pass pass = {kind, options, segment, count, dtype};
    int64_t total = 0, chunks = 0;
    for (int i = 0; i < count; i++) {
        total += segment[i].n;
        chunks += (segment[i].n + STEP_CHUNK - 1) / STEP_CHUNK;
    }
    if (total < AH_SHARE_STREAM)
        run_chunks(&pass, 0, chunks);
    else
        ah_parallel_for(chunks, 1, run_chunks, &pass);
    return 0;
}

/* Norms: each chunk of CHUNK elements has one partial result, and these are added up in order. */
enum { PARTIALS = 512 };

struct norm {
    const void *x;
    int64_t n, base;
    double p;
    enum ah_dtype dtype;
    double partial[PARTIALS];
};

static double optim_load(const void *x, int64_t i, enum ah_dtype dtype)
{
    switch (dtype) {
    case AH_F32:
        return ((const float *)x)[i];
    case AH_F64:
        return ((const double *)x)[i];
    default:
        return ah_half_to_f32(((const uint16_t *)x)[i], dtype);
    }
}

static double square_sum_f32(const float *x, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
#pragma omp simd
        for (int j = 0; j < 8; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++)
        lane[0] += (double)x[i] * (double)x[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double norm_chunk(const struct norm *norm, int64_t begin, int64_t end)
{
    double result = 0;
    if (norm->p == 2 && norm->dtype == AH_F32)
        return square_sum_f32((const float *)norm->x + begin, end - begin);
    for (int64_t i = begin; i < end; i++) {
        double value = fabs(optim_load(norm->x, i, norm->dtype));
        if (isinf(norm->p))
            result = value > result || isnan(value) ? value : result;
        else if (norm->p == 2)
            result += value * value;
        else if (norm->p == 1)
            result += value;
        else
            result += pow(value, norm->p);
        if (isnan(result))
            break;
    }
    return result;
}

static void run_norm(void *context, int64_t begin, int64_t end)
{
    struct norm *norm = context;
    for (int64_t c = begin; c < end; c++) {
        int64_t from = (norm->base + c) * CHUNK, to = from + CHUNK;
        norm->partial[c] = norm_chunk(norm, from, to < norm->n ? to : norm->n);
    }
}

static double norm_sum(const void *x, int64_t n, double p, enum ah_dtype dtype)
{
    struct norm norm = {.x = x, .n = n, .p = p, .dtype = dtype};
    int64_t chunks = (n + CHUNK - 1) / CHUNK;
    double result = 0;
    for (norm.base = 0; norm.base < chunks; norm.base += PARTIALS) {
        int64_t count = chunks - norm.base < PARTIALS ? chunks - norm.base : PARTIALS;
        if (count * CHUNK < AH_SHARE_STREAM)
            run_norm(&norm, 0, count);
        else
            ah_parallel_for(count, 1, run_norm, &norm);
        for (int64_t c = 0; c < count && !isnan(result); c++)
            result = ah_norm_with(result, norm.partial[c], p);
    }
    return result;
}

struct sweep {
    void *x;
    double factor; /* or the limit */
    bool clamp;
    enum ah_dtype dtype;
    atomic_bool *overflow;
};

/* Is one of the elements infinite or NaN? Their exponents have all bits set. */
static bool optim_overflows(const struct sweep *s, int64_t begin, int64_t end)
{
    uint64_t bad = 0;
    if (s->dtype == AH_F32) {
        const uint32_t *x = s->x;
        uint32_t any = 0;
        for (int64_t i = begin; i < end; i++)
            any |= (x[i] & 0x7f800000) == 0x7f800000;
        bad = any;
    } else if (s->dtype == AH_F64) {
        const uint64_t *x = s->x, mask = 0x7ffull << 52;
        for (int64_t i = begin; i < end; i++)
            bad |= (x[i] & mask) == mask;
    } else {
        const uint16_t *x = s->x, mask = s->dtype == AH_F16 ? 0x7c00 : 0x7f80;
        for (int64_t i = begin; i < end; i++)
            bad |= (x[i] & mask) == mask;
    }
    return bad;
}

static inline double optim_limited(double value, double limit)
{
    return value > limit ? limit : value < -limit ? -limit : value;
}

static void run_sweep(void *context, int64_t begin, int64_t end)
{
    const struct sweep *s = context;
    if (s->overflow && begin + CHUNK < end) { /* while it is in the cache */
        for (int64_t at = begin; at < end; at += CHUNK)
            run_sweep(context, at, at + CHUNK < end ? at + CHUNK : end);
        return;
    }
    if (s->overflow && optim_overflows(s, begin, end))
        atomic_store(s->overflow, true);
    float factor = (float)s->factor;
    if (s->dtype == AH_F32) {
        float *x = s->x;
        if (s->clamp)
            for (int64_t i = begin; i < end; i++)
                x[i] = x[i] > factor ? factor : x[i] < -factor ? -factor : x[i];
        else
            for (int64_t i = begin; i < end; i++)
                x[i] *= factor;
    } else if (s->dtype == AH_F64) {
        double *x = s->x;
        for (int64_t i = begin; i < end; i++)
            x[i] = s->clamp ? optim_limited(x[i], s->factor) : x[i] * s->factor;
    } else {
        uint16_t *x = s->x;
        for (int64_t i = begin; i < end; i++) {
            float value = ah_half_to_f32(x[i], s->dtype);
            x[i] = ah_f32_to_half(s->clamp ? (float)optim_limited(value, s->factor) : value * factor, s->dtype);
        }
    }
}

static void optim_sweep(const struct sweep *s, int64_t n)
{
    if (n < AH_SHARE_STREAM)
        run_sweep((void *)s, 0, n);
    else
        ah_parallel_for(n, CHUNK, run_sweep, (void *)s);
}

static int optim_norm(struct ah_device *device, const struct ah_optim_run *run, int count, double p,
                      enum ah_dtype dtype, double *sum)
{
    for (int i = 0; i < count && !isnan(*sum); i++)
        *sum = ah_norm_with(*sum, norm_sum(run[i].x, run[i].n, p, dtype), p);
    return 0;
}

static int optim_scale(struct ah_device *device, const struct ah_optim_run *run, int count, double factor,
                       enum ah_dtype dtype, bool *overflow)
{
    atomic_bool any = false;
    for (int i = 0; i < count; i++)
        optim_sweep(&(struct sweep){run[i].x, factor, false, dtype, overflow ? &any : NULL}, run[i].n);
    if (atomic_load(&any))
        *overflow = true;
    return 0;
}

static int optim_clamp(struct ah_device *device, const struct ah_optim_run *run, int count, double limit,
                       enum ah_dtype dtype)
{
    for (int i = 0; i < count; i++)
        optim_sweep(&(struct sweep){run[i].x, limit, true, dtype, NULL}, run[i].n);
    return 0;
}

static int optim_clip(struct ah_device *device, const struct ah_optim_run *run, int count, double max_norm, double p,
                      enum ah_dtype dtype, void *norm)
{
    double sum = 0;
    optim_norm(device, run, count, p, dtype, &sum);
    double total = isinf(p) ? sum : p == 2 ? sqrt(sum) : pow(sum, 1 / p);
    double factor = ah_clip_factor(max_norm, total, dtype == AH_F64);
    if (!(factor >= 1))
        optim_scale(device, run, count, factor, dtype, NULL);
    if (dtype == AH_F64)
        *(double *)norm = total;
    else
        *(float *)norm = (float)total;
    return 0;
}

const struct ah_optim_kernels ah_cpu_optim = {
    .step = optim_step, .norm_sum = optim_norm, .scale = optim_scale, .clamp = optim_clamp, .clip_norm = optim_clip};
