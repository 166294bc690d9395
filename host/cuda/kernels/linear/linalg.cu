/* The work around cuSOLVER's routines: row-major matrices to column-major ones and back, triangles, rows exchanged,
 * determinants, infos. */
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/linear/linalg.h"

template <typename T> __device__ __forceinline__ void linalg_copy(const ah_linalg_copy_args &a)
{
    T *to = ah_at<T>(a.to);
    const T *from = ah_at<const T>(a.from);
    AH_EACH(int64_t, i, a.batch * a.rows * a.columns) {
        const int64_t column = i % a.columns, line = i / a.columns, row = line % a.rows, matrix = line / a.rows;
        const bool within = a.part == AH_LINALG_WHOLE || (a.part == AH_LINALG_UPPER ? column >= row : column <= row);
        const int64_t place = matrix * a.from_step[0] + row * a.from_step[1] + column * a.from_step[2];
        to[matrix * a.to_step[0] + row * a.to_step[1] + column * a.to_step[2]] = within ? from[place] : (T)0;
    }
}

AH_KERNEL(linalg_pointers, ah_linalg_pointers_args, AH_LINALG_THREADS)
{
    AH_EACH(int64_t, i, a.count)
        ah_at<uint64_t>(a.to)[i] = a.base + (uint64_t)(i * a.step);
}

/* A block for each matrix. */
template <typename T> __device__ __forceinline__ void linalg_screen(const ah_linalg_screen_args &a)
{
    for (int64_t matrix = blockIdx.x; matrix < a.batch; matrix += gridDim.x) {
        T *at = ah_at<T>(a.at) + matrix * a.count;
        int32_t *flag = ah_at<int32_t>(a.flags) + matrix;
        int wrong = 0;
        for (int64_t i = threadIdx.x; i < a.count; i += blockDim.x)
            wrong |= !(at[i] - at[i] == 0);
        wrong = __syncthreads_or(wrong);
        for (int64_t i = threadIdx.x; wrong && i < a.count; i += blockDim.x)
            at[i] = 0;
        if (threadIdx.x == 0 && (wrong || !a.keeps))
            *flag = wrong ? a.code : 0;
    }
}

/* A block for each matrix. Its info is written only where the other threads do not read it. */
template <typename T> __device__ __forceinline__ void linalg_spoil(const ah_linalg_spoil_args &a)
{
    for (int64_t matrix = blockIdx.x; matrix < a.batch; matrix += gridDim.x) {
        const int32_t flag = a.flags ? ah_at<const int32_t>(a.flags)[matrix] : 0;
        int32_t *info = ah_at<int32_t>(a.info) + matrix;
        const bool failed = flag || *info;
        if (flag && threadIdx.x == 0)
            *info = flag;
        for (int64_t i = threadIdx.x; failed && i < a.count; i += blockDim.x)
            ah_at<T>(a.at)[matrix * a.count + i] = (T)NAN;
    }
}

template <typename T> __device__ __forceinline__ void linalg_det(const ah_linalg_det_args &a)
{
    AH_EACH(int64_t, matrix, a.batch) {
        const T *lu = ah_at<const T>(a.lu) + matrix * a.n * a.n;
        const int32_t *pivot = ah_at<const int32_t>(a.pivots) + matrix * a.n;
        T product = 1, sign = 1, size = 0;
        for (int64_t i = 0; i < a.n; i++) {
            const T u = lu[i * a.n + i], turned = pivot[i] == i + 1 ? (T)1 : (T)-1;
            product *= turned * u;
            sign *= turned * (u > 0 ? (T)1 : u < 0 ? (T)-1 : u);
            size += ah_log(u < 0 ? -u : u);
        }
        ah_at<T>(a.first)[matrix] = a.second ? sign : product;
        if (a.second)
            ah_at<T>(a.second)[matrix] = size;
    }
}

/* A thread for each matrix, since each exchange is of the rows as the ones before left them. */
AH_KERNEL(linalg_permutation, ah_linalg_permutation_args, AH_LINALG_THREADS)
{
    AH_EACH(int64_t, matrix, a.batch) {
        int64_t *row = ah_at<int64_t>(a.to) + matrix * a.n;
        const int32_t *pivot = ah_at<const int32_t>(a.pivots) + matrix * a.k;
        for (int64_t i = 0; i < a.n; i++)
            row[i] = i;
        for (int64_t i = 0; i < a.k; i++) {
            const int64_t at = pivot[i] - 1, other = row[at];
            row[at] = row[i];
            row[i] = other;
        }
    }
}

AH_KERNEL(linalg_narrow, ah_linalg_narrow_args, AH_LINALG_THREADS)
{
    AH_EACH(int64_t, i, a.count)
        ah_at<int32_t>(a.to)[i] = (int32_t)ah_at<const int64_t>(a.from)[i];
}

template <typename T> __device__ __forceinline__ void linalg_rows(const ah_linalg_rows_args &a)
{
    T *to = ah_at<T>(a.to);
    const T *from = ah_at<const T>(a.from);
    const int64_t *rows = ah_at<const int64_t>(a.rows);
    AH_EACH(int64_t, i, a.batch * a.n * a.k) {
        const int64_t column = i % a.k, line = i / a.k, first = line - line % a.n, other = first + rows[line];
        if (a.scatters)
            to[other * a.k + column] = from[i];
        else
            to[i] = from ? from[other * a.k + column] : (T)(column == rows[line]);
    }
}

/* A block for each matrix. */
template <typename T> __device__ __forceinline__ void linalg_divide(const ah_linalg_divide_args &a)
{
    for (int64_t matrix = blockIdx.x; matrix < a.batch; matrix += gridDim.x) {
        const T *s = ah_at<const T>(a.s) + matrix * a.n;
        T *y = ah_at<T>(a.y) + matrix * a.n * a.k;
        const T least = a.full ? (T)0 : (T)a.least * s[0];
        for (int64_t i = threadIdx.x; i < a.n * a.k; i += blockDim.x)
            y[i] = s[i / a.k] > least ? y[i] / s[i / a.k] : (T)0;
        if (threadIdx.x == 0) {
            int64_t rank = 0;
            while (rank < a.n && s[rank] > least)
                rank++;
            ah_at<int64_t>(a.rank)[matrix] = rank;
            if (a.full && rank < a.n)
                ah_at<int32_t>(a.info)[matrix] = (int32_t)rank + 1;
        }
    }
}

template <typename T> __device__ __forceinline__ void linalg_residual(const ah_linalg_residual_args &a)
{
    AH_EACH(int64_t, i, a.batch * a.k) {
        const int64_t column = i % a.k, first = i / a.k * a.m * a.k + column;
        const T *b = ah_at<const T>(a.b) + first, *product = ah_at<const T>(a.product) + first;
        T *x = ah_at<T>(a.x) + first;
        double sum = 0;
        AH_ROLLED
        for (int64_t row = 0; row < a.m; row++) {
            const double rest = (double)b[row * a.k] - (double)product[row * a.k];
            sum += rest * rest;
        }
        AH_ROLLED
        for (int64_t row = a.n; row < a.m; row++)
            x[row * a.k] = row == a.n ? (T)sqrt(sum) : (T)0;
    }
}

#define LINALG(name, suffix, type) \
    AH_KERNEL_OF(name##_##suffix, ah_##name##_args, AH_LINALG_THREADS, name<type>)
#define LINALG_BOTH(name) LINALG(name, f32, float) LINALG(name, f64, double)
LINALG_BOTH(linalg_copy)
LINALG_BOTH(linalg_screen)
LINALG_BOTH(linalg_spoil)
LINALG_BOTH(linalg_det)
LINALG_BOTH(linalg_rows)
LINALG_BOTH(linalg_divide)
LINALG_BOTH(linalg_residual)
