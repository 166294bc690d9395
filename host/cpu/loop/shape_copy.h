/* Copying between strided windows of one element size: the basis of every shape kernel. It converts nothing and knows
 * neither dtypes nor tensors. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { AH_COPY_DIMS = 16 }; /* repeat and tile have each dim twice */

/* dst[i . dst_stride] = src[i . src_stride] for every index i below size. Strides count elements
 * and may be 0 or negative in src; dst must not overlap itself or src. `item` is 1, 2, 4 or 8
 * bytes. Uses the pool when large. */
void ah_strided_copy(void *dst, const int64_t *dst_stride, const void *src,
                     const int64_t *src_stride, const int64_t *size, int ndim, size_t item);

/* memset to 0, with the pool when large. */
void ah_zero_fill(void *dst, size_t bytes);

/* Copy a row. Short ones are copied here in vectors from both ends, which may overlap, in less time than a call needs.
 * From 2 KiB on, glibc's memcpy uses `rep movsb`, whose time on a Zen 4 is ten times that of vectors where source and
 * destination are aligned differently (2.36, 2026-11): up to 32 KiB rows are copied in pieces below that. */
static inline void ah_copy_bytes(char *restrict dst, const char *restrict src, size_t bytes)
{
    enum { VECTOR = 64, PIECE = 1024, LONG = 32768 };
    typedef uint8_t vector __attribute__((vector_size(VECTOR), aligned(1), may_alias));
    if (bytes >= VECTOR && bytes <= 4 * VECTOR) {
        size_t last = bytes - VECTOR;
        vector begin = *(const vector *)src, end = *(const vector *)(src + last);
        if (bytes > 2 * VECTOR) {
            vector second = *(const vector *)(src + VECTOR), third = *(const vector *)(src + last - VECTOR);
            *(vector *)(dst + VECTOR) = second;
            *(vector *)(dst + last - VECTOR) = third;
        }
        *(vector *)dst = begin;
        *(vector *)(dst + last) = end;
        return;
    }
    for (; bytes > PIECE && bytes < LONG; bytes -= PIECE, dst += PIECE, src += PIECE)
        memcpy(dst, src, PIECE);
    memcpy(dst, src, bytes);
}
