/* The geometry of 2-d and 3-d convolutions, shared by the shape rules and the kernels. Sizes only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ah_call;
struct ah_value;

/* A dim of space. */
struct ah_conv_dim {
    int64_t in, out, kernel, stride, padding, dilation;
};

struct ah_conv {
    int64_t n, c, h, w;    /* input; n is 1 for an unbatched (C, H, W) */
    int64_t oc, oh, ow;    /* output */
    int64_t kh, kw;        /* kernel */
    int64_t groups;        /* the weight is (oc, c / groups, kh, kw) */
    int64_t stride[2], padding[2], dilation[2];
    bool batched;
    bool volume;              /* 3-d; else `depth` has sizes, kernel, stride and dilation 1 */
    struct ah_conv_dim depth;
};

/* The options of a convolution or of one of its adjoints, from a call's or a rule's arguments (ah_args). */
struct ah_conv_options {
    const struct ah_value *stride, *padding, *dilation, *groups;
};
#define AH_CONV_OPTIONS(arg) \
    ((struct ah_conv_options){&(arg)->stride, &(arg)->padding, &(arg)->dilation, &(arg)->groups})

/* The name of the function that scripts call, for errors. */
const char *ah_conv_name(const struct ah_call *c);

/* Fill *s from an input's and a weight's sizes and the options; AH_EINVAL names `op` and the shapes. */
int ah_conv_geometry(struct ah_conv *s, const char *op, const int64_t *input, int input_ndim, const int64_t *weight,
                     int weight_ndim, struct ah_conv_options options);

/* Fill *s for input [N, C, D, H, W] and weight [out, C / groups, kD, kH, kW]; options are tables of three. */
int ah_conv_volume_geometry(struct ah_conv *s, const char *op, const int64_t *input, int input_ndim,
                            const int64_t *weight, int weight_ndim, struct ah_conv_options options);

/* The output's sizes; returns their number (3 to 5). */
int ah_conv_output_size(const struct ah_conv *s, int64_t *size);

/* Check that argument 0, a gradient, has the expected shape, and compute out[0], of size `size`, from it. */
int ah_gradient_output(struct ah_call *c, const int64_t *expected, int ndim, const struct ah_value *size);

/* One or two integers (absent: `fallback` twice) as a pair in least..2^31-1, so that sums and products of them stay in
 * 64 bits. */
int ah_pair(const char *op, const char *name, const struct ah_value *value, const int64_t *fallback, int64_t least,
            int64_t *pair);

/* The options of a 1-d row, arguments from .. from + count, as those of images of height 1: (neutral[i], option).
 * AH_EINVAL unless each is absent or one integer. */
int ah_row_options(const struct ah_call *c, int from, int count, const int64_t *neutral, struct ah_value *pairs);
