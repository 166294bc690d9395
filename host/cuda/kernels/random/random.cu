/* Random numbers of the distributions, each from PyTorch's draw of it. x is the draw, c0..c2 are the numbers of the
 * distribution. */
#include "cuda/kernels/random/random.cuh"

#define FILL(name, source, T, expr)                                                    \
    AH_KERNEL(name, ah_random_args, AH_RANDOM_THREADS)                                 \
    {                                                                                  \
        const T c0 = static_cast<T>(a.iter.number[0]), c1 = static_cast<T>(a.iter.number[1]); \
        const T c2 = static_cast<T>(a.iter.number[2]);                                 \
        const int32_t dtype = a.iter.operand[0].dtype;                                 \
        (void)c0, (void)c1, (void)c2, (void)dtype;                                     \
        ah_random<source<T>, T>(a, [=](T x) { return expr; });                         \
    }

/* The draw from (0, 1] becomes one of [from, to): a value that reaches the end is replaced by the begin. */
__device__ __forceinline__ float within(float x, float range, float from, float to, int32_t dtype)
{
    const float y = ah_as_held(fmaf(x, range, from), dtype);
    return y == to ? from : y;
}
__device__ __forceinline__ double within(double x, double range, double from, double to, int32_t)
{
    const double y = fma(x, range, from);
    return y == to ? from : y;
}
FILL(random_uniform_f32, ah_uniform, float, within(x, c0, c1, c2, dtype))
FILL(random_uniform_f64, ah_uniform, double, within(x, c0, c1, c2, dtype))

FILL(random_normal_f32, ah_normal, float, fmaf(x, c1, c0))
FILL(random_normal_f64, ah_normal, double, fma(x, c1, c0))
FILL(random_log_normal_f32, ah_normal, float, ah_fast_exp(fmaf(x, c1, c0)))
FILL(random_log_normal_f64, ah_normal, double, exp(fma(x, c1, c0)))

FILL(random_bernoulli_f32, ah_uniform, float, x < c0 ? 1.0f : 0.0f)
FILL(random_bernoulli_f64, ah_uniform, double, x < c0 ? 1.0 : 0.0)

/* Never 0: where the logarithm would be, it is as small as the type has it. */
FILL(random_exponential_f32, ah_uniform, float,
     -1.0f / c0 * (x >= 1.0f - 0x1p-24f ? -0x1p-24f : ah_fast_log(x)))
FILL(random_exponential_f64, ah_uniform, double, -1.0 / c0 * (x >= 1.0 - 0x1p-53 ? -0x1p-53 : log(x)))

/* Kept off the ends, where the tangent has none. */
__device__ __forceinline__ float inner(float x)
{
    return x > 1.0f - 0x1p-23f ? 1.0f - 0x1p-23f : x < 0x1p-23f ? 0x1p-23f : x;
}
FILL(random_cauchy_f32, ah_uniform, float, fmaf(c1, ah_fast_tan(3.14159265f * (inner(x) - 0.5f)), c0))
FILL(random_cauchy_f64, ah_uniform, double, fma(c1, tan(3.14159265358979323846 * (x - 0.5)), c0))

/* One trial at least, also where the draw is 1. */
FILL(random_geometric_f32, ah_uniform, float, fmaxf(1.0f, ceilf(ah_fast_log(x) / ah_fast_log(1.0f - c0))))
FILL(random_geometric_f64, ah_uniform, double, fmax(1.0, ceil(log(x) / log1p(-c0))))

#define WHOLE(name, T)                                                                                       \
    AH_KERNEL(name, ah_random_args, AH_RANDOM_THREADS)                                                       \
    {                                                                                                        \
        const T range = static_cast<T>(a.range);                                                             \
        const uint64_t base = static_cast<uint64_t>(a.base), mask = a.mask;                                  \
        ah_random<ah_words<T>, T>(a, [=](T x) { return static_cast<int64_t>((x % range + base) & mask); }); \
    }
WHOLE(random_whole_u32, uint32_t)
WHOLE(random_whole_u64, uint64_t)

/* Ones with a probability each, operand 1: a thread processes four consecutive elements. */
template <typename T> __device__ __forceinline__ void shares(const ah_random_args &a)
{
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    ah_philox stream = ah_philox_open(a.place, static_cast<uint64_t>(thread));
    for (int64_t first = thread * 4; first < a.iter.numel; first += threads * 4) {
        float v[4];
        ah_uniform<float>()(stream.next(), v);
        AH_UNROLL
        for (int k = 0; k < 4; k++) {
            if (first + k < a.iter.numel) {
                int64_t at[2];
                ah_locate<2>(a.iter, first + k, at);
                const T p = ah_read_one<T>(a.iter.operand[1], at[1]);
                ah_write_any(a.iter.operand[0], at[0], static_cast<T>(v[k]) <= p ? 1.0f : 0.0f);
            }
        }
    }
}
AH_KERNEL_OF(random_shares_f32, ah_random_args, AH_SHARES_THREADS, shares<float>)
AH_KERNEL_OF(random_shares_f64, ah_random_args, AH_SHARES_THREADS, shares<double>)
