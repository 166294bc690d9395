/* Sums over the rows of a row-major matrix: the gradient of a bias. Rows are summed in fixed chunks, so the result
 * does not depend on the number of threads. */
#pragma once

#include <stdint.h>

/* out[j] = sum over i of x[i, j]; x is rows x cols. AH_ENOMEM. */
int ah_column_sum_f32(const float *x, int64_t rows, int64_t cols, float *out);
int ah_column_sum_f64(const double *x, int64_t rows, int64_t cols, double *out);
/* The same of bfloat16, summed in float32. */
int ah_column_sum_bf16(const uint16_t *x, int64_t rows, int64_t cols, float *out);
