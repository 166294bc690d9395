/* Dropout: the mask is drawn, kept and applied at once. Dropped elements are multiplied by 0, so that nan and infinity
 * show. */
#include "cuda/kernels/random/random.cuh"

/* Element i. */
template <typename T>
__device__ __forceinline__ void one(const ah_dropout_args &a, int64_t i, bool kept, T scale)
{
    int64_t at[3];
    ah_locate<3>(a.iter, i, at);
    reinterpret_cast<uint8_t *>(a.iter.operand[0].at)[at[0]] = kept;
    ah_write_one<T>(a.iter.operand[2], at[2], ah_read_one<T>(a.iter.operand[1], at[1]) * (kept ? scale : T(0)));
}

/* N elements from `first` on, where all operands are dense and aligned. */
template <typename T, int N>
__device__ __forceinline__ void one_run(const ah_dropout_args &a, int64_t first, const float *v, T keep, T scale)
{
    T x[N];
    uint8_t kept[N];
    ah_read_operand<T, N>(a.iter.operand[1], first, x);
    AH_UNROLL
    for (int k = 0; k < N; k++) {
        kept[k] = v[k] < keep;
        x[k] *= kept[k] ? scale : T(0);
    }
    uint8_t *mask = reinterpret_cast<uint8_t *>(a.iter.operand[0].at) + first;
    if constexpr (N >= 4)
        ah_write_run<uint8_t, uint8_t, N>(mask, kept);
    else
        for (int k = 0; k < N; k++)
            mask[k] = kept[k];
    ah_write_operand<T, N>(a.iter.operand[2], first, x);
}

/* N elements that follow each other, of which every N have a group of numbers or a part of one. */
template <typename T, int N> __device__ __forceinline__ void in_runs(const ah_dropout_args &a)
{
    const T keep = static_cast<T>(a.iter.number[0]), scale = static_cast<T>(a.iter.number[1]);
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    ah_philox stream = ah_philox_open(a.place, static_cast<uint64_t>(thread));
    for (int64_t first = thread * N; first < a.iter.numel; first += threads * N) {
        float v[(N + 3) / 4 * 4];
        AH_UNROLL
        for (int k = 0; k < N; k += 4) {
            float group[4];
            ah_uniform<float>()(stream.next(), group);
            AH_UNROLL
            for (int j = 0; j < 4; j++)
                v[k + j] = group[j];
        }
        if constexpr (N * sizeof(T) >= 16) {
            if (a.iter.wide) {
                one_run<T, N>(a, first, v, keep, scale);
                continue;
            }
        }
        for (int k = 0; k < N; k++)
            one<T>(a, first + k, v[k] < keep, scale);
    }
}

/* One element from each of four rounds over the grid. */
template <typename T> __device__ __forceinline__ void in_rounds(const ah_dropout_args &a)
{
    const T keep = static_cast<T>(a.iter.number[0]), scale = static_cast<T>(a.iter.number[1]);
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    ah_philox stream = ah_philox_open(a.place, static_cast<uint64_t>(thread));
    for (int64_t first = thread; first < a.iter.numel; first += threads * 4) {
        float v[4];
        ah_uniform<float>()(stream.next(), v);
        AH_UNROLL
        for (int k = 0; k < 4; k++) {
            const int64_t i = first + k * threads;
            if (i < a.iter.numel)
                one<T>(a, i, v[k] < keep, scale);
        }
    }
}

AH_KERNEL(dropout_f32, ah_dropout_args, AH_RANDOM_THREADS)
{
    switch (a.run) {
    case 8: return in_runs<float, 8>(a);
    case 4: return in_runs<float, 4>(a);
    case 2: return in_runs<float, 2>(a);
    default: return in_rounds<float>(a);
    }
}

AH_KERNEL(dropout_f64, ah_dropout_args, AH_RANDOM_THREADS)
{
    if (a.run == 2)
        return in_runs<double, 2>(a);
    in_rounds<double>(a);
}
