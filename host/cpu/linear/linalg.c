/* Decompositions and solvers by LAPACK, matrix by matrix: a batch is shared out over the threads, a single matrix is
 * left to the library's own. Each kernel describes its batch as a job; linalg.h has the routines. */
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/kernels.h"
#include "cpu/linear/blas.h"
#include "cpu/linear/linalg.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

enum { LEAST_WORK = 8000000 };

static int64_t linalg_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct batch {
    const struct ah_linalg_job *job;
    ah_linalg_routine one;
    char *scratch;
    size_t room; /* bytes of it for each thread */
};

static void run_range(void *context, int64_t begin, int64_t end)
{
    const struct batch *batch = context;
    const struct ah_linalg_job *j = batch->job;
    for (int64_t i = begin; i < end; i++) {
        int64_t info = batch->one(j, i, batch->scratch + batch->room * (size_t)ah_thread_index());
        if (j->info)
            j->info[i] = (int32_t)info;
    }
}

static int run_batch(const struct ah_linalg_job *j, size_t item, ah_linalg_routine one)
{
    int64_t room = one(j, 0, NULL) + 64 / (int64_t)item;
    double work = (double)j->batch * (double)j->m * (double)j->n * (double)(linalg_least(j->m, j->n) + 1);
    int64_t threads = work > 65536 ? linalg_least(j->batch, ah_num_threads()) : 1;
    AH_CLEANUP(ah_dense_close) struct ah_dense scratch = {0};
    AH_TRY(ah_dense_scratch(&scratch, (size_t)(room * threads) * item));
    struct batch batch = {j, one, scratch.block, (size_t)room * item};
    /* A step of LAPACK multiplies AH_LINALG_COLUMNS columns; below LEAST_WORK multiplications a second thread costs
     * more than it saves. */
    if (threads > 1) {
        ah_parallel_for(j->batch, 1, run_range, &batch);
    } else {
        bool divided = (double)j->m * (double)j->n * AH_LINALG_COLUMNS >= LEAST_WORK;
        if (divided)
            ah_library_threads_begin();
        run_range(&batch, 0, j->batch);
        if (divided)
            ah_library_threads_end();
    }
    return 0;
}

/* Run over the batch of arg 0 with a (and b, where there is one) read as row-major arrays. */
static int linalg_run(struct ah_call *c, struct ah_linalg_job *j, struct ah_tensor *b, ah_linalg_routine single,
                      ah_linalg_routine wide)
{
    struct ah_tensor *a = c->arg[0].tensor;
    AH_CLEANUP(ah_dense_close) struct ah_dense da = {0}, db = {0};
    j->m = a->size[a->ndim - 2];
    j->n = a->size[a->ndim - 1];
    j->batch = 1;
    for (int d = 0; d < a->ndim - 2; d++)
        j->batch *= a->size[d];
    AH_TRY(ah_dense_open(&da, a));
    AH_TRY(ah_dense_open(&db, b));
    j->a = da.data;
    j->b = db.data;
    AH_TRY(ah_blas_open());
    ah_trace_kernel(a->dtype == AH_F32 ? "LAPACK float32" : "LAPACK float64");
    if (a->dtype == AH_F32)
        AH_TRY(run_batch(j, sizeof(float), single));
    else
        AH_TRY(run_batch(j, sizeof(double), wide));
    return 0;
}

#define RUN(call, job, b, name) linalg_run((call), (job), (b), ah_linalg_##name##_f32, ah_linalg_##name##_f64)

int ah_cpu_matrix_lu(struct ah_call *c)
{
    struct ah_linalg_job j = {.out = {ah_tensor_data(c->out[0])}, .pivots = ah_tensor_data(c->out[1]),
                              .info = ah_tensor_data(c->out[2])};
    return RUN(c, &j, NULL, lu);
}

int ah_cpu_matrix_lu_solve(struct ah_call *c)
{
    const struct ah_args_matrix_lu_solve *arg = ah_args(c, matrix_lu_solve);
    struct ah_tensor *b = arg->other.tensor;
    AH_CLEANUP(ah_dense_close) struct ah_dense pivots = {0};
    AH_TRY(ah_dense_open_as_is(&pivots, arg->pivots.tensor));
    struct ah_linalg_job j = {.k = b->size[b->ndim - 1], .out = {ah_tensor_data(c->out[0])},
                              .pivots = (void *)pivots.data, .flag = arg->transposed.flag};
    return RUN(c, &j, b, lu_solve);
}

int ah_cpu_matrix_permutation(struct ah_call *c)
{
    const struct ah_args_matrix_permutation *arg = ah_args(c, matrix_permutation);
    struct ah_tensor *pivots = arg->pivots.tensor;
    int64_t n = arg->n.integer, k = pivots->size[pivots->ndim - 1];
    AH_CLEANUP(ah_dense_close) struct ah_dense dense = {0};
    AH_TRY(ah_dense_open_as_is(&dense, pivots));
    int64_t *row = ah_tensor_data(c->out[0]);
    const int32_t *pivot = dense.data;
    for (int64_t at = 0; n > 0 && at < c->out[0]->numel / n; at++, row += n, pivot += k) {
        for (int64_t i = 0; i < n; i++)
            row[i] = i;
        for (int64_t i = 0; i < k; i++) {
            int64_t other = row[pivot[i] - 1];
            row[pivot[i] - 1] = row[i];
            row[i] = other;
        }
    }
    return 0;
}

int ah_cpu_matrix_solve(struct ah_call *c)
{
    struct ah_tensor *b = ah_args(c, matrix_solve)->other.tensor;
    struct ah_linalg_job j = {.k = b->size[b->ndim - 1], .out = {ah_tensor_data(c->out[0])},
                              .info = ah_tensor_data(c->out[1])};
    return RUN(c, &j, b, solve);
}

int ah_cpu_matrix_triangular_solve(struct ah_call *c)
{
    const struct ah_args_matrix_triangular_solve *arg = ah_args(c, matrix_triangular_solve);
    struct ah_tensor *b = arg->other.tensor;
    bool left = arg->left.flag;
    struct ah_linalg_job j = {.k = b->size[b->ndim - (left ? 1 : 2)], .out = {ah_tensor_data(c->out[0])}, .flag = left,
                              .upper = arg->upper.flag, .unit = arg->unitriangular.flag};
    return RUN(c, &j, b, triangular_solve);
}

int ah_cpu_matrix_inverse(struct ah_call *c)
{
    struct ah_linalg_job j = {.out = {ah_tensor_data(c->out[0])}, .info = ah_tensor_data(c->out[1])};
    return RUN(c, &j, NULL, inverse);
}

int ah_cpu_matrix_det(struct ah_call *c)
{
    struct ah_linalg_job j = {.out = {ah_tensor_data(c->out[0]), NULL, ah_tensor_data(c->out[1])},
                              .pivots = ah_tensor_data(c->out[2])};
    return RUN(c, &j, NULL, det);
}

int ah_cpu_matrix_slogdet(struct ah_call *c)
{
    struct ah_linalg_job j = {.out = {ah_tensor_data(c->out[0]), ah_tensor_data(c->out[1]), ah_tensor_data(c->out[2])},
                              .pivots = ah_tensor_data(c->out[3]), .flag = true};
    return RUN(c, &j, NULL, det);
}

int ah_cpu_matrix_cholesky(struct ah_call *c)
{
    struct ah_linalg_job j = {.out = {ah_tensor_data(c->out[0])}, .info = ah_tensor_data(c->out[1]),
                              .upper = ah_args(c, matrix_cholesky)->upper.flag};
    return RUN(c, &j, NULL, cholesky);
}

int ah_cpu_matrix_qr(struct ah_call *c)
{
    const char *mode = ah_args(c, matrix_qr)->mode.string;
    struct ah_tensor *r = c->out[1];
    struct ah_linalg_job j = {.k = r->size[r->ndim - 2],
                              .out = {strcmp(mode, "r") ? ah_tensor_data(c->out[0]) : NULL, ah_tensor_data(r)}};
    return RUN(c, &j, NULL, qr);
}

int ah_cpu_matrix_svd(struct ah_call *c)
{
    const struct ah_args_matrix_svd *arg = ah_args(c, matrix_svd);
    struct ah_linalg_job j = {.out = {ah_tensor_data(c->out[0]), ah_tensor_data(c->out[1]), ah_tensor_data(c->out[2])},
                              .info = ah_tensor_data(c->out[3]), .flag = arg->full_matrices.flag,
                              .upper = !arg->vectors.flag};
    return RUN(c, &j, NULL, svd);
}

int ah_cpu_matrix_eigh(struct ah_call *c)
{
    const struct ah_args_matrix_eigh *arg = ah_args(c, matrix_eigh);
    struct ah_linalg_job j = {.out = {ah_tensor_data(c->out[0]), ah_tensor_data(c->out[1])},
                              .info = ah_tensor_data(c->out[2]), .flag = arg->vectors.flag, .upper = arg->upper.flag};
    return RUN(c, &j, NULL, eigh);
}

int ah_cpu_matrix_lstsq(struct ah_call *c)
{
    const struct ah_args_matrix_lstsq *arg = ah_args(c, matrix_lstsq);
    struct ah_tensor *b = arg->other.tensor;
    struct ah_linalg_job j = {.k = b->size[b->ndim - 1],
                              .out = {ah_tensor_data(c->out[0]), ah_tensor_data(c->out[1]), ah_tensor_data(c->out[2])},
                              .info = ah_tensor_data(c->out[3]), .number = arg->rcond.number,
                              .word = arg->driver.string};
    return RUN(c, &j, b, lstsq);
}
