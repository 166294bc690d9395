/* Sums of rows of float32: up to 8 additions per lane in float32 vectors, then double. Which element is added to which
 * depends on their number alone. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "cpu/loop/lanes.h"

typedef float ah_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef float ah_half_lanes __attribute__((vector_size(32)));
typedef float ah_loose_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef double ah_wide_lanes __attribute__((vector_size(64)));

/* GCC 12 converts vectors of 8 in two halves. */
static inline ah_wide_lanes ah_widen(ah_half_lanes x)
{
#if defined(__AVX512F__)
    return (ah_wide_lanes)_mm512_cvtps_pd((__m256)x);
#else
    return __builtin_convertvector(x, ah_wide_lanes);
#endif
}

static inline ah_wide_lanes ah_widen_8(const float *x)
{
    return ah_widen(*(const ah_loose_lanes *)x);
}

static inline ah_wide_lanes ah_widen_sum(ah_lanes x)
{
    union {
        ah_lanes all;
        ah_half_lanes half[2];
    } lanes = {x};
    return ah_widen(lanes.half[0]) + ah_widen(lanes.half[1]);
}

/* The first n < 16 numbers, and zeros. */
static inline ah_lanes ah_lanes_first(const float *from, int64_t n)
{
#if defined(__AVX512F__)
    return (ah_lanes)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
#else
    ah_lanes first = {0};
    memcpy(&first, from, (size_t)n * sizeof *from);
    return first;
#endif
}

/* LANES is applied to each vector of inputs. */
#define AH_ROW_SUM(name, LANES)                                                                  \
    static inline double name(const float *from, int64_t n)                                      \
    {                                                                                            \
        ah_wide_lanes wide = {0};                                                                \
        while (n >= 64) {                                                                        \
            int64_t count = n / 64 < 8 ? n / 64 : 8;                                             \
            ah_lanes a = {0}, b = {0}, c = {0}, d = {0};                                         \
            for (int64_t k = 0; k < count; k++, from += 64) {                                    \
                a += LANES(*(const ah_lanes *)from);                                             \
                b += LANES(*(const ah_lanes *)(from + 16));                                      \
                c += LANES(*(const ah_lanes *)(from + 32));                                      \
                d += LANES(*(const ah_lanes *)(from + 48));                                      \
            }                                                                                    \
            wide += (ah_widen_sum(a) + ah_widen_sum(b)) + (ah_widen_sum(c) + ah_widen_sum(d));   \
            n -= count * 64;                                                                     \
        }                                                                                        \
        for (; n >= 16; n -= 16, from += 16)                                                     \
            wide += ah_widen_sum(LANES(*(const ah_lanes *)from));                                \
        wide += ah_widen_sum(LANES(ah_lanes_first(from, n)));                                    \
        double sum = ((wide[0] + wide[1]) + (wide[2] + wide[3])) +                               \
                     ((wide[4] + wide[5]) + (wide[6] + wide[7]));                                \
        return sum;                                                                              \
    }
