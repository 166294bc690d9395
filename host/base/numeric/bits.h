/* Floating-point numbers as their bits. */
#pragma once

#include <stdint.h>

static inline float ah_bits_float(uint32_t bits)
{
    union { uint32_t u; float f; } v = {bits};
    return v.f;
}

static inline uint32_t ah_float_bits(float value)
{
    union { float f; uint32_t u; } v = {value};
    return v.u;
}

static inline double ah_bits_double(uint64_t bits)
{
    union { uint64_t u; double f; } v = {bits};
    return v.f;
}

static inline uint64_t ah_double_bits(double value)
{
    union { double f; uint64_t u; } v = {value};
    return v.u;
}
