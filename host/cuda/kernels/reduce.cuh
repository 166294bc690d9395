/* Folding the inputs of each output, in an order that depends on the sizes alone: a thread takes every so many-th
 * input, then the threads of an output are joined as a tree. */
#ifndef AH_CUDA_REDUCE_CUH
#define AH_CUDA_REDUCE_CUH

#include "cuda/kernels/kernel.cuh"
#include "cuda/kernels/reduce.h"

/* Element `at` of any dtype, as the type that is folded. */
template <typename T> __device__ __forceinline__ T ah_load_any(uint64_t base, int dtype, int64_t at);
template <> __device__ __forceinline__ double ah_load_any<double>(uint64_t base, int dtype, int64_t at)
{
    switch (dtype) {
    case AH_F32: return reinterpret_cast<const float *>(base)[at];
    case AH_F16: return to_float(reinterpret_cast<const half_t *>(base)[at]);
    case AH_BF16: return to_float(reinterpret_cast<const bf16_t *>(base)[at]);
    default: return reinterpret_cast<const double *>(base)[at];
    }
}
template <> __device__ __forceinline__ int64_t ah_load_any<int64_t>(uint64_t base, int dtype, int64_t at)
{
    switch (dtype) {
    case AH_I64: return reinterpret_cast<const int64_t *>(base)[at];
    case AH_I32: return reinterpret_cast<const int32_t *>(base)[at];
    default: return reinterpret_cast<const uint8_t *>(base)[at];
    }
}

template <typename T> __device__ __forceinline__ void ah_store_any(uint64_t base, int dtype, int64_t at, T value)
{
    switch (dtype) {
    case AH_BOOL: reinterpret_cast<uint8_t *>(base)[at] = value != 0; break;
    case AH_U8: reinterpret_cast<uint8_t *>(base)[at] = static_cast<uint8_t>(static_cast<int64_t>(value)); break;
    case AH_I32: reinterpret_cast<int32_t *>(base)[at] = static_cast<int32_t>(value); break;
    case AH_I64: reinterpret_cast<int64_t *>(base)[at] = static_cast<int64_t>(value); break;
    case AH_F16: reinterpret_cast<half_t *>(base)[at] = from_float<half_t>(static_cast<float>(value)); break;
    case AH_BF16: reinterpret_cast<bf16_t *>(base)[at] = from_float<bf16_t>(static_cast<float>(value)); break;
    case AH_F32: reinterpret_cast<float *>(base)[at] = static_cast<float>(value); break;
    default: reinterpret_cast<double *>(base)[at] = static_cast<double>(value); break;
    }
}

/* The offset of place `flat` among dims of these sizes. */
__device__ __forceinline__ int64_t ah_offset(int64_t flat, int dims, const int64_t *size, const int64_t *stride)
{
    int64_t at = 0;
    for (int d = dims - 1; d > 0; d--) {
        const int64_t quotient = flat / size[d];
        at += (flat - quotient * size[d]) * stride[d];
        flat = quotient;
    }
    return at + flat * stride[0];
}

/* F has a State that is copied, start(), add(state, value, index), join(state, later state). `shared` has a state for
 * each thread. finish(state, output) is called by one thread for each output and part. */
template <class F, typename T, class W>
__device__ void ah_reduce_all(const ah_reduce_args &a, const F &f, typename F::State *shared, const W &finish)
{
    const int rows = AH_REDUCE_THREADS / a.columns, thread = threadIdx.x;
    const int column = a.across ? thread % a.columns : thread / rows;
    const int row = a.across ? thread / a.columns : thread % rows;
    const int64_t groups = (a.outputs + a.columns - 1) / a.columns;
    for (int64_t work = blockIdx.x; work < groups * a.parts; work += gridDim.x) {
        const int64_t part = work % a.parts, output = work / a.parts * a.columns + column;
        typename F::State state = f.start();
        if (output < a.outputs) {
            const int64_t base = ah_offset(output, a.kept_dims, a.kept_size, a.kept_stride);
            const int64_t end = (part + 1) * a.each < a.folded ? (part + 1) * a.each : a.folded;
            for (int64_t i = part * a.each + row; i < end; i += rows)
                f.add(state, ah_load_any<T>(a.from, a.from_dtype, base + ah_offset(i, a.dims, a.size, a.stride)), i);
        }
        shared[column * rows + row] = state;
        __syncthreads();
        for (int half = rows / 2; half > 0; half /= 2) {
            if (row < half)
                f.join(shared[column * rows + row], shared[column * rows + row + half]);
            __syncthreads();
        }
        if (row == 0 && output < a.outputs)
            finish(shared[column * rows], output * a.parts + part);
        __syncthreads();
    }
}

#endif
