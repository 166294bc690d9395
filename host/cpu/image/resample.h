/* Resizing of row-major images and volumes, for both real types. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum ah_filter { AH_FILTER_NEAREST, AH_FILTER_NEAREST_EXACT, AH_FILTER_LINEAR, AH_FILTER_CUBIC, AH_FILTER_LANCZOS };

/* Return the input positions on either side that it reads. */
static inline int ah_filter_reach(enum ah_filter filter)
{
    return filter == AH_FILTER_LANCZOS ? 3 : filter == AH_FILTER_CUBIC ? 2 : filter == AH_FILTER_LINEAR;
}

struct ah_resample_axis {
    int64_t in, out;
    int taps;     /* at most, of one output position */
    bool ragged;  /* not all have as many */
    bool whole;   /* AH_FILTER_NEAREST of images to their own or twice their size: whatever the scale, as in PyTorch */
    int32_t *count, *at; /* of each output position; its k-th tap is at[k * out + position] */
    const void *weight;  /* in the order of `at` */
};

struct ah_resampling {
    enum ah_filter filter;
    bool align_corners, antialias;
    int64_t planes;
    double scale[3];
    struct ah_resample_axis axis[3];
};

/* Fill the tables of taps, with `room` for their weights and rows, and resample `in` to `out`; or the adjoint. */
#define AH_RESAMPLE(suffix) \
    void ah_resample_##suffix(struct ah_resampling *r, const void *in, void *out, void *room, bool adjoint);
AH_RESAMPLE(f32)
AH_RESAMPLE(f64)
