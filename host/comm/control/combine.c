/* Blocks that fit the first cache are summed over all sources before they are stored; one macro makes the function of
 * each dtype. Invariant: every element is added in the order of the sources and rounded once. */
#include "comm/control/combine.h"

#include <math.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "base/numeric/half.h"
#include "base/process/parallel.h"

/* One block of sums stays in the first cache while the sources pass by. */
enum { BLOCK = 1024 };

struct job {
    enum ah_dtype from, to;
    enum ah_reduce_op op;
    void *const *dst;
    const void *const *src;
    int dst_count, src_count;
    double divisor, factor;
    bool exact; /* the divisor is a power of two, so that multiplying by its inverse results in the same bits */
};

#define FLOAT_SUM(a, b) ((a) + (b))
#define FLOAT_PRODUCT(a, b) ((a) * (b))
/* Integers overflow by wrapping, as in PyTorch, which only unsigned ones may. */
#define INT_SUM(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define INT_PRODUCT(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define MAX_OF(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MIN_OF(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))
/* The dispatcher refuses these for floating dtypes. */
#define NONE(a, b) (a)

#define FOLD(OP)                                                                          \
    for (int64_t i = 0; i < m; i++)                                                       \
        sum[i] = OP(sum[i], given[i]);                                                    \
    break

/* Blocks of halves as float32 and back; the compiler does not vectorise conversions of float16. */

static const float *read_bf16(const uint16_t *from, float *block, int64_t m)
{
    for (int64_t i = 0; i < m; i++)
        block[i] = ah_bf16_to_f32(from[i]);
    return block;
}

static const void *write_bf16(const float *sum, void *block, int64_t m)
{
    uint16_t *out = block;
    for (int64_t i = 0; i < m; i++) {
        union { float f; uint32_t u; } v = {sum[i]};
        uint32_t rounded = (v.u + 0x7fff + (v.u >> 16 & 1)) >> 16; /* to nearest even */
        out[i] = (uint16_t)(sum[i] != sum[i] ? v.u >> 16 | 0x40 : rounded);
    }
    return out;
}

static const float *read_f16(const uint16_t *from, float *block, int64_t m)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= m; i += 8)
        _mm256_storeu_ps(block + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#endif
    for (; i < m; i++)
        block[i] = ah_f16_to_f32(from[i]);
    return block;
}

static const void *write_f16(const float *sum, void *block, int64_t m)
{
    uint16_t *out = block;
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= m; i += 8)
        _mm_storeu_si128((void *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(sum + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < m; i++)
        out[i] = ah_f32_to_f16(sum[i]);
    return out;
}

#define AS_IT_IS(from, block, m) (from)

/* S: of sources, A: accumulated, T: stored; READ loads a block of A, WRITE stores one of T. */
#define COMBINE(NAME, S, A, T, READ, WRITE, ADD, TIMES, BITS_AND, BITS_OR, BITS_XOR)         \
    static void combine_##NAME(const struct job *job, int64_t begin, int64_t end)         \
    {                                                                                     \
        A sum[BLOCK], block[BLOCK];                                                       \
        (void)block;                                                                      \
        for (int64_t at = begin; at < end; at += BLOCK) {                                 \
            int64_t m = end - at < BLOCK ? end - at : BLOCK;                              \
            const A *given = READ((const S *)job->src[0] + at, block, m);                 \
            memcpy(sum, given, (size_t)m * sizeof *sum);                                  \
            for (int s = 1; s < job->src_count; s++) {                                    \
                given = READ((const S *)job->src[s] + at, block, m);                      \
                switch (job->op) {                                                        \
                case AH_REDUCE_SUM:                                                       \
                case AH_REDUCE_MEAN: FOLD(ADD);                                           \
                case AH_REDUCE_MAX: FOLD(MAX_OF);                                         \
                case AH_REDUCE_MIN: FOLD(MIN_OF);                                         \
                case AH_REDUCE_PRODUCT: FOLD(TIMES);                                      \
                case AH_REDUCE_AND: FOLD(BITS_AND);                                       \
                case AH_REDUCE_OR: FOLD(BITS_OR);                                         \
                case AH_REDUCE_XOR: FOLD(BITS_XOR);                                       \
                case AH_REDUCE_OPS: break;                                                \
                }                                                                         \
            }                                                                             \
            if (job->op == AH_REDUCE_MEAN) {                                              \
                A divisor = (A)job->divisor, factor = (A)job->factor;                     \
                for (int64_t i = 0; i < m; i++)                                           \
                    sum[i] = job->exact ? sum[i] * factor : sum[i] / divisor;             \
            }                                                                             \
            const T *out = WRITE(sum, block, m);                                          \
            for (int d = 0; d < job->dst_count; d++)                                      \
                memcpy((T *)job->dst[d] + at, out, (size_t)m * sizeof(T));                \
        }                                                                                 \
    }

COMBINE(f32, float, float, float, AS_IT_IS, AS_IT_IS, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)
COMBINE(f64, double, double, double, AS_IT_IS, AS_IT_IS, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)
COMBINE(i64, int64_t, int64_t, int64_t, AS_IT_IS, AS_IT_IS, INT_SUM, INT_PRODUCT, AND, OR, XOR)
COMBINE(i32, int32_t, int32_t, int32_t, AS_IT_IS, AS_IT_IS, (int32_t)INT_SUM, (int32_t)INT_PRODUCT, AND, OR, XOR)
COMBINE(u8, uint8_t, uint8_t, uint8_t, AS_IT_IS, AS_IT_IS, (uint8_t)INT_SUM, (uint8_t)INT_PRODUCT, AND, OR, XOR)
COMBINE(f16, uint16_t, float, uint16_t, read_f16, write_f16, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)
COMBINE(bf16, uint16_t, float, uint16_t, read_bf16, write_bf16, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)
COMBINE(f16_f32, uint16_t, float, float, read_f16, AS_IT_IS, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)
COMBINE(bf16_f32, uint16_t, float, float, read_bf16, AS_IT_IS, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)
COMBINE(f32_f16, float, float, uint16_t, AS_IT_IS, write_f16, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)
COMBINE(f32_bf16, float, float, uint16_t, AS_IT_IS, write_bf16, FLOAT_SUM, FLOAT_PRODUCT, NONE, NONE, NONE)

/* The case that training lives on: two ranks, summed in place on both. Same arithmetic as above. */
static void pair_f32(const struct job *job, int64_t begin, int64_t end)
{
    float *restrict a = job->dst[0], *restrict b = job->dst[1];
    if (job->op == AH_REDUCE_SUM) {
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float sum = a[i] + b[i];
            a[i] = sum;
            b[i] = sum;
        }
    } else {
        float factor = (float)job->factor;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float sum = (a[i] + b[i]) * factor;
            a[i] = sum;
            b[i] = sum;
        }
    }
}

static void between_f32(const struct job *job, int64_t begin, int64_t end)
{
    if (job->from == AH_F16)
        combine_f16_f32(job, begin, end);
    else if (job->from == AH_BF16)
        combine_bf16_f32(job, begin, end);
    else if (job->to == AH_F16)
        combine_f32_f16(job, begin, end);
    else
        combine_f32_bf16(job, begin, end);
}

static void combine_range(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    bool adds = job->op == AH_REDUCE_SUM || (job->op == AH_REDUCE_MEAN && job->exact);
    if (job->from == AH_F32 && job->to == AH_F32 && job->src_count == 2 && job->dst_count == 2 &&
        job->dst[0] == job->src[0] && job->dst[1] == job->src[1] && adds) {
        pair_f32(job, begin, end);
        return;
    }
    if (job->from != job->to) {
        between_f32(job, begin, end);
        return;
    }
    switch (job->from) {
    case AH_F32: combine_f32(job, begin, end); break;
    case AH_F64: combine_f64(job, begin, end); break;
    case AH_I64: combine_i64(job, begin, end); break;
    case AH_I32: combine_i32(job, begin, end); break;
    case AH_BOOL:
    case AH_U8: combine_u8(job, begin, end); break;
    case AH_F16: combine_f16(job, begin, end); break;
    case AH_BF16: combine_bf16(job, begin, end); break;
    case AH_I8:
    case AH_I16:
    case AH_U16:
    case AH_U32:
    case AH_U64: /* refused by ah_collective_check */
    case AH_DTYPE_COUNT: break;
    }
}

void ah_combine(enum ah_dtype dtype, enum ah_reduce_op op, void *const *dst, int dst_count, const void *const *src,
                int src_count, int64_t n, double divisor)
{
    ah_combine_as(dtype, dtype, op, dst, dst_count, src, src_count, n, divisor);
}

void ah_combine_as(enum ah_dtype from, enum ah_dtype to, enum ah_reduce_op op, void *const *dst, int dst_count,
                   const void *const *src, int src_count, int64_t n, double divisor)
{
    int exponent;
    if (divisor == 0)
        divisor = 1;
    struct job job = {from, to, op, dst, src, dst_count, src_count, divisor, 1 / divisor,
                      frexp(divisor, &exponent) == 0.5};
    if (n < 128 * 1024)
        combine_range(&job, 0, n);
    else
        ah_parallel_for(n, 16 * 1024, combine_range, &job);
}
