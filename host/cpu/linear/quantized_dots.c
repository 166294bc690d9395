/* Products of quantised rows by the processor's sums of products: of pairs of bfloat16 (AVX512-BF16) for 4-bit codes,
 * with a permutation of a table of 16 numbers for 32 codes; of four int8 numbers (VNNI) for int8 weights, whose vectors
 * are three digits of 8 bits of whole numbers. Processors with the first have the second. */
#include "cpu/linear/quantized_loops.h"

#include <string.h>

#include "cpu/loop/lanes.h"

#ifdef AH_LANES_BYTE_DOTS
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512vnni")

enum {
    STEP = 64,        /* int8 numbers in a vector */
    DIGITS = 3,
    CHUNK = 128,      /* 4-bit codes in a vector */
    UNIT = 64,        /* codes with one scale, at most */
    SEGMENT = 4096,   /* columns whose scales are decoded at a time */
    ROWS = 4,         /* at once, of products with one vector */
    AHEAD = 2048,     /* bytes of a row that are fetched before they are read: the processor's own prefetching ends at
                         a page and falls behind the arithmetic */
    LARGEST = 8000000 /* the vector's largest number in units */
};

/* A vector of codes; later ones of the row, or of the next rows, are fetched. */
static inline __m512i dots_codes(const void *codes)
{
    _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T0);
    return _mm512_loadu_si512(codes);
}

/* A vector of int8 products: STEP bytes of this, then the digits, lowest first, each of them filled up with zeros. */
struct digits_head {
    double unit;          /* the vector in multiples of it is whole numbers */
    int32_t sum[DIGITS];
};

static int64_t digits_length(int64_t columns)
{
    return (columns + STEP - 1) / STEP * STEP;
}

size_t ah_quantized_digits_bytes(int64_t columns)
{
    return (size_t)(STEP + DIGITS * digits_length(columns));
}

/* The largest absolute value of a vector, infinity or NaN where a number is one. */
static float digits_largest(const float *x, int64_t columns)
{
    __m512 largest = _mm512_setzero_ps(), bad = largest;
    for (int64_t i = 0; i < columns; i += 16) {
        __mmask16 lanes = columns - i < 16 ? (__mmask16)(0xffff >> (16 - (columns - i))) : 0xffff;
        __m512 size = _mm512_abs_ps(_mm512_maskz_loadu_ps(lanes, x + i));
        largest = _mm512_max_ps(largest, size);
        bad = _mm512_add_ps(bad, _mm512_sub_ps(size, size)); /* NaN once a number is infinite or NaN */
    }
    return _mm512_reduce_max_ps(largest) + _mm512_reduce_add_ps(bad);
}

void ah_quantized_digits_vector(const float *x, int64_t columns, void *out)
{
    struct digits_head head = {0};
    int8_t *digit = (int8_t *)out + STEP;
    int64_t length = digits_length(columns);
    float largest = digits_largest(x, columns);
    __m512 units = _mm512_set1_ps(largest >= 1e-30f ? LARGEST / largest : 0);
    __m512i sum[DIGITS] = {{0}};
    for (int64_t i = 0; i < length; i += 16) {
        int64_t left = columns - i;
        __mmask16 lanes = left >= 16 ? 0xffff : left > 0 ? (__mmask16)(0xffff >> (16 - left)) : 0;
        __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), units));
        for (int d = 0; d < DIGITS; d++) {
            __m512i lowest = _mm512_srai_epi32(_mm512_slli_epi32(number, 24), 24);
            _mm_storeu_si128((__m128i *)(void *)(digit + d * length + i), _mm512_cvtepi32_epi8(lowest));
            sum[d] = _mm512_add_epi32(sum[d], lowest);
            number = _mm512_srai_epi32(_mm512_sub_epi32(number, lowest), 8);
        }
    }
    for (int d = 0; d < DIGITS; d++)
        head.sum[d] = _mm512_reduce_add_epi32(sum[d]);
    head.unit = (double)largest / LARGEST;
    memcpy(out, &head, sizeof head);
}

/* The sums of `rows` rows and `m` vectors; both are constant at every call, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void digits_step(const __m512i *codes, int rows, const int8_t *digit,
                                                              int64_t length, size_t bytes,
                                                              __m512i (*sum)[AH_QUANTIZED_MOST][DIGITS], int m)
{
    __m512i above[ROWS]; /* plus 128: one factor is unsigned */
    for (int f = 0; f < rows; f++)
        above[f] = _mm512_xor_si512(codes[f], _mm512_set1_epi8(-128));
    for (int r = 0; r < m; r++)
        for (int d = 0; d < DIGITS; d++) {
            __m512i x = _mm512_loadu_si512(digit + (size_t)r * bytes + d * length);
            for (int f = 0; f < rows; f++)
                sum[f][r][d] = _mm512_dpbusd_epi32(sum[f][r][d], above[f], x);
        }
}

/* y[f][r] of row `row + f * far` and vector r. */
static inline __attribute__((always_inline)) void digits_row(const struct ah_quantized *q, const void *x, int64_t row,
                                                             int64_t far, int rows, int m,
                                                             float (*y)[AH_QUANTIZED_MOST])
{
    const int8_t *codes = (const int8_t *)q->codes + row * q->columns, *digit = (const int8_t *)x + STEP;
    size_t bytes = ah_quantized_digits_bytes(q->columns);
    int64_t length = digits_length(q->columns), i = 0, distance = far * q->columns;
    __m512i sum[ROWS][AH_QUANTIZED_MOST][DIGITS] = {{{{0}}}}, at[ROWS];
    for (; i + STEP <= q->columns; i += STEP) {
        for (int f = 0; f < rows; f++)
            at[f] = dots_codes(codes + f * distance + i);
        digits_step(at, rows, digit + i, length, bytes, sum, m);
    }
    if (i < q->columns) {
        for (int f = 0; f < rows; f++)
            at[f] = _mm512_maskz_loadu_epi8(~(__mmask64)0 >> (STEP - (q->columns - i)), codes + f * distance + i);
        digits_step(at, rows, digit + i, length, bytes, sum, m);
    }
    for (int r = 0; r < m; r++) {
        struct digits_head head;
        memcpy(&head, (const char *)x + (size_t)r * bytes, sizeof head);
        for (int f = 0; f < rows; f++) {
            int64_t total = 0;
            for (int d = DIGITS - 1; d >= 0; d--)
                total = total * 256 + (_mm512_reduce_add_epi32(sum[f][r][d]) - 128 * (int64_t)head.sum[d]);
            y[f][r] = (float)((double)total * head.unit) * (q->absmax[row + f * far] * AH_INT8_STEP);
        }
    }
}

/* 32 numbers, zeros beyond `left` of them. */
static __m512i pairs_half(const uint16_t *x, int64_t left)
{
    __mmask32 lanes = left >= 32 ? ~(__mmask32)0 : left > 0 ? ~(__mmask32)0 >> (32 - left) : 0;
    return _mm512_maskz_loadu_epi16(lanes, x);
}

void ah_quantized_pairs_vector(const uint16_t *x, int64_t columns, void *out)
{
    uint16_t *to = out, place[32];
    for (int64_t at = 0; at < columns; at += CHUNK) {
        __m512i part[4];
        for (int i = 0; i < 4; i++)
            part[i] = pairs_half(x + at + 32 * i, columns - at - 32 * i);
        for (int shift = 0; shift < 4; shift++) {
            for (int word = 0; word < 32; word++)
                place[word] = (uint16_t)(4 * (word % 16) + (shift ^ 1)); /* a pair's first code is in the upper bits */
            __m512i places = _mm512_loadu_si512(place);
            __m512i lower = _mm512_permutex2var_epi16(part[0], places, part[1]);
            __m512i upper = _mm512_permutex2var_epi16(part[2], places, part[3]);
            _mm512_storeu_si512(to + at + shift * 32,
                                _mm512_inserti64x4(lower, _mm512_castsi512_si256(upper), 1));
        }
    }
}

/* The products of a chunk of each row, times their scales, are added to the sums. */
static inline __attribute__((always_inline)) void pairs_chunk(__m512i table, const __m512i *words, const __m512 *scale,
                                                              int rows, const uint16_t *x, int64_t ldx,
                                                              __m512 (*sum)[AH_QUANTIZED_MOST], int m)
{
    __m512 part[ROWS][AH_QUANTIZED_MOST] = {{{0}}};
    for (int shift = 0; shift < 4; shift++) {
        __m512bh numbers[ROWS];
        for (int f = 0; f < rows; f++)
            numbers[f] = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(words[f], 4 * (unsigned)shift), table);
        for (int r = 0; r < m; r++) {
            __m512bh at = (__m512bh)_mm512_loadu_si512(x + r * ldx + 32 * shift);
            for (int f = 0; f < rows; f++)
                part[f][r] = _mm512_dpbf16_ps(part[f][r], numbers[f], at);
        }
    }
    for (int f = 0; f < rows; f++)
        for (int r = 0; r < m; r++)
            sum[f][r] = _mm512_fmadd_ps(part[f][r], scale[f], sum[f][r]);
}

/* y[f][r] of row `row + f * far` of 4-bit codes and vector r. */
static inline __attribute__((always_inline)) void pairs_row(const struct ah_quantized *q, const void *vectors,
                                                            int64_t row, int64_t far, int rows, int m,
                                                            float (*y)[AH_QUANTIZED_MOST])
{
    const uint16_t *x = vectors;
    const uint8_t *codes = q->codes + row * q->columns / 2;
    int64_t ldx = ah_quantized_padded(q->columns) * 2, first = row * q->columns >> q->block_shift;
    int64_t distance = far * q->columns / 2, blocks_far = far * q->columns >> q->block_shift;
    int shift = q->block_shift - 6;
    float decoded[ROWS][SEGMENT / UNIT];
    const float *scales[ROWS];
    __m512i table = _mm512_loadu_si512(q->half_code), words[ROWS];
    __m512 sum[ROWS][AH_QUANTIZED_MOST] = {{{0}}}, scale[ROWS];
    for (int64_t begin = 0; begin < q->columns; begin += SEGMENT) {
        int64_t end = q->columns - begin < SEGMENT ? q->columns : begin + SEGMENT, i = begin;
        int64_t blocks = (end - begin + ((int64_t)1 << q->block_shift) - 1) >> q->block_shift;
        for (int f = 0; f < rows; f++)
            scales[f] = ah_quantized_scales(q, first + f * blocks_far + (begin >> q->block_shift), blocks, decoded[f]);
        for (; i + CHUNK <= end; i += CHUNK) {
            int64_t unit = (i - begin) / UNIT;
            for (int f = 0; f < rows; f++) {
                words[f] = dots_codes(codes + f * distance + i / 2);
                scale[f] = _mm512_mask_mov_ps(_mm512_set1_ps(scales[f][unit >> shift]), 0xff00,
                                              _mm512_set1_ps(scales[f][(unit + 1) >> shift]));
            }
            pairs_chunk(table, words, scale, rows, x + i, ldx, sum, m);
        }
        if (i < end) {
            for (int f = 0; f < rows; f++) {
                words[f] = _mm512_maskz_loadu_epi32(0xff, codes + f * distance + i / 2);
                scale[f] = _mm512_maskz_mov_ps(0xff, _mm512_set1_ps(scales[f][(i - begin) / UNIT >> shift]));
            }
            pairs_chunk(table, words, scale, rows, x + i, ldx, sum, m);
        }
    }
    for (int f = 0; f < rows; f++)
        for (int r = 0; r < m; r++)
            y[f][r] = _mm512_reduce_add_ps(sum[f][r]);
}

static inline void dots_store(float (*products)[AH_QUANTIZED_MOST], int rows, int64_t row, int64_t far, int m,
                              const float *bias, float *y, int64_t ldy)
{
    for (int f = 0; f < rows; f++)
        for (int r = 0; r < m; r++)
            y[r * ldy + row + f * far] = bias ? products[f][r] + bias[row + f * far] : products[f][r];
}

/* Rows are read as four streams, as in gemv.c (measured on a Zen 4, 106 million weights: int8 in 4.1 instead of 5.1 ms,
 * 4-bit codes in 2.9 instead of 3.7; neighbouring rows at once in 10 and 4.7). */
#define DOTS_ROWS(kind, m)                                                                                         \
    static void kind##_rows_##m(const struct ah_quantized *q, const void *x, const float *bias, float *y,          \
                                int64_t ldy, int64_t begin, int64_t end)                                           \
    {                                                                                                              \
        float products[ROWS][AH_QUANTIZED_MOST];                                                                   \
        int64_t far = m == 1 ? (end - begin) / ROWS : 0, row = begin;                                              \
        for (; row < begin + far; row++) {                                                                         \
            kind##_row(q, x, row, far, m == 1 ? ROWS : 1, m, products);                                            \
            dots_store(products, m == 1 ? ROWS : 1, row, far, m, bias, y, ldy);                                    \
        }                                                                                                          \
        for (row = begin + ROWS * far; row < end; row++) {                                                         \
            kind##_row(q, x, row, 0, 1, m, products);                                                              \
            dots_store(products, 1, row, 0, m, bias, y, ldy);                                                      \
        }                                                                                                          \
    }
DOTS_ROWS(digits, 1)
DOTS_ROWS(digits, 2)
DOTS_ROWS(digits, 3)
DOTS_ROWS(digits, 4)
DOTS_ROWS(pairs, 1)
DOTS_ROWS(pairs, 2)
DOTS_ROWS(pairs, 3)
DOTS_ROWS(pairs, 4)

const ah_quantized_rows_fn ah_quantized_digits[AH_QUANTIZED_MOST] = {digits_rows_1, digits_rows_2, digits_rows_3,
                                                                     digits_rows_4};
const ah_quantized_rows_fn ah_quantized_pairs[AH_QUANTIZED_MOST] = {pairs_rows_1, pairs_rows_2, pairs_rows_3,
                                                                    pairs_rows_4};
#pragma GCC pop_options
#else
/* Never called: ah_quantized_choose selects other ways. */
const ah_quantized_rows_fn ah_quantized_digits[AH_QUANTIZED_MOST], ah_quantized_pairs[AH_QUANTIZED_MOST];

size_t ah_quantized_digits_bytes(int64_t columns)
{
    return (size_t)columns;
}

void ah_quantized_digits_vector(const float *x, int64_t columns, void *out)
{
    (void)x, (void)columns, (void)out;
}

void ah_quantized_pairs_vector(const uint16_t *x, int64_t columns, void *out)
{
    (void)x, (void)columns, (void)out;
}
#endif
