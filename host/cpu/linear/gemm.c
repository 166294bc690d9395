/* Products of matrices by OpenBLAS, dnnl_sgemm or a oneDNN primitive, whichever is fastest for the shape (measured); of
 * bfloat16 by the processor's blocks where it has them (cpu/linear/gemm_blocks.h), with a float32 side by
 * cpu/linear/gemm_rounded.h.
 *
 * The libraries run on the calling thread; a larger product is divided into pieces for the pool of threads. Library and
 * pieces follow from the shape, the number of threads, and whether a divided region runs: the same product in the same
 * place has the same bits, whichever threads run its pieces. */
#include "cpu/linear/gemm.h"

#include <limits.h>
#include <string.h>

#include "base/numeric/dtype.h"
#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/failure.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/linear/blas.h"
#include "cpu/linear/gemm_blocks.h"
#include "cpu/linear/gemm_rounded.h"
#include "cpu/linear/gemv.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/lanes.h"
#include "cpu/loop/onednn.h"

/* One product C = alpha * op(A) op(B) + beta * C, or op(A) op(B) + bias where there is one. */
struct product {
    enum ah_dtype dtype; /* AH_F32, AH_F64 or, by primitives, blocks or rounding alone, AH_BF16 */
    bool ta, tb;
    int64_t m, n, k;
    double alpha, beta;
    const void *a, *b, *bias;
    void *c;
    int64_t lda, ldb, ldc;
    bool wide;    /* C is float32 whatever the dtype */
    bool rounded; /* B is float32, and rounded to the dtype */
};

/* A product divided into `rows` x `cols` pieces, or into `depths` along the sums; all but the last of a side have
 * `row_step`, `col_step` or `depth_step`. */
struct division {
    const struct product *whole;
    int rows, cols, depths;
    int64_t row_step, col_step, depth_step;
    bool by_primitive; /* of oneDNN: rows, columns or sums are divided, not several */
    float *partial; /* sums of all depths but the last, which has the bias and is in C */
    struct ah_onednn_entry *primitive, *last; /* of all pieces but the last, and of the last; NULL: no primitive */
    char *scratch;                            /* `scratch_bytes` for each thread */
    size_t scratch_bytes, apart; /* apart: place in it for C of a piece of the columns (is_made_apart) */
    struct ah_failure *failure;
};

enum {
    LEAST_WORK = 1000000, /* multiplications of a piece: about 20 us */
    LARGE_WORK = 4000000, /* with pieces of this size there are two per thread, so that a late one costs less */
    SMALL_WORK = 300000,  /* below it OpenBLAS has the lowest cost */
    ROW_STEP = 8,         /* sizes of the libraries' inner blocks */
    COL_STEP = 16,
    DEPTH_STEP = 64,
    TURNED_COLS = 1024,   /* most columns of a transposed B: a primitive packs it once, dnnl_sgemm several times */
    CACHED_FLOATS = 1 << 18, /* of operands that are in a second-level cache */
};

const char *ah_blas_version(void)
{
    return ah_blas_open() < 0 ? NULL : ah_blas.openblas_get_config();
}

static double product_work(const struct product *p)
{
    return (double)p->m * (double)p->n * (double)p->k;
}

static int check_sizes(const struct product *p)
{
    if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX || p->lda > INT_MAX || p->ldb > INT_MAX || p->ldc > INT_MAX)
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

/* Products of two vectors, which BLAS would pack first: sums of a block in the type of the vectors, their sum in
 * double. */
struct dot {
    const void *a, *b;
    int64_t k, a_step, b_step, first; /* first: block of sum[0] */
    double sum[256];
};

enum { DOT_BLOCK = 4096 };

#define DOT(suffix, real)                                                                                      \
    static void dot_blocks_##suffix(void *context, int64_t begin, int64_t end)                                 \
    {                                                                                                          \
        enum { LANES = 256 / (int)sizeof(real), WIDTH = AH_LANES_BYTES / (int)sizeof(real) };                  \
        struct dot *d = context;                                                                               \
        int64_t a_step = d->a_step, b_step = d->b_step;                                                        \
        for (int64_t block = begin; block < end; block++) {                                                    \
            int64_t i = (d->first + block) * DOT_BLOCK, stop = d->k - i < DOT_BLOCK ? d->k : i + DOT_BLOCK;    \
            const real *a = d->a, *b = d->b;                                                                   \
            ah_lanes_##suffix sums[LANES / WIDTH] = {{0}};                                                     \
            real lane[LANES], sum = 0;                                                                         \
            for (; a_step == 1 && b_step == 1 && i + LANES <= stop; i += LANES)                                \
                _Pragma("GCC unroll 16") for (int j = 0; j < LANES / WIDTH; j++)                               \
                    sums[j] += *(const ah_lanes_at_##suffix *)(a + i + j * WIDTH) *                            \
                               *(const ah_lanes_at_##suffix *)(b + i + j * WIDTH);                             \
            memcpy(lane, sums, sizeof lane);                                                                   \
            for (; i < stop; i++)                                                                              \
                sum += a[i * a_step] * b[i * b_step];                                                          \
            for (int half = LANES / 2; half > 0; half /= 2)                                                    \
                for (int j = 0; j < half; j++)                                                                 \
                    lane[j] += lane[j + half];                                                                 \
            d->sum[block] = (double)(sum + lane[0]);                                                           \
        }                                                                                                      \
    }                                                                                                          \
    static double dot_##suffix(int64_t k, const real *a, int64_t a_step, const real *b, int64_t b_step)        \
    {                                                                                                          \
        struct dot d = {.a = a, .b = b, .k = k, .a_step = a_step, .b_step = b_step};                           \
        int64_t blocks = (k + DOT_BLOCK - 1) / DOT_BLOCK, most = (int64_t)(sizeof d.sum / sizeof *d.sum);      \
        double total = 0;                                                                                      \
        for (; d.first < blocks; d.first += most) {                                                            \
            int64_t count = blocks - d.first < most ? blocks - d.first : most;                                 \
            ah_parallel_units(count, DOT_BLOCK, AH_SHARE_LIGHT, dot_blocks_##suffix, &d);                      \
            for (int64_t i = 0; i < count; i++)                                                                \
                total += d.sum[i];                                                                             \
        }                                                                                                      \
        return total;                                                                                          \
    }
DOT(f32, float)
DOT(f64, double)

static int division_pieces(const struct division *d)
{
    return d->rows * d->cols * d->depths;
}

/* Part `index` of a product that is divided along its sums. */
static struct product depth_piece(const struct division *d, int index)
{
    struct product part = *d->whole;
    int64_t at = index * d->depth_step, item = (int64_t)ah_dtype_size(part.dtype);
    part.a = (const char *)part.a + (part.ta ? at * part.lda : at) * item;
    part.b = (const char *)part.b + (part.tb ? at : at * part.ldb) * item;
    part.k -= at;
    if (index + 1 < d->depths) {
        part.k = d->depth_step;
        part.bias = NULL;
        part.c = d->partial + index * part.m * part.n;
        part.ldc = part.n;
    }
    return part;
}

/* Piece `index` of a divided product. */
static struct product division_piece(const struct division *d, int index)
{
    if (d->depths > 1)
        return depth_piece(d, index);
    struct product part = *d->whole;
    int64_t row = index / d->cols * d->row_step, col = index % d->cols * d->col_step;
    int64_t item = (int64_t)ah_dtype_size(part.dtype), b_item = part.rounded ? (int64_t)sizeof(float) : item;
    part.a = (const char *)part.a + (part.ta ? row : row * part.lda) * item;
    part.b = (const char *)part.b + (part.tb ? col * part.ldb : col) * b_item;
    part.c = (char *)part.c + (row * part.ldc + col) * (part.wide ? (int64_t)sizeof(float) : item);
    part.bias = part.bias ? (const char *)part.bias + col * item : NULL;
    part.m = index / d->cols + 1 < d->rows ? d->row_step : part.m - row;
    part.n = index % d->cols + 1 < d->cols ? d->col_step : part.n - col;
    return part;
}

/* Divide `size` into at most `count` steps, a multiple of `unit`; returns their number. The last step may be the
 * largest one: steps are rounded to whichever side makes that one smaller, and a rest of one row or column is part of
 * it, as libraries have other kernels for vectors, slower ones for these strides. */
static int divide_side(int64_t size, int count, int64_t unit, int64_t *step)
{
    int64_t low = size / count / unit * unit, high = ((size + count - 1) / count + unit - 1) / unit * unit;
    *step = low > 0 && size - (count - 1) * low < high ? low : high;
    int steps = *step == low ? count : (int)((size + *step - 1) / *step);
    return steps > 1 && size % *step == 1 && *step == high ? steps - 1 : steps;
}

/* The number of pieces for which a product is worth dividing; of large ones twice as many are too. */
static int least_pieces(double work)
{
    int threads = ah_num_threads();
    double most = work / LEAST_WORK;
    if (threads == 1 || most < 2 || ah_region_is_divided())
        return 1;
    return most < threads ? (int)most : threads;
}

static int64_t largest_step(int64_t size, int count, int64_t step)
{
    int64_t last = size - (count - 1) * step;
    return last > step ? last : step;
}

/* oneDNN's fastest kernels write a C without gaps (2.6: 64 x 64 of a depth of 9,216 needs 0.33 ms, else 1.0), so that
 * of a piece of the columns is made in scratch memory. */
static bool is_made_apart(const struct division *d)
{
    return d->by_primitive && d->cols > 1;
}

/* The time of the busiest thread, in multiplications for each column of A: for the results of its pieces, and the
 * additional cost of a row and a column of each (measured: the libraries' inner blocks are wide, so few columns cost
 * much, but not in primitives, which read A where it is; columns of B are packed if they are bfloat16 or B is
 * transposed). Parts of sums have partial results to add up, and rows that do not follow each other, which cost more
 * where they are read from memory. */
static double division_cost(const struct division *d)
{
    const struct product *p = d->whole;
    int threads = ah_num_threads(), pieces = division_pieces(d);
    double rows = (double)largest_step(p->m, d->rows, d->row_step);
    double cols = (double)largest_step(p->n, d->cols, d->col_step);
    double depth = (double)largest_step(p->k, d->depths, d->depth_step) / (double)p->k;
    bool half = p->dtype == AH_BF16;
    double row = p->rounded || (d->by_primitive && !half) ? 4 : half ? 32 : 64, column = p->tb ? 12 : 5;
    if (half || d->by_primitive)
        column = 16;
    double cost = rows * cols + row * rows + column * cols;
    if (is_made_apart(d))
        cost += 24 * rows * cols / (double)p->k; /* the copy */
    if (d->depths > 1)
        cost += (rows + cols) * ((rows + cols) * (double)p->k > CACHED_FLOATS ? 14 : 4);
    return cost * depth * ((pieces + threads - 1) / threads) + 16 * rows * cols * (d->depths - 1) / (double)p->k;
}

/* Choose the fastest division into `count` pieces. */
static struct division divide_by(const struct product *whole, int count, bool by_primitive)
{
    const struct division one = {.whole = whole, .rows = 1, .cols = 1, .depths = 1, .row_step = whole->m,
                                 .col_step = whole->n, .depth_step = whole->k, .by_primitive = by_primitive};
    struct division best = one;
    for (int rows = 1; rows <= count; rows++) {
        if (count % rows || (by_primitive && rows > 1 && rows < count))
            continue;
        struct division trial = one;
        trial.rows = divide_side(whole->m, rows, ROW_STEP, &trial.row_step);
        trial.cols = divide_side(whole->n, count / rows, COL_STEP, &trial.col_step);
        if (division_cost(&trial) < division_cost(&best))
            best = trial;
    }
    if (by_primitive && whole->dtype == AH_F32) {
        struct division trial = one;
        trial.depths = divide_side(whole->k, count, DEPTH_STEP, &trial.depth_step);
        if (division_cost(&trial) < division_cost(&best))
            best = trial;
    }
    return best;
}

/* Choose the fastest division. Two pieces for each thread may cost a little more: a late one then costs less. */
static struct division divide(const struct product *whole, bool by_primitive)
{
    double work = product_work(whole);
    int least = least_pieces(work);
    struct division best = divide_by(whole, least, by_primitive);
    if (least > 1 && work >= 2.0 * least * LARGE_WORK) {
        struct division more = divide_by(whole, 2 * least, by_primitive);
        if (division_cost(&more) < 1.03 * division_cost(&best))
            return more;
    }
    return best;
}

static int run_by_blas(const struct product *p)
{
    enum CBLAS_TRANSPOSE ta = p->ta ? CblasTrans : CblasNoTrans, tb = p->tb ? CblasTrans : CblasNoTrans;
    int m = (int)p->m, n = (int)p->n, k = (int)p->k, lda = (int)p->lda, ldb = (int)p->ldb, ldc = (int)p->ldc;
    AH_TRY(ah_blas_open());
    if (p->dtype == AH_F32) {
        ah_trace_kernel("openblas sgemm");
        ah_blas.cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, (float)p->alpha, p->a, lda, p->b, ldb, (float)p->beta,
                            p->c, ldc);
    } else {
        ah_trace_kernel("openblas dgemm");
        ah_blas.cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, p->alpha, p->a, lda, p->b, ldb, p->beta, p->c, ldc);
    }
    return 0;
}

/* Without AVX-512 dnnl_sgemm reads the rows of B where they are. Those a multiple of 2 KiB apart evict each other from
 * the cache: 256 rows with a 2048 x 2048 matrix at 81 GFLOP/s (one thread of a Zen 5), by OpenBLAS at 133. */
static bool evicts_itself(const struct product *p)
{
    enum { FLOATS = 2048 / (int)sizeof(float) };
    return AH_LANES_BYTES < 64 && !p->tb && p->ldb % FLOATS == 0;
}

/* OpenBLAS has the lowest cost of a call, dnnl_sgemm the best rate. */
static int run_by_library(const struct product *p)
{
    if (p->dtype == AH_F32 && product_work(p) >= SMALL_WORK && !evicts_itself(p)) {
        int done = ah_onednn_sgemm(p->ta, p->tb, p->m, p->n, p->k, (float)p->alpha, p->a, p->lda, p->b, p->ldb,
                                   (float)p->beta, p->c, p->ldc);
        if (done)
            return done < 0 ? done : 0;
    }
    return run_by_blas(p);
}

static void run_blocks(const struct product *p, void *scratch)
{
    ah_gemm_blocks_run(&(struct ah_gemm_blocks){p->m, p->n, p->k, p->a, p->b, p->bias, p->ta ? 1 : p->lda,
                                                p->ta ? p->lda : 1, p->tb ? p->ldb : 1, p->tb ? 1 : p->ldb, p->c,
                                                p->ldc, p->wide},
                       scratch);
}

static struct ah_gemm_rounded rounded_of(const struct product *p)
{
    return (struct ah_gemm_rounded){p->m, p->n, p->k, p->a, p->bias, p->b, p->c, p->lda, p->tb ? p->ldb : 1,
                                    p->tb ? 1 : p->ldb, p->ldc};
}

static void run_rounded(const struct product *p, void *scratch)
{
    struct ah_gemm_rounded rounded = rounded_of(p);
    ah_gemm_rounded_run(&rounded, scratch);
}

static size_t result_row_bytes(const struct product *p)
{
    return (size_t)p->n * (p->wide ? sizeof(float) : ah_dtype_size(p->dtype));
}

static int run_primitive(const struct division *d, struct ah_onednn_entry *primitive, const struct product *part,
                         char *scratch)
{
    char *made = is_made_apart(d) ? scratch + d->apart : part->c;
    AH_TRY(ah_onednn_matmul_run(primitive, part->a, part->b, part->bias, made, scratch));
    size_t row = result_row_bytes(part), whole_row = row / (size_t)part->n * (size_t)part->ldc;
    for (size_t i = 0; made != part->c && i < (size_t)part->m; i++)
        memcpy((char *)part->c + i * whole_row, made + i * row, row);
    return 0;
}

static void run_division_piece(void *context, int index)
{
    struct division *d = context;
    struct product part = division_piece(d, index);
    struct ah_onednn_entry *primitive = index + 1 == division_pieces(d) ? d->last : d->primitive;
    char *scratch = d->scratch + (size_t)ah_thread_index() * d->scratch_bytes;
    int status = 0;
    if (part.rounded)
        run_rounded(&part, scratch);
    else if (primitive)
        status = run_primitive(d, primitive, &part, scratch);
    else if (part.dtype == AH_BF16)
        run_blocks(&part, scratch);
    else
        status = run_by_library(&part);
    ah_failure_note(d->failure, status);
}

static int run_division(struct division *d)
{
    struct ah_failure failure = {0};
    d->failure = &failure;
    ah_pool_run(division_pieces(d), run_division_piece, d);
    return ah_failure_result(&failure);
}

/* Run a division with scratch memory for each thread. */
static int run_with_scratch(struct division *d, size_t bytes)
{
    AH_CLEANUP(ah_dense_close) struct ah_dense scratch = {0};
    d->scratch_bytes = bytes;
    AH_TRY(ah_dense_scratch(&scratch, bytes * (size_t)(division_pieces(d) > 1 ? ah_num_threads() : 1)));
    d->scratch = scratch.block;
    return run_division(d);
}

static int find_primitive(const struct product *p, struct ah_onednn_entry **out)
{
    return ah_onednn_matmul_find(p->dtype == AH_BF16, p->wide, p->ta, p->tb, p->m, p->n, p->k, p->lda, p->ldb, p->ldc,
                                 p->bias != NULL, out);
}

/* Add the partial sums to the rows [begin, end) of C, in the order of the depths. */
static void add_partials(void *context, int64_t begin, int64_t end)
{
    const struct division *d = context;
    const struct product *p = d->whole;
    for (int depth = 0; depth + 1 < d->depths; depth++)
        for (int64_t row = begin; row < end; row++) {
            float *restrict to = (float *)p->c + row * p->ldc;
            const float *restrict from = d->partial + (depth * p->m + row) * p->n;
            for (int64_t j = 0; j < p->n; j++)
                to[j] += from[j];
        }
}

/* Run a product by a primitive of oneDNN: 1 done, 0 there is none. */
static int run_by_primitive(const struct product *p)
{
    AH_CLEANUP(ah_dense_close) struct ah_dense partial = {0};
    struct division d = divide(p, true);
    struct product first = division_piece(&d, 0), last = division_piece(&d, division_pieces(&d) - 1);
    if (is_made_apart(&d)) {
        first.ldc = first.n;
        last.ldc = last.n;
    }
    int found = find_primitive(&first, &d.primitive);
    if (found > 0)
        found = find_primitive(&last, &d.last);
    if (found <= 0)
        return found;
    if (d.depths > 1) {
        AH_TRY(ah_dense_scratch(&partial, (size_t)((d.depths - 1) * p->m * p->n) * sizeof(float)));
        d.partial = (float *)partial.block;
    }
    size_t one = ah_onednn_scratch_bytes(d.primitive), other = ah_onednn_scratch_bytes(d.last);
    size_t row = result_row_bytes(&first), last_row = result_row_bytes(&last);
    d.apart = ((one > other ? one : other) + 63) / 64 * 64;
    size_t made = is_made_apart(&d) ? (size_t)p->m * (row > last_row ? row : last_row) : 0;
    AH_TRY(run_with_scratch(&d, d.apart + (made + 63) / 64 * 64));
    if (d.depths > 1)
        ah_parallel_units(p->m, p->n, AH_SHARE_LIGHT, add_partials, &d);
    return 1;
}

/* Run a product of bfloat16 by the processor's blocks: 1 done, 0 it has none. */
static int run_by_blocks(const struct product *p)
{
    if (!ah_gemm_blocks_found())
        return 0;
    struct division d = divide(p, false);
    ah_trace_kernel("own bfmmla");
    AH_TRY(run_with_scratch(&d, ah_gemm_blocks_scratch(p->k)));
    return 1;
}

/* Run a product of few vectors with the rows of a matrix, if it is one. */
static bool run_by_rows(const struct product *p)
{
    bool half = p->dtype == AH_BF16;
    if (p->dtype == AH_F64 || p->ta || !p->tb || p->alpha != 1 || p->beta != 0 || !ah_gemv_pays(p->m, p->n, p->k))
        return false;
    const struct ah_gemv v = {p->m, p->n, p->k, p->a, p->b, p->bias, p->c, p->lda, p->ldb, p->ldc};
    if (half)
        ah_gemv_bf16(&v);
    else
        ah_gemv_f32(&v);
    return true;
}

static int run_product(const struct product *p)
{
    AH_TRY(check_sizes(p));
    struct division d = divide(p, false);
    return run_division(&d);
}

int ah_gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return 0;
    if (k == 0) {
        scale_f32(m, n, beta, c, ldc);
        return 0;
    }
    if (m == 1 && n == 1) {
        ah_trace_kernel("own dot float32");
        float product = alpha * (float)dot_f32(k, a, ta ? lda : 1, b, tb ? 1 : ldb);
        *c = beta == 0 ? product : product + beta * *c;
        return 0;
    }
    struct product p = {AH_F32, ta, tb, m, n, k, (double)alpha, (double)beta, a, b, NULL, c, lda, ldb, ldc, false,
                        false};
    return run_by_rows(&p) ? 0 : run_product(&p);
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
    if (m == 1 && n == 1) {
        ah_trace_kernel("own dot float64");
        double product = alpha * dot_f64(k, a, ta ? lda : 1, b, tb ? 1 : ldb);
        *c = beta == 0 ? product : product + beta * *c;
        return 0;
    }
    struct product p = {AH_F64, ta, tb, m, n, k, alpha, beta, a, b, NULL, c, lda, ldb, ldc, false, false};
    return run_product(&p);
}

int ah_gemm_bias_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                     int64_t ldb, const float *bias, float *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return 0;
    struct product p = {AH_F32, ta, tb, m, n, k, 1, 0, a, b, bias, c, lda, ldb, ldc, false, false};
    if (k > 0 && run_by_rows(&p))
        return 0;
    AH_TRY(check_sizes(&p));
    if (product_work(&p) >= 1e6 && (bias || (tb && !ta && n <= TURNED_COLS))) {
        int done = run_by_primitive(&p);
        if (done)
            return done < 0 ? done : 0;
    }
    if (!bias)
        return ah_gemm_f32(ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
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

int ah_gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const uint16_t *b,
                 int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc)
{
    struct product p = {AH_BF16, ta, tb, m, n, k, 1, 0, a, b, bias, c, lda, ldb, ldc, false, false};
    if (run_by_rows(&p))
        return 1;
    int done = run_by_blocks(&p);
    return done ? done : run_by_primitive(&p);
}

int ah_gemm_bf16_wide(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                      const uint16_t *b, int64_t ldb, float *c, int64_t ldc)
{
    struct product p = {AH_BF16, ta, tb, m, n, k, 1, 0, a, b, NULL, c, lda, ldb, ldc, true, false};
    int done = run_by_blocks(&p);
    return done ? done : run_by_primitive(&p);
}

bool ah_gemm_pays_bf16(void)
{
    return ah_bf16_native() || ah_gemm_blocks_found();
}

bool ah_gemm_rounds(void)
{
    return ah_gemm_rounded_found();
}

int ah_gemm_rounded(bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const float *b,
                    int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc)
{
    struct product p = {AH_BF16, false, tb, m, n, k, 1, 0, a, b, bias, c, lda, ldb, ldc, false, true};
    struct division d = divide(&p, false);
    struct product first = division_piece(&d, 0), last = division_piece(&d, division_pieces(&d) - 1);
    struct ah_gemm_rounded one = rounded_of(&first), other = rounded_of(&last);
    size_t bytes = ah_gemm_rounded_scratch(&one), others = ah_gemm_rounded_scratch(&other);
    ah_trace_kernel("own product of rounded float32");
    return run_with_scratch(&d, bytes > others ? bytes : others);
}
