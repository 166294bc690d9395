/* Helpers shared by kernels of linear maps. */
#pragma once

#include "ops/dispatch/op.h"

/* The two sides of a product have one dtype, which has products. */
int ah_check_product_dtypes(const struct ah_call *c, const struct ah_tensor *a, const struct ah_tensor *b);

/* Is a float32 weight rounded in the product with these rows? Then the product is matmul_rounded, else matmul. */
bool ah_is_rounded(const struct ah_tensor *rows, const struct ah_tensor *weight);
enum ah_opid ah_product_with(const struct ah_tensor *rows, const struct ah_tensor *weight);

/* The weight and the bias of a linear map must fit the input. */
int ah_check_linear(struct ah_call *c, const struct ah_tensor *x, const struct ah_tensor *w, const struct ah_tensor *b);

/* Allocate output number `index`: like x, with `columns` in its last dim. */
int ah_linear_output(struct ah_call *c, int index, const struct ah_tensor *x, int64_t columns);

/* The kernels of linear_gelu, linear_of_gelu_backward, linear_weight_backward and linear_weight_backward_into as the
 * device's kernels of their parts, one after another. */
int ah_linear_gelu_by_parts(struct ah_call *c);
int ah_linear_of_gelu_backward_by_parts(struct ah_call *c);
int ah_linear_weight_backward_by_parts(struct ah_call *c);
int ah_linear_weight_backward_into_by_parts(struct ah_call *c);

/* Is a matrix stored by columns, as the transpose of one that is stored by rows? */
bool ah_is_by_columns(const struct ah_tensor *matrix);

/* A matrix's transpose, a view without history. */
int ah_turned(struct ah_tensor **out, const struct ah_tensor *matrix);
