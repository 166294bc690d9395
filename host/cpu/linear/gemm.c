/* Products of matrices by OpenBLAS, dnnl_sgemm or a oneDNN primitive, whichever is fastest for the shape (measured), on
 * one thread below ALONE_BELOW. The choice depends on the shape and on whether an OpenMP region runs, on nothing else,
 * so the same matmul in the same place has the same bits. */
#include "cpu/linear/gemm.h"

#include <limits.h>
#include <omp.h>
#include <string.h>

#include <cblas.h>

#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/loop/onednn.h"

const char *ah_blas_version(void)
{
    return openblas_get_config();
}

static int check_sizes(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc)
{
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX || lda > INT_MAX || ldb > INT_MAX || ldc > INT_MAX)
        return ah_fail(AH_ENOTIMPL, "matmul: sizes beyond 2147483647 are not supported");
    return 0;
}

/* C = beta * C, for products without depth. */
#define SCALE(name, real)                                                          \
    static void name(int64_t m, int64_t n, real beta, real *c, int64_t ldc)        \
    {                                                                              \
        for (int64_t i = 0; i < m; i++)                                            \
            for (int64_t j = 0; j < n; j++)                                        \
                c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];            \
    }
SCALE(scale_f32, float)
SCALE(scale_f64, double)

/* Measured: OpenBLAS has the lowest call cost, dnnl_sgemm the best rate, except for products much deeper than they
 * are wide, where only a primitive made for the shape does well (dnnl_sgemm with two threads is then far behind). */
static bool is_deep(int64_t m, int64_t n, int64_t k, double work)
{
    return k >= 4 * (m < n ? m : n) && k >= m && k >= n && work >= 1e6;
}

/* Multiplications below which waking a second thread costs more than it saves: the 64 x 128 x 784 matmul of a small
 * network ran 1.3 times as long on two threads (measured). */
#define ALONE_BELOW 8e6

int ah_limit_threads(double work)
{
    int threads = omp_get_max_threads();
    if (threads > 1 && work < ALONE_BELOW)
        omp_set_num_threads(1);
    return threads;
}

void ah_restore_threads(int threads)
{
    if (threads != omp_get_max_threads())
        omp_set_num_threads(threads);
}

/* A product of two vectors: BLAS would pack them first. Sums of a block are in float, the sum of blocks in double. */
static double dot_f32(int64_t k, const float *a, int64_t a_step, const float *b, int64_t b_step)
{
    enum { BLOCK = 4096, LANES = 64 };
    double total = 0;
    for (int64_t begin = 0; begin < k; begin += BLOCK) {
        int64_t end = k - begin < BLOCK ? k : begin + BLOCK, i = begin;
        float lane[LANES] = {0}, sum = 0;
        for (; a_step == 1 && b_step == 1 && i + LANES <= end; i += LANES)
            for (int j = 0; j < LANES; j++)
                lane[j] += a[i + j] * b[i + j];
        for (; i < end; i++)
            sum += a[i * a_step] * b[i * b_step];
        for (int j = 0; j < LANES; j++)
            sum += lane[j];
        total += (double)sum;
    }
    return total;
}

static int product_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                       const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return 0;
    if (k == 0) {
        scale_f32(m, n, beta, c, ldc);
        return 0;
    }
    AH_TRY(check_sizes(m, n, k, lda, ldb, ldc));
    if (m == 1 && n == 1) {
        ah_trace_kernel("own dot float32");
        float product = alpha * (float)dot_f32(k, a, ta ? lda : 1, b, tb ? 1 : ldb);
        *c = beta == 0 ? product : product + beta * *c;
        return 0;
    }
    double work = (double)m * (double)n * (double)k;
    bool deep = (ta || tb) && is_deep(m, n, k, work);
    int done = 0;
    if (deep && alpha == 1 && beta == 0 && !omp_in_parallel())
        done = ah_onednn_matmul(ta, tb, m, n, k, a, lda, b, ldb, NULL, c, ldc);
    else if (!deep && work >= 300e3)
        done = ah_onednn_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (done)
        return done < 0 ? done : 0;
    ah_trace_kernel("openblas sgemm");
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k,
                alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
    return 0;
}

int ah_gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    int threads = ah_limit_threads((double)m * (double)n * (double)k);
    int status = product_f32(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    ah_restore_threads(threads);
    return status;
}

int ah_gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                const double *b, int64_t ldb, double beta, double *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return 0;
    if (k == 0) {
        scale_f64(m, n, beta, c, ldc);
        return 0;
    }
    AH_TRY(check_sizes(m, n, k, lda, ldb, ldc));
    int threads = ah_limit_threads((double)m * (double)n * (double)k);
    ah_trace_kernel("openblas dgemm");
    cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k,
                alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
    ah_restore_threads(threads);
    return 0;
}

int ah_gemm_bias_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                     int64_t ldb, const float *bias, float *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return 0;
    AH_TRY(check_sizes(m, n, k, lda, ldb, ldc));
    double work = (double)m * (double)n * (double)k;
    if (work >= 1e6) {
        int threads = ah_limit_threads(work);
        int done = ah_onednn_matmul(ta, tb, m, n, k, a, lda, b, ldb, bias, c, ldc);
        ah_restore_threads(threads);
        if (done)
            return done < 0 ? done : 0;
    }
    for (int64_t i = 0; i < m; i++)
        memcpy(c + i * ldc, bias, (size_t)n * sizeof *c);
    return ah_gemm_f32(ta, tb, m, n, k, 1, a, lda, b, ldb, 1, c, ldc);
}

int ah_gemm_bias_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b,
                     int64_t ldb, const double *bias, double *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++)
        memcpy(c + i * ldc, bias, (size_t)n * sizeof *c);
    return ah_gemm_f64(ta, tb, m, n, k, 1, a, lda, b, ldb, 1, c, ldc);
}
