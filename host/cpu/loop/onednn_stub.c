/* A build without oneDNN: everything declines, and the callers' own kernels do the work. */
#include "cpu/loop/onednn.h"

#include <stddef.h>

const char *ah_onednn_version(void)
{
    return NULL;
}

int ah_onednn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    return 0;
}

int ah_onednn_matmul(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                     int64_t ldb, const float *bias, float *c, int64_t ldc)
{
    return 0;
}

int ah_onednn_matmul_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                          const uint16_t *b, int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc)
{
    return 0;
}

int ah_onednn_conv(const struct ah_conv *conv, bool half, const void *src, const void *weight, const void *bias,
                   void *dst)
{
    return 0;
}

int ah_onednn_conv_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const void *weight,
                              void *grad_src)
{
    return 0;
}

int ah_onednn_conv_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                               void *grad_weight)
{
    return 0;
}
