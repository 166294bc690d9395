/* The matrices of Winograd's filtering, applied to vectors of channels: one side of a transform of
 *
 *     Y = A' [(G g G') * (B' d B)] A     (' transposes; * multiplies item by item, summed over input channels)
 *
 * for tiles of 4x4 outputs: F(4x4, 3x3) has 6x6 inputs d and 3x3 weights g, the points 0, +-a, +-b and infinity with
 * a b = 1; F(4x4, 2x2) has 5x5 and 2x2, the points 0, +-a, c and infinity. `taps` is 3 or 2, constant at every call;
 * a side has taps + 3 items, each `step` from the next. */
#pragma once

#include "cpu/loop/lanes.h"

typedef ah_lanes_f32 lanes;

static inline lanes lanes_load(const float *p)
{
    return *(const ah_lanes_at_f32 *)p;
}

static inline void lanes_store(float *p, lanes v)
{
    *(ah_lanes_at_f32 *)p = v;
}

#define POINT_A (2.0f / 3)
#define POINT_B 1.5f
#define POINT_C 2.0f
#define SQUARE_A (4.0f / 9)
#define SQUARE_B 2.25f
#define SQUARE_C 4.0f
#define SCALE_A (1 / (2 * SQUARE_A * (SQUARE_A - SQUARE_B)))
#define SCALE_B (1 / (2 * SQUARE_B * (SQUARE_B - SQUARE_A)))
/* Of F(4x4, 2x2): 1 / the product of a point's distances from the others. */
#define SCALE_2_ZERO (1 / (SQUARE_A * POINT_C))
#define SCALE_2_PLUS (1 / (2 * SQUARE_A * (POINT_A - POINT_C)))
#define SCALE_2_MINUS (-1 / (2 * SQUARE_A * (POINT_A + POINT_C)))
#define SCALE_2_C (1 / (POINT_C * (SQUARE_C - SQUARE_A)))

#define TIMES(x, v) (ah_spread_f32(x) * (v))
#define PLUS(x, v, sum) ah_fma_f32(ah_spread_f32(x), v, sum)

/* B' d. */
static inline __attribute__((always_inline)) void input_side(const int taps, const lanes *d, int step, lanes *to,
                                                             int to_step)
{
    if (taps == 2) {
        lanes f0 = PLUS(-POINT_C, d[0], d[step]), f1 = PLUS(-POINT_C, d[step], d[2 * step]);
        lanes f2 = PLUS(-POINT_C, d[2 * step], d[3 * step]), f3 = PLUS(-POINT_C, d[3 * step], d[4 * step]);
        to[0] = PLUS(-SQUARE_A, f0, f2);
        to[to_step] = PLUS(POINT_A, f1, f2);
        to[2 * to_step] = PLUS(-POINT_A, f1, f2);
        to[3 * to_step] = PLUS(-SQUARE_A, d[step], d[3 * step]);
        to[4 * to_step] = PLUS(-SQUARE_A, f1, f3);
        return;
    }
    lanes even_a = PLUS(-SQUARE_B, d[2 * step], d[4 * step]), odd_a = PLUS(-SQUARE_B, d[step], d[3 * step]);
    lanes even_b = PLUS(-SQUARE_A, d[2 * step], d[4 * step]), odd_b = PLUS(-SQUARE_A, d[step], d[3 * step]);
    to[0] = PLUS(-(SQUARE_A + SQUARE_B), d[2 * step], d[0] + d[4 * step]);
    to[to_step] = PLUS(POINT_A, odd_a, even_a);
    to[2 * to_step] = PLUS(-POINT_A, odd_a, even_a);
    to[3 * to_step] = PLUS(POINT_B, odd_b, even_b);
    to[4 * to_step] = PLUS(-POINT_B, odd_b, even_b);
    to[5 * to_step] = PLUS(-(SQUARE_A + SQUARE_B), d[3 * step], d[step] + d[5 * step]);
}

/* A' m: 4 items. */
static inline __attribute__((always_inline)) void output_side(const int taps, const lanes *m, int step, lanes *to,
                                                              int to_step)
{
    lanes sum_a = m[step] + m[2 * step], rest_a = m[step] - m[2 * step];
    if (taps == 2) {
        lanes c = m[3 * step];
        to[0] = m[0] + sum_a + c;
        to[to_step] = PLUS(POINT_A, rest_a, TIMES(POINT_C, c));
        to[2 * to_step] = PLUS(SQUARE_A, sum_a, TIMES(SQUARE_C, c));
        to[3 * to_step] = PLUS(POINT_A * SQUARE_A, rest_a, PLUS(POINT_C * SQUARE_C, c, m[4 * step]));
        return;
    }
    lanes sum_b = m[3 * step] + m[4 * step], rest_b = m[3 * step] - m[4 * step];
    to[0] = m[0] + sum_a + sum_b;
    to[to_step] = PLUS(POINT_A, rest_a, TIMES(POINT_B, rest_b));
    to[2 * to_step] = PLUS(SQUARE_A, sum_a, TIMES(SQUARE_B, sum_b));
    to[3 * to_step] = PLUS(POINT_A * SQUARE_A, rest_a, PLUS(POINT_B * SQUARE_B, rest_b, m[5 * step]));
}

/* A y, of 4 items: the adjoint of output_side. */
static inline __attribute__((always_inline)) void gradient_side(const int taps, const lanes *y, int step, lanes *to,
                                                                int to_step)
{
    lanes even_a = PLUS(SQUARE_A, y[2 * step], y[0]), odd_a = PLUS(SQUARE_A, y[3 * step], y[step]);
    to[0] = y[0];
    to[to_step] = PLUS(POINT_A, odd_a, even_a);
    to[2 * to_step] = PLUS(-POINT_A, odd_a, even_a);
    if (taps == 2) {
        lanes high = PLUS(POINT_C, y[3 * step], y[2 * step]);
        to[3 * to_step] = PLUS(SQUARE_C, high, PLUS(POINT_C, y[step], y[0]));
        to[4 * to_step] = y[3 * step];
        return;
    }
    lanes even_b = PLUS(SQUARE_B, y[2 * step], y[0]), odd_b = PLUS(SQUARE_B, y[3 * step], y[step]);
    to[3 * to_step] = PLUS(POINT_B, odd_b, even_b);
    to[4 * to_step] = PLUS(-POINT_B, odd_b, even_b);
    to[5 * to_step] = y[3 * step];
}

/* G g, of `taps` items. */
static inline __attribute__((always_inline)) void weight_side(const int taps, const lanes *g, int step, lanes *to,
                                                              int to_step)
{
    if (taps == 2) {
        to[0] = TIMES(SCALE_2_ZERO, g[0]);
        to[to_step] = TIMES(SCALE_2_PLUS, PLUS(POINT_A, g[step], g[0]));
        to[2 * to_step] = TIMES(SCALE_2_MINUS, PLUS(-POINT_A, g[step], g[0]));
        to[3 * to_step] = TIMES(SCALE_2_C, PLUS(POINT_C, g[step], g[0]));
        to[4 * to_step] = g[step];
        return;
    }
    lanes even_a = TIMES(SCALE_A, PLUS(SQUARE_A, g[2 * step], g[0]));
    lanes even_b = TIMES(SCALE_B, PLUS(SQUARE_B, g[2 * step], g[0]));
    to[0] = g[0];
    to[to_step] = PLUS(POINT_A * SCALE_A, g[step], even_a);
    to[2 * to_step] = PLUS(-POINT_A * SCALE_A, g[step], even_a);
    to[3 * to_step] = PLUS(POINT_B * SCALE_B, g[step], even_b);
    to[4 * to_step] = PLUS(-POINT_B * SCALE_B, g[step], even_b);
    to[5 * to_step] = g[2 * step];
}

/* G' u: `taps` items, the adjoint of weight_side. */
static inline __attribute__((always_inline)) void sums_side(const int taps, const lanes *u, int step, lanes *to,
                                                            int to_step)
{
    if (taps == 2) {
        lanes plus = TIMES(SCALE_2_PLUS, u[step]), minus = TIMES(SCALE_2_MINUS, u[2 * step]);
        lanes c = TIMES(SCALE_2_C, u[3 * step]);
        to[0] = PLUS(SCALE_2_ZERO, u[0], plus + minus + c);
        to[to_step] = PLUS(POINT_A, plus - minus, PLUS(POINT_C, c, u[4 * step]));
        return;
    }
    lanes sum_a = TIMES(SCALE_A, u[step] + u[2 * step]), sum_b = TIMES(SCALE_B, u[3 * step] + u[4 * step]);
    lanes rest_a = TIMES(SCALE_A, u[step] - u[2 * step]), rest_b = TIMES(SCALE_B, u[3 * step] - u[4 * step]);
    to[0] = u[0] + sum_a + sum_b;
    to[to_step] = PLUS(POINT_A, rest_a, TIMES(POINT_B, rest_b));
    to[2 * to_step] = PLUS(SQUARE_A, sum_a, PLUS(SQUARE_B, sum_b, u[5 * step]));
}
