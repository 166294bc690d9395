/* Folding the inputs of each output, in an order that depends on the sizes alone: a thread folds inputs at a stride,
 * then the threads of an output are joined as a tree. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"
#include "cuda/kernels/reduce/reduce.h"

/* The type as which an element is read: fp16 and bf16 as float, whole numbers as 64-bit integers. */
template <typename E> struct ah_read_as {
    typedef int64_t type;
};
template <> struct ah_read_as<float> {
    typedef float type;
};
template <> struct ah_read_as<half_t> {
    typedef float type;
};
template <> struct ah_read_as<bf16_t> {
    typedef float type;
};
template <> struct ah_read_as<double> {
    typedef double type;
};
template <typename E> __device__ __forceinline__ typename ah_read_as<E>::type ah_as_read(E x)
{
    return static_cast<typename ah_read_as<E>::type>(x);
}
template <> __device__ __forceinline__ float ah_as_read<half_t>(half_t x)
{
    return to_float(x);
}
template <> __device__ __forceinline__ float ah_as_read<bf16_t>(bf16_t x)
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
    AH_ROLLED
    for (int d = dims - 1; d > 0; d--) {
        const int64_t quotient = flat / size[d];
        at += (flat - quotient * size[d]) * stride[d];
        flat = quotient;
    }
    return at + flat * stride[0];
}

/* Add this thread's inputs of one output, which are every rows-th pack from begin + row * N on. Four packs are under
 * way at once. */
template <typename E, class F>
__device__ __forceinline__ void ah_reduce_packs(typename F::Own &own, const F &f, const E *from, int64_t begin,
                                                int64_t end, int row, int rows)
{
    typedef typename ah_read_as<E>::type V;
    constexpr int N = ah_pack<E>::count, DEEP = 4;
    const int64_t step = (int64_t)rows * N;
    int64_t i = begin + (int64_t)row * N;
    for (; i + (DEEP - 1) * step + N <= end; i += DEEP * step) {
        ah_pack<E> pack[DEEP];
        V v[DEEP * N];
        AH_UNROLL
        for (int k = 0; k < DEEP; k++)
            pack[k] = ah_load16(from + i + k * step);
        AH_UNROLL
        for (int j = 0; j < DEEP * N; j++)
            v[j] = ah_as_read<E>(pack[j / N].at[j % N]);
        f.add(own, v, [i, step](int j) { return i + j / N * step + j % N; });
    }
    for (; i + N <= end; i += step) {
        const ah_pack<E> pack = ah_load16(from + i);
        V v[N];
        AH_UNROLL
        for (int j = 0; j < N; j++)
            v[j] = ah_as_read<E>(pack.at[j]);
        f.add(own, v, [i](int j) { return i + j; });
    }
    for (; i < end; i++) {
        const V v[1] = {ah_as_read<E>(from[i])};
        f.add(own, v, [i](int) { return i; });
    }
}

/* The same of inputs at any places: every rows-th from begin + row on, eight under way at once. */
template <typename E, class F>
__device__ __forceinline__ void ah_reduce_each(typename F::Own &own, const ah_reduce_args &a, const F &f, const E *from,
                                               int64_t begin, int64_t end, int row, int rows)
{
    typedef typename ah_read_as<E>::type V;
    constexpr int DEEP = 8;
    int64_t i = begin + row;
    for (; i + (int64_t)(DEEP - 1) * rows < end; i += (int64_t)DEEP * rows) {
        V v[DEEP];
        AH_UNROLL
        for (int k = 0; k < DEEP; k++)
            v[k] = ah_as_read<E>(from[ah_offset(i + (int64_t)k * rows, a.dims, a.size, a.stride)]);
        f.add(own, v, [i, rows](int j) { return i + (int64_t)j * rows; });
    }
    for (; i < end; i += rows) {
        const V v[1] = {ah_as_read<E>(from[ah_offset(i, a.dims, a.size, a.stride)])};
        f.add(own, v, [i](int) { return i; });
    }
}

template <typename E, class F>
__device__ __forceinline__ void ah_reduce_add(typename F::Own &own, const ah_reduce_args &a, const F &f, int64_t base,
                                              int64_t begin, int64_t end, int row, int rows)
{
    const E *from = reinterpret_cast<const E *>(a.from) + base;
    if (a.wide)
        ah_reduce_packs<E>(own, f, from, begin, end, row, rows);
    else
        ah_reduce_each<E>(own, a, f, from, begin, end, row, rows);
}

/* The dtypes that a kernel reads. */
struct ah_reduce_floats {
    template <class F>
    static __device__ __forceinline__ void add(typename F::Own &own, const ah_reduce_args &a, const F &f, int64_t base,
                                               int64_t begin, int64_t end, int row, int rows)
    {
        switch (a.from_dtype) {
        case AH_F32: ah_reduce_add<float>(own, a, f, base, begin, end, row, rows); break;
        case AH_F16: ah_reduce_add<half_t>(own, a, f, base, begin, end, row, rows); break;
        default: ah_reduce_add<bf16_t>(own, a, f, base, begin, end, row, rows); break;
        }
    }
};
struct ah_reduce_reals {
    template <class F>
    static __device__ __forceinline__ void add(typename F::Own &own, const ah_reduce_args &a, const F &f, int64_t base,
                                               int64_t begin, int64_t end, int row, int rows)
    {
        if (a.from_dtype == AH_F64)
            ah_reduce_add<double>(own, a, f, base, begin, end, row, rows);
        else
            ah_reduce_floats::add(own, a, f, base, begin, end, row, rows);
    }
};
struct ah_reduce_doubles {
    template <class F>
    static __device__ __forceinline__ void add(typename F::Own &own, const ah_reduce_args &a, const F &f, int64_t base,
                                               int64_t begin, int64_t end, int row, int rows)
    {
        ah_reduce_add<double>(own, a, f, base, begin, end, row, rows);
    }
};
struct ah_reduce_integers {
    template <class F>
    static __device__ __forceinline__ void add(typename F::Own &own, const ah_reduce_args &a, const F &f, int64_t base,
                                               int64_t begin, int64_t end, int row, int rows)
    {
        switch (a.from_dtype) {
        case AH_I64: ah_reduce_add<int64_t>(own, a, f, base, begin, end, row, rows); break;
        case AH_I32: ah_reduce_add<int32_t>(own, a, f, base, begin, end, row, rows); break;
        default: ah_reduce_add<uint8_t>(own, a, f, base, begin, end, row, rows); break;
        }
    }
};

/* F has a State that is copied, start() and join(state, later state); and for the inputs of a thread an Own, open(),
 * add(own, array of values, index of the j-th) and close(own), which is their state. READ is one of the above. `shared`
 * has a state for each thread. finish(state, output) is called by one thread for each output, when all parts are
 * joined. */
template <class READ, class F, class W>
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
            typename F::Own own = f.open();
            READ::add(own, a, f, ah_offset(output, a.kept_dims, a.kept_size, a.kept_stride), part * a.each, end, row,
                      rows);
            state = f.close(own);
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
