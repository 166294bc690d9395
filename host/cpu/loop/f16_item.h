/* One fp16 number to and from float32, by the processor's instructions where the level has them. */
#pragma once

#include "base/numeric/half.h"

#ifdef __F16C__
#include <immintrin.h>

static inline float ah_f16_item_to_f32(uint16_t bits)
{
    return _cvtsh_ss(bits);
}

static inline uint16_t ah_f32_to_f16_item(float value)
{
    return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__aarch64__)
static inline float ah_f16_item_to_f32(uint16_t bits)
{
    union { uint16_t bits; __fp16 value; } item = {bits};
    return (float)item.value;
}

static inline uint16_t ah_f32_to_f16_item(float value)
{
    union { __fp16 value; uint16_t bits; } item = {(__fp16)value};
    return item.bits;
}
#else
#define ah_f16_item_to_f32 ah_f16_to_f32
#define ah_f32_to_f16_item ah_f32_to_f16
#endif
