/* The largest and the smallest of n >= 1 floats: ah_largest_*, ah_smallest_*; NaN where one is NaN. The instructions
 * pass NaN over, so that it is searched for apart, in two vectors at once. */
#pragma once

#include <string.h>

#include "cpu/loop/lanes.h"

#define AH_ROW_EXTREME(name, type, t, closer, better)                                            \
    static inline type name##_##t(const type *from, int64_t n)                                   \
    {                                                                                            \
        enum { WIDTH = AH_LANES_BYTES / (int)sizeof(type) };                                     \
        type best = from[0], lane[WIDTH];                                                        \
        if (n < WIDTH) {                                                                         \
            for (int64_t i = 1; i < n; i++)                                                      \
                best = ((from[i] better best) | (from[i] != from[i])) ? from[i] : best;          \
            return best;                                                                         \
        }                                                                                        \
        ah_lanes_##t a = *(const ah_lanes_at_##t *)from, b = a, c = a, d = a;                    \
        ah_lane_tests_##t nan = ah_unordered_##t(a, a);                                          \
        int64_t i = 0;                                                                           \
        for (; i + 4 * WIDTH <= n; i += 4 * WIDTH) {                                             \
            const ah_lanes_at_##t *x = (const ah_lanes_at_##t *)(from + i);                      \
            nan |= ah_unordered_##t(x[0], x[1]) | ah_unordered_##t(x[2], x[3]);                  \
            a = closer##_##t(x[0], a);                                                           \
            b = closer##_##t(x[1], b);                                                           \
            c = closer##_##t(x[2], c);                                                           \
            d = closer##_##t(x[3], d);                                                           \
        }                                                                                        \
        for (; i < n; i += WIDTH) { /* the last lanes overlap those before */                    \
            ah_lanes_##t x = *(const ah_lanes_at_##t *)(from + (i + WIDTH <= n ? i : n - WIDTH)); \
            nan |= ah_unordered_##t(x, x);                                                       \
            a = closer##_##t(x, a);                                                              \
        }                                                                                        \
        if (ah_any_##t(nan))                                                                     \
            return (type)__builtin_nanf("");                                                     \
        a = closer##_##t(closer##_##t(d, b), closer##_##t(c, a));                                \
        memcpy(lane, &a, sizeof lane);                                                           \
        for (int half = WIDTH / 2; half > 0; half /= 2)                                          \
            for (int k = 0; k < half; k++)                                                       \
                lane[k] = lane[k + half] better lane[k] ? lane[k + half] : lane[k];              \
        return lane[0];                                                                          \
    }

AH_ROW_EXTREME(ah_largest, float, f32, ah_larger, >)
AH_ROW_EXTREME(ah_largest, double, f64, ah_larger, >)
AH_ROW_EXTREME(ah_smallest, float, f32, ah_smaller, <)
AH_ROW_EXTREME(ah_smallest, double, f64, ah_smaller, <)
