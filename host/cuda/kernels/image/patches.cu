/* Windows as columns: the owner of an element of the matrix copies it, the owner of a pixel adds up its copies in the
 * matrix. */
#include "cuda/kernels/image/patches.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"

template <typename T, typename I, bool VOLUME> __device__ __forceinline__ void im2col(const ah_patches_args &a)
{
    const I plane = (I)(a.oh * a.ow), ow = (I)a.ow, kw = (I)a.kernel[1], face = (I)a.kernel[0] * kw;
    const I pixels = VOLUME ? plane * (I)a.depth.out : plane, kernel = VOLUME ? face * (I)a.depth.kernel : face;
    const I rows = (I)a.c * kernel, d = VOLUME ? (I)a.depth.in : 1, h = (I)a.h, w = (I)a.w;
    AH_EACH(I, i, a.n * a.c * a.depth.kernel * a.kernel[0] * a.kernel[1] * a.depth.out * a.oh * a.ow) {
        const I pixel = i % pixels, line = i / pixels, row = line % rows, image = line / rows;
        const I tap = row % kernel, channel = row / kernel;
        const I at = VOLUME ? pixel % plane : pixel, turn = VOLUME ? tap % face : tap;
        const I y = at / ow * (I)a.stride[0] + turn / kw * (I)a.dilation[0] - (I)a.padding[0];
        const I x = at % ow * (I)a.stride[1] + turn % kw * (I)a.dilation[1] - (I)a.padding[1];
        I z = 0;
        if (VOLUME)
            z = pixel / plane * (I)a.depth.stride + tap / face * (I)a.depth.dilation - (I)a.depth.padding;
        T value = T();
        if (z >= 0 && z < d && y >= 0 && y < h && x >= 0 && x < w)
            value = ah_at<const T>(a.image)[image * a.plane_step + ((channel * d + z) * h + y) * w + x];
        ah_at<T>(a.matrix)[image * a.image_step + row * a.row_step + pixel] = value;
    }
}

/* The sum of a pixel's copies in the rows of one face of the window, taps in its order. */
template <typename T, typename I>
__device__ __forceinline__ void add_face(const ah_patches_args &a, const T *from, I y, I x, ah_real<T> &sum)
{
    const I oh = (I)a.oh, ow = (I)a.ow, kh = (I)a.kernel[0], kw = (I)a.kernel[1];
    for (I ky = 0; ky < kh; ky++) {
        const I top = y + (I)a.padding[0] - ky * (I)a.dilation[0], oy = top / (I)a.stride[0];
        if (top < 0 || top % (I)a.stride[0] != 0 || oy >= oh)
            continue;
        for (I kx = 0; kx < kw; kx++) {
            const I left = x + (I)a.padding[1] - kx * (I)a.dilation[1], ox = left / (I)a.stride[1];
            if (left >= 0 && left % (I)a.stride[1] == 0 && ox < ow)
                sum += ah_get(from[(ky * kw + kx) * a.row_step + oy * ow + ox]);
        }
    }
}

template <typename T, typename I, bool VOLUME> __device__ __forceinline__ void col2im(const ah_patches_args &a)
{
    const I d = VOLUME ? (I)a.depth.in : 1, h = (I)a.h, w = (I)a.w, c = (I)a.c;
    const I face = (I)a.kernel[0] * (I)a.kernel[1], kernel = VOLUME ? face * (I)a.depth.kernel : face;
    AH_EACH(I, i, a.n * a.c * a.depth.in * a.h * a.w) {
        const I x = i % w, line = i / w, y = line % h, frame = line / h, z = VOLUME ? frame % d : 0;
        const I plane = VOLUME ? frame / d : frame, channel = plane % c, image = plane / c;
        const T *from = ah_at<const T>(a.matrix) + image * a.image_step + (int64_t)channel * kernel * a.row_step;
        ah_real<T> sum = 0;
        if (!VOLUME)
            add_face<T, I>(a, from, y, x, sum);
        for (I kz = 0; VOLUME && kz < (I)a.depth.kernel; kz++) {
            const I front = z + (I)a.depth.padding - kz * (I)a.depth.dilation, oz = front / (I)a.depth.stride;
            if (front >= 0 && front % (I)a.depth.stride == 0 && oz < (I)a.depth.out)
                add_face<T, I>(a, from + (int64_t)kz * face * a.row_step + oz * (I)(a.oh * a.ow), y, x, sum);
        }
        ah_at<T>(a.image)[image * a.plane_step + ((channel * d + z) * h + y) * w + x] = ah_put<T>(sum);
    }
}

#define PATCHES(name, suffix, type)                                      \
    AH_KERNEL(name##_##suffix, ah_patches_args, AH_PATCHES_THREADS)      \
    {                                                                    \
        if (a.volume && a.narrow)                                        \
            name<type, int32_t, true>(a);                                \
        else if (a.volume)                                               \
            name<type, int64_t, true>(a);                                \
        else if (a.narrow)                                               \
            name<type, int32_t, false>(a);                               \
        else                                                             \
            name<type, int64_t, false>(a);                               \
    }
PATCHES(im2col, 1, uint8_t)
PATCHES(im2col, 2, uint16_t)
PATCHES(im2col, 4, uint32_t)
PATCHES(im2col, 8, uint64_t)
#define COL2IM(suffix, type) PATCHES(col2im, suffix, type)
AH_FOR_REALS(COL2IM)
