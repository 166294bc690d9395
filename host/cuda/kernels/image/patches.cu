/* Windows as columns: the owner of an element of the matrix copies it, the owner of a pixel adds up its copies in the
 * matrix. */
#include "cuda/kernels/image/patches.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"

template <typename T, typename I> __device__ __forceinline__ void im2col(const ah_patches_args &a)
{
    const I pixels = (I)(a.oh * a.ow), ow = (I)a.ow, kw = (I)a.kernel[1], kernel = (I)a.kernel[0] * kw;
    const I rows = (I)a.c * kernel, h = (I)a.h, w = (I)a.w;
    AH_EACH(I, i, a.n * a.c * a.kernel[0] * a.kernel[1] * a.oh * a.ow) {
        const I pixel = i % pixels, line = i / pixels, row = line % rows, image = line / rows;
        const I tap = row % kernel, channel = row / kernel;
        const I y = pixel / ow * (I)a.stride[0] + tap / kw * (I)a.dilation[0] - (I)a.padding[0];
        const I x = pixel % ow * (I)a.stride[1] + tap % kw * (I)a.dilation[1] - (I)a.padding[1];
        T value = T();
        if (y >= 0 && y < h && x >= 0 && x < w)
            value = ah_at<const T>(a.image)[image * a.plane_step + (channel * h + y) * w + x];
        ah_at<T>(a.matrix)[image * a.image_step + row * a.row_step + pixel] = value;
    }
}

/* Taps in the order of the window. */
template <typename T, typename I> __device__ __forceinline__ void col2im(const ah_patches_args &a)
{
    const I h = (I)a.h, w = (I)a.w, c = (I)a.c, oh = (I)a.oh, ow = (I)a.ow;
    const I kh = (I)a.kernel[0], kw = (I)a.kernel[1];
    AH_EACH(I, i, a.n * a.c * a.h * a.w) {
        const I x = i % w, line = i / w, y = line % h, plane = line / h, channel = plane % c, image = plane / c;
        const T *from = ah_at<const T>(a.matrix) + image * a.image_step + (int64_t)channel * kh * kw * a.row_step;
        ah_real<T> sum = 0;
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
        ah_at<T>(a.image)[image * a.plane_step + (channel * h + y) * w + x] = ah_put<T>(sum);
    }
}

#define PATCHES(name, suffix, type)                                      \
    AH_KERNEL(name##_##suffix, ah_patches_args, AH_PATCHES_THREADS)      \
    {                                                                    \
        if (a.narrow)                                                    \
            name<type, int32_t>(a);                                      \
        else                                                             \
            name<type, int64_t>(a);                                      \
    }
PATCHES(im2col, 1, uint8_t)
PATCHES(im2col, 2, uint16_t)
PATCHES(im2col, 4, uint32_t)
PATCHES(im2col, 8, uint64_t)
#define COL2IM(suffix, type) PATCHES(col2im, suffix, type)
AH_FOR_REALS(COL2IM)
