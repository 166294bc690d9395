/* LU, determinants, inverses and solvers on the device: LU by cuSOLVER, or for a batch of small matrices by cuBLAS,
 * then rows exchanged and two triangular solves by cuBLAS.
 *
 * Our row-major matrix is the transpose in the libraries' column-major order. So A x = B is read as x' A' = B', a solve
 * from the right: B and the triangles need no transposing, LU alone does, since its pivots are rows. */
#include "base/status/status.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/linear/linalg_routines.h"

/* Row-major n x k numbers b at `at` become those x of op(T) x = b. T: a triangle of n x n in column-major order. */
static void solve_triangle(struct ah_linalg_work *w, uint64_t triangle, uint64_t at, int64_t k, cublasFillMode_t uplo,
                           cublasDiagType_t diag, bool transposed)
{
    struct ah_linalg_triangle t = {.a = triangle, .b = at, .m = k, .n = w->n, .side = CUBLAS_SIDE_RIGHT, .uplo = uplo,
                                   .trans = transposed ? CUBLAS_OP_N : CUBLAS_OP_T, .diag = diag};
    ah_linalg_trsm(w, &t);
}

/* The column-major LU of arg 0, with pivots in `pivots`. */
static uint64_t factor(struct ah_linalg_work *w, uint64_t pivots, uint64_t info)
{
    uint64_t a = ah_linalg_input(w, w->call->arg[0].tensor), lu = ah_linalg_reals(w, w->m * w->n);
    ah_linalg_turn(w, lu, a, w->m, w->n);
    ah_linalg_getrf(w, lu, w->m, w->n, pivots, info);
    return lu;
}

int ah_cuda_solve_matrix_lu(struct ah_call *c)
{
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    uint64_t lu = factor(&w, ah_cuda_data(c->out[1]), ah_cuda_data(c->out[2]));
    ah_linalg_turn(&w, ah_cuda_data(c->out[0]), lu, w.n, w.m);
    return ah_linalg_close(&w);
}

/* P' b, or b as it is permuted by P. */
static void exchange(struct ah_linalg_work *w, uint64_t to, uint64_t from, uint64_t pivots, int64_t k, bool back)
{
    uint64_t rows = ah_linalg_longs(w, w->n);
    ah_linalg_permutation(w, rows, pivots, w->n, w->n);
    ah_linalg_rows(w, to, from, rows, w->n, k, back);
}

int ah_cuda_solve_matrix_lu_solve(struct ah_call *c)
{
    const struct ah_args_matrix_lu_solve *arg = ah_args(c, matrix_lu_solve);
    int64_t k = c->out[0]->size[c->out[0]->ndim - 1];
    uint64_t out = ah_cuda_data(c->out[0]);
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    /* Row-major factors are column-major ones of the transpose: U' below, L' above. */
    uint64_t lu = ah_linalg_input(&w, arg->lu.tensor), b = ah_linalg_input(&w, arg->other.tensor);
    uint64_t pivots = ah_linalg_input(&w, arg->pivots.tensor);
    if (arg->transposed.flag) {
        uint64_t x = ah_linalg_reals(&w, w.n * k);
        ah_linalg_move(&w, x, b, w.n * k);
        solve_triangle(&w, lu, x, k, CUBLAS_FILL_MODE_LOWER, CUBLAS_DIAG_NON_UNIT, false);
        solve_triangle(&w, lu, x, k, CUBLAS_FILL_MODE_UPPER, CUBLAS_DIAG_UNIT, false);
        exchange(&w, out, x, pivots, k, true);
    } else {
        exchange(&w, out, b, pivots, k, false);
        solve_triangle(&w, lu, out, k, CUBLAS_FILL_MODE_UPPER, CUBLAS_DIAG_UNIT, true);
        solve_triangle(&w, lu, out, k, CUBLAS_FILL_MODE_LOWER, CUBLAS_DIAG_NON_UNIT, true);
    }
    return ah_linalg_close(&w);
}

/* out[0] = A^-1 b, or the inverse without b; nan where the info in out[1] is not 0. */
static int solve_by_lu(struct ah_call *c, struct ah_tensor *b)
{
    int64_t k = c->out[0]->size[c->out[0]->ndim - 1];
    uint64_t out = ah_cuda_data(c->out[0]), info = ah_cuda_data(c->out[1]);
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    uint64_t pivots = ah_linalg_ints(&w, w.n), lu = factor(&w, pivots, info);
    exchange(&w, out, b ? ah_linalg_input(&w, b) : 0, pivots, k, false);
    solve_triangle(&w, lu, out, k, CUBLAS_FILL_MODE_LOWER, CUBLAS_DIAG_UNIT, false);
    solve_triangle(&w, lu, out, k, CUBLAS_FILL_MODE_UPPER, CUBLAS_DIAG_NON_UNIT, false);
    ah_linalg_spoil(&w, out, w.n * k, info, 0);
    return ah_linalg_close(&w);
}

AH_CUDA_OP(solve_matrix_solve, solve_by_lu(c, ah_args(c, matrix_solve)->other.tensor))
AH_CUDA_OP(solve_matrix_inverse, solve_by_lu(c, NULL))

int ah_cuda_solve_matrix_triangular_solve(struct ah_call *c)
{
    const struct ah_args_matrix_triangular_solve *arg = ah_args(c, matrix_triangular_solve);
    struct ah_tensor *b = arg->other.tensor;
    bool left = arg->left.flag;
    int64_t k = b->size[b->ndim - (left ? 1 : 2)];
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    struct ah_linalg_triangle t = {.b = ah_cuda_data(c->out[0]), .m = left ? k : w.n, .n = left ? w.n : k,
                                   .side = left ? CUBLAS_SIDE_RIGHT : CUBLAS_SIDE_LEFT,
                                   .uplo = arg->upper.flag ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER,
                                   .trans = CUBLAS_OP_N,
                                   .diag = arg->unitriangular.flag ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT};
    t.a = ah_linalg_input(&w, arg->input.tensor);
    ah_linalg_move(&w, t.b, ah_linalg_input(&w, b), w.n * k);
    ah_linalg_trsm(&w, &t);
    return ah_linalg_close(&w);
}

/* Determinants, from the factors and pivots that are the last two outputs. */
static int det_by_lu(struct ah_call *c, bool logarithm)
{
    static struct ah_cuda_kernel kernels[AH_DTYPE_COUNT] = {
        [AH_F32] = AH_CUDA_KERNEL("linalg", "linalg_det_f32"), [AH_F64] = AH_CUDA_KERNEL("linalg", "linalg_det_f64")};
    uint64_t factors = ah_cuda_data(c->out[logarithm ? 2 : 1]), pivots = ah_cuda_data(c->out[logarithm ? 3 : 2]);
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    uint64_t lu = factor(&w, pivots, ah_linalg_ints(&w, 1));
    ah_linalg_turn(&w, factors, lu, w.n, w.n);
    struct ah_linalg_det_args args = {factors, pivots, ah_cuda_data(c->out[0]),
                                      logarithm ? ah_cuda_data(c->out[1]) : 0, w.batch, w.n};
    ah_linalg_launch(&w, kernels, ah_cuda_grid_for(w.batch, AH_LINALG_THREADS), &args, sizeof args);
    return ah_linalg_close(&w);
}

AH_CUDA_OP(solve_matrix_det, det_by_lu(c, false))
AH_CUDA_OP(solve_matrix_slogdet, det_by_lu(c, true))

int ah_cuda_matrix_permutation(struct ah_call *c)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("linalg", "linalg_permutation");
    const struct ah_args_matrix_permutation *arg = ah_args(c, matrix_permutation);
    struct ah_tensor *pivots = arg->pivots.tensor;
    AH_OWNED struct ah_tensor *dense = NULL;
    int64_t n = arg->n.integer;
    if (c->out[0]->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &dense, pivots, AH_I32));
    struct ah_linalg_permutation_args args = {ah_cuda_data(c->out[0]), ah_cuda_data(dense), c->out[0]->numel / n, n,
                                              pivots->size[pivots->ndim - 1]};
    return ah_cuda_launch(c->device, &kernel, c->op->name, ah_cuda_grid_for(args.batch, AH_LINALG_THREADS), &args);
}
