/* Quantised weights as plain arrays: runs of them dequantised, and their products with few vectors, which read each row
 * once. Sums are in float32, in an order that depends on the length of a row alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AH_QUANTIZED_MOST = 4 }; /* vectors of a product that reads the codes */

/* The ways of products to read a row. */
enum ah_quantized_way {
    AH_QUANTIZED_ANY,    /* dequantised in runs: blocks of codes may begin and end within rows */
    AH_QUANTIZED_INT8,   /* int8 numbers, widened */
    AH_QUANTIZED_DIGITS, /* int8 numbers, by exact sums of products with integers: the vector's numbers in units of
                            about 2^-23 of its largest one */
    AH_QUANTIZED_UNITS,  /* 4-bit codes, by float32 */
    AH_QUANTIZED_PAIRS,  /* 4-bit codes, by sums of products of pairs of bfloat16 */
    AH_QUANTIZED_WAYS
};

/* A weight of `rows` x `columns`. */
struct ah_quantized {
    int64_t rows, columns;
    const uint8_t *codes; /* int8 numbers; of 4 bits two in a byte, the first one in the upper half */
    const float *absmax;  /* of each row or, of 4 bits, of each block; not read where `nested` is set */
    bool four_bit;
    int block_shift;      /* a block of 4-bit codes has 1 << block_shift of them, 32 or more */
    float code[16];       /* the numbers of the 4-bit codes */
    const uint8_t *nested; /* codes of the blocks' absmax, or NULL: nested_code[nested] * nested_absmax + offset */
    const float *nested_absmax, *nested_code;
    float offset;
    enum ah_quantized_way way; /* set by ah_quantized_choose before products, with `half_code` */
    uint16_t half_code[32];    /* `code` in bfloat16, twice: the highest of five bits is another code's */
};

/* int8 codes are 127 times the number, divided by the absmax. */
#define AH_INT8_STEP 7.874015718698502e-3f

/* Dequantise `count` numbers of a row from column `column` on. */
void ah_quantized_run(const struct ah_quantized *q, int64_t row, int64_t column, int64_t count, float *out);
/* Return the absmax of `count` blocks from `first` on: in place, or decoded to `scratch`. */
static inline const float *ah_quantized_scales(const struct ah_quantized *q, int64_t first, int64_t count,
                                               float *scratch)
{
    if (!q->nested)
        return q->absmax + first;
    const uint8_t *codes = q->nested + first; /* a gather of 16 is slower on a Zen 4 */
    for (int64_t i = 0, end; i < count; i = end) {
        float scale = q->nested_absmax[(first + i) >> 8];
        end = i + 256 - ((first + i) & 255);
        end = end < count ? end : count;
        for (int64_t j = i; j < end; j++)
            scratch[j] = q->nested_code[codes[j]] * scale + q->offset;
    }
    return scratch;
}

/* Choose the way of products; `half`: the vectors are bfloat16 numbers, `pairs`: ah_bf16_pairs(). */
void ah_quantized_choose(struct ah_quantized *q, bool half, bool pairs);

/* Return the distance between vectors of float32: whole vectors of codes. */
static inline int64_t ah_quantized_padded(int64_t columns)
{
    return (columns + 127) / 128 * 128;
}

/* Return the bytes that ah_quantized_vector writes, a multiple of 64. */
size_t ah_quantized_vector_bytes(const struct ah_quantized *q);
/* A vector in the order in which products read it; of AH_QUANTIZED_PAIRS bfloat16 numbers, else float32. */
void ah_quantized_vector(const struct ah_quantized *q, const void *x, void *out);

/* y[i * ldy + row] = the product of row `row` and vector i of `count` (1 to AH_QUANTIZED_MOST), plus bias[row] where
 * there is a bias, for rows begin to end - 1. `x` has the vectors of ah_quantized_vector, one after the other. */
void ah_quantized_rows(const struct ah_quantized *q, const void *x, int count, const float *bias, float *y, int64_t ldy,
                       int64_t begin, int64_t end);

/* The functions of the ways that the processor's sums of products have (quantized_dots.c), for AVX512-BF16 and VNNI. */
typedef void (*ah_quantized_rows_fn)(const struct ah_quantized *q, const void *x, const float *bias, float *y,
                                     int64_t ldy, int64_t begin, int64_t end);
extern const ah_quantized_rows_fn ah_quantized_digits[AH_QUANTIZED_MOST], ah_quantized_pairs[AH_QUANTIZED_MOST];
size_t ah_quantized_digits_bytes(int64_t columns);
void ah_quantized_digits_vector(const float *x, int64_t columns, void *out);
void ah_quantized_pairs_vector(const uint16_t *x, int64_t columns, void *out);
