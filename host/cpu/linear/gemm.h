/* Dense matrix products on row-major arrays: C = alpha * op(A) op(B) + beta * C.
 *
 * op(A) is M x K and op(B) is K x N; with `ta` the array A holds K x M (lda >= M), else M x K (lda >= K); B alike.
 * beta = 0 never reads C. The library behind a call depends on shape, type and whether a divided region runs (OpenBLAS,
 * or oneDNN where it is built in and faster). In such a region a product runs on the calling thread alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* OpenBLAS's version, how it was built, and the processor that it has chosen its kernels for; NULL: it is missing. */
const char *ah_blas_version(void);

/* The product above. */
int ah_gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
int ah_gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                const double *b, int64_t ldb, double beta, double *c, int64_t ldc);

/* C = op(A) op(B) + bias, one value per column (float32, NULL: none). Not inside a divided region. */
int ah_gemm_bias_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                     int64_t ldb, const float *bias, float *c, int64_t ldc);
int ah_gemm_bias_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b,
                     int64_t ldb, const double *bias, double *c, int64_t ldc);

/* Are products faster on bfloat16 arrays than on float32 copies of them? */
bool ah_gemm_pays_bf16(void);

/* C = op(A) op(B) + bias, or without where `bias` is NULL, on bfloat16 arrays (bits), summed in float32. Returns 1, or
 * 0 where there is no fast kernel for the shape; C is then unchanged. Not inside a divided region. The second one has
 * its result in float32. */
int ah_gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const uint16_t *b,
                 int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc);
int ah_gemm_bf16_wide(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                      const uint16_t *b, int64_t ldb, float *c, int64_t ldc);

/* C = A op(B) + bias, as of ah_gemm_bf16, with a float32 B that is rounded to bfloat16 on the way and never copied as a
 * whole. Where ah_gemm_rounds(); not inside a divided region. */
bool ah_gemm_rounds(void);
int ah_gemm_rounded(bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const float *b,
                    int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc);
