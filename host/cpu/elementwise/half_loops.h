/* Loops of one or two fp16 or bf16 inputs that are widened, computed in float32 and rounded in registers, where the
 * level has AVX-512 or AVX2; elsewhere the iterator converts them in buffers. Loops of functions of one bf16 number are
 * for all levels. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/loop/lanes.h"

#if defined(__AVX512BW__)
#define AH_HALF_VECTORS

static inline ah_lanes_f32 ah_wide_f16(const uint16_t *x)
{
    return (ah_lanes_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

static inline void ah_narrow_f16(uint16_t *y, ah_lanes_f32 x)
{
    _mm256_storeu_si256((__m256i *)(void *)y, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}

static inline void ah_narrow_two_f16(uint16_t *y, ah_lanes_f32 low, ah_lanes_f32 high)
{
    ah_narrow_f16(y, low);
    ah_narrow_f16(y + 16, high);
}

/* 32 numbers, by the upper halves of the rounded ones; those among which is a NaN in two vectors. */
static inline void ah_narrow_two_bf16(uint16_t *y, ah_lanes_f32 low, ah_lanes_f32 high)
{
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1), odd = _mm512_set1_epi32(0x10000);
    const __m512i upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                                           25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512i a = _mm512_add_epi32((__m512i)low, half), b = _mm512_add_epi32((__m512i)high, half);
    a = _mm512_mask_add_epi32(a, _mm512_test_epi32_mask((__m512i)low, odd), a, one);
    b = _mm512_mask_add_epi32(b, _mm512_test_epi32_mask((__m512i)high, odd), b, one);
    _mm512_storeu_si512(y, _mm512_permutex2var_epi16(a, upper, b));
    if (__builtin_expect(ah_unordered_f32(low, high) != 0, 0)) {
        ah_narrow_bf16(y, low);
        ah_narrow_bf16(y + 16, high);
    }
}
#elif defined(__AVX2__) && defined(__F16C__)
#define AH_HALF_VECTORS

static inline ah_lanes_f32 ah_wide_f16(const uint16_t *x)
{
    return (ah_lanes_f32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline void ah_narrow_two_f16(uint16_t *y, ah_lanes_f32 low, ah_lanes_f32 high)
{
    __m128i *to = (__m128i *)(void *)y;
    _mm_storeu_si128(to, _mm256_cvtps_ph((__m256)low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(to + 1, _mm256_cvtps_ph((__m256)high, _MM_FROUND_TO_NEAREST_INT));
}
#endif

#ifdef AH_HALF_VECTORS
enum { AH_HALF_LANES = AH_LANES_BYTES / 4, AH_HALF_STEP = 2 * AH_HALF_LANES };

/* As LOOP1 and LOOP2 (cpu/elementwise/elementwise.h), of an expression of vectors; the last one is filled up. */
#define AH_HALF_LOOP1(name, half, expr)                                                                 \
    static inline ah_lanes_f32 name##_of_##half(const uint16_t *x)                                      \
    {                                                                                                   \
        const ah_lanes_f32 a = ah_wide_##half(x);                                                       \
        return (expr);                                                                                  \
    }                                                                                                   \
    static void name##_##half(int64_t n, void *const *data, const int64_t *step, const void *context)   \
    {                                                                                                   \
        uint16_t *y = data[0], last[AH_HALF_STEP] = {0};                                                \
        const uint16_t *x = data[1];                                                                    \
        for (int64_t i = 0; i < n; i += AH_HALF_STEP) {                                                 \
            size_t left = n - i < AH_HALF_STEP ? (size_t)(n - i) * sizeof *y : 0;                       \
            const uint16_t *from = left ? memcpy(last, x + i, left) : x + i;                            \
            ah_narrow_two_##half(left ? last : y + i, name##_of_##half(from),                           \
                                 name##_of_##half(from + AH_HALF_LANES));                               \
            if (left)                                                                                   \
                memcpy(y + i, last, left);                                                              \
        }                                                                                               \
    }
#define AH_HALF_LOOPS1(name, expr) AH_HALF_LOOP1(name, f16, expr) AH_HALF_LOOP1(name, bf16, expr)
/* Return the operand that is repeated where `step` is not 1. */
static inline ah_lanes_f32 ah_repeated_half(const void *data, int64_t step, enum ah_dtype dtype)
{
    return ah_spread_f32(step == AH_STEP_NUMBER ? *(const float *)data
                         : step == 0            ? ah_half_to_f32(*(const uint16_t *)data, dtype)
                                                : 0);
}

#define AH_HALF_LOOP2(name, half, dtype, expr)                                                          \
    static inline ah_lanes_f32 name##_of_##half(ah_lanes_f32 a, ah_lanes_f32 b)                         \
    {                                                                                                   \
        return (expr);                                                                                  \
    }                                                                                                   \
    static void name##_##half(int64_t n, void *const *data, const int64_t *step, const void *context)   \
    {                                                                                                   \
        uint16_t *y = data[0], first[AH_HALF_STEP] = {0}, second[AH_HALF_STEP] = {0};                   \
        const uint16_t *p = data[1], *q = data[2];                                                      \
        const bool many_p = step[1] == 1, many_q = step[2] == 1;                                        \
        const ah_lanes_f32 p0 = ah_repeated_half(p, step[1], dtype), q0 = ah_repeated_half(q, step[2], dtype);\
        for (int64_t i = 0; i < n; i += AH_HALF_STEP) {                                                 \
            size_t left = n - i < AH_HALF_STEP ? (size_t)(n - i) * sizeof *y : 0;                       \
            const uint16_t *at_p = left && many_p ? memcpy(first, p + i, left) : p + i;                 \
            const uint16_t *at_q = left && many_q ? memcpy(second, q + i, left) : q + i;                \
            ah_lanes_f32 a = many_p ? ah_wide_##half(at_p) : p0, b = many_q ? ah_wide_##half(at_q) : q0;\
            ah_lanes_f32 a2 = many_p ? ah_wide_##half(at_p + AH_HALF_LANES) : p0;                       \
            ah_lanes_f32 b2 = many_q ? ah_wide_##half(at_q + AH_HALF_LANES) : q0;                       \
            ah_narrow_two_##half(left ? first : y + i, name##_of_##half(a, b), name##_of_##half(a2, b2));\
            if (left)                                                                                   \
                memcpy(y + i, first, left);                                                             \
        }                                                                                               \
    }
#define AH_HALF_LOOPS2(name, expr) AH_HALF_LOOP2(name, f16, AH_F16, expr) AH_HALF_LOOP2(name, bf16, AH_BF16, expr)
#define AH_HALF_ENTRIES(name) [AH_F16] = name##_f16, [AH_BF16] = name##_bf16,

/* A loop of `of` one number, or of the second one times the first: 64 numbers at a time, so that the rounding is that
 * of vectors. */
static inline void ah_wide_bf16_block(float *to, const uint16_t *from, int64_t count, int64_t step)
{
    uint16_t last[64];
    if (step && count < 64) {
        memset(last, 0, sizeof last);
        from = memcpy(last, from, (size_t)count * sizeof *last);
    }
    for (int k = 0; k < 64; k += AH_HALF_LANES)
        *(ah_lanes_f32 *)(void *)(to + k) = step ? ah_wide_bf16(from + k) : ah_spread_f32(ah_bf16_to_f32(from[0]));
}

static inline void ah_narrow_bf16_block(uint16_t *to, const float *from, int64_t count)
{
    const ah_lanes_f32 *x = (const ah_lanes_f32 *)(const void *)from;
    uint16_t last[64];
    for (int k = 0; k < 64 / AH_HALF_STEP; k++)
        ah_narrow_two_bf16((count < 64 ? last : to) + k * AH_HALF_STEP, x[2 * k], x[2 * k + 1]);
    if (count < 64)
        memcpy(to, last, (size_t)count * sizeof *to);
}

#define AH_BF16_LOOP1(fn, of)                                                                           \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context)              \
    {                                                                                                   \
        uint16_t *y = data[0];                                                                          \
        const uint16_t *x = data[1];                                                                    \
        for (int64_t i = 0; i < n; i += 64) {                                                           \
            _Alignas(64) float a[64];                                                                   \
            ah_wide_bf16_block(a, x + i, n - i, 1);                                                     \
            _Pragma("omp simd") for (int k = 0; k < 64; k++)                                            \
                a[k] = of(a[k]);                                                                        \
            ah_narrow_bf16_block(y + i, a, n - i);                                                      \
        }                                                                                               \
    }
#define AH_BF16_LOOP2(fn, of)                                                                           \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context)              \
    {                                                                                                   \
        uint16_t *y = data[0];                                                                          \
        const uint16_t *p = data[1], *q = data[2];                                                      \
        for (int64_t i = 0; i < n; i += 64) {                                                           \
            _Alignas(64) float a[64], b[64];                                                            \
            ah_wide_bf16_block(a, p + i * step[1], n - i, step[1]);                                     \
            ah_wide_bf16_block(b, q + i * step[2], n - i, step[2]);                                     \
            _Pragma("omp simd") for (int k = 0; k < 64; k++)                                            \
                a[k] *= of(b[k]);                                                                       \
            ah_narrow_bf16_block(y + i, a, n - i);                                                      \
        }                                                                                               \
    }
/* As AH_BF16_LOOP2: the first number times the second, times `of` the third. */
#define AH_BF16_LOOP3(fn, of)                                                                           \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context)              \
    {                                                                                                   \
        uint16_t *y = data[0];                                                                          \
        const uint16_t *p = data[1], *q = data[2], *r = data[3];                                        \
        for (int64_t i = 0; i < n; i += 64) {                                                           \
            _Alignas(64) float a[64], b[64], c[64];                                                     \
            ah_wide_bf16_block(a, p + i, n - i, 1);                                                     \
            ah_wide_bf16_block(b, q + i, n - i, 1);                                                     \
            ah_wide_bf16_block(c, r + i, n - i, 1);                                                     \
            _Pragma("omp simd") for (int k = 0; k < 64; k++)                                            \
                a[k] = a[k] * b[k] * of(c[k]);                                                          \
            ah_narrow_bf16_block(y + i, a, n - i);                                                      \
        }                                                                                               \
    }

#else
#define AH_BF16_LOOP1(fn, of) \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context) \
    {                                                                                      \
        uint16_t *y = data[0];                                                             \
        const uint16_t *x = data[1];                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                \
            y[i] = ah_f32_to_bf16(of(ah_bf16_to_f32(x[i])));                               \
    }
#define AH_BF16_LOOP2(fn, of) \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context) \
    {                                                                                      \
        uint16_t *y = data[0];                                                             \
        const uint16_t *p = data[1], *q = data[2];                                         \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                \
            y[i] = ah_f32_to_bf16(ah_bf16_to_f32(p[i * step[1]]) * of(ah_bf16_to_f32(q[i * step[2]]))); \
    }
#define AH_BF16_LOOP3(fn, of) \
    static void fn(int64_t n, void *const *data, const int64_t *step, const void *context) \
    {                                                                                      \
        uint16_t *y = data[0];                                                             \
        const uint16_t *p = data[1], *q = data[2], *r = data[3];                           \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                \
            y[i] = ah_f32_to_bf16(ah_bf16_to_f32(p[i]) * ah_bf16_to_f32(q[i]) * of(ah_bf16_to_f32(r[i]))); \
    }
#define AH_HALF_LOOPS1(name, expr)
#define AH_HALF_LOOPS2(name, expr)
#define AH_HALF_ENTRIES(name)
#endif
