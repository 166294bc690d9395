/* matmul and linear: operands are read in place when BLAS can (rows or columns dense), else packed; batches that are
 * stored like one tall matrix are multiplied as one. Integers are multiplied in tiles, exactly. */
#include <stdatomic.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "base/status/failure.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/linear/gemm.h"
#include "cpu/linear/gemv.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/dense.h"
#include "ops/math/gelu_linear.h"
#include "ops/math/linear.h"

/* One side of a product: a stack of matrices that the library can read, possibly as their transposes. */
struct side {
    struct ah_dense dense;
    const char *data;
    int64_t rows, cols;              /* of one matrix, as the product sees it */
    bool transposed;
    int64_t ld;
    int batch_dims;
    int64_t batch_size[AH_MAX_DIMS], batch_stride[AH_MAX_DIMS];
};

static int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

/* Can the matrix with these strides be read directly? A stride of a size-1 dim means nothing. */
static bool matmul_readable(struct side *s, int64_t row_stride, int64_t col_stride)
{
    if ((col_stride == 1 || s->cols <= 1) && (row_stride >= at_least_one(s->cols) || s->rows <= 1)) {
        s->transposed = false;
        s->ld = s->rows <= 1 ? at_least_one(s->cols) : row_stride;
        return true;
    }
    if ((row_stride == 1 || s->rows <= 1) && (col_stride >= at_least_one(s->rows) || s->cols <= 1)) {
        s->transposed = true;
        s->ld = s->cols <= 1 ? at_least_one(s->rows) : col_stride;
        return true;
    }
    return false;
}

/* Open an operand. `column`: a 1-d tensor is a column (right side) instead of a row. `half`: bfloat16 is not
 * widened. */
static int side_open(struct side *s, struct ah_tensor *t, bool column, bool half)
{
    *s = (struct side){0};
    int64_t stride[AH_MAX_DIMS];
    memcpy(stride, t->stride, sizeof stride);
    int64_t row_stride, col_stride;
    for (int attempt = 0;; attempt++) {
        if (t->ndim == 1) {
            s->rows = column ? t->size[0] : 1;
            s->cols = column ? 1 : t->size[0];
            row_stride = column ? stride[0] : at_least_one(t->size[0]);
            col_stride = column ? 1 : stride[0];
        } else {
            s->rows = t->size[t->ndim - 2];
            s->cols = t->size[t->ndim - 1];
            row_stride = stride[t->ndim - 2];
            col_stride = stride[t->ndim - 1];
        }
        bool direct = attempt > 0 || half || ah_compute_dtype(t->dtype) == t->dtype;
        if (direct && matmul_readable(s, row_stride, col_stride))
            break;
        AH_TRY(half ? ah_dense_open_as_is(&s->dense, t) : ah_dense_open(&s->dense, t));
        ah_contiguous_strides(t->size, t->ndim, stride);
    }
    s->data = s->dense.data ? s->dense.data : ah_tensor_data(t);
    for (int d = 0; d + 2 < t->ndim; d++) {
        s->batch_size[d] = t->size[d];
        s->batch_stride[d] = stride[d];
        s->batch_dims = d + 1;
    }
    return 0;
}

/* Fold the batch of the left side into its rows, when its memory allows. */
static bool fold_batch(struct side *a)
{
    if (a->transposed || (a->rows <= 1 && a->batch_dims == 0))
        return false;
    int64_t expected = a->rows * a->ld;
    int64_t count = a->rows;
    for (int d = a->batch_dims - 1; d >= 0; d--) {
        if (a->batch_size[d] != 1 && a->batch_stride[d] != expected)
            return false;
        expected *= a->batch_size[d];
        count *= a->batch_size[d];
    }
    a->rows = count;
    a->batch_dims = 0;
    return true;
}

/* A bfloat16 product with a vector, which oneDNN would pack first. */
static bool multiply_vector_bf16(const struct side *a, const struct side *b, const char *at_a, const char *at_b,
                                 void *out)
{
    if (b->cols != 1 || b->transposed || b->ld != 1 || a->transposed)
        return false;
    ah_gemv_bf16(&(struct ah_gemv){.m = 1, .n = a->rows, .k = a->cols, .x = at_b, .w = at_a, .y = out, .ldw = a->ld});
    return true;
}

/* 1 done, 0 declined (by oneDNN, of a bfloat16 product), negative for an error; so do all that call it. `wide`: the
 * result of a bfloat16 product is float32. */
static int matmul_multiply(enum ah_dtype dtype, bool wide, const struct side *a, const struct side *b,
                           const char *at_a, const char *at_b, void *out)
{
    int64_t m = a->rows, n = b->cols, k = a->cols;
    if (wide)
        return ah_gemm_bf16_wide(a->transposed, b->transposed, m, n, k, (const uint16_t *)(const void *)at_a, a->ld,
                                 (const uint16_t *)(const void *)at_b, b->ld, out, n);
    if (dtype == AH_BF16 && multiply_vector_bf16(a, b, at_a, at_b, out))
        return 1;
    if (dtype == AH_BF16) {
        return ah_gemm_bf16(a->transposed, b->transposed, m, n, k, (const uint16_t *)(const void *)at_a, a->ld,
                            (const uint16_t *)(const void *)at_b, b->ld, NULL, out, n);
    }
    if (dtype == AH_F32)
        AH_TRY(ah_gemm_f32(a->transposed, b->transposed, m, n, k, 1, (const float *)(const void *)at_a, a->ld,
                           (const float *)(const void *)at_b, b->ld, 0, out, n));
    else
        AH_TRY(ah_gemm_f64(a->transposed, b->transposed, m, n, k, 1, (const double *)(const void *)at_a, a->ld,
                           (const double *)(const void *)at_b, b->ld, 0, out, n));
    return 1;
}

/* Element offset of batch `index` of a side, given the result's batch sizes. */
static int64_t batch_offset(const struct side *s, int64_t index, const int64_t *size, int dims)
{
    int64_t at = 0;
    for (int d = dims - 1; d >= 0; d--) {
        int own = d - (dims - s->batch_dims);
        if (own >= 0 && s->batch_size[own] != 1)
            at += index % size[d] * s->batch_stride[own];
        index /= size[d];
    }
    return at;
}

/* The products of a batch. */
struct products {
    const struct side *a, *b;
    enum ah_dtype dtype;
    bool wide;
    char *out;
    int64_t matrix; /* bytes of one product */
    int64_t size[AH_MAX_DIMS];
    int dims;
    atomic_bool declined; /* a product was not done, without a failure */
    struct ah_failure failure;
};

static void multiply_range(void *context, int64_t begin, int64_t end)
{
    struct products *p = context;
    int64_t item = (int64_t)ah_dtype_size(p->dtype);
    for (int64_t i = begin; i < end; i++) {
        int64_t from_a = batch_offset(p->a, i, p->size, p->dims), from_b = batch_offset(p->b, i, p->size, p->dims);
        int status = matmul_multiply(p->dtype, p->wide, p->a, p->b, p->a->data + from_a * item,
                                     p->b->data + from_b * item, p->out + i * p->matrix);
        ah_failure_note(&p->failure, status);
        if (status == 0)
            atomic_store(&p->declined, true);
    }
}

/* The product of a whole call, as matmul_multiply. */
static int multiply_one(enum ah_dtype dtype, bool wide, const struct side *a, const struct side *b, void *out)
{
    if (dtype != AH_F32)
        return matmul_multiply(dtype, wide, a, b, a->data, b->data, out);
    AH_TRY(ah_gemm_bias_f32(a->transposed, b->transposed, a->rows, b->cols, a->cols,
                            (const float *)(const void *)a->data, a->ld, (const float *)(const void *)b->data, b->ld,
                            NULL, out, b->cols));
    return 1;
}

static int multiply_all(struct side *a, struct side *b, enum ah_dtype dtype, enum ah_dtype result, void *out)
{
    bool wide = dtype != result;
    if (b->batch_dims == 0 && (a->batch_dims == 0 || fold_batch(a)))
        return multiply_one(dtype, wide, a, b, out);
    struct products p = {.a = a, .b = b, .dtype = dtype, .wide = wide, .out = out};
    int64_t batches = 1, matrix = a->rows * b->cols;
    p.matrix = matrix * (int64_t)ah_dtype_size(result);
    p.dims = a->batch_dims > b->batch_dims ? a->batch_dims : b->batch_dims;
    for (int d = 0; d < p.dims; d++) {
        int da = d - (p.dims - a->batch_dims), db = d - (p.dims - b->batch_dims);
        int64_t sa = da < 0 ? 1 : a->batch_size[da], sb = db < 0 ? 1 : b->batch_size[db];
        p.size[d] = sa == 1 ? sb : sa;
        batches *= p.size[d];
    }
    double work = (double)matrix * (double)a->cols * (double)batches;
    /* Whole products are divided among the threads when there are enough of them, else each product is. Primitives, as
     * bfloat16 has them, are made by the Lua thread alone. */
    bool spread = dtype != AH_BF16 && batches >= ah_num_threads() && work > 1e5;
    ah_parallel_for(batches, spread ? 1 : batches, multiply_range, &p);
    AH_TRY(ah_failure_result(&p.failure));
    return p.declined ? 0 : 1;
}

/* Integers: exact, and rare. Sums of a tile stay in registers; those of a product with a vector are of rows. */
enum { INT_ROWS = 4, INT_COLUMNS = 32 };

#define INT_PRODUCT(name, type)                                                                              \
    static inline void name##_tile(const type *a, const type *b, type *out, int64_t n, int64_t k,            \
                                   int64_t rows, int64_t columns)                                            \
    {                                                                                                        \
        type sum[INT_ROWS][INT_COLUMNS] = {{0}};                                                             \
        for (int64_t p = 0; p < k; p++)                                                                      \
            for (int64_t i = 0; i < rows; i++)                                                               \
                for (int64_t j = 0; j < columns; j++)                                                        \
                    sum[i][j] = (type)(sum[i][j] + a[i * k + p] * b[p * n + j]);                             \
        for (int64_t i = 0; i < rows; i++)                                                                   \
            memcpy(out + i * n, sum[i], (size_t)columns * sizeof *out);                                      \
    }                                                                                                        \
    static void name(const type *a, const type *b, type *out, int64_t m, int64_t n, int64_t k)               \
    {                                                                                                        \
        for (int64_t i = 0; n == 1 && i < m; i++) {                                                          \
            type sum = 0;                                                                                    \
            for (int64_t p = 0; p < k; p++)                                                                  \
                sum = (type)(sum + a[i * k + p] * b[p]);                                                     \
            out[i] = sum;                                                                                    \
        }                                                                                                    \
        for (int64_t j = 0; n > 1 && j < n; j += INT_COLUMNS)                                                \
            for (int64_t i = 0; i < m; i += INT_ROWS) {                                                      \
                if (i + INT_ROWS <= m && j + INT_COLUMNS <= n)                                               \
                    name##_tile(a + i * k, b + j, out + i * n + j, n, k, INT_ROWS, INT_COLUMNS);             \
                else                                                                                         \
                    name##_tile(a + i * k, b + j, out + i * n + j, n, k, m - i < INT_ROWS ? m - i : INT_ROWS, \
                                n - j < INT_COLUMNS ? n - j : INT_COLUMNS);                                  \
            }                                                                                                \
    }
INT_PRODUCT(product_u8, uint8_t)
INT_PRODUCT(product_u32, uint32_t)
INT_PRODUCT(product_u64, uint64_t)

static int multiply_ints(struct ah_call *c)
{
    const struct ah_args_matmul *arg = ah_args(c, matmul);
    struct ah_tensor *ta = arg->input.tensor, *tb = arg->other.tensor, *out = c->out[0];
    AH_CLEANUP(ah_dense_close) struct ah_dense a = {0}, b = {0};
    AH_TRY(ah_dense_open(&a, ta));
    AH_TRY(ah_dense_open(&b, tb));
    int64_t k = ta->size[ta->ndim - 1], m = ta->ndim > 1 ? ta->size[ta->ndim - 2] : 1;
    int64_t n = tb->ndim > 1 ? tb->size[tb->ndim - 1] : 1;
    struct side sa = {0}, sb = {0};
    int64_t size[AH_MAX_DIMS], batches = m * n > 0 ? out->numel / (m * n) : 0, stride[AH_MAX_DIMS];
    struct { struct side *side; const struct ah_tensor *t; } both[] = {{&sa, ta}, {&sb, tb}};
    for (int s = 0; s < 2; s++) {
        ah_contiguous_strides(both[s].t->size, both[s].t->ndim, stride);
        for (int d = 0; d + 2 < both[s].t->ndim; d++) {
            both[s].side->batch_size[d] = both[s].t->size[d];
            both[s].side->batch_stride[d] = stride[d];
            both[s].side->batch_dims = d + 1;
        }
    }
    int dims = sa.batch_dims > sb.batch_dims ? sa.batch_dims : sb.batch_dims;
    for (int d = 0; d < dims; d++)
        size[d] = out->size[d];
    for (int64_t i = 0; i < batches; i++) {
        int64_t at_a = batch_offset(&sa, i, size, dims), at_b = batch_offset(&sb, i, size, dims), at = i * m * n;
        if (out->dtype == AH_U8)
            product_u8((const uint8_t *)a.data + at_a, (const uint8_t *)b.data + at_b,
                       (uint8_t *)ah_tensor_data(out) + at, m, n, k);
        else if (out->dtype == AH_I32)
            product_u32((const uint32_t *)a.data + at_a, (const uint32_t *)b.data + at_b,
                        (uint32_t *)ah_tensor_data(out) + at, m, n, k);
        else
            product_u64((const uint64_t *)a.data + at_a, (const uint64_t *)b.data + at_b,
                        (uint64_t *)ah_tensor_data(out) + at, m, n, k);
    }
    return 0;
}

/* A product over no terms: zeros, or the bias in every row. */
static int no_depth(struct ah_tensor *out, struct ah_tensor *bias)
{
    size_t item = ah_dtype_size(out->dtype);
    memset(ah_tensor_data(out), 0, (size_t)out->numel * item);
    for (int64_t i = 0; bias && i < out->numel; i++)
        ah_tensor_set(out, i, ah_tensor_get(bias, i % bias->numel));
    return 0;
}

int ah_cpu_matmul(struct ah_call *c)
{
    const struct ah_args_matmul *arg = ah_args(c, matmul);
    if (c->out[0]->numel == 0)
        return 0;
    if (arg->input.tensor->numel == 0)
        return no_depth(c->out[0], NULL);
    if (!ah_dtype_is_float(c->out[0]->dtype))
        return multiply_ints(c);
    struct side a = {0}, b = {0};
    struct ah_dense_out out = {0};
    int status;
    if (arg->input.tensor->dtype == AH_BF16 && ah_gemm_pays_bf16()) {
        status = side_open(&a, arg->input.tensor, false, true);
        if (status == 0)
            status = side_open(&b, arg->other.tensor, true, true);
        if (status == 0)
            status = multiply_all(&a, &b, AH_BF16, c->out[0]->dtype, ah_tensor_data(c->out[0]));
        ah_dense_close(&a.dense);
        ah_dense_close(&b.dense);
        if (status != 0)
            return status < 0 ? status : 0;
    }
    AH_TRYGO(side_open(&a, arg->input.tensor, false, false), out);
    AH_TRYGO(side_open(&b, arg->other.tensor, true, false), out);
    AH_TRYGO(ah_dense_out_open(&out, c->out[0]), out);
    enum ah_dtype compute = ah_compute_dtype(c->out[0]->dtype);
    status = multiply_all(&a, &b, compute, compute, out.data);
    status = status < 0 ? status : 0;
out:
    ah_dense_out_close(&out);
    ah_dense_close(&a.dense);
    ah_dense_close(&b.dense);
    return status;
}

AH_CPU_OP(matmul_wide, ah_cpu_matmul(c))

/* x as one matrix of rows, packed where its rows do not follow each other; with `dense`, also where their items do
 * not. */
static int rows_open(struct side *a, struct ah_tensor *x, bool half, bool dense)
{
    AH_TRY(side_open(a, x, false, half));
    if ((a->batch_dims == 0 || fold_batch(a)) && !(dense && a->transposed))
        return 0;
    ah_dense_close(&a->dense);
    AH_TRY(half ? ah_dense_open_as_is(&a->dense, x) : ah_dense_open(&a->dense, x));
    a->data = a->dense.data;
    a->rows = x->numel / a->cols;
    a->transposed = false;
    a->ld = a->cols;
    return 0;
}

/* bfloat16 rows times a float32 matrix, or its transpose with `turned`, plus a bias where there is one. */
static int multiply_rounded(struct ah_call *c, struct ah_tensor *x, struct ah_tensor *w, bool turned,
                            struct ah_tensor *bias)
{
    struct side a = {0}, b = {0};
    struct ah_dense added = {0};
    int status;
    AH_TRYGO(rows_open(&a, x, true, true), out);
    AH_TRYGO(side_open(&b, w, false, true), out);
    AH_TRYGO(ah_dense_open_as_is(&added, bias), out);
    status = ah_gemm_rounded(b.transposed != turned, a.rows, turned ? b.rows : b.cols, a.cols,
                             (const uint16_t *)(const void *)a.data, a.ld, (const float *)(const void *)b.data, b.ld,
                             added.data, ah_tensor_data(c->out[0]), turned ? b.rows : b.cols);
out:
    ah_dense_close(&added);
    ah_dense_close(&b.dense);
    ah_dense_close(&a.dense);
    return status;
}

int ah_cpu_matmul_rounded(struct ah_call *c)
{
    const struct ah_args_matmul_rounded *arg = ah_args(c, matmul_rounded);
    if (c->out[0]->numel == 0)
        return 0;
    if (arg->input.tensor->numel == 0)
        return no_depth(c->out[0], NULL);
    return multiply_rounded(c, arg->input.tensor, arg->other.tensor, false, NULL);
}

/* 1 done, 0 declined. */
static int linear_half(struct ah_call *c)
{
    const struct ah_args_linear *arg = ah_args(c, linear);
    struct side a = {0}, b = {0};
    struct ah_dense bias = {0};
    int status;
    AH_TRYGO(rows_open(&a, arg->input.tensor, true, false), out);
    AH_TRYGO(side_open(&b, arg->weight.tensor, false, true), out);
    AH_TRYGO(ah_dense_open_as_is(&bias, arg->bias.tensor), out);
    status = ah_gemm_bf16(a.transposed, !b.transposed, a.rows, b.rows, a.cols, (const uint16_t *)(const void *)a.data,
                          a.ld, (const uint16_t *)(const void *)b.data, b.ld, bias.data, ah_tensor_data(c->out[0]),
                          b.rows);
out:
    ah_dense_close(&bias);
    ah_dense_close(&b.dense);
    ah_dense_close(&a.dense);
    return status;
}

int ah_cpu_linear(struct ah_call *c)
{
    const struct ah_args_linear *arg = ah_args(c, linear);
    struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor, *bias = arg->bias.tensor;
    struct side a = {0}, b = {0};
    struct ah_dense added = {0};
    struct ah_dense_out out = {0};
    int status = 0;
    if (c->out[0]->numel == 0)
        return 0;
    if (x->numel == 0)
        return no_depth(c->out[0], bias);
    if (ah_is_rounded(x, w))
        return multiply_rounded(c, x, w, true, bias);
    int64_t depth = x->size[x->ndim - 1];
    if (x->dtype == AH_BF16 && (ah_gemm_pays_bf16() || ah_gemv_pays(x->numel / depth, w->size[0], depth))) {
        status = linear_half(c);
        if (status != 0)
            return status < 0 ? status : 0;
    }
    AH_TRYGO(rows_open(&a, x, false, false), out);
    AH_TRYGO(side_open(&b, w, false, false), out);
    AH_TRYGO(ah_dense_open(&added, bias), out);
    AH_TRYGO(ah_dense_out_open(&out, c->out[0]), out);
    int64_t m = a.rows, n = b.rows, k = a.cols;
    if (ah_compute_dtype(x->dtype) == AH_F32) {
        const float *pa = (const float *)(const void *)a.data, *pb = (const float *)(const void *)b.data;
        status = ah_gemm_bias_f32(a.transposed, !b.transposed, m, n, k, pa, a.ld, pb, b.ld, bias ? added.data : NULL,
                                  out.data, n);
    } else {
        const double *pa = (const double *)(const void *)a.data, *pb = (const double *)(const void *)b.data;
        status = bias ? ah_gemm_bias_f64(a.transposed, !b.transposed, m, n, k, pa, a.ld, pb, b.ld, added.data,
                                         out.data, n)
                      : ah_gemm_f64(a.transposed, !b.transposed, m, n, k, 1, pa, a.ld, pb, b.ld, 0, out.data, n);
    }
out:
    ah_dense_out_close(&out);
    ah_dense_close(&added);
    ah_dense_close(&a.dense);
    ah_dense_close(&b.dense);
    return status;
}

int ah_cpu_column_sum(struct ah_call *c)
{
    struct ah_tensor *x = ah_args(c, column_sum)->input.tensor;
    struct ah_dense in = {0};
    struct ah_dense_out out = {0};
    int64_t cols = c->out[0]->numel, rows = cols ? x->numel / cols : 0;
    int status;
    AH_TRYGO(x->dtype == AH_BF16 ? ah_dense_open_as_is(&in, x) : ah_dense_open(&in, x), out);
    AH_TRYGO(ah_dense_out_open(&out, c->out[0]), out);
    if (x->dtype == AH_BF16)
        status = ah_column_sum_bf16(in.data, rows, cols, out.data);
    else
        status = ah_compute_dtype(x->dtype) == AH_F32 ? ah_column_sum_f32(in.data, rows, cols, out.data)
                                                    : ah_column_sum_f64(in.data, rows, cols, out.data);
out:
    ah_dense_out_close(&out);
    ah_dense_close(&in);
    return status;
}

AH_CPU_OP(gelu_linear, ah_gelu_linear_in_blocks(c))
AH_CPU_OP(gelu_linear_backward, ah_gelu_linear_backward_in_blocks(c))
AH_CPU_OP(gelu_linear_weight_backward, ah_gelu_linear_weight_backward_in_blocks(c))
AH_CPU_OP(linear_gelu, ah_linear_gelu_by_parts(c))
AH_CPU_OP(linear_of_gelu_backward, ah_linear_of_gelu_backward_by_parts(c))
AH_CPU_OP(linear_weight_backward, ah_linear_weight_backward_by_parts(c))
AH_CPU_OP(linear_weight_backward_into, ah_linear_weight_backward_into_by_parts(c))
