/* Conversions by the bits: exponents are moved, mantissas rounded by adding just below half of the last bit that stays.
 * NaN must stay NaN, and numbers that round past the largest fp16 become infinity. */
#include "base/numeric/half.h"

float ah_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    union { uint32_t u; float f; } v;
    if (exponent == 31) {
        v.u = sign | 0x7f800000 | mantissa << 13;
    } else if (exponent) {
        v.u = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { /* subnormal: mantissa * 2^-24 */
        v.f = (float)mantissa * 0x1p-24f;
        v.u |= sign;
    }
    return v.f;
}

uint16_t ah_f32_to_f16(float value)
{
    union { float f; uint32_t u; } v = {value};
    uint32_t sign = v.u >> 16 & 0x8000, rest = v.u & 0x7fffffff;
    if (rest >= 0x7f800000)
        return (uint16_t)(sign | 0x7c00 | (rest > 0x7f800000 ? 0x200 : 0));
    if (rest >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) { /* below 2^-14: the float adder rounds at the subnormal's last bit */
        union { uint32_t u; float f; } magnitude = {rest};
        magnitude.f += 0.5f;
        return (uint16_t)(sign | (magnitude.u - 0x3f000000));
    }
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}
