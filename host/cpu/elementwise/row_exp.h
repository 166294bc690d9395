/* The sum of e^(x - m) over a row whose maximum is m; y gets the exponentials unless it is NULL, and may be x. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/elementwise/elementwise_math.h"
#include "cpu/loop/lanes.h"

static inline float ah_row_exp_total(ah_lanes_f32 lanes)
{
    enum { WIDTH = AH_LANES_BYTES / (int)sizeof(float) };
    float lane[WIDTH];
    memcpy(lane, &lanes, sizeof lane);
    for (int half = WIDTH / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

/* A row's last lanes overlap those before, but only the new ones are summed; a shorter row is filled up. */
static inline float ah_row_exp_f32(const float *x, float *y, int64_t n, float m)
{
    enum { WIDTH = AH_LANES_BYTES / (int)sizeof(float) };
    static const int32_t new_lanes[2 * 16] = {[16] = -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    typedef ah_lane_ints_f32 ints_at __attribute__((aligned(4), may_alias));
    const ah_lanes_f32 shift = ah_spread_f32(m);
    ah_lanes_f32 a = {0}, b = {0}, last = {0};
    if (n < WIDTH) {
        float e[WIDTH];
        for (int k = 0; k < WIDTH; k++)
            e[k] = k < n ? x[k] : -INFINITY;
        memcpy(&last, e, sizeof e);
        last = ah_exp_low_f32(last - shift);
        memcpy(e, &last, sizeof e);
        float sum = 0;
        for (int k = 0; k < n; k++)
            sum += e[k];
        if (y)
            memcpy(y, e, (size_t)n * sizeof *y);
        return sum;
    }
    int64_t left = n % WIDTH, i = 0;
    if (left)
        last = ah_exp_low_f32(*(const ah_lanes_at_f32 *)(x + n - WIDTH) - shift);
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        ah_lanes_f32 e = ah_exp_low_f32(*(const ah_lanes_at_f32 *)(x + i) - shift);
        ah_lanes_f32 f = ah_exp_low_f32(*(const ah_lanes_at_f32 *)(x + i + WIDTH) - shift);
        a += e;
        b += f;
        if (y) {
            *(ah_lanes_at_f32 *)(y + i) = e;
            *(ah_lanes_at_f32 *)(y + i + WIDTH) = f;
        }
    }
    if (i + WIDTH <= n) {
        ah_lanes_f32 e = ah_exp_low_f32(*(const ah_lanes_at_f32 *)(x + i) - shift);
        a += e;
        if (y)
            *(ah_lanes_at_f32 *)(y + i) = e;
    }
    if (left && y)
        *(ah_lanes_at_f32 *)(y + n - WIDTH) = last;
    if (left)
        b += (ah_lanes_f32)((ah_lane_ints_f32)last & *(const ints_at *)(new_lanes + 16 - WIDTH + left));
    return ah_row_exp_total(a + b);
}

static inline double ah_row_exp_f64(const double *x, double *y, int64_t n, double m)
{
    double sum = 0;
    if (!y) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += ah_exp(x[i] - m);
        return sum;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        double e = ah_exp(x[i] - m);
        y[i] = e;
        sum += e;
    }
    return sum;
}
