/* Sums of products of pairs of bfloat16, for functions that are compiled with AH_LANES_PAIRS (cpu/loop/lanes.h). */
#pragma once

#include "cpu/loop/lanes.h"

/* Add the two products of each pair of items of a and b, in 32 bits of a lane, to that lane of sum. */
#if defined(__aarch64__)
#define ah_add_pairs(a, b, sum) \
    ((ah_lanes_f32)vbfdotq_f32((float32x4_t)(sum), (bfloat16x8_t)(a), (bfloat16x8_t)(b)))
#else
#define ah_add_pairs(a, b, sum) ((ah_lanes_f32)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(a), (__m512bh)(b)))
#endif
