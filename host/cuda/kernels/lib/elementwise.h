/* Arguments of the elementwise kernels: one output and up to three inputs over one shape.
 *
 * The C side has dropped dims of size 1, ordered the rest by the output's strides and merged contiguous ones. With
 * `wide` every operand is dense or one value, its address a multiple of 16: then kernels move 16 bytes at once. With
 * `rows` they do so within the last dim: there every operand is dense, on both sides of it at multiples of 16 bytes, or
 * one value, and AH_EW_PACK divides its size. At most one of the two is set. */
#pragma once

#include <stdint.h>

enum { AH_EW_DIMS = 8, AH_EW_OPERANDS = 4, AH_EW_NUMBERS = 4, AH_EW_THREADS = 256, AH_EW_PACK = 8 };

struct ah_ew_operand {
    uint64_t at;         /* its address; 0: the value is `bits` */
    uint64_t bits;       /* a value of the kernel's type */
    int32_t dtype;       /* enum ah_dtype, of those that the kernel reads */
    int32_t single;      /* one value for all */
    int32_t repeats;     /* with `rows`: one value for all of the last dim */
    int64_t stride[AH_EW_DIMS]; /* in elements */
};

struct ah_ew_args {
    struct ah_ew_operand operand[AH_EW_OPERANDS]; /* 0: the output */
    double number[AH_EW_NUMBERS];
    int64_t numel;
    int64_t size[AH_EW_DIMS];
    uint32_t multiplier[AH_EW_DIMS], shift[AH_EW_DIMS]; /* q = (mulhi(n, multiplier) + n) >> shift, for n < 2^31 */
    int32_t ndim;
    int32_t wide, rows;
    int32_t narrow; /* indices fit in 31 bits: fast division */
};
