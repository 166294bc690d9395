/* Folding the inputs of each output, in an order that depends on the sizes alone: a thread takes every so many-th
 * input, then the threads of an output are joined as a tree. */
#ifndef AH_CUDA_REDUCE_CUH
#define AH_CUDA_REDUCE_CUH

#include "cuda/kernels/kernel.cuh"
#include "cuda/kernels/reduce.h"

/* An element as what is folded. */
template <typename T, typename E> __device__ __forceinline__ T ah_as(E x)
{
    return static_cast<T>(x);
}
template <> __device__ __forceinline__ double ah_as<double, half_t>(half_t x)
{
    return to_float(x);
}
template <> __device__ __forceinline__ double ah_as<double, bf16_t>(bf16_t x)
{
    return to_float(x);
}

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

/* Add this thread's inputs of one output, which are every rows-th from begin + row on, or packs of them. */
template <typename T, typename E, class F>
__device__ __forceinline__ void ah_reduce_add(typename F::State &state, const ah_reduce_args &a, const F &f,
                                              int64_t base, int64_t begin, int64_t end, int row, int rows)
{
    constexpr int N = ah_pack<E>::count;
    const E *from = reinterpret_cast<const E *>(a.from) + base;
    if (a.wide) {
        for (int64_t i = begin + (int64_t)row * N; i < end; i += (int64_t)rows * N) {
            if (i + N <= end) {
                const ah_pack<E> pack = ah_load16(from + i);
                AH_UNROLL
                for (int j = 0; j < N; j++)
                    f.add(state, ah_as<T>(pack.at[j]), i + j);
            } else {
                for (int64_t j = i; j < end; j++)
                    f.add(state, ah_as<T>(from[j]), j);
            }
        }
    } else {
        for (int64_t i = begin + row; i < end; i += rows)
            f.add(state, ah_as<T>(from[ah_offset(i, a.dims, a.size, a.stride)]), i);
    }
}

template <typename T> struct ah_reduce_of;
template <> struct ah_reduce_of<double> {
    template <class F>
    static __device__ __forceinline__ void add(typename F::State &state, const ah_reduce_args &a, const F &f,
                                               int64_t base, int64_t begin, int64_t end, int row, int rows)
    {
        switch (a.from_dtype) {
        case AH_F32: ah_reduce_add<double, float>(state, a, f, base, begin, end, row, rows); break;
        case AH_F16: ah_reduce_add<double, half_t>(state, a, f, base, begin, end, row, rows); break;
        case AH_BF16: ah_reduce_add<double, bf16_t>(state, a, f, base, begin, end, row, rows); break;
        default: ah_reduce_add<double, double>(state, a, f, base, begin, end, row, rows); break;
        }
    }
};
template <> struct ah_reduce_of<int64_t> {
    template <class F>
    static __device__ __forceinline__ void add(typename F::State &state, const ah_reduce_args &a, const F &f,
                                               int64_t base, int64_t begin, int64_t end, int row, int rows)
    {
        switch (a.from_dtype) {
        case AH_I64: ah_reduce_add<int64_t, int64_t>(state, a, f, base, begin, end, row, rows); break;
        case AH_I32: ah_reduce_add<int64_t, int32_t>(state, a, f, base, begin, end, row, rows); break;
        default: ah_reduce_add<int64_t, uint8_t>(state, a, f, base, begin, end, row, rows); break;
        }
    }
};

/* F has a State that is copied, start(), add(state, value, index), join(state, later state). `shared` has a state for
 * each thread. finish(state, output) is called by one thread for each output, when all parts are joined. */
template <class F, typename T, class W>
__device__ void ah_reduce_all(const ah_reduce_args &a, const F &f, typename F::State *shared, const W &finish)
{
    typedef typename F::State State;
    static_assert(sizeof(State) <= AH_REDUCE_STATE, "room for partial results");
    const int rows = AH_REDUCE_THREADS / a.columns, thread = threadIdx.x;
    const int column = a.across ? thread % a.columns : thread / rows;
    const int row = a.across ? thread / a.columns : thread % rows;
    const int64_t groups = (a.outputs + a.columns - 1) / a.columns;
    State *partial = reinterpret_cast<State *>(a.partial);
    for (int64_t work = blockIdx.x; work < groups * a.parts; work += gridDim.x) {
        const int64_t part = work % a.parts, output = work / a.parts * a.columns + column;
        State state = f.start();
        if (output < a.outputs && a.joining) {
            for (int64_t i = row; i < a.folded; i += rows)
                f.join(state, partial[output * a.folded + i]);
        } else if (output < a.outputs) {
            const int64_t end = (part + 1) * a.each < a.folded ? (part + 1) * a.each : a.folded;
            ah_reduce_of<T>::add(state, a, f, ah_offset(output, a.kept_dims, a.kept_size, a.kept_stride),
                                 part * a.each, end, row, rows);
        }
        shared[column * rows + row] = state;
        __syncthreads();
        for (int half = rows / 2; half > 0; half /= 2) {
            if (row < half)
                f.join(shared[column * rows + row], shared[column * rows + row + half]);
            __syncthreads();
        }
        if (row == 0 && output < a.outputs) {
            if (a.parts > 1)
                partial[output * a.parts + part] = shared[column * rows];
            else
                finish(shared[column * rows], output);
        }
        __syncthreads();
    }
}

#endif
