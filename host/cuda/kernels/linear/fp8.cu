/* Codes of 8-bit floats (base/numeric/fp8.h) and the largest size of the numbers. That of all blocks is found by an
 * atomic on the bits of the float, which are ordered as it is, so that it does not depend on the order of blocks. */
#define AH_FP8_FUNCTION static __device__ __forceinline__
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/linear/fp8.h"

#include "base/numeric/fp8.h"

/* Each thread encodes a run of N numbers: 16 bytes of halves, 32 of float32. */
template <typename T> __device__ __forceinline__ void fp8_quantize(const ah_fp8_args &a, unsigned *shared)
{
    constexpr int N = 8, EACH = ah_pack<T>::count;
    const T *from = ah_at<const T>(a.input);
    uint8_t *to = ah_at<uint8_t>(a.codes);
    const float scale = *ah_at<const float>(a.scale);
    const int64_t step = (int64_t)gridDim.x * blockDim.x * N;
    unsigned largest = 0;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < a.count; i += step) {
        const bool whole = a.wide && i + N <= a.count;
        float x[N] = {};
        uint64_t codes = 0;
        AH_UNROLL
        for (int j = 0; j < N; j += EACH)
            ah_get_pack(x + j, from + i + j, whole, a.count - i - j);
        AH_UNROLL
        for (int j = 0; j < N; j++) {
            const unsigned size = ah_fp8_bits(x[j]) & 0x7fffffff;
            largest = size > largest ? size : largest;
            codes |= (uint64_t)ah_fp8_encode(x[j] * scale, a.e5m2 != 0) << 8 * j;
        }
        if (whole) {
            *reinterpret_cast<uint64_t *>(to + i) = codes;
        } else {
            AH_UNROLL
            for (int j = 0; j < N; j++)
                if (i + j < a.count)
                    to[i + j] = (uint8_t)(codes >> 8 * j);
        }
    }
    if (!a.amax)
        return;
    largest = ah_block_fold(largest, [](unsigned p, unsigned q) { return p > q ? p : q; }, shared);
    if (threadIdx.x == 0)
        atomicMax(ah_at<unsigned>(a.amax), largest);
}

#define QUANTIZE(suffix, type)                                          \
    AH_KERNEL(fp8_quantize_##suffix, ah_fp8_args, AH_FP8_THREADS)       \
    {                                                                   \
        AH_SHARED_ARRAY(unsigned, shared, AH_FP8_THREADS / 32);         \
        fp8_quantize<type>(a, shared);                                  \
    }
QUANTIZE(f16, half_t)
QUANTIZE(bf16, bf16_t)
QUANTIZE(f32, float)
