/* Functions of float as the card has them in hardware, with about 20 bits, and one of double; the simulated GPU uses
 * the C library's.
 *     ah_fast_log(x), ah_fast_exp(x), ah_fast_tan(x), ah_fast_sincos(x, &sine, &cosine)
 *     ah_fast_exp2(x)                    2^x with 22 bits; results below 2^-126 are 0
 *     ah_sincospi(x, &sine, &cosine)     of pi times a double */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

#ifdef __CUDACC__
#define ah_fast_log(x) __logf(x)
#define ah_fast_exp(x) __expf(x)
#define ah_fast_tan(x) __tanf(x)
#define ah_fast_sincos(x, sine, cosine) __sincosf(x, sine, cosine)
#define ah_sincospi(x, sine, cosine) sincospi(x, sine, cosine)
static __device__ __forceinline__ float ah_fast_exp2(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
#else
#define ah_fast_log(x) logf(x)
#define ah_fast_exp(x) expf(x)
#define ah_fast_tan(x) tanf(x)
#define ah_fast_sincos(x, sine, cosine) sincosf(x, sine, cosine)
#define ah_fast_exp2(x) (exp2f(x) < 0x1p-126f ? 0.0f : exp2f(x))
#define ah_sincospi(x, sine, cosine) sincos((x) * 3.14159265358979323846, sine, cosine)
#endif
