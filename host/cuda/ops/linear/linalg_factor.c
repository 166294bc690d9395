/* Decompositions by cuSOLVER: cholesky, qr, svd, eigh, and least squares by singular values.
 *
 * Our row-major matrix is the transpose in the library's column-major order: a lower triangle is an upper one there,
 * and of a matrix wider than high the transpose is decomposed, which swaps U and V. */
#include <string.h>

#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/linear/linalg_routines.h"
#include "cuda/vendor/matmul.h"

static cublasFillMode_t column_major(bool upper)
{
    return upper ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
}

int ah_cuda_solve_matrix_cholesky(struct ah_call *c)
{
    const struct ah_args_matrix_cholesky *arg = ah_args(c, matrix_cholesky);
    uint64_t out = ah_cuda_data(c->out[0]), info = ah_cuda_data(c->out[1]);
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    int64_t n = w.n;
    ah_linalg_move(&w, out, ah_linalg_input(&w, arg->input.tensor), n * n);
    ah_linalg_potrf(&w, out, n, column_major(arg->upper.flag), info);
    struct ah_linalg_copy_args clear = {.to = out, .from = out, .rows = n, .columns = n, .to_step = {n * n, n, 1},
                                        .from_step = {n * n, n, 1},
                                        .part = arg->upper.flag ? AH_LINALG_UPPER : AH_LINALG_LOWER};
    ah_linalg_copy(&w, &clear);
    ah_linalg_spoil(&w, out, n * n, info, 0);
    return ah_linalg_close(&w);
}

int ah_cuda_solve_matrix_qr(struct ah_call *c)
{
    const struct ah_args_matrix_qr *arg = ah_args(c, matrix_qr);
    struct ah_tensor *r = c->out[1];
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    int64_t m = w.m, n = w.n, k = r->size[r->ndim - 2], reflectors = m < n ? m : n, wide = n > k ? n : k;
    uint64_t a = ah_linalg_reals(&w, m * wide), tau = ah_linalg_reals(&w, reflectors);
    struct ah_linalg_copy_args args = {.to = a, .from = ah_linalg_input(&w, arg->input.tensor), .rows = m,
                                       .columns = n, .to_step = {m * wide, 1, m}, .from_step = {m * n, n, 1}};
    ah_linalg_copy(&w, &args);
    ah_linalg_geqrf(&w, a, m, n, wide, tau);
    args = (struct ah_linalg_copy_args){.to = ah_cuda_data(r), .from = a, .rows = k, .columns = n,
                                        .to_step = {k * n, n, 1}, .from_step = {m * wide, 1, m},
                                        .part = AH_LINALG_UPPER};
    ah_linalg_copy(&w, &args);
    if (!strcmp(arg->mode.string, "r"))
        return ah_linalg_close(&w);
    ah_linalg_orgqr(&w, a, m, k, reflectors, wide, tau);
    args = (struct ah_linalg_copy_args){.to = ah_cuda_data(c->out[0]), .from = a, .rows = m, .columns = k,
                                        .to_step = {m * k, k, 1}, .from_step = {m * wide, 1, m}};
    ah_linalg_copy(&w, &args);
    return ah_linalg_close(&w);
}

/* The singular values of arg 0, of which matrices with a number that is not finite count as 0. `high` >= `low` are the
 * sizes of the column-major matrix that is decomposed: arg 0, or its transpose where it is wide. */
struct values {
    bool wide;
    int64_t high, low;
    uint64_t flags;
};

static void decompose(struct ah_linalg_work *w, struct values *v, int job, uint64_t s, uint64_t u, uint64_t vt,
                      uint64_t info, int code)
{
    int64_t count = w->m * w->n;
    uint64_t a = ah_linalg_reals(w, count), from = ah_linalg_input(w, w->call->arg[0].tensor);
    v->flags = ah_linalg_ints(w, 1);
    if (v->wide)
        ah_linalg_move(w, a, from, count);
    else
        ah_linalg_turn(w, a, from, w->m, w->n);
    ah_linalg_screen(w, a, count, v->flags, code, false);
    ah_linalg_gesvd(w, job, a, v->high, v->low, s, u, vt, info);
}

static struct values values_of(const struct ah_linalg_work *w)
{
    bool wide = w->m < w->n;
    return (struct values){.wide = wide, .high = wide ? w->n : w->m, .low = wide ? w->m : w->n};
}

int ah_cuda_solve_matrix_svd(struct ah_call *c)
{
    const struct ah_args_matrix_svd *arg = ah_args(c, matrix_svd);
    uint64_t u_out = ah_cuda_data(c->out[0]), s = ah_cuda_data(c->out[1]), vt_out = ah_cuda_data(c->out[2]);
    uint64_t info = ah_cuda_data(c->out[3]);
    int job = !arg->vectors.flag ? 'N' : arg->full_matrices.flag ? 'A' : 'S';
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    struct values v = values_of(&w);
    int64_t columns = job == 'A' ? v.high : v.low;
    if (job == 'N') {
        decompose(&w, &v, job, s, 0, 0, info, -4);
    } else if (v.wide) {
        /* A' = U S V': of A they are V S U', and row-major. */
        decompose(&w, &v, job, s, vt_out, u_out, info, -4);
    } else {
        uint64_t u = ah_linalg_reals(&w, v.high * columns), vt = ah_linalg_reals(&w, v.low * v.low);
        decompose(&w, &v, job, s, u, vt, info, -4);
        ah_linalg_turn(&w, u_out, u, columns, v.high);
        ah_linalg_turn(&w, vt_out, vt, v.low, v.low);
    }
    ah_linalg_spoil(&w, s, v.low, info, v.flags);
    return ah_linalg_close(&w);
}

int ah_cuda_solve_matrix_eigh(struct ah_call *c)
{
    const struct ah_args_matrix_eigh *arg = ah_args(c, matrix_eigh);
    uint64_t values = ah_cuda_data(c->out[0]), info = ah_cuda_data(c->out[2]);
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    int64_t n = w.n;
    uint64_t a = ah_linalg_reals(&w, n * n), flags = ah_linalg_ints(&w, 1);
    ah_linalg_move(&w, a, ah_linalg_input(&w, arg->input.tensor), n * n);
    ah_linalg_screen(&w, a, n * n, flags, -5, false);
    ah_linalg_syevd(&w, a, n, column_major(arg->upper.flag), arg->vectors.flag, values, info);
    if (arg->vectors.flag)
        ah_linalg_turn(&w, ah_cuda_data(c->out[1]), a, n, n);
    ah_linalg_spoil(&w, values, n, info, flags);
    return ah_linalg_close(&w);
}

/* out = left right, of `rows` x `depth` and `depth` x k. */
static void multiply(struct ah_linalg_work *w, struct ah_cuda_matrix left, uint64_t right, struct ah_cuda_matrix out,
                     int64_t rows, int64_t depth, int64_t k)
{
    struct ah_cuda_matmul product = {.dtype = w->dtype, .rows = rows, .columns = k, .depth = depth, .batch = w->batch,
                                     .a = left, .b = {right, false, k, depth * k}, .out = out};
    if (w->status == 0)
        w->status = ah_cuda_multiply(w->call->device, w->call->op->name, &product);
}

/* Of the solution x in `high` rows: those below are the norm of the residual, then 0, so that the sum of their squares
 * is LAPACK's. */
static void leave_residual(struct ah_linalg_work *w, uint64_t a, uint64_t b, uint64_t x, int64_t k)
{
    static struct ah_cuda_kernel kernels[AH_DTYPE_COUNT] = {
        [AH_F32] = AH_CUDA_KERNEL("linalg", "linalg_residual_f32"),
        [AH_F64] = AH_CUDA_KERNEL("linalg", "linalg_residual_f64")};
    int64_t m = w->m, n = w->n;
    uint64_t product = ah_linalg_reals(w, m * k), solution = ah_linalg_reals(w, n * k);
    struct ah_linalg_copy_args args = {.to = solution, .from = x, .rows = n, .columns = k, .to_step = {n * k, k, 1},
                                       .from_step = {m * k, k, 1}};
    ah_linalg_copy(w, &args);
    multiply(w, (struct ah_cuda_matrix){a, false, n, m * n}, solution,
             (struct ah_cuda_matrix){product, false, k, m * k}, m, n, k);
    struct ah_linalg_residual_args residual = {x, b, product, w->batch, m, n, k};
    ah_linalg_launch(w, kernels, ah_cuda_grid_for(w->batch * k, AH_LINALG_THREADS), &residual, sizeof residual);
}

static void divide(struct ah_linalg_work *w, const struct ah_linalg_divide_args *args)
{
    static struct ah_cuda_kernel kernels[AH_DTYPE_COUNT] = {
        [AH_F32] = AH_CUDA_KERNEL("linalg", "linalg_divide_f32"),
        [AH_F64] = AH_CUDA_KERNEL("linalg", "linalg_divide_f64")};
    ah_linalg_launch(w, kernels, ah_cuda_grid_each(w->batch, AH_LINALG_THREADS), args, sizeof *args);
}

/* x = V S^-1 U' b, for each driver. */
int ah_cuda_solve_matrix_lstsq(struct ah_call *c)
{
    const struct ah_args_matrix_lstsq *arg = ah_args(c, matrix_lstsq);
    struct ah_tensor *other = arg->other.tensor;
    uint64_t x = ah_cuda_data(c->out[0]), s = ah_cuda_data(c->out[2]), info = ah_cuda_data(c->out[3]);
    struct ah_linalg_work w;
    ah_linalg_open(&w, c);
    struct values v = values_of(&w);
    int64_t k = other->size[other->ndim - 1], high = v.high, low = v.low;
    uint64_t u = ah_linalg_reals(&w, high * low), vt = ah_linalg_reals(&w, low * low), y = ah_linalg_reals(&w, low * k);
    uint64_t b = ah_linalg_reals(&w, w.m * k);
    decompose(&w, &v, 'S', s, u, vt, info, -1);
    ah_linalg_move(&w, b, ah_linalg_input(&w, other), w.m * k);
    ah_linalg_screen(&w, b, w.m * k, v.flags, -1, true);
    /* Row-major, u is U' (low x high) and vt is V; those of the transpose where A is wide. */
    struct ah_cuda_matrix left = {u, false, high, high * low}, right = {vt, false, low, low * low};
    struct ah_cuda_matrix small = {vt, true, low, low * low}, large = {u, true, high, high * low};
    multiply(&w, v.wide ? small : left, b, (struct ah_cuda_matrix){y, false, k, low * k}, low, w.m, k);
    double epsilon = w.dtype == AH_F32 ? 0x1p-23 : 0x1p-52, least = arg->rcond.number;
    struct ah_linalg_divide_args args = {.y = y, .s = s, .rank = ah_cuda_data(c->out[1]), .info = info,
                                         .batch = w.batch, .n = low, .k = k, .least = least < 0 ? epsilon : least,
                                         .full = !strcmp(arg->driver.string, "gels")};
    divide(&w, &args);
    multiply(&w, v.wide ? large : right, y, (struct ah_cuda_matrix){x, false, k, high * k}, w.n, low, k);
    if (w.m > w.n)
        leave_residual(&w, ah_linalg_input(&w, arg->input.tensor), b, x, k);
    ah_linalg_spoil(&w, x, high * k, info, v.flags);
    return ah_linalg_close(&w);
}
