/* The CPU kernels' only interface to oneDNN. A build without the library has stubs that decline.
 *
 * Functions return 1 when they did the work, 0 when oneDNN is absent or has no fast kernel for the case (the caller
 * then uses its own), and a negative AH_E* for a real failure. Activations are dense N, H, W, C arrays, weights are
 * row-major as in PyTorch. Primitives are cached by shape; memory is from the block allocator. Except for
 * ah_onednn_sgemm and ah_onednn_matmul_run, Lua thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/nn/conv.h"

/* Was the program built with oneDNN? */
bool ah_onednn_built_in(void);

/* The library and version, "oneDNN 2.6.3"; NULL: not built in, or the library is missing. */
const char *ah_onednn_version(void);

/* Arguments as in cpu/linear/gemm.h. */
int ah_onednn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* Find the primitive for C = op(A) op(B) + bias (one value per column, with `bias`) of a shape, on arrays of float or,
 * with `half`, of bfloat16 (bits), summed in float32, with `wide` into a C of float: better than sgemm for short and
 * deep products. */
struct ah_onednn_entry;
int ah_onednn_matmul_find(bool half, bool wide, bool ta, bool tb, int64_t m, int64_t n, int64_t k, int64_t lda,
                          int64_t ldb, int64_t ldc, bool bias, struct ah_onednn_entry **out);

/* Bytes of scratch memory that a run needs. */
size_t ah_onednn_scratch_bytes(const struct ah_onednn_entry *entry);

/* Run it. Pieces of a region may do so at the same time, with separate scratch memory. */
int ah_onednn_matmul_run(struct ah_onednn_entry *entry, const void *a, const void *b, const void *bias, void *c,
                         void *scratch);

/* dst = conv(src, weight) + bias; bias may be NULL. Arrays of float, with `half` of bfloat16, summed in float32. */
int ah_onednn_conv(const struct ah_conv *conv, bool half, const void *src, const void *weight, const void *bias,
                   void *dst);

/* grad_src from grad_dst and weight. */
int ah_onednn_conv_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const void *weight,
                              void *grad_src);

/* grad_weight from src and grad_dst. The bias has its own kernel: fused here it costs more (measured). */
int ah_onednn_conv_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                               void *grad_weight);
