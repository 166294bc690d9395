/* Loops over quantised weights. A vector of 32-bit words has eight 4-bit codes in each lane: the words are shifted by
 * four bits seven times, and a permutation of the table of 16 numbers reads the lowest bits of each lane. The vectors
 * of a product are stored in that order. */
#include "cpu/linear/quantized_loops.h"

#include <string.h>

#include "base/numeric/half.h"
#include "cpu/loop/lanes.h"

enum {
    LANES = AH_LANES_BYTES / 4,
    CHUNK = LANES * 8, /* codes in a vector */
    UNIT = 64,         /* codes with one scale, at most, in products */
    SEGMENT = 4096,    /* columns whose scales are decoded at a time */
    MOST_DIGITS = 65536, /* columns for which sums of digits stay below 2^31 */
};

/* The numbers of the 4-bit codes in the lowest bits of each lane. */
#if defined(__AVX512F__)
struct quantized_table {
    __m512 all;
};

static inline struct quantized_table quantized_table(const float *code)
{
    return (struct quantized_table){_mm512_loadu_ps(code)};
}

static inline ah_lanes_f32 quantized_lookup(struct quantized_table t, ah_lane_bits_f32 words)
{
    return (ah_lanes_f32)_mm512_permutexvar_ps((__m512i)words, t.all);
}
#elif defined(__AVX2__)
struct quantized_table {
    __m256 lower, upper;
};

static inline struct quantized_table quantized_table(const float *code)
{
    return (struct quantized_table){_mm256_loadu_ps(code), _mm256_loadu_ps(code + 8)};
}

static inline ah_lanes_f32 quantized_lookup(struct quantized_table t, ah_lane_bits_f32 words)
{
    __m256i at = (__m256i)words;
    return (ah_lanes_f32)_mm256_blendv_ps(_mm256_permutevar8x32_ps(t.lower, at), _mm256_permutevar8x32_ps(t.upper, at),
                                          _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}
#else
struct quantized_table {
    const float *code;
};

static inline struct quantized_table quantized_table(const float *code)
{
    return (struct quantized_table){code};
}

static inline ah_lanes_f32 quantized_lookup(struct quantized_table t, ah_lane_bits_f32 words)
{
    ah_lanes_f32 numbers;
    for (int i = 0; i < LANES; i++)
        numbers[i] = t.code[words[i] & 15];
    return numbers;
}
#endif

static inline float quantized_sum(ah_lanes_f32 v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] += v[i + half];
    return v[0];
#endif
}

/* Do rows consist of units of one scale? Others are dequantised before they are multiplied. */
static bool quantized_by_units(const struct ah_quantized *q)
{
    return q->four_bit && q->columns % UNIT == 0 && q->columns >> q->block_shift << q->block_shift == q->columns &&
           q->block_shift >= 6;
}

static float quantized_code_at(const struct ah_quantized *q, int64_t flat)
{
    uint8_t pair = q->codes[flat >> 1];
    return q->code[flat & 1 ? pair & 15 : pair >> 4];
}

/* `count` codes, an even number, from an even place on, times a scale. */
static void quantized_pairs(const struct ah_quantized *q, int64_t flat, int64_t count, float scale, float *out)
{
    const uint8_t *codes = q->codes + flat / 2;
    int64_t i = 0;
#if defined(__AVX512F__)
    __m512 table = _mm512_loadu_ps(q->code), factor = _mm512_set1_ps(scale);
    for (; i + 16 <= count; i += 16) {
        __m128i pairs = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)(codes + i / 2)));
        __m128i bytes = _mm_or_si128(_mm_srli_epi16(pairs, 4), _mm_slli_epi16(pairs, 8));
        __m512 numbers = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(bytes), table);
        _mm512_storeu_ps(out + i, _mm512_mul_ps(numbers, factor));
    }
#endif
    for (; i < count; i += 2) {
        out[i] = q->code[codes[i / 2] >> 4] * scale;
        out[i + 1] = q->code[codes[i / 2] & 15] * scale;
    }
}

static void quantized_run_4bit(const struct ah_quantized *q, int64_t flat, int64_t count, float *out)
{
    int64_t block = (int64_t)1 << q->block_shift;
    for (int64_t length; count > 0; count -= length, flat += length, out += length) {
        float decoded, scale;
        length = block - (flat & (block - 1));
        length = length < count ? length : count;
        scale = *ah_quantized_scales(q, flat >> q->block_shift, 1, &decoded);
        int64_t i = 0;
        if ((flat & 1) == 0) {
            i = length & ~(int64_t)1;
            quantized_pairs(q, flat, i, scale, out);
        }
        for (; i < length; i++)
            out[i] = quantized_code_at(q, flat + i) * scale;
    }
}

void ah_quantized_run(const struct ah_quantized *q, int64_t row, int64_t column, int64_t count, float *out)
{
    int64_t flat = row * q->columns + column;
    if (q->four_bit) {
        quantized_run_4bit(q, flat, count, out);
        return;
    }
    const int8_t *codes = (const int8_t *)q->codes + flat;
    float scale = q->absmax[row];
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)codes[i] * scale * AH_INT8_STEP;
}

void ah_quantized_choose(struct ah_quantized *q, bool half, bool pairs)
{
#ifndef AH_LANES_BYTE_DOTS
    pairs = false;
#endif
    if (!q->four_bit)
        q->way = pairs && q->columns <= MOST_DIGITS ? AH_QUANTIZED_DIGITS : AH_QUANTIZED_INT8;
    else if (!quantized_by_units(q))
        q->way = AH_QUANTIZED_ANY;
    else
        q->way = pairs && half ? AH_QUANTIZED_PAIRS : AH_QUANTIZED_UNITS;
    for (int i = 0; i < 32; i++)
        q->half_code[i] = ah_f32_to_bf16(q->code[i % 16]);
}

size_t ah_quantized_vector_bytes(const struct ah_quantized *q)
{
    if (q->way == AH_QUANTIZED_DIGITS)
        return ah_quantized_digits_bytes(q->columns);
    return (size_t)(ah_quantized_padded(q->columns)) * sizeof(float);
}

void ah_quantized_vector(const struct ah_quantized *q, const void *numbers, void *out)
{
    const float *x = numbers;
    if (q->way == AH_QUANTIZED_DIGITS) {
        ah_quantized_digits_vector(x, q->columns, out);
    } else if (q->way == AH_QUANTIZED_PAIRS) {
        ah_quantized_pairs_vector(numbers, q->columns, out);
    } else if (q->way != AH_QUANTIZED_UNITS) {
        memcpy(out, x, (size_t)q->columns * sizeof *x);
    } else {
        float *to = out;
        for (int64_t at = 0; at < q->columns; at += CHUNK)
            for (int shift = 0; shift < 8; shift++)
                for (int lane = 0; lane < LANES; lane++) {
                    int64_t i = at + 8 * lane + (shift ^ 1); /* the first code of a pair is in the upper bits */
                    to[at + shift * LANES + lane] = i < q->columns ? x[i] : 0;
                }
    }
}

/* The products of a chunk, times their scales, are added to the sums. */
static inline __attribute__((always_inline)) void quantized_chunk(struct quantized_table table, ah_lane_bits_f32 words,
                                                                  ah_lanes_f32 scale, const float *x, int64_t ldx,
                                                                  ah_lanes_f32 *sum, int m)
{
    ah_lanes_f32 part[AH_QUANTIZED_MOST][2] = {{{0}}};
    for (int shift = 0; shift < 8; shift++) {
        ah_lanes_f32 numbers = quantized_lookup(table, words >> 4 * shift);
        for (int r = 0; r < m; r++)
            part[r][shift & 1] = ah_fma_f32(numbers, *(const ah_lanes_at_f32 *)(const void *)(x + r * ldx +
                                                                                            shift * LANES),
                                            part[r][shift & 1]);
    }
    for (int r = 0; r < m; r++)
        sum[r] = ah_fma_f32(part[r][0] + part[r][1], scale, sum[r]);
}

/* The scales of the lanes of a chunk, whose first unit is `unit`. */
static inline ah_lanes_f32 quantized_lane_scales(const float *scales, int64_t unit, int shift, bool half)
{
#if defined(__AVX512F__)
    __m512 first = _mm512_set1_ps(scales[unit >> shift]);
    if (half)
        return (ah_lanes_f32)_mm512_maskz_mov_ps(0xff, first);
    return (ah_lanes_f32)_mm512_mask_mov_ps(first, 0xff00, _mm512_set1_ps(scales[(unit + 1) >> shift]));
#else
    (void)half;
    return ah_spread_f32(scales[unit >> shift]);
#endif
}

/* y of one row of 4-bit codes and `m` vectors, which the compiler sees as a constant. */
static inline __attribute__((always_inline)) void quantized_row_4bit(const struct ah_quantized *q, const float *x,
                                                                     int64_t row, int m, float *y)
{
    typedef ah_lane_bits_f32 bits_at __attribute__((aligned(1), may_alias));
    struct quantized_table table = quantized_table(q->code);
    const uint8_t *codes = q->codes + row * q->columns / 2;
    int64_t ldx = ah_quantized_padded(q->columns), first = row * q->columns >> q->block_shift;
    int shift = q->block_shift - 6;
    float decoded[SEGMENT / UNIT];
    ah_lanes_f32 sum[AH_QUANTIZED_MOST] = {{0}};
    for (int64_t begin = 0; begin < q->columns; begin += SEGMENT) {
        int64_t end = q->columns - begin < SEGMENT ? q->columns : begin + SEGMENT, i = begin;
        int64_t blocks = (end - begin + (1 << q->block_shift) - 1) >> q->block_shift;
        const float *scales = ah_quantized_scales(q, first + (begin >> q->block_shift), blocks, decoded);
        for (; i + CHUNK <= end; i += CHUNK)
            quantized_chunk(table, *(const bits_at *)(const void *)(codes + i / 2),
                            quantized_lane_scales(scales, (i - begin) / UNIT, shift, false), x + i, ldx, sum, m);
#if defined(__AVX512F__)
        if (i < end)
            quantized_chunk(table, (ah_lane_bits_f32)_mm512_maskz_loadu_epi32(0xff, codes + i / 2),
                            quantized_lane_scales(scales, (i - begin) / UNIT, shift, true), x + i, ldx, sum, m);
#endif
    }
    for (int r = 0; r < m; r++)
        y[r] = quantized_sum(sum[r]);
}

/* LANES int8 numbers as floats. */
static inline ah_lanes_f32 quantized_wide(const int8_t *codes)
{
#if defined(__AVX512F__)
    return (ah_lanes_f32)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)codes)));
#elif defined(__AVX2__)
    return (ah_lanes_f32)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)codes)));
#else
    ah_lanes_f32 numbers;
    for (int i = 0; i < LANES; i++)
        numbers[i] = codes[i];
    return numbers;
#endif
}

/* The same of int8 numbers. */
static inline __attribute__((always_inline)) void quantized_row_8bit(const struct ah_quantized *q, const float *x,
                                                                     int64_t row, int m, float *y)
{
    enum { SUMS = 4 };
    const int8_t *codes = (const int8_t *)q->codes + row * q->columns;
    ah_lanes_f32 sum[AH_QUANTIZED_MOST][SUMS] = {{{0}}};
    int64_t i = 0, k = q->columns, ldx = ah_quantized_padded(k);
    for (; i + SUMS * LANES <= k; i += SUMS * LANES)
        for (int s = 0; s < SUMS; s++) {
            ah_lanes_f32 numbers = quantized_wide(codes + i + s * LANES);
            for (int r = 0; r < m; r++)
                sum[r][s] = ah_fma_f32(numbers, *(const ah_lanes_at_f32 *)(const void *)(x + r * ldx + i + s * LANES),
                                       sum[r][s]);
        }
    for (int r = 0; r < m; r++) {
        float total = quantized_sum((sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3]));
        for (int64_t j = i; j < k; j++)
            total += (float)codes[j] * x[r * ldx + j];
        y[r] = total * (q->absmax[row] * AH_INT8_STEP);
    }
}

/* The same of codes whose blocks do not fit the rows. */
static inline __attribute__((always_inline)) void quantized_row_any(const struct ah_quantized *q, const float *x,
                                                                    int64_t row, int m, float *y)
{
    float numbers[512];
    int64_t ldx = ah_quantized_padded(q->columns);
    for (int r = 0; r < m; r++)
        y[r] = 0;
    for (int64_t begin = 0; begin < q->columns; begin += 512) {
        int64_t count = q->columns - begin < 512 ? q->columns - begin : 512;
        ah_quantized_run(q, row, begin, count, numbers);
        for (int r = 0; r < m; r++)
            for (int64_t i = 0; i < count; i++)
                y[r] += numbers[i] * x[r * ldx + begin + i];
    }
}

#define QUANTIZED_ROWS(kind, m)                                                                                    \
    static void quantized_rows_##kind##_##m(const struct ah_quantized *q, const void *x, const float *bias, float *y, \
                                            int64_t ldy, int64_t begin, int64_t end)                               \
    {                                                                                                              \
        for (int64_t row = begin; row < end; row++) {                                                              \
            float products[m];                                                                                     \
            quantized_row_##kind(q, x, row, m, products);                                                          \
            for (int r = 0; r < m; r++)                                                                            \
                y[r * ldy + row] = bias ? products[r] + bias[row] : products[r];                                   \
        }                                                                                                          \
    }
#define QUANTIZED_BY_COUNT(kind) \
    QUANTIZED_ROWS(kind, 1) QUANTIZED_ROWS(kind, 2) QUANTIZED_ROWS(kind, 3) QUANTIZED_ROWS(kind, 4)
QUANTIZED_BY_COUNT(4bit)
QUANTIZED_BY_COUNT(8bit)
QUANTIZED_BY_COUNT(any)

static const ah_quantized_rows_fn quantized_ways[AH_QUANTIZED_WAYS][AH_QUANTIZED_MOST] = {
    [AH_QUANTIZED_ANY] = {quantized_rows_any_1, quantized_rows_any_2, quantized_rows_any_3, quantized_rows_any_4},
    [AH_QUANTIZED_INT8] = {quantized_rows_8bit_1, quantized_rows_8bit_2, quantized_rows_8bit_3, quantized_rows_8bit_4},
    [AH_QUANTIZED_UNITS] = {quantized_rows_4bit_1, quantized_rows_4bit_2, quantized_rows_4bit_3, quantized_rows_4bit_4},
};

void ah_quantized_rows(const struct ah_quantized *q, const void *x, int count, const float *bias, float *y, int64_t ldy,
                       int64_t begin, int64_t end)
{
    ah_quantized_rows_fn rows = q->way == AH_QUANTIZED_DIGITS  ? ah_quantized_digits[count - 1]
                                : q->way == AH_QUANTIZED_PAIRS ? ah_quantized_pairs[count - 1]
                                                               : quantized_ways[q->way][count - 1];
    rows(q, x, bias, y, ldy, begin, end);
}
