/* The half-precision floats, one number at a time, rounded to the nearest, ties to even. */
#pragma once

#include <stdint.h>

#include "base/numeric/dtype.h"

/* float16: values beyond 65504 become infinite. */
float ah_f16_to_f32(uint16_t bits);
uint16_t ah_f32_to_f16(float value);

/* bfloat16: the upper half of a float32. */
static inline float ah_bf16_to_f32(uint16_t bits)
{
    union { uint32_t u; float f; } v = {(uint32_t)bits << 16};
    return v.f;
}
/* Rounded, unlike cutting the lower half off. Without branches, so that loops are vectorised. */
static inline uint16_t ah_f32_to_bf16(float value)
{
    union { float f; uint32_t u; } v = {value};
    uint32_t rounded = v.u + 0x7fff + (v.u >> 16 & 1), quiet = v.u | 0x400000;
    return (uint16_t)((value == value ? rounded : quiet) >> 16);
}

/* The same for either half dtype. */
static inline float ah_half_to_f32(uint16_t bits, enum ah_dtype dtype)
{
    return dtype == AH_BF16 ? ah_bf16_to_f32(bits) : ah_f16_to_f32(bits);
}
static inline uint16_t ah_f32_to_half(float value, enum ah_dtype dtype)
{
    return dtype == AH_BF16 ? ah_f32_to_bf16(value) : ah_f32_to_f16(value);
}
