/* GELU in the form with tanh and its slope, in float32 for vectors of AVX-512, with the bits of the functions of
 * activation_math.h: rounding and powers of two are single instructions, and so is a bound, which GCC makes of a
 * comparison and a choice. */
#pragma once

#include <string.h>

#include "cpu/elementwise/activation_math.h"
#include "cpu/loop/lanes.h"

#if defined(__AVX512F__)
#define AH_GELU_LANES

static inline ah_lanes_f32 ah_gelu_tanh_power_lanes(ah_lanes_f32 x, float most)
{
    const float scale = (float)(-2 * AH_SQRT_2_OVER_PI * M_LOG2E), cubic = (float)(0.044715 * scale);
    ah_lanes_f32 t = x * ah_fma_f32(ah_spread_f32(cubic) * x, x, ah_spread_f32(scale));
    t = ah_smaller_f32(ah_spread_f32(most), t);
    return ah_exp2_middle_f32(ah_larger_f32(ah_spread_f32(-126.0f), t));
}

static inline ah_lanes_f32 ah_gelu_tanh_lanes(ah_lanes_f32 x)
{
    const ah_lanes_f32 one = ah_spread_f32(1.0f);
    return x * (one / (one + ah_gelu_tanh_power_lanes(x, 128.0f)));
}

static inline ah_lanes_f32 ah_gelu_tanh_slope_lanes(ah_lanes_f32 x)
{
    const float scale = (float)(2 * AH_SQRT_2_OVER_PI), cubic = (float)(2 * AH_SQRT_2_OVER_PI * 0.134145);
    ah_lanes_f32 power = ah_gelu_tanh_power_lanes(x, 126.0f), factor = 1.0f / (1.0f + power);
    return ah_fma_f32(power * factor * factor, x * ah_fma_f32(ah_spread_f32(cubic) * x, x, ah_spread_f32(scale)),
                      factor);
}

/* y = gelu(x) or, with `slope`, g times its slope at x, for n numbers; y may be x or g. The last vector is filled
 * up. */
static inline __attribute__((always_inline)) void ah_gelu_tanh_rows(const bool slope, int64_t n, float *y,
                                                                    const float *g, const float *x)
{
    enum { LANES = AH_LANES_BYTES / sizeof(float) };
    float last_x[LANES] = {0}, last_g[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const size_t left = n - i < LANES ? (size_t)(n - i) * sizeof *y : 0;
        ah_lanes_f32 a = *(const ah_lanes_at_f32 *)(left ? memcpy(last_x, x + i, left) : x + i), result;
        if (slope)
            result = *(const ah_lanes_at_f32 *)(left ? memcpy(last_g, g + i, left) : g + i) *
                     ah_gelu_tanh_slope_lanes(a);
        else
            result = ah_gelu_tanh_lanes(a);
        if (left)
            memcpy(y + i, &result, left);
        else
            *(ah_lanes_at_f32 *)(y + i) = result;
    }
}
#endif
