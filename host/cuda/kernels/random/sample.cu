/* Drawing of classes by their shares, of the order of places with equal keys, and of Poisson's counts. */
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/random/random.cuh"

/* The first class whose running sum reaches x; never one without a share. */
template <typename T> __device__ __forceinline__ int64_t class_of(const T *sums, const T *shares, int64_t n, T x)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sums[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    low = low == n ? n - 1 : low;
    while (low > 0 && shares[low] == T(0))
        low--;
    return low;
}

template <typename T> __device__ __forceinline__ void pick(const ah_pick_args &a)
{
    const T *shares = ah_at<const T>(a.shares), *sums = ah_at<const T>(a.sums);
    int64_t *out = ah_at<int64_t>(a.out);
    const int64_t down = gridDim.x / a.across;
    const int64_t sample = (blockIdx.x % a.across) * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    ah_philox stream =
        ah_philox_open(a.place, static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x);
    for (int64_t row = blockIdx.x / a.across; row < a.rows; row += down)
        if (sample < a.samples)
            out[row * a.samples + sample] = class_of<T>(sums + row * a.classes, shares + row * a.classes, a.classes,
                                                        static_cast<T>(ah_share_of(stream.next().x)));
}
AH_KERNEL_OF(pick_f32, ah_pick_args, AH_PICK_THREADS, pick<float>)
AH_KERNEL_OF(pick_f64, ah_pick_args, AH_PICK_THREADS, pick<double>)

/* The first place of an island writes all of it: Fisher and Yates with words of its stream, one after the other. */
template <typename K> __device__ __forceinline__ void shuffle_islands(const ah_island_args &a)
{
    const K *keys = ah_at<const K>(a.keys);
    const uint32_t *order = ah_at<const uint32_t>(a.order);
    int64_t *out = ah_at<int64_t>(a.out);
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.n; i += threads) {
        const K key = keys[i];
        if (i > 0 && keys[i - 1] == key)
            continue;
        int64_t size = 0;
        for (; i + size < a.n && keys[i + size] == key; size++)
            out[i + size] = order[i + size];
        ah_philox_words words(a.place, static_cast<uint64_t>(i));
        for (int64_t k = size - 1; k > 0; k--) {
            const int64_t other = words.next() % static_cast<uint64_t>(k + 1), kept = out[i + k];
            out[i + k] = out[i + other];
            out[i + other] = kept;
        }
    }
}
AH_KERNEL(islands, ah_island_args, AH_ISLAND_THREADS)
{
    if (a.wide)
        shuffle_islands<uint64_t>(a);
    else
        shuffle_islands<uint32_t>(a);
}

/* For small rates by products of uniform numbers (Knuth), as cuRAND has it, for others by transformed rejection
 * (Hoermann 1993, PTRS). */
template <typename T> __device__ __forceinline__ T poisson(ah_philox_words &words, T rate)
{
    if (rate < T(64)) {
        T count = 0;
        for (float p = expf(static_cast<float>(rate)) * ah_share_of(words.next()); p > 1.0f; count++)
            p *= ah_share_of(words.next());
        return count;
    }
    const double mean = static_cast<double>(rate), b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b;
    const double scale = 1.1239 + 1.1328 / (b - 3.4), sure = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        const uint32_t w0 = words.next(), w1 = words.next(), w2 = words.next(), w3 = words.next();
        const double u = ah_share_of(w0, w1) - 0.5, v = ah_share_of(w2, w3), us = 0.5 - fabs(u);
        const double k = floor((2 * a / us + b) * u + mean + 0.43);
        if (us >= 0.07 && v <= sure)
            return static_cast<T>(k);
        if (k < 0 || (us < 0.013 && v > us))
            continue;
        if (log(v) + log(scale) - log(a / (us * us) + b) <= -mean + k * log(mean) - lgamma(k + 1))
            return static_cast<T>(k);
    }
}

/* Operand 1: the rates. Invalid ones yield NaN. */
template <typename T> __device__ __forceinline__ void poissons(const ah_random_args &a)
{
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.iter.numel; i += threads) {
        int64_t at[2];
        ah_locate<2>(a.iter, i, at);
        const T rate = ah_read_one<T>(a.iter.operand[1], at[1]);
        ah_philox_words words(a.place, static_cast<uint64_t>(i));
        const bool right = rate >= 0 && rate < T(0x1p53);
        ah_write_any(a.iter.operand[0], at[0], right ? poisson<T>(words, rate) : static_cast<T>(NAN));
    }
}
AH_KERNEL_OF(poisson_f32, ah_random_args, AH_RANDOM_THREADS, poissons<float>)
AH_KERNEL_OF(poisson_f64, ah_random_args, AH_RANDOM_THREADS, poissons<double>)
