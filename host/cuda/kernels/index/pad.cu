/* Padding with edges. Backward an element of the input adds up the places that show it, in their order. */
#include "cuda/kernels/index/pad.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"

/* The place of the input that output position p shows. */
static __device__ __forceinline__ int64_t shown(int mode, int64_t p, int64_t n)
{
    if (mode == AH_PAD_CIRCULAR)
        return (p % n + n) % n;
    if (mode == AH_PAD_REFLECT)
        return p < 0 ? -p : p < n ? p : 2 * (n - 1) - p;
    return ah_clip<int64_t>(p, 0, n - 1);
}

template <typename T> __device__ __forceinline__ void edge_pad(const ah_pad_args &a)
{
    AH_EACH(int64_t, i, a.count) {
        int64_t rest = i, at = 0, step = 1;
        for (int d = a.ndim - 1; d >= 0; d--) {
            const int64_t next = rest / a.padded[d];
            at += shown(a.mode, rest - next * a.padded[d] - a.before[d], a.size[d]) * step;
            step *= a.size[d];
            rest = next;
        }
        ah_at<T>(a.to)[i] = ah_at<const T>(a.from)[at];
    }
}

/* The places of a dim that show position p: their number, and the k-th of them. */
struct shows {
    int64_t first, step, count, at[3];

    __device__ __forceinline__ shows(int mode, int64_t p, int64_t n, int64_t before, int64_t padded)
    {
        const int64_t own = p + before, last = padded - 1;
        if (mode == AH_PAD_REFLECT) {
            const int64_t places[3] = {before - p, own, before + 2 * (n - 1) - p};
            step = 0;
            count = 0;
            for (int k = 0; k < 3; k++)
                if (places[k] >= 0 && places[k] <= last && (k == 1 || (k == 0 ? p > 0 : p < n - 1)))
                    at[count++] = places[k];
            return;
        }
        int64_t end = own > last ? last : own;
        first = own;
        step = 1;
        if (mode == AH_PAD_CIRCULAR) {
            step = n;
            first = own >= 0 ? own % n : own + ah_ceil_div<int64_t>(-own, n) * n;
            end = last;
        } else {
            first = p == 0 ? 0 : own;
            end = p == n - 1 ? last : own;
            first = first < 0 ? 0 : first;
            end = end > last ? last : end;
        }
        count = end < first ? 0 : (end - first) / step + 1;
    }
    __device__ __forceinline__ int64_t operator[](int64_t k) const
    {
        return step ? first + k * step : k == 0 ? at[0] : k == 1 ? at[1] : at[2];
    }
};

template <typename T> __device__ __forceinline__ void edge_pad_backward(const ah_pad_args &a)
{
    AH_EACH(int64_t, i, a.count) {
        int64_t place[AH_PAD_DIMS], rest = i, total = 1;
        for (int d = a.ndim - 1; d >= 0; d--) {
            place[d] = rest % a.size[d];
            rest /= a.size[d];
            total *= shows(a.mode, place[d], a.size[d], a.before[d], a.padded[d]).count;
        }
        ah_real<T> sum = 0;
        for (int64_t t = 0; t < total; t++) {
            int64_t left = t, at = 0, step = 1;
            for (int d = a.ndim - 1; d >= 0; d--) {
                const shows s(a.mode, place[d], a.size[d], a.before[d], a.padded[d]);
                at += s[left % s.count] * step;
                left /= s.count;
                step *= a.padded[d];
            }
            sum += ah_get(ah_at<const T>(a.from)[at]);
        }
        ah_at<T>(a.to)[i] = ah_put<T>(sum);
    }
}

#define PAD(name, suffix, type) AH_KERNEL_OF(name##_##suffix, ah_pad_args, AH_PAD_THREADS, name<type>)
PAD(edge_pad, 1, uint8_t)
PAD(edge_pad, 2, uint16_t)
PAD(edge_pad, 4, uint32_t)
PAD(edge_pad, 8, uint64_t)
#define BACKWARD(suffix, type) PAD(edge_pad_backward, suffix, type)
AH_FOR_REALS(BACKWARD)

/* One past the end for positions without an element. */
AH_KERNEL(positions, ah_positions_args, AH_PAD_THREADS)
{
    AH_EACH(int64_t, i, a.count) {
        int64_t at = a.start, rest = i, place = 0;
        for (int d = a.ndim - 1; d >= 0; d--) {
            at += rest % a.size[d] * a.stride[d];
            rest /= a.size[d];
        }
        bool found = a.total > 0 && at >= 0;
        for (int d = 0; d < a.in_ndim && found; d++) {
            const int64_t index = a.in_stride[d] > 0 && a.in_size[d] > 1 ? at / a.in_stride[d] : 0;
            found = index < a.in_size[d];
            at -= index * a.in_stride[d];
            place += index * a.in_place[d];
        }
        ah_at<int64_t>(a.to)[i] = found && at == 0 ? place : a.total;
    }
}
