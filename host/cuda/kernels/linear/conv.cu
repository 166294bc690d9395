/* A convolution's bias. */
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/linear/conv.h"

template <typename T> __device__ __forceinline__ void conv_bias(const ah_conv_bias_args &a)
{
    constexpr int N = ah_pack<T>::count;
    const int64_t each = a.wide ? N : 1;
    AH_EACH(int64_t, i, a.count / each) {
        T *y = ah_at<T>(a.y) + i * each;
        const int64_t channel = a.last ? i * each % a.channels : i * each / a.pixels % a.channels;
        const T *bias = ah_at<const T>(a.bias) + channel;
        if (!a.wide) {
            *y = ah_put<T>(ah_get(*y) + ah_get(*bias));
            continue;
        }
        ah_real<T> v[N];
        ah_get_pack(v, y, true, N);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            v[j] += ah_get(bias[a.last ? j : 0]);
        ah_put_pack(y, v, true, N);
    }
}

#define BIAS(suffix, type) AH_KERNEL_OF(conv_bias_##suffix, ah_conv_bias_args, AH_CONV_THREADS, conv_bias<type>)
AH_FOR_REALS(BIAS)
