/* Sums of rows in float32: up to 8 additions per lane in float32 vectors, then double. Which element is added to which
 * depends on their number alone. Vectors are of the level's own width, since GCC keeps wider ones in memory. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "cpu/loop/lanes.h"

/* Vectors of 64 bytes: 16 floats, or 8 doubles. */
enum { AH_SUM_LANES = AH_LANES_BYTES / 4, AH_SUM_PARTS = 64 / AH_LANES_BYTES };

struct ah_wide_lanes {
    ah_lanes_f64 part[AH_SUM_PARTS];
};

/* The lower half of a vector of floats, or the upper one, as doubles. GCC 12 converts wide
 * vectors in halves. */
#if defined(__AVX512F__)
typedef float ah_half_lanes __attribute__((vector_size(32)));
#define AH_WIDEN(half) ((ah_lanes_f64)_mm512_cvtps_pd((__m256)(half)))
#elif defined(__AVX2__)
typedef float ah_half_lanes __attribute__((vector_size(16)));
#define AH_WIDEN(half) ((ah_lanes_f64)_mm256_cvtps_pd((__m128)(half)))
#else
typedef float ah_half_lanes __attribute__((vector_size(AH_LANES_BYTES / 2)));
#define AH_WIDEN(half) __builtin_convertvector(half, ah_lanes_f64)
#endif
typedef ah_half_lanes ah_half_lanes_at __attribute__((aligned(4), may_alias));

static inline ah_lanes_f64 ah_widen_half(ah_lanes_f32 x, int half)
{
    union {
        ah_lanes_f32 all;
        ah_half_lanes half[2];
    } lanes = {x};
    return AH_WIDEN(lanes.half[half]);
}

/* As many floats as a vector has doubles. */
static inline ah_lanes_f64 ah_widen_at(const float *x)
{
    return AH_WIDEN(*(const ah_half_lanes_at *)x);
}

/* The first 8 of 16 floats + the last 8. */
static inline __attribute__((always_inline)) struct ah_wide_lanes ah_widen_sum(const ah_lanes_f32 *x)
{
    struct ah_wide_lanes sum;
#pragma GCC unroll 4
    for (int k = 0; k < AH_SUM_PARTS; k++)
        sum.part[k] = ah_widen_half(x[k / 2], k % 2) + ah_widen_half(x[(AH_SUM_PARTS + k) / 2], (AH_SUM_PARTS + k) % 2);
    return sum;
}

static inline __attribute__((always_inline)) struct ah_wide_lanes ah_wide_add(struct ah_wide_lanes a,
                                                                             struct ah_wide_lanes b)
{
#pragma GCC unroll 4
    for (int k = 0; k < AH_SUM_PARTS; k++)
        a.part[k] += b.part[k];
    return a;
}

static inline double ah_wide_total(struct ah_wide_lanes wide)
{
    double lane[8];
    memcpy(lane, &wide, sizeof lane);
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* A vector of the floats at `from`, and vectors of the first n < 16 of them and zeros. */
static inline ah_lanes_f32 ah_sum_f32(const float *from)
{
    return *(const ah_lanes_at_f32 *)from;
}

static inline __attribute__((always_inline)) void ah_sum_f32_first(ah_lanes_f32 *x, const float *from, int64_t n)
{
#if defined(__AVX512F__)
    x[0] = (ah_lanes_f32)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
#elif defined(__AVX2__)
    static const int32_t ones[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    const __m256i_u *masks = (const __m256i_u *)(const void *)(ones + 16 - n);
    x[0] = (ah_lanes_f32)_mm256_maskload_ps(from, masks[0]);
    x[1] = (ah_lanes_f32)_mm256_maskload_ps(from + 8, masks[1]);
#else
    float first[16] = {0};
    memcpy(first, from, (size_t)n * sizeof *from);
    for (int v = 0; v < AH_SUM_PARTS; v++)
        x[v] = ah_sum_f32(first + v * AH_SUM_LANES);
#endif
}

/* The sum of n items of the type `item`, of which `lanes` and `lanes##_first` make vectors of floats as ah_sum_f32 and
 * ah_sum_f32_first do; VALUE is applied to each vector. */
#define AH_ROW_SUM(name, item, lanes, VALUE)                                                              \
    static inline double name(const item *from, int64_t n)                                                \
    {                                                                                                     \
        enum { VECTORS = 4 * AH_SUM_PARTS };                                                              \
        struct ah_wide_lanes wide = {{{0}}};                                                              \
        ah_lanes_f32 last[AH_SUM_PARTS];                                                                  \
        while (n >= 64) {                                                                                 \
            int64_t count = n / 64 < 8 ? n / 64 : 8;                                                      \
            ah_lanes_f32 x[VECTORS] = {{0}};                                                              \
            for (int64_t k = 0; k < count; k++, from += 64)                                               \
                _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; v++)                                \
                    x[v] += VALUE(lanes(from + v * AH_SUM_LANES));                                        \
            struct ah_wide_lanes low = ah_wide_add(ah_widen_sum(x), ah_widen_sum(x + AH_SUM_PARTS));      \
            struct ah_wide_lanes high = ah_wide_add(ah_widen_sum(x + 2 * AH_SUM_PARTS),                   \
                                                    ah_widen_sum(x + 3 * AH_SUM_PARTS));                  \
            wide = ah_wide_add(wide, ah_wide_add(low, high));                                             \
            n -= count * 64;                                                                              \
        }                                                                                                 \
        for (; n >= 16; n -= 16, from += 16) {                                                            \
            _Pragma("GCC unroll 4") for (int v = 0; v < AH_SUM_PARTS; v++)                                \
                last[v] = VALUE(lanes(from + v * AH_SUM_LANES));                                          \
            wide = ah_wide_add(wide, ah_widen_sum(last));                                                 \
        }                                                                                                 \
        lanes##_first(last, from, n);                                                                     \
        _Pragma("GCC unroll 4") for (int v = 0; v < AH_SUM_PARTS; v++)                                    \
            last[v] = VALUE(last[v]);                                                                     \
        return ah_wide_total(ah_wide_add(wide, ah_widen_sum(last)));                                      \
    }
