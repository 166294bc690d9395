/* Steps of the optimizers, norms and scaling of gradients. Formulas and their order are those of
 * host/cpu/optim_loss/optim_loops.h, which are PyTorch's: its add with alpha and its addcmul are one fused multiply-add
 * each. Memory is read and written once; state that a kind lacks is not touched. */
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/exact.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/optim_loss/optim.h"

/* The last i below count with first[i] <= chunk. */
static __device__ __forceinline__ int part_of(const uint32_t *first, uint32_t count, uint32_t chunk)
{
    int low = 0, high = (int)count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (first[middle] <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* One element: its parameter, gradient and state. `has` lists the states that exist. */
template <typename R> struct element {
    R p, g, s[AH_OPTIM_STATES];
};

/* The running mean: PyTorch's lerp, which counts from the nearer end. */
template <typename R, typename S> __device__ __forceinline__ R mean(const S &k, unsigned flags, R old, R now)
{
    return ah_fma((R)k.lerp, now - old, flags & AH_STEP_NEAR_OLD ? old : now);
}

template <typename R, typename S> __device__ __forceinline__ R decayed(const S &k, unsigned flags, const element<R> &e)
{
    const R grad = k.sign * e.g;
    return flags & AH_STEP_DECAY ? ah_fma((R)k.weight_decay, e.p, grad) : grad;
}

/* Apply decay, and update the running means of the gradient and its square. Returns the gradient. */
template <typename R, typename S> __device__ __forceinline__ R take(const S &k, unsigned flags, element<R> &e)
{
    R grad = k.sign * e.g;
    if (flags & AH_STEP_DECOUPLED)
        e.p = e.p * k.keep;
    else if (flags & AH_STEP_DECAY)
        grad = ah_fma((R)k.weight_decay, e.p, grad);
    e.s[0] = mean(k, flags, e.s[0], grad);
    e.s[1] = ah_fma(k.one_minus_beta2 * grad, grad, e.s[1] * k.beta2);
    return grad;
}

template <typename R> __device__ __forceinline__ R sign_of(R x)
{
    return (R)((x > 0) - (x < 0));
}

template <int kind> struct rule;

template <> struct rule<AH_OPTIM_SGD> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        R grad = decayed(k, flags, e);
        if (has & 1) {
            const R moved = flags & AH_STEP_FIRST ? grad : ah_fma((R)k.one_minus_dampening, grad, e.s[0] * k.momentum);
            e.s[0] = moved;
            grad = flags & AH_STEP_NESTEROV ? ah_fma((R)k.momentum, moved, grad) : moved;
        }
        e.p = ah_fma((R)k.negative_lr, grad, e.p);
    }
};

template <> struct rule<AH_OPTIM_ADAM> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        take(k, flags, e);
        R second = e.s[1];
        if (has & 4) {
            second = second > e.s[2] || second != second ? second : e.s[2];
            e.s[2] = second;
        }
        const R denominator = ah_sqrt(second) / k.correction2_sqrt + k.eps;
        e.p = e.p + k.negative_step_size * e.s[0] / denominator;
    }
};

template <> struct rule<AH_OPTIM_RMSPROP> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        const R grad = decayed(k, flags, e);
        R average = ah_fma(k.one_minus_alpha * grad, grad, e.s[0] * k.alpha);
        e.s[0] = average;
        if (has & 4) {
            const R centre = mean(k, flags, e.s[2], grad);
            e.s[2] = centre;
            average = ah_fma(-centre, centre, average);
        }
        const R root = ah_sqrt(average) + k.eps;
        if (has & 2) {
            e.s[1] = e.s[1] * k.momentum + grad / root;
            e.p = ah_fma((R)k.negative_lr, e.s[1], e.p);
        } else {
            e.p = e.p + k.negative_lr * grad / root;
        }
    }
};

template <> struct rule<AH_OPTIM_ADAGRAD> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        const R grad = decayed(k, flags, e);
        e.s[0] = ah_fma(grad, grad, e.s[0]);
        e.p = e.p + k.negative_step_size * grad / (ah_sqrt(e.s[0]) + k.eps);
    }
};

template <> struct rule<AH_OPTIM_ADADELTA> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        const R grad = decayed(k, flags, e);
        e.s[0] = ah_fma(k.one_minus_alpha * grad, grad, e.s[0] * k.alpha);
        const R delta = ah_sqrt(e.s[1] + k.eps) / ah_sqrt(e.s[0] + k.eps) * grad;
        e.s[1] = ah_fma(k.one_minus_alpha * delta, delta, e.s[1] * k.alpha);
        e.p = ah_fma((R)k.negative_lr, delta, e.p);
    }
};

template <> struct rule<AH_OPTIM_NADAM> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        const R grad = take(k, flags, e), denominator = ah_sqrt(e.s[1] / k.correction2) + k.eps;
        e.p = e.p + k.first_weight * grad / denominator;
        e.p = e.p + k.second_weight * e.s[0] / denominator;
    }
};

template <> struct rule<AH_OPTIM_RADAM> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        take(k, flags, e);
        R update = e.s[0] / k.first_weight * k.lr;
        if (flags & AH_STEP_RECTIFIED)
            update = update * (1 / (ah_sqrt(e.s[1]) + k.eps) * k.correction2_sqrt) * k.second_weight;
        e.p = e.p - update;
    }
};

template <> struct rule<AH_OPTIM_ADAMAX> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        const R grad = decayed(k, flags, e);
        e.s[0] = mean(k, flags, e.s[0], grad);
        const R old = e.s[1] * k.beta2, size = (grad < 0 ? -grad : grad) + k.eps;
        e.s[1] = size > old || size != size ? size : old;
        e.p = e.p + k.negative_step_size * e.s[0] / e.s[1];
    }
};

template <> struct rule<AH_OPTIM_LION> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        const R grad = k.sign * e.g, update = ah_fma((R)k.one_minus_beta1, grad, e.s[0] * k.beta1);
        e.s[0] = ah_fma((R)k.one_minus_beta2, grad, e.s[0] * k.beta2);
        e.p = e.p * k.keep + k.negative_lr * sign_of(update);
    }
};

/* The parameter is stepped, its state is its average. */
template <> struct rule<AH_OPTIM_ASGD> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        const R grad = decayed(k, flags, e);
        e.p = ah_fma((R)k.eta, grad, e.p * k.keep);
        e.s[0] = k.mu == 1 ? e.p : e.s[0] + (e.p - e.s[0]) * k.mu;
    }
};

template <> struct rule<AH_OPTIM_RPROP> {
    template <typename R, typename S>
    static __device__ __forceinline__ void run(const S &k, unsigned flags, unsigned has, element<R> &e)
    {
        R grad = k.sign * e.g;
        const R agreement = grad * e.s[0], factor = agreement > 0 ? k.eta_plus : agreement < 0 ? k.eta_minus : (R)1;
        R length = e.s[1] * factor;
        length = length < k.step_min ? k.step_min : length > k.step_max ? k.step_max : length;
        grad = factor == k.eta_minus ? (R)0 : grad;
        e.s[1] = length;
        e.s[0] = grad;
        e.p = e.p - sign_of(grad) * length;
    }
};

template <typename T, int kind, typename S>
__device__ __forceinline__ void step_chunk(const S *numbers, const ah_step_part &part, unsigned flags, bool wide,
                                           int64_t begin)
{
    typedef ah_real<T> R;
    const S k = *numbers; /* of which the compiler loads the fields of this kind, once */
    constexpr int N = ah_pack<T>::count;
    const int64_t end = part.n - begin < AH_OPTIM_CHUNK ? part.n : begin + AH_OPTIM_CHUNK;
    const unsigned has = (part.state[0] ? 1 : 0) | (part.state[1] ? 2 : 0) | (part.state[2] ? 4 : 0);
    for (int64_t i = begin + (int64_t)threadIdx.x * N; i < end; i += AH_OPTIM_THREADS * N) {
        const bool full = wide && i + N <= end;
        R p[N] = {0}, g[N] = {0}, s[AH_OPTIM_STATES][N] = {{0}};
        ah_get_pack(p, ah_at<T>(part.param) + i, full, end - i);
        ah_get_pack(g, ah_at<const T>(part.grad) + i, full, end - i);
        AH_UNROLL
        for (int a = 0; a < AH_OPTIM_STATES; a++)
            if (has >> a & 1)
                ah_get_pack(s[a], ah_at<T>(part.state[a]) + i, full, end - i);
        AH_UNROLL
        for (int j = 0; j < N; j++) {
            element<R> e = {p[j], g[j], {s[0][j], s[1][j], s[2][j]}};
            rule<kind>::run(k, flags, has, e);
            p[j] = e.p;
            AH_UNROLL
            for (int a = 0; a < AH_OPTIM_STATES; a++)
                s[a][j] = e.s[a];
        }
        ah_put_pack(ah_at<T>(part.param) + i, p, full, end - i);
        AH_UNROLL
        for (int a = 0; a < AH_OPTIM_STATES; a++)
            if (has >> a & 1)
                ah_put_pack(ah_at<T>(part.state[a]) + i, s[a], full, end - i);
    }
}

template <typename T, typename N>
__device__ __forceinline__ void step(const ah_step_parts &a, const N &given, uint64_t numbers_at, uint64_t unless)
{
    if (unless && *ah_at<const int>(unless))
        return;
    const N &numbers = numbers_at ? *ah_at<const N>(numbers_at) : given;
    const unsigned flags = numbers.flags;
    for (uint32_t chunk = blockIdx.x; chunk < a.chunks; chunk += gridDim.x) {
        const int at = part_of(a.first, a.count, chunk);
        const ah_step_part &part = a.part[at];
        const int64_t begin = (int64_t)(chunk - a.first[at]) * AH_OPTIM_CHUNK;
        const bool wide = a.wide[at];
        switch (a.kind) {
#define KIND(kind) case kind: step_chunk<T, kind>(&numbers.scalars, part, flags, wide, begin); break;
        KIND(AH_OPTIM_SGD)
        case AH_OPTIM_ADAMW:
        KIND(AH_OPTIM_ADAM)
        KIND(AH_OPTIM_RMSPROP)
        KIND(AH_OPTIM_ADAGRAD)
        KIND(AH_OPTIM_ADADELTA)
        KIND(AH_OPTIM_NADAM)
        KIND(AH_OPTIM_RADAM)
        KIND(AH_OPTIM_ADAMAX)
        KIND(AH_OPTIM_LION)
        KIND(AH_OPTIM_ASGD)
        KIND(AH_OPTIM_RPROP)
#undef KIND
        }
    }
}

AH_KERNEL(optim_step_f16, ah_step_args_f32, AH_OPTIM_THREADS)
{
    step<half_t>(a.parts, a.numbers, a.numbers_at, a.unless);
}
AH_KERNEL(optim_step_bf16, ah_step_args_f32, AH_OPTIM_THREADS)
{
    step<bf16_t>(a.parts, a.numbers, a.numbers_at, a.unless);
}
AH_KERNEL(optim_step_f32, ah_step_args_f32, AH_OPTIM_THREADS)
{
    step<float>(a.parts, a.numbers, a.numbers_at, a.unless);
}
AH_KERNEL(optim_step_f64, ah_step_args_f64, AH_OPTIM_THREADS)
{
    step<double>(a.parts, a.numbers, a.numbers_at, a.unless);
}

/* Call visit(value) for the elements of a chunk that are this thread's. */
template <typename T, typename F>
__device__ __forceinline__ void each_of_chunk(const ah_runs &a, uint32_t chunk, F visit)
{
    const int at = part_of(a.first, a.count, chunk);
    const int64_t begin = (int64_t)(chunk - a.first[at]) * AH_OPTIM_CHUNK;
    const int64_t end = a.n[at] - begin < AH_OPTIM_CHUNK ? a.n[at] : begin + AH_OPTIM_CHUNK;
    constexpr int N = ah_pack<T>::count;
    T *x = ah_at<T>(a.x[at]);
    const bool wide = a.x[at] % 16 == 0;
    for (int64_t i = begin + (int64_t)threadIdx.x * N; i < end; i += AH_OPTIM_THREADS * N) {
        const bool full = wide && i + N <= end;
        ah_real<T> value[N] = {0};
        ah_get_pack(value, x + i, full, end - i);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (i + j < end)
                visit(value[j]);
        if (F::writes)
            ah_put_pack(x + i, value, full, end - i);
    }
}

/* A power of the size of an element, added up. */
struct power {
    static constexpr bool writes = false;
    double p, *sum;
    __device__ __forceinline__ void operator()(double x) const
    {
        *sum += pow(x < 0 ? -x : x, p);
    }
};

/* The norms that have no need of a power, of all that a thread has of a chunk, which is read at once. */
template <typename T> __device__ __forceinline__ double plain_norm(const ah_runs &a, uint32_t chunk, double p)
{
    constexpr int N = ah_pack<T>::count, M = AH_OPTIM_CHUNK / AH_OPTIM_THREADS;
    const int at = part_of(a.first, a.count, chunk);
    const int64_t begin = (int64_t)(chunk - a.first[at]) * AH_OPTIM_CHUNK, n = a.n[at];
    const T *x = ah_at<const T>(a.x[at]);
    const bool wide = a.x[at] % 16 == 0;
    ah_real<T> v[M] = {0};
    AH_UNROLL
    for (int k = 0; k < M / N; k++) {
        const int64_t i = begin + ((int64_t)k * AH_OPTIM_THREADS + threadIdx.x) * N;
        ah_get_pack(v + k * N, x + i, wide && i + N <= n, n - i);
    }
    if (p == 2)
        return ah_exact_squares(v);
    AH_UNROLL
    for (int j = 0; j < M; j++)
        v[j] = v[j] < 0 ? -v[j] : v[j];
    if (p == 1)
        return ah_exact_sum(v);
    ah_real<T> most = v[0];
    AH_UNROLL
    for (int j = 1; j < M; j++)
        most = ah_larger()(v[j], most);
    return most;
}

template <typename T> __device__ __forceinline__ void norm(const ah_norm_args &a, double *shared)
{
    const bool plain = isinf(a.p) || a.p == 2 || a.p == 1;
    for (uint32_t chunk = blockIdx.x; chunk < a.runs.chunks; chunk += gridDim.x) {
        double sum = 0;
        if (plain)
            sum = plain_norm<T>(a.runs, chunk, a.p);
        else
            each_of_chunk<T>(a.runs, chunk, power{a.p, &sum});
        sum = isinf(a.p) ? ah_block_fold(sum, ah_larger(), shared) : ah_block_fold(sum, ah_add(), shared);
        if (threadIdx.x == 0)
            ah_at<double>(a.partial)[chunk] = sum;
    }
}

#define NORM(suffix, type)                                              \
    AH_KERNEL(optim_norm_##suffix, ah_norm_args, AH_OPTIM_THREADS)      \
    {                                                                   \
        AH_SHARED_ARRAY(double, shared, AH_OPTIM_THREADS / 32);         \
        norm<type>(a, shared);                                          \
    }
AH_FOR_REALS(NORM)

/* As clipping on the host rounds, which is as PyTorch does: a reciprocal and a product in the gradients' dtype. */
static __device__ void write_norm(const ah_norm_total_args &a, double sum)
{
    const double norm = isinf(a.p) ? sum : a.p == 2 ? sqrt(sum) : a.p == 1 ? sum : pow(sum, 1 / a.p);
    if (a.wide) {
        *ah_at<double>(a.norm) = norm;
        ah_at<double>(a.total)[1] = 1 / (norm + 1e-6) * a.max_norm;
    } else {
        *ah_at<float>(a.norm) = (float)norm;
        ah_at<double>(a.total)[1] = 1 / ((float)norm + 1e-6f) * (float)a.max_norm;
    }
}

AH_KERNEL(optim_norm_total, ah_norm_total_args, AH_OPTIM_THREADS)
{
    AH_SHARED_ARRAY(double, shared, AH_OPTIM_THREADS / 32);
    const bool largest = isinf(a.p);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < a.count; i += AH_OPTIM_THREADS) {
        const double part = ah_at<const double>(a.partial)[i];
        sum = largest ? ah_larger()(part, sum) : sum + part;
    }
    sum = largest ? ah_block_fold(sum, ah_larger(), shared) : ah_block_fold(sum, ah_add(), shared);
    if (threadIdx.x == 0) {
        *ah_at<double>(a.total) = sum;
        if (a.norm)
            write_norm(a, sum);
    }
}

template <typename R> struct scaling {
    static constexpr bool writes = true;
    R number;
    bool clamp;
    bool *overflow;
    __device__ __forceinline__ void operator()(R &x) const
    {
        *overflow = *overflow || !isfinite(x);
        if (clamp)
            x = x > number ? number : x < -number ? -number : x;
        else
            x *= number;
    }
};

#define SCALE(suffix, type)                                                                                     \
    AH_KERNEL(optim_scale_##suffix, ah_scale_args, AH_OPTIM_THREADS)                                            \
    {                                                                                                           \
        bool overflow = false;                                                                                  \
        const double number = a.number_at ? *ah_at<const double>(a.number_at) : a.number;                       \
        if (a.shrinks && number >= 1)                                                                           \
            return;                                                                                             \
        const scaling<ah_real<type>> scale = {(ah_real<type>)number, a.clamp != 0, &overflow};                  \
        for (uint32_t chunk = blockIdx.x; chunk < a.runs.chunks; chunk += gridDim.x)                            \
            each_of_chunk<type>(a.runs, chunk, scale);                                                          \
        if (overflow && a.overflow)                                                                             \
            atomicOr(ah_at<unsigned>(a.overflow), 1u);                                                          \
    }
AH_FOR_REALS(SCALE)
