/* The arithmetic of reductions: sums of several buffers, element by element, always in the order of the sources. */
#pragma once

#include "comm/control/collective.h"

/* dst[k][i] = src[0][i] op src[1][i] op ... for i < n and every k. A destination may be a source (exactly, not
 * shifted). MEAN divides the sum by `divisor` (0 counts as 1). f16 and bf16 are accumulated in f32. Results do not
 * depend on threads. NaN wins in MAX and MIN. */
void ah_combine(enum ah_dtype dtype, enum ah_reduce_op op, void *const *dst, int dst_count, const void *const *src,
                int src_count, int64_t n, double divisor);

/* The same from one dtype to another: they are equal, or one is fp16 or bf16 and the other float32, in which a sum is
 * accumulated in parts. */
void ah_combine_as(enum ah_dtype from, enum ah_dtype to, enum ah_reduce_op op, void *const *dst, int dst_count,
                   const void *const *src, int src_count, int64_t n, double divisor);
