/* Copying between strided windows of one element size: the basis of every shape kernel. It converts nothing and knows
 * neither dtypes nor tensors. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { AH_COPY_DIMS = 16 }; /* repeat and tile have each dim twice */

/* dst[i . dst_stride] = src[i . src_stride] for every index i below size. Strides count elements
 * and may be 0 or negative in src; dst must not overlap itself or src. `item` is 1, 2, 4 or 8
 * bytes. Uses the pool when large. */
void ah_strided_copy(void *dst, const int64_t *dst_stride, const void *src,
                     const int64_t *src_stride, const int64_t *size, int ndim, size_t item);

/* memset to 0, with the pool when large. */
void ah_zero_fill(void *dst, size_t bytes);
