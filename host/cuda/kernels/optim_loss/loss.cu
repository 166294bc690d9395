/* Losses of class labels. Rows of scores go through the maximum and the sum of exponentials once; losses are added
 * up in double by one block, whose threads add them in turn. */
#include "cuda/kernels/lib/rows.cuh"
#include "cuda/kernels/lib/tail.cuh"
#include "cuda/kernels/optim_loss/loss.h"

template <typename T> struct labels {
    const ah_labels &l;
    const int64_t *label;
    const ah_real<T> *weight;
    __device__ __forceinline__ explicit labels(const ah_labels &given)
        : l(given), label(ah_at<const int64_t>(given.label)), weight(ah_at<const ah_real<T>>(given.weight))
    {
    }
    __device__ __forceinline__ ah_real<T> of(int64_t c) const
    {
        return weight ? weight[c] : (ah_real<T>)1;
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

/* Return the factor of the loss's gradient at a position. */
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

/* The sum of w_c (log_sum - x_c) over the classes of a row. */
template <typename T, typename ROWS>
__device__ __forceinline__ ah_real<T> entropy_of_all(const labels<T> &l, ROWS rows, const T *x, ah_real<T> log_sum)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    R all = 0;
    ah_each_cut<ROWS>(x, l.l.classes, [&](const ah_cut &cut) {
        R v[N] = {0};
        ah_get_cut(v, x, cut);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (j >= cut.from && j < cut.to)
                all += (log_sum - v[j]) * l.of(cut.at + j);
    });
    return rows.fold(all, ah_add());
}

/* -log p_c = log_sum - x_c. Rows that do not count are not read. */
template <typename T, typename ROWS> __device__ __forceinline__ void entropy(const ah_entropy_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    const labels<T> l(a.labels);
    const int64_t classes = a.labels.classes;
    for (int64_t row = ROWS::first(); row < a.labels.count; row += ROWS::step()) {
        const T *x = ah_at<const T>(a.x) + row * classes;
        const int64_t label = l.label[row];
        R value = 0, log_sum = 0;
        if (label != a.labels.ignore && l.outside(label)) {
            value = (R)NAN;
        } else if (label != a.labels.ignore) {
            const ah_tail<R> tail = ah_row_tail(rows, x, classes, [](R v, int64_t) { return v; });
            log_sum = tail.m + ah_log(tail.sum);
            value = (log_sum - ah_get(x[label])) * l.of(label);
            if (a.labels.smoothing > 0)
                value = l.kept() * value + l.spread() * entropy_of_all(l, rows, x, log_sum);
        }
        if (ROWS::lane() != 0)
            continue;
        if (a.log_sum)
            ah_at<R>(a.log_sum)[row] = log_sum;
        put_loss<T>(a.out, a.loss, row, value);
    }
}

/* softmax * factor - spread * weight, less `own` at the label, where x may be gx. */
template <typename T, typename ROWS>
__device__ __forceinline__ void entropy_backward_row(const labels<T> &l, const T *x, T *gx, int64_t label,
                                                     ah_real<T> log_sum, ah_real<T> factor, ah_real<T> spread,
                                                     ah_real<T> own)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    const bool aligned = (reinterpret_cast<uintptr_t>(x) - reinterpret_cast<uintptr_t>(gx)) % 16 == 0;
    ah_each_cut<ROWS>(x, l.l.classes, [&](const ah_cut &cut) {
        R v[N] = {0};
        ah_get_cut(v, x, cut);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            v[j] = ah_exp_for<T>(v[j] - log_sum) * factor;
        if (spread != 0) {
            AH_UNROLL
            for (int j = 0; j < N; j++)
                if (j >= cut.from && j < cut.to)
                    v[j] -= spread * l.of(cut.at + j);
        }
        if (label >= cut.at && label < cut.at + N) {
            AH_UNROLL
            for (int j = 0; j < N; j++)
                if (cut.at + j == label)
                    v[j] -= own;
        }
        ah_put_cut(gx, v, cut, aligned);
    });
}

template <typename T, typename ROWS>
__device__ __forceinline__ void entropy_backward(const ah_entropy_backward_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    const labels<T> l(a.labels);
    const int64_t classes = a.labels.classes;
    R weights = 0;
    if (a.labels.smoothing > 0) {
        for (int64_t c = ROWS::lane(); c < classes; c += ROWS::lanes)
            weights += l.of(c);
        weights = rows.fold(weights, ah_add());
    }
    for (int64_t row = ROWS::first(); row < a.labels.count; row += ROWS::step()) {
        T *gx = ah_at<T>(a.gx) + row * classes;
        const int64_t label = l.label[row];
        if (label == a.labels.ignore || l.outside(label)) {
            const R none[ah_pack<T>::count] = {0};
            ah_each_cut<ROWS>(gx, classes, [&](const ah_cut &cut) { ah_put_cut(gx, none, cut, true); });
            continue;
        }
        const R scale = scale_at<R>(a.g, a.total, a.each, row);
        const R own = l.kept() * scale * l.of(label), spread = l.spread() * scale;
        entropy_backward_row<T, ROWS>(l, ah_at<const T>(a.x) + row * classes, gx, label,
                                      ah_at<const R>(a.log_sum)[row], own + spread * weights, spread, own);
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

#define LOSS(suffix, type)                                                                         \
    AH_KERNEL_OF(nll_##suffix, ah_nll_args, AH_LOSS_THREADS, nll<type>)                            \
    AH_KERNEL_OF(nll_backward_##suffix, ah_nll_backward_args, AH_LOSS_THREADS, nll_backward<type>) \
    AH_ROW_KERNEL_FEW(entropy, ah_entropy_args, entropy, suffix, type, sizeof(type) == 8)          \
    AH_ROW_KERNEL(entropy_backward, ah_entropy_backward_args, entropy_backward, suffix, type)      \
    AH_KERNEL(loss_total_##suffix, ah_loss_total_args, AH_LOSS_TOTAL_THREADS)                      \
    {                                                                                              \
        AH_SHARED_ARRAY(double, shared, AH_LOSS_TOTAL_THREADS / 32);                               \
        loss_total<type>(a, shared);                                                               \
    }
AH_FOR_REALS(LOSS)
