/* A build without oneDNN: everything declines, and the callers' own kernels do the work. */
#include "cpu/loop/onednn.h"

#include <stddef.h>

bool ah_onednn_built_in(void)
{
    return false;
}

const char *ah_onednn_version(void)
{
    return NULL;
}

int ah_onednn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    return 0;
}

int ah_onednn_matmul_find(bool half, bool wide, bool ta, bool tb, int64_t m, int64_t n, int64_t k, int64_t lda,
                          int64_t ldb, int64_t ldc, bool bias, struct ah_onednn_entry **out)
{
    return 0;
}

size_t ah_onednn_scratch_bytes(const struct ah_onednn_entry *entry)
{
    return 0;
}

int ah_onednn_matmul_run(struct ah_onednn_entry *entry, const void *a, const void *b, const void *bias, void *c,
                         void *scratch)
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
