/* The CPU kernels' only interface to oneDNN. A build without the library has stubs that decline.
 *
 * Functions return 1 when they did the work, 0 when oneDNN is absent or has no fast kernel for the case (the caller
 * then uses its own), and a negative AH_E* for a real failure. Activations are dense N, H, W, C arrays, weights are
 * row-major as in PyTorch. Primitives are cached by shape; memory is from the block allocator. Except for
 * ah_onednn_sgemm, which any thread may call, Lua thread only. */
#ifndef AH_CPU_ONEDNN_H
#define AH_CPU_ONEDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/nn/conv.h"

/* The library and version, "oneDNN 2.6.3", or NULL. */
const char *ah_onednn_version(void);

/* Arguments as in cpu/linear/gemm.h. */
int ah_onednn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* C = op(A) op(B) + bias (one value per column, or NULL) through a primitive made for the shape: better for short and
 * deep products. */
int ah_onednn_matmul(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                     int64_t ldb, const float *bias, float *c, int64_t ldc);

/* The same on bfloat16 arrays (bits), summed in float32. */
int ah_onednn_matmul_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                          const uint16_t *b, int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc);

/* dst = conv(src, weight) + bias; bias may be NULL. Arrays of float, with `half` of bfloat16, summed in float32. */
int ah_onednn_conv(const struct ah_conv *conv, bool half, const void *src, const void *weight, const void *bias,
                   void *dst);

/* grad_src from grad_dst and weight. */
int ah_onednn_conv_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const void *weight,
                              void *grad_src);

/* grad_weight from src and grad_dst. The bias has its own kernel: fused here it costs more (measured). */
int ah_onednn_conv_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                               void *grad_weight);

#endif
