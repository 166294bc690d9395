/* Softmax and its kin. A row is read twice: once for its maximum and the sum of the exponentials below it, which are
 * kept together while the maximum grows, and, mostly out of a cache, once to be written. */
#include "cuda/kernels/lib/rows.cuh"
#include "cuda/kernels/lib/tail.cuh"
#include "cuda/kernels/reduce/softmax.h"

template <typename T, typename ROWS> __device__ __forceinline__ void softmax(const ah_softmax_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    for (int64_t row = ROWS::first(); row < a.rows; row += ROWS::step()) {
        const T *x = ah_at<const T>(a.x) + row * a.length;
        T *y = ah_at<T>(a.y) + row * a.length;
        const ah_tail<R> all = ah_row_tail(rows, x, a.length, [](R v, int64_t) { return v; });
        const R log_sum = ah_log(all.sum);
        ah_each_pack<T, ROWS>(a.length, a.wide, [&](int64_t i, int64_t left, bool full) {
            R v[N] = {0};
            ah_get_pack(v, x + i, full, left);
            AH_UNROLL
            for (int j = 0; j < N; j++)
                v[j] = a.log ? v[j] - all.m - log_sum : ah_exp(v[j] - all.m) / all.sum;
            ah_put_pack(y + i, v, full, left);
        });
    }
}

template <typename T, typename ROWS>
__device__ __forceinline__ void softmax_backward(const ah_softmax_backward_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    for (int64_t row = ROWS::first(); row < a.rows; row += ROWS::step()) {
        const T *g = ah_at<const T>(a.g) + row * a.length, *y = ah_at<const T>(a.y) + row * a.length;
        T *gx = ah_at<T>(a.gx) + row * a.length;
        R sum = 0;
        ah_each_pack<T, ROWS>(a.length, a.wide, [&](int64_t i, int64_t left, bool full) {
            R u[N] = {0}, v[N] = {0};
            ah_get_pack(u, g + i, full, left);
            ah_get_pack(v, y + i, full, left);
            AH_UNROLL
            for (int j = 0; j < N; j++)
                sum += a.log ? u[j] : u[j] * v[j];
        });
        sum = rows.fold(sum, ah_add());
        ah_each_pack<T, ROWS>(a.length, a.wide, [&](int64_t i, int64_t left, bool full) {
            R u[N] = {0}, v[N] = {0};
            ah_get_pack(u, g + i, full, left);
            ah_get_pack(v, y + i, full, left);
            AH_UNROLL
            for (int j = 0; j < N; j++)
                v[j] = a.log ? u[j] - ah_exp(v[j]) * sum : v[j] * (u[j] - sum);
            ah_put_pack(gx + i, v, full, left);
        });
    }
}

/* Columns: one thread each, neighbours read neighbours. */
template <typename T> __device__ __forceinline__ void softmax_columns(const ah_softmax_args &a)
{
    typedef ah_real<T> R;
    const int64_t count = a.rows, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        const int64_t first = at / a.inner * a.length * a.inner + at % a.inner;
        const T *x = ah_at<const T>(a.x) + first;
        T *y = ah_at<T>(a.y) + first;
        ah_tail<R> all = {(R)-INFINITY, 0};
        for (int64_t i = 0; i < a.length; i++)
            all.add(ah_get(x[i * a.inner]));
        const R log_sum = ah_log(all.sum);
        for (int64_t i = 0; i < a.length; i++) {
            const R v = ah_get(x[i * a.inner]);
            y[i * a.inner] = ah_put<T>(a.log ? v - all.m - log_sum : ah_exp(v - all.m) / all.sum);
        }
    }
}

template <typename T> __device__ __forceinline__ void softmax_columns_backward(const ah_softmax_backward_args &a)
{
    typedef ah_real<T> R;
    const int64_t count = a.rows, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        const int64_t first = at / a.inner * a.length * a.inner + at % a.inner;
        const T *g = ah_at<const T>(a.g) + first, *y = ah_at<const T>(a.y) + first;
        T *gx = ah_at<T>(a.gx) + first;
        R sum = 0;
        for (int64_t i = 0; i < a.length; i++)
            sum += a.log ? ah_get(g[i * a.inner]) : ah_get(g[i * a.inner]) * ah_get(y[i * a.inner]);
        for (int64_t i = 0; i < a.length; i++) {
            const R u = ah_get(g[i * a.inner]), v = ah_get(y[i * a.inner]);
            gx[i * a.inner] = ah_put<T>(a.log ? u - ah_exp(v) * sum : v * (u - sum));
        }
    }
}

/* A row without anything to attend to becomes zeros. */
template <typename T, typename ROWS>
__device__ __forceinline__ void masked_softmax(const ah_masked_softmax_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    for (int64_t row = ROWS::first(); row < a.rows; row += ROWS::step()) {
        const T *x = ah_at<const T>(a.x) + row * a.length;
        T *y = ah_at<T>(a.y) + row * a.length;
        const int64_t query = row % a.queries;
        const int64_t seen = a.causal && query + 1 < a.length ? query + 1 : a.length;
        int64_t mask = 0, rest = row;
        for (int d = a.ndim - 2; a.mask && d >= 0; d--) {
            mask += rest % a.size[d] * a.stride[d];
            rest /= a.size[d];
        }
        const int64_t along = a.ndim > 0 ? a.stride[a.ndim - 1] : 0;
        const auto score = [&](R v, int64_t i) -> R {
            if (i >= seen)
                return (R)-INFINITY;
            if (!a.mask)
                return v;
            if (a.boolean)
                return ah_at<const uint8_t>(a.mask)[mask + i * along] ? v : (R)-INFINITY;
            return v + ah_get(ah_at<const T>(a.mask)[mask + i * along]);
        };
        const ah_tail<R> all = ah_row_tail(rows, x, a.length, score);
        ah_each_pack<T, ROWS>(a.length, a.wide, [&](int64_t i, int64_t left, bool full) {
            R v[N] = {0};
            ah_get_pack(v, x + i, full, left);
            AH_UNROLL
            for (int j = 0; j < N; j++)
                if (j < left)
                    v[j] = all.m == (R)-INFINITY || i + j >= seen ? (R)0
                                                                 : ah_exp(score(v[j], i + j) - all.m) / all.sum;
            ah_put_pack(y + i, v, full, left);
        });
    }
}

#define SOFTMAX(suffix, type)                                                                      \
    AH_ROW_KERNEL(softmax, ah_softmax_args, softmax, suffix, type)                                 \
    AH_ROW_KERNEL(softmax_backward, ah_softmax_backward_args, softmax_backward, suffix, type)      \
    AH_ROW_KERNEL(masked_softmax, ah_masked_softmax_args, masked_softmax, suffix, type)            \
    AH_KERNEL_OF(softmax_columns_##suffix, ah_softmax_args, AH_ROW_THREADS, softmax_columns<type>) \
    AH_KERNEL_OF(softmax_columns_backward_##suffix, ah_softmax_backward_args, AH_ROW_THREADS,      \
                 softmax_columns_backward<type>)
AH_FOR_REALS(SOFTMAX)
