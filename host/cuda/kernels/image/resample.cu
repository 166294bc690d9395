/* Resizing: the tables, then each output's sum over them, or, along one axis after another, each input's share. */
#include "cuda/kernels/image/resample.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"

/* The step from one output position to the next, in input positions. */
template <typename R> __device__ __forceinline__ R step_of(const ah_axis &a, int align_corners)
{
    if (align_corners)
        return a.out > 1 ? (R)(a.in - 1) / (R)(a.out - 1) : 0;
    return a.scale > 0 ? (R)(1.0 / a.scale) : (R)a.in / (R)a.out;
}

/* Keys' cubic at distances 1 + t, t, 1 - t, 2 - t. */
template <typename R> __device__ __forceinline__ R cubic_weight(R t, int k)
{
    const R a = (R)-0.75, near = k < 2 ? t : 1 - t, far = near + 1;
    return k == 1 || k == 2 ? ((a + 2) * near - (a + 3)) * near * near + 1
                            : ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
}

template <typename R> __device__ R filter(int filter, R x)
{
    const R pi = (R)3.14159265358979323846;
    x = x < 0 ? -x : x;
    if (filter == AH_LINEAR)
        return x < 1 ? 1 - x : 0;
    if (filter == AH_CUBIC) {
        const R a = (R)-0.5;
        if (x < 1)
            return ((a + 2) * x - (a + 3)) * x * x + 1;
        return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    }
    if (x == 0 || x >= 3)
        return x == 0;
    return (R)(sin((double)(pi * x)) * sin((double)(pi * x / 3)) * 3 / (double)(pi * pi * x * x));
}

/* With antialias the filter is as wide as the step, and its weights sum to 1. */
template <typename R>
__device__ __forceinline__ void smooth_taps(const ah_taps_args &t, const ah_axis &a, R step, int64_t o)
{
    int32_t *at = ah_at<int32_t>(a.at);
    R *weight = ah_at<R>(a.weight);
    const R wide = step >= 1 ? step : 1, support = (R)t.reach * wide, centre = step * ((R)o + (R)0.5);
    int64_t from = (int64_t)(centre - support + (R)0.5), end = (int64_t)(centre + support + (R)0.5);
    from = from < 0 ? 0 : from;
    end = end > a.in ? a.in : end;
    int count = (int)(end - from < a.taps ? end - from : a.taps);
    count = count < 1 ? 1 : count;
    R total = 0;
    for (int k = 0; k < count; k++) {
        at[k * a.out + o] = (int32_t)(from + k < a.in ? from + k : a.in - 1);
        const R w = filter<R>(t.filter, ((R)(from + k) - centre + (R)0.5) / wide);
        weight[k * a.out + o] = w;
        total += w;
    }
    for (int k = 0; k < count && total != 0; k++)
        weight[k * a.out + o] /= total;
    ah_at<int32_t>(a.count)[o] = count;
}

template <typename R>
__device__ __forceinline__ void point_taps(const ah_taps_args &t, const ah_axis &a, R step, int64_t o)
{
    int32_t *at = ah_at<int32_t>(a.at);
    R *weight = ah_at<R>(a.weight);
    ah_at<int32_t>(a.count)[o] = a.taps;
    if (t.filter == AH_NEAREST || t.filter == AH_NEAREST_EXACT) {
        R place = t.filter == AH_NEAREST ? step * (R)o : step * ((R)o + (R)0.5);
        if (a.whole && (a.out == a.in || a.out == 2 * a.in))
            place = (R)(a.out == a.in ? o : o / 2);
        at[o] = (int32_t)(place < (R)(a.in - 1) ? place : (R)(a.in - 1));
        weight[o] = 1;
        return;
    }
    R place = t.align_corners ? step * (R)o : step * ((R)o + (R)0.5) - (R)0.5;
    if (t.filter == AH_LINEAR && a.in == a.out)
        place = (R)o;
    place = t.filter == AH_LINEAR && place < 0 ? 0 : place;
    int64_t floor_at = (int64_t)place - (place < (R)(int64_t)place);
    floor_at = floor_at > a.in - 1 ? a.in - 1 : floor_at;
    R part = place - (R)floor_at;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    for (int k = 0; k < a.taps; k++) {
        at[k * a.out + o] = (int32_t)ah_clip<int64_t>(floor_at + k - (t.filter == AH_CUBIC), 0, a.in - 1);
        weight[k * a.out + o] = t.filter == AH_CUBIC ? cubic_weight<R>(part, k) : k ? part : 1 - part;
    }
}

template <typename R> __device__ __forceinline__ void make_taps(const ah_taps_args &t)
{
    for (int i = 0; i < 3; i++) {
        const ah_axis &a = t.axis[i];
        const R step = step_of<R>(a, t.align_corners);
        AH_EACH(int64_t, o, a.out) {
            if (a.same) {
                ah_at<int32_t>(a.count)[o] = 1;
                ah_at<int32_t>(a.at)[o] = (int32_t)o;
                ah_at<R>(a.weight)[o] = 1;
            } else if (t.antialias) {
                smooth_taps<R>(t, a, step, o);
            } else {
                point_taps<R>(t, a, step, o);
            }
        }
    }
}

AH_KERNEL_OF(resample_taps_f32, ah_taps_args, AH_RESAMPLE_THREADS, make_taps<float>)
AH_KERNEL_OF(resample_taps_f64, ah_taps_args, AH_RESAMPLE_THREADS, make_taps<double>)

/* The first output position whose last tap is at `i` or after it (`past`: whose first tap is after it). Taps move on
 * with the output. */
static __device__ __forceinline__ int32_t reader(const ah_axis &a, int64_t i, bool past)
{
    int64_t low = 0, high = a.out;
    while (low < high) {
        const int64_t o = (low + high) / 2;
        const int32_t last = past ? 0 : ah_at<const int32_t>(a.count)[o] - 1;
        const int32_t at = ah_at<const int32_t>(a.at)[last * a.out + o];
        if (past ? at > i : at >= i)
            high = o;
        else
            low = o + 1;
    }
    return (int32_t)low;
}

AH_KERNEL(resample_readers, ah_taps_args, AH_RESAMPLE_THREADS)
{
    for (int d = 0; d < 3; d++)
        AH_EACH(int64_t, i, a.axis[d].in) {
            ah_at<int32_t>(a.axis[d].first)[i] = reader(a.axis[d], i, false);
            ah_at<int32_t>(a.axis[d].end)[i] = reader(a.axis[d], i, true);
        }
}

/* The position of an output. */
template <typename I> struct target {
    I x, y, z, plane;
    __device__ __forceinline__ target(const ah_resample_args &a, I i)
    {
        const I row = i / (I)a.axis[2].out, slice = row / (I)a.axis[1].out;
        x = i - row * (I)a.axis[2].out;
        y = row - slice * (I)a.axis[1].out;
        plane = slice / (I)a.axis[0].out;
        z = slice - plane * (I)a.axis[0].out;
    }
};

template <typename T, typename I> __device__ __forceinline__ void pick(const ah_resample_args &a)
{
    const ah_axis &az = a.axis[0], &ay = a.axis[1], &ax = a.axis[2];
    AH_EACH(I, i, a.planes * az.out * ay.out * ax.out) {
        const target<I> o(a, i);
        const I z = ah_at<const int32_t>(az.at)[o.z], y = ah_at<const int32_t>(ay.at)[o.y];
        const I from = ((o.plane * (I)az.in + z) * (I)ay.in + y) * (I)ax.in + ah_at<const int32_t>(ax.at)[o.x];
        ah_at<T>(a.out)[i] = ah_at<const T>(a.in)[from];
    }
}

template <typename T, typename I> __device__ __forceinline__ void resample(const ah_resample_args &a)
{
    typedef ah_real<T> R;
    const ah_axis &az = a.axis[0], &ay = a.axis[1], &ax = a.axis[2];
    AH_EACH(I, i, a.planes * az.out * ay.out * ax.out) {
        const target<I> o(a, i);
        const T *plane = ah_at<const T>(a.in) + o.plane * (I)az.in * (I)ay.in * (I)ax.in;
        const int slices = ah_at<const int32_t>(az.count)[o.z], rows = ah_at<const int32_t>(ay.count)[o.y];
        const int columns = ah_at<const int32_t>(ax.count)[o.x];
        R sum = 0;
        for (int k = 0; k < columns; k++) {
            const T *column = plane + ah_at<const int32_t>(ax.at)[k * ax.out + o.x];
            R weighed = 0;
            for (int s = 0; s < slices; s++) {
                const I z = ah_at<const int32_t>(az.at)[s * az.out + o.z];
                const R by = ah_at<const R>(az.weight)[s * az.out + o.z];
                for (int r = 0; r < rows; r++) {
                    const I y = ah_at<const int32_t>(ay.at)[r * ay.out + o.y];
                    weighed += by * ah_at<const R>(ay.weight)[r * ay.out + o.y] *
                               ah_get(column[(z * (I)ay.in + y) * (I)ax.in]);
                }
            }
            sum += ah_at<const R>(ax.weight)[k * ax.out + o.x] * weighed;
        }
        ah_at<T>(a.out)[i] = ah_put<T>(sum);
    }
}

template <typename R, typename I> __device__ __forceinline__ void resample_adjoint(const ah_resample_adjoint_args &a)
{
    const ah_axis &x = a.axis;
    const I inner = (I)a.inner, in = (I)x.in, out = (I)x.out;
    AH_EACH(I, i, a.outer * x.in * a.inner) {
        const I line = i / inner, column = i - line * inner, outer = line / in, at = line - outer * in;
        const R *from = ah_at<const R>(a.from) + outer * out * inner + column;
        const I end = ah_at<const int32_t>(x.end)[at];
        R sum = 0;
        for (I o = ah_at<const int32_t>(x.first)[at]; o < end; o++) {
            const int count = ah_at<const int32_t>(x.count)[o];
            for (int k = 0; k < count; k++)
                if (ah_at<const int32_t>(x.at)[k * x.out + o] == at)
                    sum += ah_at<const R>(x.weight)[k * x.out + o] * from[o * inner];
        }
        ah_at<R>(a.to)[i] = sum;
    }
}

#define RESAMPLE(name, function, args, suffix, type)             \
    AH_KERNEL(name##_##suffix, args, AH_RESAMPLE_THREADS)        \
    {                                                            \
        if (a.narrow)                                            \
            function<type, int32_t>(a);                          \
        else                                                     \
            function<type, int64_t>(a);                          \
    }
RESAMPLE(resample_pick, pick, ah_resample_args, 1, uint8_t)
RESAMPLE(resample_pick, pick, ah_resample_args, 2, uint16_t)
RESAMPLE(resample_pick, pick, ah_resample_args, 4, uint32_t)
RESAMPLE(resample_pick, pick, ah_resample_args, 8, uint64_t)
#define FORWARD(suffix, type) RESAMPLE(resample, resample, ah_resample_args, suffix, type)
AH_FOR_REALS(FORWARD)
RESAMPLE(resample_adjoint, resample_adjoint, ah_resample_adjoint_args, f32, float)
RESAMPLE(resample_adjoint, resample_adjoint, ah_resample_adjoint_args, f64, double)
