/* Losses of class labels. Rows of scores go through the maximum and the sum of exponentials once; losses are added
 * up in double by one block, whose threads take them in turn. */
#include "cuda/kernels/loss.h"
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/tail.cuh"

template <typename T> struct labels {
    const ah_labels &l;
    const int64_t *label;
    const T *weight;
    __device__ __forceinline__ explicit labels(const ah_labels &given)
        : l(given), label(ah_at<const int64_t>(given.label)), weight(ah_at<const T>(given.weight))
    {
    }
    __device__ __forceinline__ ah_real<T> of(int64_t c) const
    {
        return weight ? ah_get(weight[c]) : (ah_real<T>)1;
    }
    __device__ __forceinline__ bool outside(int64_t c) const
    {
        return c < 0 || c >= l.classes;
    }
    __device__ __forceinline__ ah_real<T> kept() const
    {
        return (ah_real<T>)(1 - l.smoothing);
    }
    __device__ __forceinline__ ah_real<T> spread() const
    {
        return (ah_real<T>)(l.smoothing / (double)l.classes);
    }
};

template <typename T> __device__ __forceinline__ void put_loss(uint64_t out, uint64_t loss, int64_t i, ah_real<T> value)
{
    if (out)
        ah_at<T>(out)[i] = ah_put<T>(value);
    if (loss)
        ah_at<ah_real<T>>(loss)[i] = value;
}

template <typename T> __device__ __forceinline__ void nll(const ah_nll_args &a)
{
    typedef ah_real<T> R;
    const labels<T> l(a.labels);
    const int64_t inner = a.labels.inner, classes = a.labels.classes;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.labels.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t label = l.label[i];
        R value = 0;
        if (label != a.labels.ignore && l.outside(label)) {
            value = (R)NAN;
        } else if (label != a.labels.ignore) {
            const T *x = ah_at<const T>(a.x) + i / inner * classes * inner + i % inner;
            value = -ah_get(x[label * inner]) * l.of(label);
            if (a.labels.smoothing != 0) {
                R all = 0;
                for (int64_t c = 0; c < classes; c++)
                    all -= ah_get(x[c * inner]) * l.of(c);
                value = l.kept() * value + l.spread() * all;
            }
        }
        put_loss<T>(a.out, a.loss, i, value);
    }
}

/* What the loss's gradient is multiplied by at a position. */
template <typename T>
__device__ __forceinline__ ah_real<T> scale_at(uint64_t g, uint64_t total, int32_t each, int64_t i)
{
    const ah_real<T> own = ah_get(ah_at<const T>(g)[each ? i : 0]);
    return total ? own / (ah_real<T>)*ah_at<const double>(total) : own;
}

template <typename T> __device__ __forceinline__ void nll_backward(const ah_nll_backward_args &a)
{
    typedef ah_real<T> R;
    const labels<T> l(a.labels);
    const int64_t inner = a.labels.inner, classes = a.labels.classes, count = a.labels.count * classes;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t c = at / inner % classes, i = at / inner / classes * inner + at % inner, label = l.label[i];
        R value = 0;
        if (label != a.labels.ignore) {
            const R scale = scale_at<T>(a.g, a.total, a.each, i);
            if (a.labels.smoothing > 0)
                value = -(l.spread() * scale) * l.of(c);
            if (c == label)
                value -= l.kept() * scale * l.of(label);
        }
        ah_at<T>(a.gx)[at] = ah_put<T>(value);
    }
}

/* -log p_c = log_sum - x_c. */
template <typename T, typename ROWS> __device__ __forceinline__ void entropy(const ah_entropy_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    const labels<T> l(a.labels);
    const int64_t classes = a.labels.classes;
    for (int64_t row = ROWS::first(); row < a.labels.count; row += ROWS::step()) {
        const T *x = ah_at<const T>(a.x) + row * classes;
        const ah_tail<R> tail = ah_row_tail(rows, x, classes, a.wide, [](R v, int64_t) { return v; });
        const R log_sum = tail.m + ah_log(tail.sum);
        R all = 0;
        if (a.labels.smoothing > 0) {
            for (int64_t c = ROWS::lane(); c < classes; c += ROWS::lanes)
                all += (log_sum - ah_get(x[c])) * l.of(c);
            all = rows.fold(all, ah_add());
        }
        if (ROWS::lane() != 0)
            continue;
        const int64_t label = l.label[row];
        R value = 0;
        if (label != a.labels.ignore && l.outside(label)) {
            value = (R)NAN;
        } else if (label != a.labels.ignore) {
            value = (log_sum - ah_get(x[label])) * l.of(label);
            if (a.labels.smoothing > 0)
                value = l.kept() * value + l.spread() * all;
        }
        if (a.log_sum)
            ah_at<R>(a.log_sum)[row] = log_sum;
        put_loss<T>(a.out, a.loss, row, value);
    }
}

template <typename T, typename ROWS>
__device__ __forceinline__ void entropy_backward(const ah_entropy_backward_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    const labels<T> l(a.labels);
    const int64_t classes = a.labels.classes;
    R weights = 0;
    if (a.labels.smoothing > 0) {
        for (int64_t c = ROWS::lane(); c < classes; c += ROWS::lanes)
            weights += l.of(c);
        weights = rows.fold(weights, ah_add());
    }
    for (int64_t row = ROWS::first(); row < a.labels.count; row += ROWS::step()) {
        const T *x = ah_at<const T>(a.x) + row * classes;
        T *gx = ah_at<T>(a.gx) + row * classes;
        const int64_t label = l.label[row];
        const bool counts = label != a.labels.ignore && !l.outside(label);
        const R scale = counts ? scale_at<T>(a.g, a.total, a.each, row) : (R)0;
        const R log_sum = ah_at<const R>(a.log_sum)[row];
        const R own = counts ? l.kept() * scale * l.of(label) : (R)0, spread = l.spread() * scale;
        const R factor = own + spread * weights;
        ah_each_pack<T, ROWS>(classes, a.wide, [&](int64_t i, int64_t left, bool full) {
            R v[N] = {0};
            if (counts)
                ah_get_pack(v, x + i, full, left);
            AH_UNROLL
            for (int j = 0; j < N; j++) {
                R value = counts ? ah_exp(v[j] - log_sum) * factor : (R)0;
                if (a.labels.smoothing > 0 && j < left)
                    value -= spread * l.of(i + j);
                v[j] = i + j == label ? value - own : value;
            }
            ah_put_pack(gx + i, v, full, left);
        });
    }
}

template <typename T> __device__ __forceinline__ void loss_total(const ah_loss_total_args &a, double *shared)
{
    const labels<T> l(a.labels);
    double sum = 0, weights = 0;
    for (int64_t i = threadIdx.x; i < a.labels.count; i += AH_LOSS_TOTAL_THREADS) {
        const int64_t label = l.label[i];
        if (label != a.labels.ignore && !l.outside(label))
            weights += (double)l.of(label);
        sum += (double)ah_at<const ah_real<T>>(a.loss)[i];
    }
    sum = ah_block_fold(sum, ah_add(), shared);
    weights = ah_block_fold(weights, ah_add(), shared);
    if (threadIdx.x != 0)
        return;
    *ah_at<T>(a.out) = ah_put<T>((ah_real<T>)(a.mean ? sum / weights : sum));
    if (a.total)
        *ah_at<double>(a.total) = weights;
}

#define LOSS(suffix, type)                                                                          \
    AH_KERNEL(nll_##suffix, ah_nll_args, AH_LOSS_THREADS)                                           \
    {                                                                                               \
        nll<type>(a);                                                                               \
    }                                                                                               \
    AH_KERNEL(nll_backward_##suffix, ah_nll_backward_args, AH_LOSS_THREADS)                         \
    {                                                                                               \
        nll_backward<type>(a);                                                                      \
    }                                                                                               \
    AH_ROW_KERNEL(entropy, ah_entropy_args, entropy, suffix, type)                                  \
    AH_ROW_KERNEL(entropy_backward, ah_entropy_backward_args, entropy_backward, suffix, type)       \
    AH_KERNEL(loss_total_##suffix, ah_loss_total_args, AH_LOSS_TOTAL_THREADS)                       \
    {                                                                                               \
        AH_SHARED_ARRAY(double, shared, AH_LOSS_TOTAL_THREADS / 32);                                \
        loss_total<type>(a, shared);                                                                \
    }
AH_FOR_REALS(LOSS)
