/* Sequences, triangles, one-hot rows. */
#include "cuda/kernels/index/create.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/reduce/reduce.cuh"

static __device__ __forceinline__ void store(const ah_sequence_args &a, int64_t i, double value)
{
    if (a.dtype == AH_U8 || a.dtype == AH_I32 || a.dtype == AH_I64)
        ah_store_any<int64_t>(a.to, a.dtype, i, (int64_t)value);
    else
        ah_store_any<double>(a.to, a.dtype, i, value);
}

AH_KERNEL(arange, ah_sequence_args, AH_CREATE_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step()) {
        if (a.dtype == AH_I64)
            ah_at<int64_t>(a.to)[i] = (int64_t)a.start + i * (int64_t)a.step;
        else
            store(a, i, a.start + (double)i * a.step);
    }
}

AH_KERNEL(linspace, ah_sequence_args, AH_CREATE_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step()) {
        const int64_t steps = i < a.half ? i : a.n - 1 - i;
        const double from = i < a.half ? a.start : a.end, step = i < a.half ? a.step : -a.step;
        store(a, i, a.dtype == AH_F32 ? fmaf((float)step, (float)steps, (float)from) : fma(step, (double)steps, from));
    }
}

/* A warp processes a line at a time. */
template <typename T> __device__ __forceinline__ void triangle(const ah_triangle_args &a)
{
    const T *from = ah_at<const T>(a.from);
    T *to = ah_at<T>(a.to);
    for (int64_t line = ah_first_item() / 32; line < a.lines; line += ah_item_step() / 32) {
        const int64_t row = line % a.rows;
        for (int64_t k = threadIdx.x % 32; k < a.columns; k += 32) {
            const int64_t at = line * a.columns + k;
            to[at] = k - row >= a.least && k - row <= a.most ? from[at] : T(0);
        }
    }
}

#define TRIANGLE(suffix, type) AH_KERNEL_OF(triangle_##suffix, ah_triangle_args, AH_CREATE_THREADS, triangle<type>)
TRIANGLE(1, uint8_t)
TRIANGLE(2, uint16_t)
TRIANGLE(4, uint32_t)
TRIANGLE(8, uint64_t)

/* Two classes a thread, 16 bytes, where that fits. */
AH_KERNEL(one_hot, ah_one_hot_args, AH_CREATE_THREADS)
{
    const int64_t *x = ah_at<const int64_t>(a.x), count = a.n * a.classes;
    for (int64_t i = ah_first_item() * 2; i < count; i += ah_item_step() * 2) {
        const int64_t row = i / a.classes, k = i - row * a.classes;
        const bool next = k + 1 == a.classes;
        ah_pack<int64_t> pack;
        pack.at[0] = x[row] == k;
        pack.at[1] = i + 1 < count && x[next ? row + 1 : row] == (next ? 0 : k + 1);
        if (i + 1 < count)
            ah_store16(ah_at<int64_t>(a.to) + i, pack);
        else
            ah_at<int64_t>(a.to)[i] = pack.at[0];
    }
}
