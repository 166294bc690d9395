/* Pooling of planes, by rows of pixels or of channels. */
#include "cuda/kernels/image/pool.h"
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"

/* An element of a tensor of n x c planes: where its plane begins, how far pixels are apart, and which one it is. */
template <typename I> struct spot {
    I plane, y, x;
};

template <typename I> __device__ __forceinline__ spot<I> spot_of(const ah_pool &p, I i, I h, I w)
{
    const I c = (I)p.c;
    if (p.last) {
        const I pixel = i / c, row = pixel / w;
        return {row / h * c + i % c, row % h, pixel % w};
    }
    const I row = i / w;
    return {row / h, row % h, i % w};
}

/* Steps of the memory of planes of h x w. */
template <typename I> struct steps {
    I row, column;
    __device__ __forceinline__ steps(const ah_pool &p, I w) : row(p.last ? w * (I)p.c : w), column(p.last ? (I)p.c : 1)
    {
    }
};

template <typename I> __device__ __forceinline__ I plane_start(const ah_pool &p, I plane, I h, I w)
{
    const I c = (I)p.c;
    return p.last ? plane / c * h * w * c + plane % c : plane * h * w;
}

/* The taps of a window that are inside the input, along one dim. */
template <typename I> struct reach {
    I first, end;
    __device__ __forceinline__ reach(I start, I kernel, I dilation, I n)
        : first(start < 0 ? (-start + dilation - 1) / dilation : 0), end(kernel)
    {
        if ((int64_t)start + (int64_t)(kernel - 1) * dilation >= n)
            end = start < n ? (n - start + dilation - 1) / dilation : 0;
    }
};

template <typename I> __device__ __forceinline__ void put_place(const ah_max_pool_args &a, I i, I code)
{
    if (a.place && a.bytes)
        ah_at<uint8_t>(a.place)[i] = (uint8_t)code;
    else if (a.place)
        ah_at<int32_t>(a.place)[i] = (int32_t)code;
}

__device__ __forceinline__ int32_t get_place(uint64_t place, int32_t bytes, int64_t i)
{
    return bytes ? ah_at<const uint8_t>(place)[i] : ah_at<const int32_t>(place)[i];
}

/* NaN wins, the first of equals wins, padding never does. */
template <typename T, typename I> __device__ __forceinline__ void max_pool(const ah_max_pool_args &a)
{
    const ah_pool &p = a.pool;
    const I h = (I)p.h, w = (I)p.w, oh = (I)p.oh, ow = (I)p.ow, width = (I)p.kernel[1];
    const steps<I> step(p, w);
    AH_EACH(I, i, p.n * p.c * p.oh * p.ow) {
        const spot<I> o = spot_of<I>(p, i, oh, ow);
        const T *x = ah_at<const T>(a.x) + plane_start<I>(p, o.plane, h, w);
        const I top = o.y * (I)p.stride[0] - (I)p.padding[0], left = o.x * (I)p.stride[1] - (I)p.padding[1];
        const reach<I> rows(top, (I)p.kernel[0], (I)p.dilation[0], h), columns(left, width, (I)p.dilation[1], w);
        ah_real<T> best = (ah_real<T>)-INFINITY;
        I code = -1;
        for (I r = rows.first; r < rows.end; r++)
            for (I k = columns.first; k < columns.end; k++) {
                const I at = (top + r * (I)p.dilation[0]) * step.row + (left + k * (I)p.dilation[1]) * step.column;
                const ah_real<T> v = ah_get(x[at]);
                const bool take = v > best || v != v || code < 0;
                best = take ? v : best;
                code = take ? r * width + k : code;
            }
        code = code < 0 ? 0 : code;
        ah_at<T>(a.y)[i] = ah_put<T>(best);
        put_place<I>(a, i, code);
        if (a.index)
            ah_at<int64_t>(a.index)[i] = (int64_t)(top + code / width * (I)p.dilation[0]) * w +
                                         (left + code % width * (I)p.dilation[1]);
    }
}

/* The outputs along one dim whose windows may reach position `at`. */
template <typename I>
__device__ __forceinline__ void windows_at(I at, I kernel, I stride, I padding, I dilation, I count, I *first, I *end)
{
    const I low = ah_ceil_div<I>(at + padding - (kernel - 1) * dilation, stride);
    *first = low < 0 ? 0 : low;
    *end = ah_clip<I>((at + padding) / stride + 1, 0, count);
}

template <typename T, typename I> __device__ __forceinline__ void max_pool_backward(const ah_max_pool_backward_args &a)
{
    const ah_pool &p = a.pool;
    const I h = (I)p.h, w = (I)p.w, oh = (I)p.oh, ow = (I)p.ow;
    const int32_t width = (int32_t)p.kernel[1];
    const I down = (I)p.dilation[0], right = (I)p.dilation[1];
    const steps<I> step(p, ow);
    AH_EACH(I, i, p.n * p.c * p.h * p.w) {
        const spot<I> at = spot_of<I>(p, i, h, w);
        const I start = plane_start<I>(p, at.plane, oh, ow);
        ah_real<T> sum = 0;
        I y, y_end, x0, x_end;
        windows_at<I>(at.y, (I)p.kernel[0], (I)p.stride[0], (I)p.padding[0], down, oh, &y, &y_end);
        windows_at<I>(at.x, (I)width, (I)p.stride[1], (I)p.padding[1], right, ow, &x0, &x_end);
        AH_ROLLED
        for (; y < y_end; y++)
            AH_ROLLED
            for (I x = x0; x < x_end; x++) {
                const I from = start + y * step.row + x * step.column;
                const int32_t code = get_place(a.place, a.bytes, from);
                if (code / width * down == at.y + (I)p.padding[0] - y * (I)p.stride[0] &&
                    code % width * right == at.x + (I)p.padding[1] - x * (I)p.stride[1])
                    sum += ah_get(ah_at<const T>(a.g)[from]);
            }
        ah_at<T>(a.gx)[i] = ah_put<T>(sum);
    }
}

/* The elements that an output averages, and the divisor of their sum. */
template <typename I> struct rectangle {
    I y0, y1, x0, x1;
    int64_t divisor;
    __device__ __forceinline__ rectangle(const ah_pool &p, I oy, I ox)
        : rectangle(p, oy, ox, 0, true)
    {
    }
    __device__ __forceinline__ rectangle(const ah_pool &p, I oy, I ox, int64_t given, bool count_padding)
    {
        const I h = (I)p.h, w = (I)p.w;
        if (p.adaptive) {
            y0 = (I)((int64_t)oy * h / p.oh);
            y1 = (I)(((int64_t)(oy + 1) * h + p.oh - 1) / p.oh);
            x0 = (I)((int64_t)ox * w / p.ow);
            x1 = (I)(((int64_t)(ox + 1) * w + p.ow - 1) / p.ow);
            divisor = (int64_t)(y1 - y0) * (x1 - x0);
            return;
        }
        y0 = oy * (I)p.stride[0] - (I)p.padding[0];
        x0 = ox * (I)p.stride[1] - (I)p.padding[1];
        y1 = (I)(y0 + p.kernel[0] < p.h + p.padding[0] ? y0 + p.kernel[0] : p.h + p.padding[0]);
        x1 = (I)(x0 + p.kernel[1] < p.w + p.padding[1] ? x0 + p.kernel[1] : p.w + p.padding[1]);
        const int64_t padded = (int64_t)(y1 - y0) * (x1 - x0);
        y0 = y0 < 0 ? 0 : y0;
        x0 = x0 < 0 ? 0 : x0;
        y1 = y1 < h ? y1 : h;
        x1 = x1 < w ? x1 : w;
        divisor = given ? given : count_padding ? padded : (int64_t)(y1 - y0) * (x1 - x0);
    }
};

/* The division of elements among single threads or the lanes of warps, which do all rounds together. */
template <typename I> struct share {
    I first, step, total;
    int lane, lanes;
    __device__ __forceinline__ share(const ah_pool &p, int64_t count)
        : total((I)count), lane(p.warps ? (int)threadIdx.x % 32 : 0), lanes(p.warps ? 32 : 1)
    {
        first = ((I)blockIdx.x * (I)blockDim.x + (I)threadIdx.x) / (I)lanes;
        step = (I)gridDim.x * (I)blockDim.x / (I)lanes;
    }
};

/* Row-major. */
template <typename T, typename I> __device__ __forceinline__ void mean_pool(const ah_mean_pool_args &a)
{
    const ah_pool &p = a.pool;
    const I oh = (I)p.oh, ow = (I)p.ow, w = (I)p.w;
    const share<I> s(p, p.n * p.c * p.oh * p.ow);
    for (I i = s.first; i < s.total; i += s.step) {
        const I row = i / ow, plane = row / oh;
        const rectangle<I> r(p, row % oh, i % ow, a.divisor, a.count_padding);
        const T *x = ah_at<const T>(a.x) + (int64_t)plane * p.h * p.w;
        double sum = 0;
        if (s.lanes == 1) {
            for (I y = r.y0; y < r.y1; y++)
                for (I k = r.x0; k < r.x1; k++)
                    sum += (double)ah_get(x[y * w + k]);
        } else {
            const I width = r.x1 - r.x0, count = r.y1 > r.y0 && width > 0 ? (r.y1 - r.y0) * width : 0;
            for (I k = s.lane; k < count; k += 32)
                sum += (double)ah_get(x[(r.y0 + k / width) * w + r.x0 + k % width]);
            sum = ah_warp_fold(sum, ah_add());
        }
        if (s.lane == 0)
            ah_at<T>(a.y)[i] = ah_put<T>((ah_real<T>)(sum / (double)r.divisor));
    }
}

template <typename T, typename I> __device__ __forceinline__ void mean_pool_backward(const ah_mean_pool_args &a)
{
    const ah_pool &p = a.pool;
    const I h = (I)p.h, w = (I)p.w, oh = (I)p.oh, ow = (I)p.ow;
    AH_EACH(I, i, p.n * p.c * p.h * p.w) {
        const I row = i / w, y = row % h, x = i % w;
        const T *g = ah_at<const T>(a.x) + (int64_t)(row / h) * p.oh * p.ow;
        ah_real<T> sum = 0;
        I oy, oy_end, first, end;
        if (p.adaptive) {
            oy = (I)((int64_t)y * oh / h);
            oy_end = (I)(((int64_t)(y + 1) * oh + h - 1) / h);
            first = (I)((int64_t)x * ow / w);
            end = (I)(((int64_t)(x + 1) * ow + w - 1) / w);
        } else {
            windows_at<I>(y, (I)p.kernel[0], (I)p.stride[0], (I)p.padding[0], 1, oh, &oy, &oy_end);
            windows_at<I>(x, (I)p.kernel[1], (I)p.stride[1], (I)p.padding[1], 1, ow, &first, &end);
        }
        for (; oy < oy_end; oy++)
            for (I ox = first; ox < end; ox++)
                sum += ah_get(g[oy * ow + ox]) /
                       (ah_real<T>)rectangle<I>(p, oy, ox, a.divisor, a.count_padding).divisor;
        ah_at<T>(a.y)[i] = ah_put<T>(sum);
    }
}

/* The largest so far and its position; the first of equals, the last NaN. */
template <typename R, typename I> struct largest {
    R value;
    I at;
};
struct larger_place {
    template <typename R, typename I>
    __device__ __forceinline__ largest<R, I> operator()(largest<R, I> a, largest<R, I> b) const
    {
        const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
        if (nan_a || nan_b)
            return nan_a && (!nan_b || a.at > b.at) ? a : b;
        return a.value > b.value || (a.value == b.value && a.at < b.at) ? a : b;
    }
};

template <typename T, typename I> __device__ __forceinline__ void adaptive_max(const ah_adaptive_max_args &a)
{
    typedef largest<ah_real<T>, I> best_t;
    const ah_pool &p = a.pool;
    const I oh = (I)p.oh, ow = (I)p.ow, w = (I)p.w;
    const share<I> s(p, p.n * p.c * p.oh * p.ow);
    for (I i = s.first; i < s.total; i += s.step) {
        const I row = i / ow;
        const rectangle<I> r(p, row % oh, i % ow);
        const T *x = ah_at<const T>(a.x) + (int64_t)(row / oh) * p.h * p.w;
        const I width = r.x1 - r.x0, count = (r.y1 - r.y0) * width;
        best_t best = {(ah_real<T>)-INFINITY, r.y0 * w + r.x0};
        for (I k = s.lane; k < count; k += (I)s.lanes) {
            const I at = (r.y0 + k / width) * w + r.x0 + k % width;
            best = larger_place()(best, best_t{ah_get(x[at]), at});
        }
        for (int by = 16; s.lanes > 1 && by > 0; by /= 2)
            best = larger_place()(best, best_t{__shfl_xor_sync(0xffffffff, best.value, by),
                                               __shfl_xor_sync(0xffffffff, best.at, by)});
        if (s.lane == 0) {
            ah_at<T>(a.y)[i] = ah_put<T>(best.value);
            ah_at<int64_t>(a.place)[i] = best.at;
        }
    }
}

#define POOL(name, args, suffix, type)                  \
    AH_KERNEL(name##_##suffix, args, AH_POOL_THREADS)   \
    {                                                   \
        if (a.pool.narrow)                              \
            name<type, int32_t>(a);                     \
        else                                            \
            name<type, int64_t>(a);                     \
    }
#define EVERY(suffix, type)                                              \
    POOL(max_pool, ah_max_pool_args, suffix, type)                       \
    POOL(max_pool_backward, ah_max_pool_backward_args, suffix, type)     \
    POOL(mean_pool, ah_mean_pool_args, suffix, type)                     \
    POOL(mean_pool_backward, ah_mean_pool_args, suffix, type)            \
    POOL(adaptive_max, ah_adaptive_max_args, suffix, type)
AH_FOR_REALS(EVERY)

/* A window entirely in the padding has no place: it uses the first of the plane. */
AH_KERNEL(max_pool_positions, ah_max_pool_args, AH_POOL_THREADS)
{
    const ah_pool &p = a.pool;
    AH_EACH(int64_t, i, p.n * p.c * p.oh * p.ow) {
        const int64_t code = get_place(a.place, a.bytes, i), x = i % p.ow, y = i / p.ow % p.oh;
        const int64_t row = y * p.stride[0] - p.padding[0] + code / p.kernel[1] * p.dilation[0];
        const int64_t column = x * p.stride[1] - p.padding[1] + code % p.kernel[1] * p.dilation[1];
        const int64_t at = row * p.w + column;
        ah_at<int64_t>(a.index)[i] = at < 0 || at >= p.h * p.w ? 0 : at;
    }
}
