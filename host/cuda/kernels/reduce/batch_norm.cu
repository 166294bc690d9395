/* Batch norm: the statistics of splits of a channel, each about its own mean, are combined in order (Chan, Golub and
 * LeVeque, 1979), one thread a channel then makes factors of them, and a pass over the elements applies these. */
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/reduce/batch_norm.h"

/* The offset of value i of channel c. */
static __device__ __forceinline__ int64_t value_at(const ah_batch &b, int64_t c, int64_t i)
{
    if (b.last)
        return i * b.c + c;
    if (b.n * b.pixels < INT64_C(0x80000000)) {
        const uint32_t image = (uint32_t)i / (uint32_t)b.pixels;
        return (image * b.c + c) * b.pixels + ((uint32_t)i - image * (uint32_t)b.pixels);
    }
    return (i / b.pixels * b.c + c) * b.pixels + i % b.pixels;
}

/* Statistics of several values. */
template <typename R> struct moments {
    R count, mean, squares;
    __device__ __forceinline__ void add(const moments &other)
    {
        if (other.count == 0)
            return;
        const R total = count + other.count, delta = other.mean - mean;
        mean += delta * (other.count / total);
        squares += other.squares + delta * delta * (count * other.count / total);
        count = total;
    }
};

/* Of this thread's values of a split, from `i` on and `step` apart: up to AH_BATCH_EACH at once, kept in registers. */
template <typename T>
__device__ __forceinline__ moments<ah_real<T>> own_moments(const ah_batch &b, const T *x, int64_t c, int64_t i,
                                                           int64_t end, int64_t step)
{
    typedef ah_real<T> R;
    moments<R> all = {0, 0, 0};
    for (; i < end; i += AH_BATCH_EACH * step) {
        R v[AH_BATCH_EACH], sum = 0;
        moments<R> some = {0, 0, 0};
        AH_UNROLL
        for (int j = 0; j < AH_BATCH_EACH; j++) {
            v[j] = i + j * step < end ? ah_get(x[value_at(b, c, i + j * step)]) : (R)0;
            some.count += i + j * step < end ? (R)1 : (R)0;
            sum += v[j];
        }
        some.mean = sum / some.count;
        AH_UNROLL
        for (int j = 0; j < AH_BATCH_EACH; j++)
            some.squares += i + j * step < end ? (v[j] - some.mean) * (v[j] - some.mean) : (R)0;
        all.add(some);
    }
    return all;
}

template <typename T>
__device__ __forceinline__ void own_sums(const ah_batch_parts_args &a, int64_t c, int64_t i, int64_t end, int64_t step,
                                         ah_real<T> *sum_g, ah_real<T> *sum_gx)
{
    typedef ah_real<T> R;
    const R mean = ah_at<const R>(a.mean)[c];
    R s = 0, t = 0;
    for (; i < end; i += step) {
        const int64_t at = value_at(a.batch, c, i);
        const R g = ah_get(ah_at<const T>(a.g)[at]);
        s += g;
        t += g * (ah_get(ah_at<const T>(a.x)[at]) - mean);
    }
    *sum_g = s;
    *sum_gx = t;
}

/* Shared memory of a block for its threads' moments. */
template <typename R> struct shares {
    moments<R> at[AH_BATCH_LANES][AH_BATCH_COLUMNS];
    R warp[AH_BATCH_THREADS / 32];
};

/* Each block processes a split of a channel or, `last`, of 32 channels, whose rows are divided among the warps. */
template <typename T>
__device__ __forceinline__ void batch_parts(const ah_batch_parts_args &a, shares<ah_real<T>> &room)
{
    typedef ah_real<T> R;
    const ah_batch &b = a.batch;
    const int64_t groups = b.last ? (b.c + AH_BATCH_COLUMNS - 1) / AH_BATCH_COLUMNS : b.c;
    const int64_t count = b.n * b.pixels;
    const int lane = threadIdx.x / AH_BATCH_COLUMNS, column = threadIdx.x % AH_BATCH_COLUMNS;
    for (int64_t item = blockIdx.x; item < groups * b.splits; item += gridDim.x) {
        const int64_t split = item / groups, group = item % groups, begin = split * b.length;
        const int64_t end = begin + b.length < count ? begin + b.length : count;
        const int64_t c = b.last ? group * AH_BATCH_COLUMNS + column : group;
        const int64_t first = begin + (b.last ? lane : (int)threadIdx.x);
        const int64_t step = b.last ? AH_BATCH_LANES : AH_BATCH_THREADS;
        moments<R> own = {0, 0, 0};
        if (c < b.c && !a.g)
            own = own_moments(b, ah_at<const T>(a.x), c, first, end, step);
        else if (c < b.c)
            own_sums<T>(a, c, first, end, step, &own.mean, &own.squares);
        if (!b.last) {
            if (a.g) {
                own.mean = ah_block_fold(own.mean, ah_add(), room.warp);
                own.squares = ah_block_fold(own.squares, ah_add(), room.warp);
            } else {
                const R values = (R)(end - begin);
                const R mean = ah_block_fold(own.count * own.mean, ah_add(), room.warp) / values;
                const R off = own.mean - mean;
                own.squares = ah_block_fold(own.squares + own.count * off * off, ah_add(), room.warp);
                own.mean = mean;
            }
            if (threadIdx.x != 0)
                continue;
        } else {
            __syncthreads();
            room.at[lane][column] = own;
            __syncthreads();
            if (lane != 0 || c >= b.c)
                continue;
            for (int i = 1; i < AH_BATCH_LANES; i++) {
                const moments<R> other = room.at[i][column];
                if (!a.g) {
                    own.add(other);
                } else {
                    own.mean += other.mean;
                    own.squares += other.squares;
                }
            }
        }
        ah_at<R>(a.first)[split * b.c + c] = own.mean;
        ah_at<R>(a.second)[split * b.c + c] = own.squares;
    }
}

template <typename T> __device__ __forceinline__ void batch_stats(const ah_batch_stats_args &a)
{
    typedef ah_real<T> R;
    const ah_batch &b = a.batch;
    const double count = (double)(b.n * b.pixels);
    for (int64_t c = ah_first_item(); c < b.c; c += ah_item_step()) {
        T *running_mean = a.running_mean ? ah_at<T>(a.running_mean) + c * a.mean_stride : nullptr;
        T *running_var = a.running_var ? ah_at<T>(a.running_var) + c * a.var_stride : nullptr;
        R mean, variance;
        if (a.first) {
            moments<double> all = {0, 0, 0};
            for (int64_t split = 0; split < b.splits; split++) {
                const int64_t left = b.n * b.pixels - split * b.length;
                all.add({(double)(left < b.length ? left : b.length), (double)ah_at<const R>(a.first)[split * b.c + c],
                         (double)ah_at<const R>(a.second)[split * b.c + c]});
            }
            mean = (R)all.mean;
            variance = (R)(all.squares / count);
            if (running_mean)
                *running_mean = ah_put<T>((R)((1 - a.momentum) * (double)ah_get(*running_mean) +
                                              a.momentum * (double)mean));
            if (running_var)
                *running_var = ah_put<T>((R)((1 - a.momentum) * (double)ah_get(*running_var) +
                                             a.momentum * ((double)variance * (count / (count - 1)))));
        } else {
            mean = ah_get(*running_mean);
            variance = ah_get(*running_var);
        }
        const R inverse = (R)(1 / sqrt((double)variance + a.eps));
        const R scale = inverse * (a.weight ? ah_get(ah_at<const T>(a.weight)[c]) : (R)1);
        ah_at<R>(a.mean)[c] = mean;
        ah_at<R>(a.inverse)[c] = inverse;
        ah_at<R>(a.scale)[c] = scale;
        ah_at<R>(a.shift)[c] = (a.bias ? ah_get(ah_at<const T>(a.bias)[c]) : (R)0) - mean * scale;
    }
}

/* gx = w inverse (g - mean(g) - (x - mean) inverse^2 mean(g (x - mean))) with statistics of the batch. */
template <typename T> __device__ __forceinline__ void batch_gradient(const ah_batch_gradient_args &a)
{
    typedef ah_real<T> R;
    const ah_batch &b = a.batch;
    const R count = (R)(b.n * b.pixels);
    for (int64_t c = ah_first_item(); c < b.c; c += ah_item_step()) {
        double first = 0, second = 0;
        for (int64_t split = 0; split < b.splits; split++) {
            first += (double)ah_at<const R>(a.first)[split * b.c + c];
            second += (double)ah_at<const R>(a.second)[split * b.c + c];
        }
        const R sum_g = (R)first, sum_gx = (R)second, inverse = ah_at<const R>(a.inverse)[c];
        const R scale = inverse * (a.weight ? ah_get(ah_at<const T>(a.weight)[c]) : (R)1);
        const R of_x = a.training ? -scale * inverse * inverse * sum_gx / count : (R)0;
        ah_at<T>(a.grad_weight)[c] = ah_put<T>(sum_gx * inverse);
        ah_at<T>(a.grad_bias)[c] = ah_put<T>(sum_g);
        ah_at<R>(a.of_g)[c] = scale;
        ah_at<R>(a.of_x)[c] = of_x;
        ah_at<R>(a.constant)[c] =
            a.training ? -scale * sum_g / count - ah_at<const R>(a.mean)[c] * of_x : (R)0;
    }
}

template <typename T> __device__ __forceinline__ void batch_apply(const ah_batch_apply_args &a)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    const ah_batch &b = a.batch;
    const int64_t total = b.n * b.c * b.pixels;
    const R *scale = ah_at<const R>(a.scale), *shift = ah_at<const R>(a.shift), *of_g = ah_at<const R>(a.of_g);
    for (int64_t i = ah_first_item() * N; i < total; i += ah_item_step() * N) {
        R v[N] = {0}, g[N] = {0};
        const bool full = a.wide && i + N <= total;
        ah_get_pack(v, ah_at<const T>(a.x) + i, full, total - i);
        if (a.g)
            ah_get_pack(g, ah_at<const T>(a.g) + i, full, total - i);
        const int64_t channel = b.last ? i % b.c : i / b.pixels % b.c;
        AH_UNROLL
        for (int j = 0; j < N; j++) {
            const int64_t c = !a.wide ? (b.last ? (i + j) % b.c : (i + j) / b.pixels % b.c)
                              : b.last ? channel + j
                                       : channel;
            v[j] = v[j] * scale[c] + shift[c];
            if (a.g)
                v[j] = g[j] * of_g[c] + v[j];
        }
        ah_put_pack(ah_at<T>(a.y) + i, v, full, total - i);
    }
}

#define BATCH(suffix, type)                                                                               \
    AH_KERNEL(batch_parts_##suffix, ah_batch_parts_args, AH_BATCH_THREADS)                                \
    {                                                                                                     \
        AH_SHARED(shares<ah_real<type>>, room);                                                           \
        batch_parts<type>(a, room);                                                                       \
    }                                                                                                     \
    AH_KERNEL_OF(batch_stats_##suffix, ah_batch_stats_args, AH_BATCH_THREADS, batch_stats<type>)          \
    AH_KERNEL_OF(batch_gradient_##suffix, ah_batch_gradient_args, AH_BATCH_THREADS, batch_gradient<type>) \
    AH_KERNEL_OF(batch_apply_##suffix, ah_batch_apply_args, AH_BATCH_THREADS, batch_apply<type>)
AH_FOR_REALS(BATCH)
