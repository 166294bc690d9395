/* Elementwise iteration over broadcast, strided operands of any dtype.
 *
 * A kernel's inner loop only ever sees short runs of one dtype with step 1 (or step 0 for one repeated value);
 * everything else (strides, broadcasting, conversion, scattering into a strided output) happens here in chunks that
 * stay in the first-level cache. fp16 and bf16 therefore need no separate loops: a loop for float32 serves them.
 * Large inputs are split over the thread pool; an element's result never depends on the split. Lua thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/numeric/dtype.h"
#include "base/process/parallel.h"

struct ah_tensor;

enum { AH_ITER_OPERANDS = 5 };

/* data[0] is the output, data[1..] the inputs, in their operands' loop dtypes; step[k] is 1, or 0 where data[k] is
 * a single value (never for the output). The output may be the same memory as an input of equal geometry. */
typedef void (*ah_loop)(int64_t n, void *const *data, const int64_t *step, const void *context);

struct ah_operand {
    struct ah_tensor *tensor;
    enum ah_dtype dtype; /* of the loop's reads or writes; converted from or to the tensor's own */
};

/* Run `loop` over the shape of operand[0], to which the others must broadcast. With `scalars` repeated values have step
 * 0, else they are spread out and every step is 1. Inputs that overlap the output otherwise than exactly
 * are copied first; `share` is that of the loop. AH_EINVAL when an output element would be written more than once
 * (an expanded tensor). */
int ah_iterate(const struct ah_operand *operand, int count, bool scalars, ah_loop loop, const void *context,
               enum ah_share share);

/* Copy with broadcasting and conversion; blocked where one side is a transpose of the other. */
int ah_copy(struct ah_tensor *out, struct ah_tensor *input);

/* A row-major tensor with the contents of `input` in `dtype`: `input` itself, retained, when it is that already. */
int ah_contiguous_as(struct ah_tensor **out, struct ah_tensor *input, enum ah_dtype dtype);

/* Elements with strides (in elements) from one dtype to another. Float to integer truncates towards zero. */
void ah_cast(int64_t n, void *out, enum ah_dtype out_dtype, int64_t out_stride, const void *input,
             enum ah_dtype input_dtype, int64_t input_stride);
