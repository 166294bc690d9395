/* Copies: the same dtype as bits, so that the payload of a nan survives, or from any dtype to any other. */
#include "cuda/kernels/lib/elementwise.cuh"

AH_EW1(move_1, uint8_t, uint8_t, a)
AH_EW1(move_2, uint16_t, uint16_t, a)
AH_EW1(move_4, uint32_t, uint32_t, a)
AH_EW1(move_8, uint64_t, uint64_t, a)

/* The intermediate type of a conversion from a type in memory; floats to integers truncate towards zero. */
template <typename S> struct on_the_way {
    typedef S type;
};
template <> struct on_the_way<half_t> {
    typedef float type;
};
template <> struct on_the_way<bf16_t> {
    typedef float type;
};

template <typename W, typename D> __device__ __forceinline__ D finish(W x)
{
    return static_cast<D>(x);
}
template <> __device__ __forceinline__ uint8_t finish<float, uint8_t>(float x)
{
    return static_cast<uint8_t>(static_cast<int64_t>(x));
}
template <> __device__ __forceinline__ uint8_t finish<double, uint8_t>(double x)
{
    return static_cast<uint8_t>(static_cast<int64_t>(x));
}

template <typename S, typename W, typename D, typename M> __device__ void convert_to(const ah_ew_args &a)
{
    constexpr int N = sizeof(S) == 8 || sizeof(D) == 8 ? 4 : 8;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
    const S *from = reinterpret_cast<const S *>(a.operand[1].at);
    M *to = reinterpret_cast<M *>(a.operand[0].at);
    int64_t done = 0;
    if ((a.wide || a.rows) && !a.operand[1].single && !a.operand[1].repeats) {
        const int64_t runs = a.numel / N;
        for (int64_t run = thread; run < runs; run += threads) {
            W v[N];
            D y[N];
            int64_t at[2];
            ah_locate_run<2>(a, run * N, at);
            ah_read_run<S, W, N>(from + at[1], v);
            AH_UNROLL
            for (int i = 0; i < N; i++)
                y[i] = finish<W, D>(v[i]);
            ah_write_run<M, D, N>(to + at[0], y);
        }
        done = runs * N;
    }
    for (int64_t i = done + thread; i < a.numel; i += threads) {
        int64_t at[2];
        ah_locate<2>(a, i, at);
        to[at[0]] = ah_narrow<M, D>(finish<W, D>(ah_widen<W, S>(from[at[1]])));
    }
}

template <typename S> __device__ void convert(const ah_ew_args &a)
{
    typedef typename on_the_way<S>::type W;
    switch (a.operand[0].dtype) {
    case AH_BOOL: return convert_to<S, W, bool, uint8_t>(a);
    case AH_U8: return convert_to<S, W, uint8_t, uint8_t>(a);
    case AH_I32: return convert_to<S, W, int32_t, int32_t>(a);
    case AH_I64: return convert_to<S, W, int64_t, int64_t>(a);
    case AH_F16: return convert_to<S, W, float, half_t>(a);
    case AH_BF16: return convert_to<S, W, float, bf16_t>(a);
    case AH_F32: return convert_to<S, W, float, float>(a);
    default: return convert_to<S, W, double, double>(a);
    }
}

#define CONVERT(name, S) AH_KERNEL_OF(name, ah_ew_args, AH_EW_THREADS, convert<S>)
CONVERT(convert_u8, uint8_t)
CONVERT(convert_i32, int32_t)
CONVERT(convert_i64, int64_t)
CONVERT(convert_f16, half_t)
CONVERT(convert_bf16, bf16_t)
CONVERT(convert_f32, float)
CONVERT(convert_f64, double)
