/* Arguments of resizing images and volumes. Every mode is, along each of three axes, a table of taps: which input
 * positions an output position reads, with which weights. The tables are made by a kernel; one and two dims of space
 * are three with axes of size 1. */
#pragma once

#include <stdint.h>

enum { AH_RESAMPLE_THREADS = 256 };
enum ah_resample_filter { AH_NEAREST, AH_NEAREST_EXACT, AH_LINEAR, AH_CUBIC, AH_LANCZOS };

/* The k-th of an output position's count[o] taps is at[k * out + o]. Input position i is read by output positions from
 * first[i] to before end[i]. */
struct ah_axis {
    int64_t in, out;
    double scale;   /* 0: of the sizes */
    uint64_t count, at, weight, first, end; /* int32, the weight in the type that is computed with */
    int32_t taps;   /* at most */
    int32_t whole;  /* nearest of images to their own or twice their size: whatever the scale */
    int32_t same;   /* each position reads itself alone */
};

struct ah_taps_args {
    struct ah_axis axis[3];
    int32_t filter, reach, align_corners, antialias;
};

struct ah_resample_args {
    struct ah_axis axis[3];
    uint64_t in, out;
    int64_t planes;
    int32_t narrow; /* counts fit in 30 bits */
};

/* The adjoint along one axis: (outer, out, inner) to (outer, in, inner). */
struct ah_resample_adjoint_args {
    struct ah_axis axis;
    uint64_t from, to;
    int64_t outer, inner;
    int32_t narrow;
};
