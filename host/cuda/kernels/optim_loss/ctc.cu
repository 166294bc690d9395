/* Connectionist temporal classification by the forward-backward algorithm in log space. alpha at a place is the log
 * probability of all ways to have read the places up to it by a step, beta of all ways to read the rest from there;
 * both include the step. Steps follow each other, so a block has a sequence, its threads the places; the input of a
 * step is loaded a step ahead. The gradient is summed up apart from that, by all steps at once: the first place of a
 * label owns its sum, and follows the chain of the others. */
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/rows.cuh"
#include "cuda/kernels/optim_loss/ctc.h"

/* log(exp(a) + exp(b)); relative to the larger one, so that nothing overflows or is lost. */
template <typename R> __device__ __forceinline__ R log_add(R a, R b)
{
    const R most = a > b ? a : b, least = a > b ? b : a;
    return least == (R)-INFINITY ? most : most + ah_log(1 + ah_exp(least - most));
}

template <typename R> __device__ __forceinline__ R log_sum(R a, R b, R c)
{
    R most = a > b ? a : b, least = a > b ? b : a;
    if (c == (R)-INFINITY)
        return log_add(a, b);
    if (c > most) {
        const R held = most;
        most = c;
        c = held;
    }
    return most + ah_log(1 + ah_exp(least - most) + ah_exp(c - most));
}

/* A sequence. Lengths and labels out of range were refused before; they are clamped here. */
template <typename T> struct sequence {
    typedef ah_real<T> R;
    const ah_ctc &p;
    int64_t length, places, steps, width;
    const T *x;
    const int64_t *label;

    __device__ __forceinline__ sequence(const ah_ctc &ctc, int64_t n) : p(ctc)
    {
        length = ah_clip<int64_t>(ah_at<const int64_t>(p.target_length)[n], 0, p.longest);
        steps = ah_clip<int64_t>(ah_at<const int64_t>(p.input_length)[n], 0, p.steps);
        places = 2 * length + 1;
        width = 2 * p.longest + 1;
        x = ah_at<const T>(p.x) + n * p.classes;
        label = ah_at<const int64_t>(p.label) + n * p.longest;
    }
    __device__ __forceinline__ int64_t label_at(int64_t place) const
    {
        return place % 2 ? ah_clip<int64_t>(label[place / 2], 0, p.classes - 1) : p.blank;
    }
    __device__ __forceinline__ R input(int64_t t, int64_t of) const
    {
        return ah_get(x[t * p.batch * p.classes + of]);
    }
};

/* A thread's first place: its label, and its input of the step after the one that is worked on. */
template <typename T> struct first_place {
    typedef ah_real<T> R;
    const sequence<T> &q;
    const bool there;
    const int64_t label;
    R ahead;

    __device__ __forceinline__ explicit first_place(const sequence<T> &of)
        : q(of), there(threadIdx.x < of.places), label(there ? of.label_at(threadIdx.x) : 0), ahead(0)
    {
    }
    __device__ __forceinline__ void ask(int64_t t)
    {
        if (there && t >= 0 && t < q.steps)
            ahead = q.input(t, label);
    }
};

/* In `rows`, a row of places for odd steps and one for even ones. Returns the last one. */
template <typename T>
__device__ __forceinline__ const ah_real<T> *read_forward(const sequence<T> &q, ah_real<T> *alpha, ah_real<T> *rows)
{
    typedef ah_real<T> R;
    first_place<T> own(q);
    own.ask(0);
    for (int64_t t = 0; t < q.steps; t++) {
        const R here = own.ahead, *before = rows + (t + 1) % 2 * q.width;
        R *now = rows + t % 2 * q.width;
        own.ask(t + 1);
        for (int64_t s = threadIdx.x; s < q.places; s += blockDim.x) {
            const bool first = s == threadIdx.x;
            const int64_t label = first ? own.label : q.label_at(s);
            R value = s < 2 ? (R)0 : (R)-INFINITY;
            if (t > 0) {
                const R one = s > 0 ? before[s - 1] : (R)-INFINITY;
                const R two = s > 1 && q.label_at(s - 2) != label ? before[s - 2] : (R)-INFINITY;
                value = log_sum(before[s], one, two);
            }
            value += first ? here : q.input(t, label);
            now[s] = alpha[t * q.width + s] = value;
        }
        __syncthreads();
    }
    return rows + (q.steps - 1) % 2 * q.width;
}

template <typename T> __device__ __forceinline__ ah_real<T> *rows_of(const ah_ctc_pass_args &a, double *shared)
{
    typedef ah_real<T> R;
    return a.rows ? ah_at<R>(a.rows) + blockIdx.x * 2 * (2 * a.ctc.longest + 1) : reinterpret_cast<R *>(shared);
}

template <typename T> __device__ __forceinline__ void ctc_forward(const ah_ctc_pass_args &a, double *shared)
{
    typedef ah_real<T> R;
    R *rows = rows_of<T>(a, shared);
    for (int64_t n = blockIdx.x; n < a.ctc.batch; n += gridDim.x) {
        const sequence<T> q(a.ctc, n);
        R loss = q.length == 0 ? (R)0 : (R)INFINITY;
        if (q.steps > 0) {
            const R *last = read_forward(q, ah_at<R>(a.alpha) + n * a.ctc.steps * q.width, rows);
            loss = -log_add(last[q.places - 1], q.places > 1 ? last[q.places - 2] : (R)-INFINITY);
        }
        if (threadIdx.x == 0) {
            ah_at<R>(a.loss)[n] = loss;
            ah_at<T>(a.out)[n] = ah_put<T>(a.ctc.zero_infinity && isinf(loss) ? (R)0 : loss);
        }
        __syncthreads(); /* the last row is read */
    }
}

template <typename T> __device__ __forceinline__ void ctc_terms(const ah_ctc_pass_args &a, double *shared)
{
    typedef ah_real<T> R;
    R *rows = rows_of<T>(a, shared);
    for (int64_t n = blockIdx.x; n < a.ctc.batch; n += gridDim.x) {
        const sequence<T> q(a.ctc, n);
        const R loss = ah_at<const R>(a.loss)[n], *alpha = ah_at<const R>(a.alpha) + n * a.ctc.steps * q.width;
        R *terms = ah_at<R>(a.terms) + n * a.ctc.steps * q.width;
        first_place<T> own(q);
        own.ask(q.steps - 1);
        for (int64_t t = q.steps - 1; t >= 0; t--) {
            const R here = own.ahead, *next = rows + (t + 1) % 2 * q.width;
            R *now = rows + t % 2 * q.width;
            own.ask(t - 1);
            for (int64_t s = threadIdx.x; s < q.places; s += blockDim.x) {
                const bool first = s == threadIdx.x;
                const int64_t label = first ? own.label : q.label_at(s);
                const R before = alpha[t * q.width + s];
                R rest = s >= q.places - 2 ? (R)0 : (R)-INFINITY;
                if (t < q.steps - 1) {
                    const R one = s + 1 < q.places ? next[s + 1] : (R)-INFINITY;
                    const R two = s + 2 < q.places && q.label_at(s + 2) != label ? next[s + 2] : (R)-INFINITY;
                    rest = log_sum(next[s], one, two);
                }
                now[s] = rest + (first ? here : q.input(t, label));
                const R through = before + rest;
                terms[t * q.width + s] = through == (R)-INFINITY ? (R)0 : ah_exp(through + loss);
            }
            __syncthreads();
        }
    }
}

/* d loss / d log_probs as PyTorch has it: exp(x) less the class's probability given the target, which is that of x =
 * log_softmax(...) after its own rule; 0 beyond a sequence's end, NaN where there is no way to read it. */
template <typename T, typename ROWS>
__device__ __forceinline__ void ctc_gradient(const ah_ctc_gradient_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    for (int64_t row = ROWS::first(); row < a.ctc.steps * a.ctc.batch; row += ROWS::step()) {
        const int64_t t = row / a.ctc.batch, n = row % a.ctc.batch;
        const sequence<T> q(a.ctc, n);
        const R loss = ah_at<const R>(a.loss)[n], scale = ah_get(ah_at<const T>(a.g)[n]);
        const bool none = isinf(loss), inside = t < q.steps && !(none && a.ctc.zero_infinity);
        const T *x = ah_at<const T>(a.ctc.x) + row * a.ctc.classes;
        T *gx = ah_at<T>(a.gx) + row * a.ctc.classes;
        ah_each_pack<T, ROWS>(a.ctc.classes, a.wide, [&](int64_t i, int64_t left, bool full) {
            R v[N] = {0};
            if (inside)
                ah_get_pack(v, x + i, full, left);
            AH_UNROLL
            for (int j = 0; j < N; j++)
                v[j] = !inside ? (R)0 : none ? (R)NAN : ah_exp(v[j]) * scale;
            ah_put_pack(gx + i, v, full, left);
        });
        if (!inside || none)
            continue;
        rows.sync(); /* classes of the target are written again */
        const R *terms = ah_at<const R>(a.terms) + (n * a.ctc.steps + t) * q.width;
        const int32_t *chain = ah_at<const int32_t>(a.chain) + n * a.ctc.longest;
        R blank = 0;
        for (int64_t s = 2 * ROWS::lane(); s < q.places; s += 2 * ROWS::lanes)
            blank += terms[s];
        for (int64_t k = ROWS::lane(); k < q.length; k += ROWS::lanes) {
            const int64_t label = q.label_at(2 * k + 1);
            R sum = terms[2 * k + 1];
            if (label == a.ctc.blank) {
                blank += sum;
            } else if (chain[k] >= 0) {
                for (int32_t at = chain[k]; at < q.length; at = ~chain[at])
                    sum += terms[2 * at + 1];
                gx[label] = ah_put<T>((ah_exp(ah_get(x[label])) - sum) * scale);
            }
        }
        blank = rows.fold(blank, ah_add());
        if (ROWS::lane() == 0)
            gx[a.ctc.blank] = ah_put<T>((ah_exp(ah_get(x[a.ctc.blank])) - blank) * scale);
    }
}

AH_KERNEL(ctc_labels, ah_ctc_labels_args, AH_CTC_THREADS)
{
    const int64_t longest = a.ctc.longest;
    AH_EACH(int64_t, i, a.ctc.batch * longest)
    {
        const int64_t n = i / longest, k = i % longest;
        const int64_t length = ah_clip<int64_t>(ah_at<const int64_t>(a.ctc.target_length)[n], 0, longest);
        const int64_t *labels = ah_at<const int64_t>(a.ctc.label) + n * longest, label = k < length ? labels[k] : 0;
        ah_at<int64_t>(a.to)[i] = label;
        if (!a.chain || k >= length)
            continue;
        int64_t next = k + 1, before = k - 1;
        while (next < length && labels[next] != label)
            next++;
        while (before >= 0 && labels[before] != label)
            before--;
        next = next < length ? next : longest;
        ah_at<int32_t>(a.chain)[i] = (int32_t)(before < 0 ? next : ~next);
    }
}

#define CTC(suffix, type)                                                               \
    AH_KERNEL(ctc_forward_##suffix, ah_ctc_pass_args, AH_CTC_MOST)                      \
    {                                                                                   \
        AH_SHARED_DYNAMIC(double, shared);                                              \
        ctc_forward<type>(a, shared);                                                   \
    }                                                                                   \
    AH_KERNEL(ctc_terms_##suffix, ah_ctc_pass_args, AH_CTC_MOST)                        \
    {                                                                                   \
        AH_SHARED_DYNAMIC(double, shared);                                              \
        ctc_terms<type>(a, shared);                                                     \
    }                                                                                   \
    AH_ROW_KERNEL(ctc_gradient, ah_ctc_gradient_args, ctc_gradient, suffix, type)
AH_FOR_REALS(CTC)
