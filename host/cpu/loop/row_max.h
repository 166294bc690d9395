/* The maximum of a row; NaN is passed over, and nothing, or nothing but -inf, has -inf. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "cpu/loop/lanes.h"

/* The last lanes overlap those before. */
#define AH_ROW_MAX(t, real)                                                                       \
    static inline real ah_row_max_##t(const real *x, int64_t n)                                   \
    {                                                                                             \
        enum { WIDTH = AH_LANES_BYTES / (int)sizeof(real) };                                      \
        real m = (real)-INFINITY;                                                                 \
        if (n < WIDTH) {                                                                          \
            for (int64_t i = 0; i < n; i++)                                                       \
                m = x[i] > m ? x[i] : m;                                                          \
            return m;                                                                             \
        }                                                                                         \
        ah_lanes_##t a = ah_spread_##t(m), b = a;                                                 \
        int64_t i = 0;                                                                            \
        for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {                                              \
            a = ah_larger_##t(*(const ah_lanes_at_##t *)(x + i), a);                              \
            b = ah_larger_##t(*(const ah_lanes_at_##t *)(x + i + WIDTH), b);                      \
        }                                                                                         \
        for (; i < n; i += WIDTH)                                                                 \
            a = ah_larger_##t(*(const ah_lanes_at_##t *)(x + (i + WIDTH <= n ? i : n - WIDTH)), a); \
        a = ah_larger_##t(b, a);                                                                  \
        for (int k = 0; k < WIDTH; k++)                                                           \
            m = a[k] > m ? a[k] : m;                                                              \
        return m;                                                                                 \
    }

AH_ROW_MAX(f32, float)
AH_ROW_MAX(f64, double)
