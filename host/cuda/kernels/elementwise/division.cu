/* Whole quotients and remainders. Integer divisors are not 0: the C side has checked. A quotient by -1 is a negation,
 * for the smallest integer has none. */
#include "cuda/kernels/lib/elementwise.cuh"

template <typename T> __device__ __forceinline__ T quotient(T a, T b)
{
    return b == T(-1) && T(-1) < 0 ? static_cast<T>(0 - static_cast<uint64_t>(a)) : static_cast<T>(a / b);
}
template <typename T> __device__ __forceinline__ T rest_of(T a, T b)
{
    return b == T(-1) && T(-1) < 0 ? T(0) : static_cast<T>(a % b);
}
template <typename T> __device__ __forceinline__ T floor_quotient(T a, T b)
{
    return quotient<T>(a, b) - (rest_of<T>(a, b) != 0 && (a < 0) != (b < 0));
}
template <typename T> __device__ __forceinline__ T modulo(T a, T b)
{
    const T rest = rest_of<T>(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <typename T> __device__ __forceinline__ T floor_quotient_of_floats(T a, T b)
{
    if (b == 0)
        return a / b;
    const T rest = fmod(a, b);
    T value = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0))
        value -= T(1);
    if (value == 0)
        return copysign(T(0), a / b);
    const T floored = floor(value);
    return value - floored > T(0.5) ? floored + T(1) : floored;
}
template <typename T> __device__ __forceinline__ T modulo_of_floats(T a, T b)
{
    const T rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

AH_EW2_INTEGERS(div_floor, floor_quotient<T>(a, b))
AH_EW2_FLOATS(div_floor, floor_quotient_of_floats<T>(a, b))
AH_EW2_INTEGERS(div_trunc, quotient<T>(a, b))
AH_EW2_FLOATS(div_trunc, trunc(a / b))
AH_EW2_INTEGERS(remainder, modulo<T>(a, b))
AH_EW2_FLOATS(remainder, modulo_of_floats<T>(a, b))
AH_EW2_INTEGERS(fmod, rest_of<T>(a, b))
AH_EW2_FLOATS(fmod, fmod(a, b))
