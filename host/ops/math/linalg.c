/* Shapes of decompositions and solvers. accelhost.linalg checks arguments under its public names and lines up batches;
 * only preconditions of kernels are checked here. */
#include <string.h>

#include "ops/dispatch/op.h"
#include "ops/dispatch/rows.h"

/* A matrix dim is at most LAPACK's int, with room for products of small factors. */
enum { MOST = 1 << 30 };

static int expect_matrices(const struct ah_call *c, int arg, bool square)
{
    const struct ah_tensor *t = c->arg[arg].tensor;
    const char *name = c->op->param[arg].name;
    if (t->dtype != AH_F32 && t->dtype != AH_F64) {
        return ah_fail(AH_EINVAL, "%s: %s: expected float32 or float64, got %s", c->op->name, name,
                       ah_dtype_name(t->dtype));
    }
    if (t->ndim < 2 || (square && t->size[t->ndim - 1] != t->size[t->ndim - 2])) {
        return ah_fail(AH_EINVAL, "%s: %s: expected %smatrices (..., %s), got %s", c->op->name, name,
                       square ? "square " : "", square ? "n, n" : "m, n", ah_shape(t));
    }
    if (t->size[t->ndim - 1] > MOST || t->size[t->ndim - 2] > MOST)
        return ah_fail(AH_EINVAL, "%s: %s: matrices of %s are too large", c->op->name, name, ah_shape(t));
    return 0;
}

/* `other` has the dtype and the batch of `input`, and `rows` rows. */
static int expect_fitting(const struct ah_call *c, int arg, int rows_dim, int64_t rows)
{
    const struct ah_tensor *a = c->arg[0].tensor, *b = c->arg[arg].tensor;
    AH_TRY(expect_matrices(c, arg, false));
    if (b->dtype != a->dtype) {
        return ah_fail(AH_EINVAL, "%s: dtypes differ: %s and %s", c->op->name, ah_dtype_name(a->dtype),
                       ah_dtype_name(b->dtype));
    }
    if (b->ndim != a->ndim || memcmp(a->size, b->size, (size_t)(a->ndim - 2) * sizeof *a->size) ||
        b->size[b->ndim + rows_dim] != rows) {
        return ah_fail(AH_EINVAL, "%s: %s %s does not fit %s", c->op->name, c->op->param[arg].name, ah_shape(b),
                       ah_shape(a));
    }
    return 0;
}

/* An output over the batch of arg 0 with up to two more dims (-1: none). */
static int linalg_output(struct ah_call *c, int index, int64_t rows, int64_t columns, enum ah_dtype dtype)
{
    const struct ah_tensor *a = c->arg[0].tensor;
    int64_t size[AH_MAX_DIMS];
    int ndim = a->ndim - 2;
    memcpy(size, a->size, sizeof size);
    if (rows >= 0)
        size[ndim++] = rows;
    if (columns >= 0)
        size[ndim++] = columns;
    return ah_call_output(c, index, size, ndim, dtype);
}

static int64_t rows_of(const struct ah_call *c)
{
    return c->arg[0].tensor->size[c->arg[0].tensor->ndim - 2];
}

static int64_t columns_of(const struct ah_call *c)
{
    return c->arg[0].tensor->size[c->arg[0].tensor->ndim - 1];
}

static int64_t linalg_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int ah_forward_matrix_lu(struct ah_call *c)
{
    AH_TRY(expect_matrices(c, 0, false));
    int64_t m = rows_of(c), n = columns_of(c);
    AH_TRY(linalg_output(c, 0, m, n, c->arg[0].tensor->dtype));
    AH_TRY(linalg_output(c, 1, linalg_least(m, n), -1, AH_I32));
    AH_TRY(linalg_output(c, 2, -1, -1, AH_I32));
    return ah_call_kernel(c);
}

static int expect_pivots(const struct ah_call *c, const struct ah_tensor *pivots, int64_t n)
{
    if (pivots->dtype != AH_I32 || pivots->ndim < 1)
        return ah_fail(AH_EINVAL, "%s: pivots: expected int32 (..., n), got %s %s", c->op->name,
                       ah_dtype_name(pivots->dtype), ah_shape(pivots));
    struct ah_tensor *near = NULL;
    AH_TRY(ah_host_copy(&near, (struct ah_tensor *)pivots));
    int64_t bad = -1;
    for (int64_t i = 0; i < near->numel && bad < 0; i++) {
        int64_t at = ah_tensor_get_int(near, i);
        bad = at < 1 || at > n ? at : -1;
    }
    ah_tensor_release(near);
    if (bad >= 0)
        return ah_fail(AH_EINVAL, "%s: pivots: expected row numbers from 1 to %lld", c->op->name, (long long)n);
    return 0;
}

int ah_forward_matrix_lu_solve(struct ah_call *c)
{
    const struct ah_args_matrix_lu_solve *arg = ah_args(c, matrix_lu_solve);
    const struct ah_tensor *lu = arg->lu.tensor, *pivots = arg->pivots.tensor;
    AH_TRY(expect_matrices(c, 0, true));
    int64_t n = columns_of(c);
    AH_TRY(expect_fitting(c, 2, -2, n));
    AH_TRY(expect_pivots(c, pivots, n));
    if (pivots->ndim != lu->ndim - 1 || memcmp(pivots->size, lu->size, (size_t)pivots->ndim * sizeof *lu->size))
        return ah_fail(AH_EINVAL, "%s: pivots %s do not fit LU %s", c->op->name, ah_shape(pivots), ah_shape(lu));
    AH_TRY(linalg_output(c, 0, n, arg->other.tensor->size[lu->ndim - 1], lu->dtype));
    return ah_call_kernel(c);
}

/* Row i of P^T A is row out[i] of A. */
int ah_forward_matrix_permutation(struct ah_call *c)
{
    const struct ah_args_matrix_permutation *arg = ah_args(c, matrix_permutation);
    const struct ah_tensor *pivots = arg->pivots.tensor;
    int64_t size[AH_MAX_DIMS], n = arg->n.integer;
    AH_TRY(expect_pivots(c, pivots, n));
    if (pivots->size[pivots->ndim - 1] > n)
        return ah_fail(AH_EINVAL, "%s: pivots %s are more than %lld rows", c->op->name, ah_shape(pivots), (long long)n);
    memcpy(size, pivots->size, sizeof size);
    size[pivots->ndim - 1] = n;
    return ah_call_single(c, size, pivots->ndim, AH_I64);
}

int ah_forward_matrix_solve(struct ah_call *c)
{
    const struct ah_args_matrix_solve *arg = ah_args(c, matrix_solve);
    AH_TRY(expect_matrices(c, 0, true));
    AH_TRY(expect_fitting(c, 1, -2, rows_of(c)));
    const struct ah_tensor *b = arg->other.tensor;
    AH_TRY(ah_call_output(c, 0, b->size, b->ndim, b->dtype));
    AH_TRY(linalg_output(c, 1, -1, -1, AH_I32));
    return ah_call_kernel(c);
}

int ah_forward_matrix_triangular_solve(struct ah_call *c)
{
    const struct ah_args_matrix_triangular_solve *arg = ah_args(c, matrix_triangular_solve);
    AH_TRY(expect_matrices(c, 0, true));
    AH_TRY(expect_fitting(c, 1, arg->left.flag ? -2 : -1, rows_of(c)));
    const struct ah_tensor *b = arg->other.tensor;
    return ah_call_single(c, b->size, b->ndim, b->dtype);
}

int ah_forward_matrix_inverse(struct ah_call *c)
{
    AH_TRY(expect_matrices(c, 0, true));
    AH_TRY(linalg_output(c, 0, rows_of(c), rows_of(c), c->arg[0].tensor->dtype));
    AH_TRY(linalg_output(c, 1, -1, -1, AH_I32));
    return ah_call_kernel(c);
}

/* The determinant, then the factors that its gradient is made of. */
int ah_forward_matrix_det(struct ah_call *c)
{
    AH_TRY(expect_matrices(c, 0, true));
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    AH_TRY(linalg_output(c, 0, -1, -1, dtype));
    AH_TRY(linalg_output(c, 1, rows_of(c), rows_of(c), dtype));
    AH_TRY(linalg_output(c, 2, rows_of(c), -1, AH_I32));
    return ah_call_kernel(c);
}

/* Sign, log |det|, then the factors. */
int ah_forward_matrix_slogdet(struct ah_call *c)
{
    AH_TRY(expect_matrices(c, 0, true));
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    AH_TRY(linalg_output(c, 0, -1, -1, dtype));
    AH_TRY(linalg_output(c, 1, -1, -1, dtype));
    AH_TRY(linalg_output(c, 2, rows_of(c), rows_of(c), dtype));
    AH_TRY(linalg_output(c, 3, rows_of(c), -1, AH_I32));
    return ah_call_kernel(c);
}

int ah_forward_matrix_cholesky(struct ah_call *c)
{
    AH_TRY(expect_matrices(c, 0, true));
    AH_TRY(linalg_output(c, 0, rows_of(c), rows_of(c), c->arg[0].tensor->dtype));
    AH_TRY(linalg_output(c, 1, -1, -1, AH_I32));
    return ah_call_kernel(c);
}

/* Modes: reduced, complete, r (an empty Q). */
int ah_forward_matrix_qr(struct ah_call *c)
{
    AH_TRY(expect_matrices(c, 0, false));
    const char *mode = ah_args(c, matrix_qr)->mode.string;
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    int64_t m = rows_of(c), n = columns_of(c), k = strcmp(mode, "complete") ? linalg_least(m, n) : m;
    AH_TRY(linalg_output(c, 0, strcmp(mode, "r") ? m : 0, strcmp(mode, "r") ? k : 0, dtype));
    AH_TRY(linalg_output(c, 1, k, n, dtype));
    return ah_call_kernel(c);
}

/* U, S, V^T; without vectors U and V^T are empty. */
int ah_forward_matrix_svd(struct ah_call *c)
{
    const struct ah_args_matrix_svd *arg = ah_args(c, matrix_svd);
    AH_TRY(expect_matrices(c, 0, false));
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    int64_t m = rows_of(c), n = columns_of(c), k = linalg_least(m, n);
    bool full = arg->full_matrices.flag, vectors = arg->vectors.flag;
    AH_TRY(linalg_output(c, 0, vectors ? m : 0, !vectors ? 0 : full ? m : k, dtype));
    AH_TRY(linalg_output(c, 1, k, -1, dtype));
    AH_TRY(linalg_output(c, 2, !vectors ? 0 : full ? n : k, vectors ? n : 0, dtype));
    AH_TRY(linalg_output(c, 3, -1, -1, AH_I32));
    return ah_call_kernel(c);
}

/* Eigenvalues in ascending order, eigenvectors as columns (empty without vectors). */
int ah_forward_matrix_eigh(struct ah_call *c)
{
    AH_TRY(expect_matrices(c, 0, true));
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    int64_t n = rows_of(c), columns = ah_args(c, matrix_eigh)->vectors.flag ? n : 0;
    AH_TRY(linalg_output(c, 0, n, -1, dtype));
    AH_TRY(linalg_output(c, 1, columns, columns, dtype));
    AH_TRY(linalg_output(c, 2, -1, -1, AH_I32));
    return ah_call_kernel(c);
}

/* max(m, n) rows: the solution in the first n, below them the residuals (gels, gelsd and gelss, full rank); then rank,
 * singular values, info. */
int ah_forward_matrix_lstsq(struct ah_call *c)
{
    const struct ah_args_matrix_lstsq *arg = ah_args(c, matrix_lstsq);
    const struct ah_tensor *a = arg->input.tensor, *b = arg->other.tensor;
    AH_TRY(expect_matrices(c, 0, false));
    int64_t m = rows_of(c), n = columns_of(c);
    AH_TRY(expect_fitting(c, 1, -2, m));
    AH_TRY(linalg_output(c, 0, m > n ? m : n, b->size[b->ndim - 1], a->dtype));
    AH_TRY(linalg_output(c, 1, -1, -1, AH_I64));
    AH_TRY(linalg_output(c, 2, linalg_least(m, n), -1, a->dtype));
    AH_TRY(linalg_output(c, 3, -1, -1, AH_I32));
    return ah_call_kernel(c);
}
