/* The geometry of pooling windows, shared by the shape rules and the kernels. Sizes only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ah_value;

/* A pooling window over the last two dims of (N, C, H, W) or (C, H, W). */
struct ah_window {
    int64_t n, c, h, w, oh, ow;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool batched;
};

/* A place within a window is kernel row * kernel width + kernel column, kept in a byte where all of them fit. */
enum { AH_BYTE_PLACES = 256 };
static inline bool ah_window_fits_byte(const struct ah_window *s)
{
    return s->kernel[0] * s->kernel[1] <= AH_BYTE_PLACES;
}

/* Fill *s; stride absent means the kernel's size, `dilation` NULL means 1. AH_EINVAL names `op` and the shapes. */
int ah_window_geometry(struct ah_window *s, const char *op, const int64_t *input, int ndim,
                       const struct ah_value *kernel, const struct ah_value *stride, const struct ah_value *padding,
                       const struct ah_value *dilation, bool ceil_mode);
