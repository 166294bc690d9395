/* The geometry of 2-d convolutions and windows, shared by the shape rules and the kernels. Sizes only. */
#ifndef AH_OPS_CONV_H
#define AH_OPS_CONV_H

#include "ops/op.h"

struct ah_conv {
    int64_t n, c, h, w;    /* input; n is 1 for an unbatched (C, H, W) */
    int64_t oc, oh, ow;    /* output */
    int64_t kh, kw;        /* kernel */
    int64_t groups;        /* the weight is (oc, c / groups, kh, kw) */
    int64_t stride[2], padding[2], dilation[2];
    bool batched;
};

/* Fill *s from an input's and a weight's sizes and four options (stride, padding, dilation, groups); AH_EINVAL names
 * `op` and the shapes. */
int ah_conv_geometry(struct ah_conv *s, const char *op, const int64_t *input, int input_ndim, const int64_t *weight,
                     int weight_ndim, const struct ah_value *options);

/* The output's sizes; returns their number (3 or 4). */
int ah_conv_output_size(const struct ah_conv *s, int64_t *size);

/* One or two integers (absent: `fallback` twice) as a pair in least..2^31-1, so that sums and products of them stay in
 * 64 bits. */
int ah_pair(const char *op, const char *name, const struct ah_value *value, const int64_t *fallback, int64_t least,
            int64_t *pair);

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

#endif
