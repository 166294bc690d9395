/* Functions of CUDA that the C library lacks or names otherwise. The rest (expf, tanh, erff, fmaf ...) is its own. */
#pragma once

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

#define AH_SIM_LEAST(type)                                                                                             \
    static inline type min(type a, type b)                                                                             \
    {                                                                                                                  \
        return b < a ? b : a;                                                                                          \
    }                                                                                                                  \
    static inline type max(type a, type b)                                                                             \
    {                                                                                                                  \
        return a < b ? b : a;                                                                                          \
    }
AH_SIM_LEAST(int)
AH_SIM_LEAST(unsigned)
AH_SIM_LEAST(long)
AH_SIM_LEAST(unsigned long)
AH_SIM_LEAST(long long)
AH_SIM_LEAST(unsigned long long)
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline unsigned long long __brevll(unsigned long long x)
{
    unsigned long long reversed = 0;
    for (int i = 0; i < 64; i++)
        reversed |= (x >> i & 1) << (63 - i);
    return reversed;
}
static inline unsigned __brev(unsigned x)
{
    return (unsigned)(__brevll(x) >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

static inline int __float_as_int(float x)
{
    return sim::value_of<int>(sim::bits_of(x));
}
static inline unsigned __float_as_uint(float x)
{
    return sim::value_of<unsigned>(sim::bits_of(x));
}
static inline float __int_as_float(int x)
{
    return sim::value_of<float>(sim::bits_of(x));
}
static inline float __uint_as_float(unsigned x)
{
    return sim::value_of<float>(sim::bits_of(x));
}
static inline long long __double_as_longlong(double x)
{
    return sim::value_of<long long>(sim::bits_of(x));
}
static inline double __longlong_as_double(long long x)
{
    return sim::value_of<double>(sim::bits_of(x));
}

template <class T> inline T __ldg(const T *at)
{
    return *at;
}
