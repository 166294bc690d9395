/* Elementwise kernels made of an expression: how operands are read and written.
 *
 * A kernel computes in one type. Its operands have that type or, in kernels of float, are fp16 or bf16, by a switch
 * that is the same for all threads; results may be bool instead. A thread processes a run of elements at once where all
 * operands are dense and aligned, or their rows are, whose place is then found once for the run; else one element after
 * another through strides. */
#pragma once

#include "cuda/kernels/lib/elementwise.h"
#include "cuda/kernels/lib/kernel.cuh"

/* Elements in a run: two loads of 16 bytes for float and wider, 8 bytes for bytes. */
template <typename T> constexpr int ah_run = sizeof(T) == 8 ? 4 : 8;

struct bool_t {
    uint8_t byte;
};

/* Convert between a type in memory and the type that is computed with. */
template <typename T, typename M> __device__ __forceinline__ T ah_widen(M x)
{
    return static_cast<T>(x);
}
template <> __device__ __forceinline__ float ah_widen<float, half_t>(half_t x)
{
    return to_float(x);
}
template <> __device__ __forceinline__ float ah_widen<float, bf16_t>(bf16_t x)
{
    return to_float(x);
}
template <> __device__ __forceinline__ double ah_widen<double, half_t>(half_t x)
{
    return to_float(x);
}
template <> __device__ __forceinline__ double ah_widen<double, bf16_t>(bf16_t x)
{
    return to_float(x);
}
template <typename M, typename T> __device__ __forceinline__ M ah_narrow(T x)
{
    return static_cast<M>(x);
}
template <> __device__ __forceinline__ half_t ah_narrow<half_t, float>(float x)
{
    return from_float<half_t>(x);
}
template <> __device__ __forceinline__ bf16_t ah_narrow<bf16_t, float>(float x)
{
    return from_float<bf16_t>(x);
}
template <> __device__ __forceinline__ half_t ah_narrow<half_t, double>(double x)
{
    return from_float<half_t>(static_cast<float>(x));
}
template <> __device__ __forceinline__ bf16_t ah_narrow<bf16_t, double>(double x)
{
    return from_float<bf16_t>(static_cast<float>(x));
}

template <int N> struct ah_bytes;
template <> struct ah_bytes<4> {
    typedef uint32_t type;
};
template <> struct ah_bytes<8> {
    typedef uint64_t type;
};

/* N elements of M at p, as T. */
template <typename M, typename T, int N> __device__ __forceinline__ void ah_read_run(const M *p, T (&v)[N])
{
    if constexpr (sizeof(M) == 1) {
        const typename ah_bytes<N>::type bits = *reinterpret_cast<const typename ah_bytes<N>::type *>(p);
        AH_UNROLL
        for (int i = 0; i < N; i++)
            v[i] = ah_widen<T, M>(static_cast<M>(bits >> (8 * i) & 0xff));
    } else if constexpr (sizeof(M) * N == 8) {
        const uint64_t bits = *reinterpret_cast<const uint64_t *>(p);
        M part[N];
        memcpy(part, &bits, sizeof bits);
        AH_UNROLL
        for (int i = 0; i < N; i++)
            v[i] = ah_widen<T, M>(part[i]);
    } else {
        constexpr int each = ah_pack<M>::count;
        AH_UNROLL
        for (int k = 0; k < N / each; k++) {
            const ah_pack<M> pack = ah_load16(p + k * each);
            AH_UNROLL
            for (int i = 0; i < each; i++)
                v[k * each + i] = ah_widen<T, M>(pack.at[i]);
        }
    }
}

template <typename M, typename T, int N> __device__ __forceinline__ void ah_write_run(M *p, const T (&v)[N])
{
    if constexpr (sizeof(M) == 1) {
        typename ah_bytes<N>::type bits = 0;
        AH_UNROLL
        for (int i = 0; i < N; i++)
            bits |= static_cast<typename ah_bytes<N>::type>(static_cast<uint8_t>(ah_narrow<M, T>(v[i]))) << (8 * i);
        *reinterpret_cast<typename ah_bytes<N>::type *>(p) = bits;
    } else if constexpr (sizeof(M) * N == 8) {
        uint64_t bits;
        M part[N];
        AH_UNROLL
        for (int i = 0; i < N; i++)
            part[i] = ah_narrow<M, T>(v[i]);
        memcpy(&bits, part, sizeof bits);
        *reinterpret_cast<uint64_t *>(p) = bits;
    } else {
        constexpr int each = ah_pack<M>::count;
        AH_UNROLL
        for (int k = 0; k < N / each; k++) {
            ah_pack<M> pack;
            AH_UNROLL
            for (int i = 0; i < each; i++)
                pack.at[i] = ah_narrow<M, T>(v[k * each + i]);
            ah_store16(p + k * each, pack);
        }
    }
}

/* Elements of an operand from `at` on: N in a run, or one. */
template <typename T, int N>
__device__ __forceinline__ void ah_read_operand(const ah_ew_operand &o, int64_t at, T (&v)[N])
{
    static_assert(AH_EW_PACK % N == 0, "a row is whole runs");
    if constexpr (sizeof(T) == 4 && static_cast<T>(0.5f) != 0) {
        if (o.dtype == AH_F16)
            return ah_read_run<half_t, T, N>(reinterpret_cast<const half_t *>(o.at) + at, v);
        if (o.dtype == AH_BF16)
            return ah_read_run<bf16_t, T, N>(reinterpret_cast<const bf16_t *>(o.at) + at, v);
    }
    ah_read_run<T, T, N>(reinterpret_cast<const T *>(o.at) + at, v);
}

template <typename T> __device__ __forceinline__ T ah_read_one(const ah_ew_operand &o, int64_t at)
{
    if constexpr (sizeof(T) == 4 && static_cast<T>(0.5f) != 0) {
        if (o.dtype == AH_F16)
            return to_float(reinterpret_cast<const half_t *>(o.at)[at]);
        if (o.dtype == AH_BF16)
            return to_float(reinterpret_cast<const bf16_t *>(o.at)[at]);
    }
    return reinterpret_cast<const T *>(o.at)[at];
}

template <typename R> __device__ __forceinline__ void ah_write_one(const ah_ew_operand &o, int64_t at, R value)
{
    if constexpr (sizeof(R) == 4 && static_cast<R>(0.5f) != 0) {
        if (o.dtype == AH_F16) {
            reinterpret_cast<half_t *>(o.at)[at] = from_float<half_t>(value);
            return;
        }
        if (o.dtype == AH_BF16) {
            reinterpret_cast<bf16_t *>(o.at)[at] = from_float<bf16_t>(value);
            return;
        }
    }
    reinterpret_cast<R *>(o.at)[at] = value;
}

template <typename R, int N>
__device__ __forceinline__ void ah_write_operand(const ah_ew_operand &o, int64_t at, const R (&v)[N])
{
    if constexpr (sizeof(R) == 4 && static_cast<R>(0.5f) != 0) {
        if (o.dtype == AH_F16)
            return ah_write_run<half_t, R, N>(reinterpret_cast<half_t *>(o.at) + at, v);
        if (o.dtype == AH_BF16)
            return ah_write_run<bf16_t, R, N>(reinterpret_cast<bf16_t *>(o.at) + at, v);
    }
    ah_write_run<R, R, N>(reinterpret_cast<R *>(o.at) + at, v);
}

/* The value of an operand that has only one. */
template <typename T> __device__ __forceinline__ T ah_read_single(const ah_ew_operand &o)
{
    if (!o.at) {
        T value;
        memcpy(&value, &o.bits, sizeof value);
        return value;
    }
    return ah_read_one<T>(o, 0);
}

/* Advance by `places` places of a dim in each of the first COUNT operands. */
template <int COUNT>
__device__ __forceinline__ void ah_advance(const ah_ew_args &a, int d, int64_t places, int64_t (&at)[COUNT])
{
    AH_UNROLL
    for (int k = 0; k < COUNT; k++)
        at[k] += places * a.operand[k].stride[d];
}

/* The offset of element `flat` in each of the first COUNT operands. */
template <int COUNT> __device__ __forceinline__ void ah_locate(const ah_ew_args &a, int64_t flat, int64_t (&at)[COUNT])
{
    AH_UNROLL
    for (int k = 0; k < COUNT; k++)
        at[k] = 0;
    if (a.narrow) {
        uint32_t rest = static_cast<uint32_t>(flat);
        AH_ROLLED
        for (int d = a.ndim - 1; d > 0; d--) {
            const uint64_t sum = static_cast<uint64_t>(__umulhi(rest, a.multiplier[d])) + rest;
            const uint32_t quotient = static_cast<uint32_t>(sum >> a.shift[d]);
            ah_advance<COUNT>(a, d, rest - quotient * static_cast<uint32_t>(a.size[d]), at);
            rest = quotient;
        }
        return ah_advance<COUNT>(a, 0, rest, at);
    }
    AH_ROLLED
    for (int d = a.ndim - 1; d > 0; d--) {
        const int64_t quotient = flat / a.size[d];
        ah_advance<COUNT>(a, d, flat - quotient * a.size[d], at);
        flat = quotient;
    }
    ah_advance<COUNT>(a, 0, flat, at);
}

/* The offset of a run that begins with element `flat` in each of them. */
template <int COUNT>
__device__ __forceinline__ void ah_locate_run(const ah_ew_args &a, int64_t flat, int64_t (&at)[COUNT])
{
    if (a.rows)
        return ah_locate<COUNT>(a, flat, at);
    AH_UNROLL
    for (int k = 0; k < COUNT; k++)
        at[k] = flat;
}

/* An input of type T over the whole iter. */
template <typename T> struct ah_input {
    static constexpr int count = 1;
    T single;
    __device__ __forceinline__ explicit ah_input(const ah_ew_operand &o)
        : single(o.single ? ah_read_single<T>(o) : T(0)) {
    }
    template <int N> __device__ __forceinline__ void run(const ah_ew_operand &o, int64_t at, T (&v)[N]) const
    {
        if (!o.single && !o.repeats)
            return ah_read_operand<T, N>(o, at, v);
        const T value = one(o, at);
        AH_UNROLL
        for (int i = 0; i < N; i++)
            v[i] = value;
    }
    __device__ __forceinline__ T one(const ah_ew_operand &o, int64_t at) const
    {
        return o.single ? single : ah_read_one<T>(o, at);
    }
};

/* No input: an op of fewer. */
struct ah_absent {
    static constexpr int count = 0;
    __device__ __forceinline__ explicit ah_absent(const ah_ew_operand &)
    {
    }
    template <typename T, int N> __device__ __forceinline__ void run(const ah_ew_operand &, int64_t, T (&)[N]) const
    {
    }
    __device__ __forceinline__ char one(const ah_ew_operand &, int64_t) const
    {
        return 0;
    }
};

/* y = OP(a, b, c) over a kernel's whole grid. OP is made from the kernel's numbers. */
template <class OP, typename R, typename A, class IA, typename B, class IB, typename C, class IC>
__device__ void ah_elementwise(const ah_ew_args &args)
{
    constexpr int inputs = IA::count + IB::count + IC::count, N = ah_run<A> < ah_run<R> ? ah_run<A> : ah_run<R>;
    const OP op(args.number);
    const IA ia(args.operand[1]);
    const IB ib(args.operand[2]);
    const IC ic(args.operand[3]);
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    int64_t done = 0;
    if (args.wide || args.rows) {
        const int64_t runs = args.numel / N;
        for (int64_t run = thread; run < runs; run += threads) {
            R y[N];
            A va[N] = {};
            B vb[N] = {};
            C vc[N] = {};
            int64_t at[inputs + 1];
            ah_locate_run<inputs + 1>(args, run * N, at);
            ia.run(args.operand[1], at[inputs > 0 ? 1 : 0], va);
            ib.run(args.operand[2], at[inputs > 1 ? 2 : 0], vb);
            ic.run(args.operand[3], at[inputs > 2 ? 3 : 0], vc);
            AH_UNROLL
            for (int i = 0; i < N; i++)
                y[i] = op(va[i], vb[i], vc[i]);
            ah_write_operand<R, N>(args.operand[0], at[0], y);
        }
        done = runs * N;
    }
    for (int64_t i = done + thread; i < args.numel; i += threads) {
        int64_t at[inputs + 1];
        ah_locate<inputs + 1>(args, i, at);
        const A a = IA::count ? static_cast<A>(ia.one(args.operand[1], at[inputs > 0 ? 1 : 0])) : A();
        const B b = IB::count ? static_cast<B>(ib.one(args.operand[2], at[inputs > 1 ? 2 : 0])) : B();
        const C c = IC::count ? static_cast<C>(ic.one(args.operand[3], at[inputs > 2 ? 3 : 0])) : C();
        ah_write_one<R>(args.operand[0], at[0], op(a, b, c));
    }
}

/* Kernels NAME from an expression of a, b and c and the numbers c0..c3, which have the type of the last input. */
#define AH_EW_OP(name, R, A, B, C, expr)                                                                       \
    struct name##_op {                                                                                         \
        C c0, c1, c2, c3;                                                                                      \
        __device__ __forceinline__ explicit name##_op(const double *n)                                         \
            : c0(static_cast<C>(n[0])), c1(static_cast<C>(n[1])), c2(static_cast<C>(n[2])), c3(static_cast<C>(n[3])) \
        {                                                                                                      \
        }                                                                                                      \
        __device__ __forceinline__ R operator()(A a, B b, C c) const                                           \
        {                                                                                                      \
            typedef C T;                                                                                       \
            (void)a, (void)b, (void)c, (void)sizeof(T);                                                        \
            return static_cast<R>(expr);                                                                       \
        }                                                                                                      \
    };
#define AH_EW0(name, R, expr)                                                                                  \
    AH_EW_OP(name, R, R, R, R, expr)                                                                           \
    AH_KERNEL(name, ah_ew_args, AH_EW_THREADS)                                                                 \
    {                                                                                                          \
        ah_elementwise<name##_op, R, R, ah_absent, R, ah_absent, R, ah_absent>(a);                             \
    }
#define AH_EW1(name, R, T, expr)                                                                               \
    AH_EW_OP(name, R, T, T, T, expr)                                                                           \
    AH_KERNEL_FEW(name, ah_ew_args, AH_EW_THREADS, sizeof(T) == 8)                                             \
    {                                                                                                          \
        ah_elementwise<name##_op, R, T, ah_input<T>, T, ah_absent, T, ah_absent>(a);                           \
    }
#define AH_EW2(name, R, T, expr)                                                                               \
    AH_EW_OP(name, R, T, T, T, expr)                                                                           \
    AH_KERNEL(name, ah_ew_args, AH_EW_THREADS)                                                                 \
    {                                                                                                          \
        ah_elementwise<name##_op, R, T, ah_input<T>, T, ah_input<T>, T, ah_absent>(a);                         \
    }
/* The first of three inputs may have another type: a mask. */
#define AH_EW3(name, R, A, T, expr)                                                                            \
    AH_EW_OP(name, R, A, T, T, expr)                                                                           \
    AH_KERNEL_LARGE(name, ah_ew_args, AH_EW_THREADS)                                                           \
    {                                                                                                          \
        ah_elementwise<name##_op, R, A, ah_input<A>, T, ah_input<T>, T, ah_input<T>>(a);                       \
    }

/* The first of two inputs is a mask. */
#define AH_EW2_MASK(name, T, expr)                                                                             \
    AH_EW_OP(name, T, uint8_t, T, T, expr)                                                                     \
    AH_KERNEL(name, ah_ew_args, AH_EW_THREADS)                                                                 \
    {                                                                                                          \
        ah_elementwise<name##_op, T, uint8_t, ah_input<uint8_t>, T, ah_input<T>, T, ah_absent>(a);             \
    }

/* The same for all floats, numbers, dtypes; the name of each ends in its dtype's. */
#define AH_EW1_FLOATS(name, expr) AH_EW1(name##_f32, float, float, expr) AH_EW1(name##_f64, double, double, expr)
#define AH_EW2_FLOATS(name, expr) AH_EW2(name##_f32, float, float, expr) AH_EW2(name##_f64, double, double, expr)
#define AH_EW3_FLOATS(name, expr) \
    AH_EW3(name##_f32, float, float, float, expr) AH_EW3(name##_f64, double, double, double, expr)
#define AH_EW2_INTEGERS(name, expr)                                                                            \
    AH_EW2(name##_u8, uint8_t, uint8_t, expr) AH_EW2(name##_i32, int32_t, int32_t, expr)                       \
    AH_EW2(name##_i64, int64_t, int64_t, expr)
#define AH_EW2_ALL(name, expr) AH_EW2_INTEGERS(name, expr) AH_EW2_FLOATS(name, expr)
