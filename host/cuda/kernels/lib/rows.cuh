/* Work on rows of numbers: a row belongs to a warp or, where it is long, to a block. Which of the two is a type: it
 * determines a thread's share of a row, folds the results of the threads of a row, and waits for them. */
#pragma once

#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/lib/rows.h"

struct ah_warp_rows {
    __device__ __forceinline__ explicit ah_warp_rows(double *)
    {
    }
    static __device__ __forceinline__ int64_t first()
    {
        return (int64_t)blockIdx.x * (AH_ROW_THREADS / 32) + threadIdx.x / 32;
    }
    static __device__ __forceinline__ int64_t step()
    {
        return (int64_t)gridDim.x * (AH_ROW_THREADS / 32);
    }
    static __device__ __forceinline__ int lane()
    {
        return threadIdx.x % 32;
    }
    static constexpr int lanes = 32;
    template <typename T, typename F> __device__ __forceinline__ T fold(T x, F how) const
    {
        return ah_warp_fold(x, how);
    }
    static __device__ __forceinline__ void sync()
    {
        __syncwarp();
    }
};

struct ah_block_rows {
    double *shared;
    __device__ __forceinline__ explicit ah_block_rows(double *room) : shared(room)
    {
    }
    static __device__ __forceinline__ int64_t first()
    {
        return blockIdx.x;
    }
    static __device__ __forceinline__ int64_t step()
    {
        return gridDim.x;
    }
    static __device__ __forceinline__ int lane()
    {
        return threadIdx.x;
    }
    static constexpr int lanes = AH_ROW_THREADS;
    template <typename T, typename F> __device__ __forceinline__ T fold(T x, F how) const
    {
        return ah_block_fold(x, how, reinterpret_cast<T *>(shared));
    }
    static __device__ __forceinline__ void sync()
    {
        __syncthreads();
    }
};

/* visit(first element, their number, all in one access?) for this thread's packs of a row of n. */
template <typename T, typename ROWS, typename F>
__device__ __forceinline__ void ah_each_pack(int64_t n, bool wide, F visit)
{
    constexpr int N = ah_pack<T>::count;
    for (int64_t i = (int64_t)ROWS::lane() * N; i < n; i += ROWS::lanes * N)
        visit(i, n - i, wide && i + N <= n);
}

/* 16 bytes of a row that begin at a multiple of 16, of which elements [from, to) belong to the row. `at`: the place of
 * the first one in the row, negative where it precedes the row. */
struct ah_cut {
    int64_t at;
    int from, to;
    bool whole;
};

/* visit(cut) for this thread's part of a row of n at p, at any alignment of p. */
template <typename ROWS, typename T, typename F>
__device__ __forceinline__ void ah_each_cut(const T *p, int64_t n, F visit)
{
    constexpr int N = ah_pack<T>::count;
    const int before = (int)(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
    for (int64_t i = (int64_t)ROWS::lane() * N - before; i < n; i += ROWS::lanes * N) {
        const int from = i < 0 ? (int)-i : 0, to = n - i < N ? (int)(n - i) : N;
        visit(ah_cut{i, from, to, from == 0 && to == N});
    }
}

/* The elements of a cut as numbers; those outside of the row stay as they were. */
template <typename T> __device__ __forceinline__ void ah_get_cut(ah_real<T> *x, const T *row, const ah_cut &cut)
{
    if (cut.whole) {
        ah_get_pack(x, row + cut.at, true, 0);
        return;
    }
    AH_UNROLL
    for (int j = 0; j < ah_pack<T>::count; j++)
        if (j >= cut.from && j < cut.to)
            x[j] = ah_get(row[cut.at + j]);
}

/* `aligned`: does the cut begin at a multiple of 16 bytes in this row too? */
template <typename T>
__device__ __forceinline__ void ah_put_cut(T *row, const ah_real<T> *x, const ah_cut &cut, bool aligned)
{
    if (cut.whole && aligned) {
        ah_put_pack(row + cut.at, x, true, 0);
        return;
    }
    AH_UNROLL
    for (int j = 0; j < ah_pack<T>::count; j++)
        if (j >= cut.from && j < cut.to)
            row[cut.at + j] = ah_put<T>(x[j]);
}

/* Kernels NAME_warp_f32, NAME_block_f32, ... that call run<type, rows>(a, rows). */
#define AH_ROW_KERNEL(name, args, run, suffix, type) AH_ROW_KERNEL_FEW(name, args, run, suffix, type, false)
/* large: one block of a multiprocessor may use all its registers, instead of spilling to leave room for others. */
#define AH_ROW_KERNEL_FEW(name, args, run, suffix, type, large)       \
    AH_KERNEL_FEW(name##_warp_##suffix, args, AH_ROW_THREADS, large)  \
    {                                                                 \
        run<type>(a, ah_warp_rows(nullptr));                          \
    }                                                                 \
    AH_KERNEL_FEW(name##_block_##suffix, args, AH_ROW_THREADS, large) \
    {                                                                 \
        AH_SHARED_ARRAY(double, shared, AH_ROW_THREADS / 32);         \
        run<type>(a, ah_block_rows(shared));                          \
    }
