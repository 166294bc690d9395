/* half_t and bf16_t: 16 bits that only conversions understand, rounded to the nearest, ties to even, as a card's cvt
 * does; NaN becomes its one NaN (0x7fff, and 0x7fffffff as a float). */
#pragma once

struct half_t {
    uint16_t bits;
};
struct bf16_t {
    uint16_t bits;
};

static inline float to_float(float x)
{
    return x;
}

static inline float to_float(bf16_t x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    return sim::value_of<float>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : bits);
}

static inline float to_float(half_t x)
{
    uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, exponent = x.bits >> 10 & 0x1f, mantissa = x.bits & 0x3ff;
    if (exponent == 31)
        return sim::value_of<float>(mantissa ? 0x7fffffff : sign | 0x7f800000);
    float size = exponent ? ldexpf((float)(mantissa | 0x400), (int)exponent - 25) : (float)mantissa * 0x1p-24f;
    return sign ? -size : size;
}

template <class T> T from_float(float x);

template <> inline float from_float<float>(float x)
{
    return x;
}

template <> inline bf16_t from_float<bf16_t>(float x)
{
    uint32_t bits = (uint32_t)sim::bits_of(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return {0x7fff};
    return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

template <> inline half_t from_float<half_t>(float x)
{
    uint32_t bits = (uint32_t)sim::bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return {0x7fff};
    if (size >= 0x477ff000) /* rounds to 65536 or more */
        return {(uint16_t)(sign | 0x7c00)};
    /* The multiple of the half's last place that is nearest: the result of nearbyintf, ties to even. */
    int exponent;
    frexpf(x, &exponent);
    int last = exponent < -13 || !size ? -24 : exponent - 11;
    uint32_t count = (uint32_t)nearbyintf(ldexpf(fabsf(x), -last));
    return {(uint16_t)(sign | (count + ((uint32_t)(last + 24) << 10)))};
}
