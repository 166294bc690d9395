/* Numbers that show the order in which a product adds up: the second half of the depth mirrors the first, in one of the
 * operands with the other sign, so that every sum is 0 but for rounding errors, in every bit of the result. (If it
 * repeated the first half, a product split in two would have exact zeros, whatever the order in its parts.) */
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/linear/matmul.h"

/* A number of 52 random bits in -256..-1 or 1..256 (splitmix64). */
static __device__ __forceinline__ double mixed(int64_t place)
{
    uint64_t x = ((uint64_t)place + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    const double size = (1 + (double)(x >> 12) / 4503599627370496.0) * (double)(1 << (x & 7));
    return x & 8 ? -size : size;
}

template <typename T> __device__ __forceinline__ void matmul_fill(const ah_matmul_fill_args &a)
{
    const int64_t depth = a.along ? a.line : a.lines, half = depth / 2;
    const int64_t matrix = a.lines * a.line, count = a.batch * matrix, step = (int64_t)gridDim.x * blockDim.x;
    T *to = ah_at<T>(a.to);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const int64_t first = i / matrix * a.stride, l = i % matrix / a.line, m = i % a.line;
        const int64_t k = a.along ? m : l;
        const bool mirrors = k >= half;
        const int64_t as = mirrors ? depth - 1 - k : k;
        const double x = mixed(first + (a.along ? l * a.ld + as : as * a.ld + m));
        const double value = mirrors && k == as ? 0 : mirrors && a.negates ? -x : x;
        to[first + l * a.ld + m] = ah_put<T>((ah_real<T>)value);
    }
}

#define FILL(suffix, type) \
    AH_KERNEL_OF(matmul_fill_##suffix, ah_matmul_fill_args, AH_MATMUL_THREADS, matmul_fill<type>)
AH_FOR_REALS(FILL)

AH_KERNEL(matmul_compare, ah_matmul_compare_args, AH_MATMUL_THREADS)
{
    const uint64_t *x = ah_at<const uint64_t>(a.a), *y = ah_at<const uint64_t>(a.b);
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint64_t differs = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += step) {
        const ah_pack<uint64_t> one = ah_load16(x + 2 * i), other = ah_load16(y + 2 * i);
        differs |= (one.at[0] ^ other.at[0]) | (one.at[1] ^ other.at[1]);
    }
    if (differs)
        atomicOr(ah_at<unsigned>(a.differ), 1u);
}
