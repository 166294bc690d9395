/* Batch and layer normalisation of plain arrays: rows for both real types, rows of channels for float32 and bfloat16
 * (planes of channels: planes.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cpu/loop/dense.h"

/* A batch as n x c x pixels; in channels-last order as (n pixels) rows of c. */
struct ah_batch {
    int64_t n, c, pixels;
};

/* A layer norm of rows. Forward: `out` from `x`, or from the sum of `x` and `other`, which is written to `sum`; `mean`
 * and `inverse` of each row. Backward: `out` and, in another dtype, `also` from `grad` and `x`, with `more` added.
 * Arrays without a dtype are of the dtype that is computed in; `room` has AH_LAYER_ROOM rows for each thread. */
enum { AH_LAYER_ROOM = 4 };
struct ah_layer {
    int64_t rows, width;
    double eps;
    const void *w, *bias;
    void *mean, *inverse, *room;
    struct ah_items x, other, sum, grad, more, out, also;
};

#define AH_NORM_LOOPS(suffix, real)                                                                                  \
    void ah_norm_affine_factors_##suffix(int64_t c, const real *mean, const real *inverse, const real *w,            \
                                         const real *bias, real *scale, real *shift);                                \
    void ah_norm_backward_factors_##suffix(const struct ah_batch *b, const real *inverse, const real *w,             \
                                           const real *sum_g, const real *sum_gx, bool training, real *gw, real *gb, \
                                           real *ca, real *cb, real *cc);                                            \
    void ah_layer_forward_##suffix(const struct ah_layer *l);                                                        \
    int ah_layer_backward_##suffix(const struct ah_layer *l, real *gw, real *gb); /* NULL: of the input alone */
AH_NORM_LOOPS(f32, float)
AH_NORM_LOOPS(f64, double)

/* The factors of gx = (w g - sum - (x - mean) along) inverse, of each channel. */
struct ah_row_gradient {
    const float *w, *sum, *mean, *along, *inverse;
};

/* Batch norm in channels-last order or with one pixel a plane; then, for group norm, chunks of at most AH_NORM_CHUNK
 * rows of c channels: the sums of x and of (x - the chunk's mean)^2; those of g and g (x - mean);
 * y = (x - mean) scale + shift; the gradient. */
enum { AH_NORM_CHUNK = 64 };
struct ah_row_loops {
    int (*stats)(const struct ah_batch *b, const void *x, float *mean, float *variance);
    int (*sums)(const struct ah_batch *b, const void *g, const void *x, const float *mean, float *sum_g, float *sum_gx);
    void (*apply)(const struct ah_batch *b, const void *x, const float *scale, const float *shift, void *y);
    void (*combine)(const struct ah_batch *b, const void *g, const void *x, const float *mean, const float *ca,
                    const float *cb, const float *cc, void *gx);
    void (*chunk_moments)(const void *x, int64_t rows, int64_t c, float *sums, float *squares);
    void (*chunk_sums)(const void *g, const void *x, int64_t rows, int64_t c, const float *mean, float *sum_g,
                       float *sum_gx);
    void (*chunk_apply)(const void *x, int64_t rows, int64_t c, const float *mean, const float *scale,
                        const float *shift, void *y);
    void (*chunk_combine)(const void *g, const void *x, int64_t rows, int64_t c, const struct ah_row_gradient *f,
                          void *gx);
};
extern const struct ah_row_loops ah_row_loops_f32, ah_row_loops_bf16;

static inline const struct ah_row_loops *ah_row_loops(enum ah_dtype dtype)
{
    return dtype == AH_BF16 ? &ah_row_loops_bf16 : &ah_row_loops_f32;
}

/* Batch norm in channels-last order, of float32 or with `half` of bfloat16, then relu of its sum with `other` (NULL: of
 * itself). The gradient counts where the output is above 0: with `masked` that is read from the output y, and the
 * gradient that counts is stored there for ah_row_loops' combine; without, it is computed again from x, scale and
 * shift. */
struct ah_norm_relu_factors {
    const float *mean, *scale, *shift, *ca, *cb, *cc;
};
void ah_norm_relu_apply(const struct ah_batch *b, bool half, const void *x, const float *scale, const float *shift,
                        const void *other, void *y);
int ah_norm_relu_sums(const struct ah_batch *b, bool half, const void *g, const void *x, const void *y,
                      const float *mean, const float *scale, const float *shift, void *masked, float *sum_g,
                      float *sum_gx);
void ah_norm_relu_combine(const struct ah_batch *b, bool half, const void *g, const void *x,
                          const struct ah_norm_relu_factors *f, void *gx);
