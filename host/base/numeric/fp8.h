/* 8-bit floats, one number at a time: e4m3 (bias 7, up to 448, no infinities: OCP's E4M3, PyTorch's float8_e4m3fn) and
 * e5m2 (bias 15, up to 57344, with infinities). Codes are rounded to the nearest, ties to even, and saturate: larger
 * numbers, infinities too, become the largest one, as in cuda_fp8.h with __NV_SATFINITE.
 *
 * Plain C that kernels of devices include too: they define AH_FP8_FUNCTION, the specifiers of a function, before. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef AH_FP8_FUNCTION
#define AH_FP8_FUNCTION static inline
#endif

/* The codes of the largest number and of NaN, without their sign. */
enum { AH_FP8_E4M3_MAX = 0x7e, AH_FP8_E5M2_MAX = 0x7b, AH_FP8_NAN = 0x7f };

AH_FP8_FUNCTION uint32_t ah_fp8_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

AH_FP8_FUNCTION float ah_fp8_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

AH_FP8_FUNCTION uint8_t ah_fp8_encode(float x, bool e5m2)
{
    const uint32_t bits = ah_fp8_bits(x), size = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    const int mantissa = e5m2 ? 2 : 3, drop = 23 - mantissa;
    const uint32_t least = (e5m2 ? 127u - 14 : 127u - 6) << 23; /* the smallest normal number */
    const uint32_t largest = e5m2 ? 0x47600000u : 0x43e00000u;  /* 57344, 448 */
    uint32_t code;
    if (size > 0x7f800000u)
        code = AH_FP8_NAN;
    else if (size >= largest)
        code = e5m2 ? AH_FP8_E5M2_MAX : AH_FP8_E4M3_MAX;
    else if (size >= least)
        code = ((size + ((1u << (drop - 1)) - 1) + (size >> drop & 1)) >> drop) - (((least >> 23) - 1) << mantissa);
    else /* a multiple of the smallest one, rounded by adding 2^23 */
        code = ah_fp8_bits(ah_fp8_of_bits(size) * (e5m2 ? 65536.0f : 512.0f) + 8388608.0f) & 0xff;
    return (uint8_t)(code | sign);
}

AH_FP8_FUNCTION float ah_fp8_decode(uint8_t code, bool e5m2)
{
    const int mantissa = e5m2 ? 2 : 3;
    const uint32_t sign = (uint32_t)(code & 0x80) << 24, size = code & 0x7f, exponent = size >> mantissa;
    if (e5m2 ? exponent == 31 : size == AH_FP8_NAN)
        return ah_fp8_of_bits(sign | 0x7f800000u | (size & 3) << 21 | (e5m2 ? 0u : 0x400000u));
    if (exponent == 0)
        return ah_fp8_of_bits(sign | ah_fp8_bits((float)size * (e5m2 ? 1.0f / 65536 : 1.0f / 512)));
    return ah_fp8_of_bits(sign | ((size << (23 - mantissa)) + ((e5m2 ? 127u - 15 : 127u - 7) << 23)));
}
