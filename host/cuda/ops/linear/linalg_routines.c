/* Routines over a batch: the library's form for batches where there are several matrices and it has one, of LU for
 * small ones alone; else a loop, with one workspace for all. */
#include "cuda/ops/linear/linalg_routines.h"

#include <stdlib.h>

#include "base/status/status.h"
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"

/* cuBLAS's LU of a batch is for small matrices. */
enum { BATCHED_LU = 512 };

#define AT(address) ((void *)(uintptr_t)(address))
#define AS(type, address) ((type)(uintptr_t)(address))

/* A routine that has begun, with its workspace. */
struct workspace {
    const char *routine;
    struct ah_linalg_span span;
    void *device, *host;
    size_t device_bytes, host_bytes;
};

static struct workspace workspace_of(struct ah_linalg_work *w, const char *routine, double operations)
{
    return (struct workspace){.routine = routine, .span = ah_linalg_begin(w, routine, operations)};
}

/* Allocate it when its sizes are known; `status` is that of the question for them. */
static void workspace_open(struct ah_linalg_work *w, struct workspace *room, int status, const char *question)
{
    if (w->status == 0)
        w->status = ah_solver_check(status, "cuSOLVER", w->call->op->name, question);
    if (w->status == 0 && room->device_bytes)
        w->status = ah_cuda_memory_take(w->cuda->memory, room->device_bytes, &room->device);
    if (w->status == 0 && room->host_bytes && !(room->host = malloc(room->host_bytes)))
        w->status = ah_fail(AH_ENOMEM, "out of memory");
}

/* End the routine with its status. In the order of the stream: the next user of the block writes it after the
 * routine. */
static void workspace_close(struct ah_linalg_work *w, struct workspace *room, int status)
{
    if (w->status == 0)
        ah_linalg_end(w, room->span, status, "cuSOLVER", room->routine);
    if (room->device)
        ah_cuda_memory_give(w->cuda->memory, room->device);
    free(room->host);
}

static cudaDataType linalg_type(const struct ah_linalg_work *w)
{
    return w->dtype == AH_F32 ? CUDA_R_32F : CUDA_R_64F;
}

/* The place of matrix `i` of those with `count` reals, and of its info. */
static void *real_at(const struct ah_linalg_work *w, uint64_t base, int64_t i, int64_t count)
{
    return base ? AT(base + (uint64_t)(i * count) * ah_dtype_size(w->dtype)) : NULL;
}

static int *info_at(uint64_t base, int64_t i)
{
    return AT(base + (uint64_t)i * sizeof(int));
}

static void linalg_getrf_each(struct ah_linalg_work *w, uint64_t a, int64_t m, int64_t n, uint64_t pivots,
                              uint64_t info)
{
    const struct ah_solver *s = w->solver;
    cudaDataType type = linalg_type(w);
    int64_t k = m < n ? m : n;
    double operations = (double)k * (double)(m * n - k * k / 3) * (double)w->batch;
    struct workspace room = workspace_of(w, "getrf", operations);
    if (w->status < 0)
        return;
    int status = s->call->getrf_room(s->dense, s->params, m, n, type, AT(a), m, type, &room.device_bytes,
                                     &room.host_bytes);
    workspace_open(w, &room, status, "getrf_bufferSize");
    for (int64_t i = 0; i < w->batch && w->status == 0 && !status; i++)
        status = s->call->getrf(s->dense, s->params, m, n, type, real_at(w, a, i, m * n), m,
                                (int64_t *)AT(pivots) + i * k, type, room.device, room.device_bytes, room.host,
                                room.host_bytes, info_at(info, i));
    workspace_close(w, &room, status);
}

static void linalg_potrf_one(struct ah_linalg_work *w, uint64_t a, int64_t n, cublasFillMode_t uplo, uint64_t info)
{
    const struct ah_solver *s = w->solver;
    cudaDataType type = linalg_type(w);
    struct workspace room = workspace_of(w, "potrf", (double)n * (double)(n * n) / 3);
    if (w->status < 0)
        return;
    int status = s->call->potrf_room(s->dense, s->params, uplo, n, type, AT(a), n, type, &room.device_bytes,
                                     &room.host_bytes);
    workspace_open(w, &room, status, "potrf_bufferSize");
    if (w->status == 0)
        status = s->call->potrf(s->dense, s->params, uplo, n, type, AT(a), n, type, room.device, room.device_bytes,
                                room.host, room.host_bytes, info_at(info, 0));
    workspace_close(w, &room, status);
}

void ah_linalg_geqrf(struct ah_linalg_work *w, uint64_t a, int64_t m, int64_t n, int64_t wide, uint64_t tau)
{
    const struct ah_solver *s = w->solver;
    cudaDataType type = linalg_type(w);
    int64_t k = m < n ? m : n;
    uint64_t info = ah_linalg_ints(w, 1);
    double operations = 4.0 * (double)k * (double)(m * n - k * (m + n) / 2 + k * k / 3) * (double)w->batch;
    struct workspace room = workspace_of(w, "geqrf", operations);
    if (w->status < 0)
        return;
    int status = s->call->geqrf_room(s->dense, s->params, m, n, type, AT(a), m, type, AT(tau), type,
                                     &room.device_bytes, &room.host_bytes);
    workspace_open(w, &room, status, "geqrf_bufferSize");
    for (int64_t i = 0; i < w->batch && w->status == 0 && !status; i++)
        status = s->call->geqrf(s->dense, s->params, m, n, type, real_at(w, a, i, m * wide), m, type,
                                real_at(w, tau, i, k), type, room.device, room.device_bytes, room.host,
                                room.host_bytes, info_at(info, i));
    workspace_close(w, &room, status);
}

/* Return the status of Q's workspace in reals, and of Q of matrix `i`. */
static int orgqr_room(struct ah_linalg_work *w, uint64_t a, int m, int k, int reflectors, uint64_t tau, int *count)
{
    const struct ah_solver *s = w->solver;
    return w->dtype == AH_F32 ? s->call->orgqr_room_f32(s->dense, m, k, reflectors, AT(a), m, AT(tau), count)
                              : s->call->orgqr_room_f64(s->dense, m, k, reflectors, AT(a), m, AT(tau), count);
}

static int orgqr_one(struct ah_linalg_work *w, void *a, int m, int k, int reflectors, const void *tau, void *room,
                     int count, int *info)
{
    const struct ah_solver *s = w->solver;
    return w->dtype == AH_F32 ? s->call->orgqr_f32(s->dense, m, k, reflectors, a, m, tau, room, count, info)
                              : s->call->orgqr_f64(s->dense, m, k, reflectors, a, m, tau, room, count, info);
}

void ah_linalg_orgqr(struct ah_linalg_work *w, uint64_t a, int64_t m, int64_t k, int64_t reflectors, int64_t wide,
                     uint64_t tau)
{
    uint64_t info = ah_linalg_ints(w, 1);
    int count = 0;
    double r = (double)reflectors, operations = 4.0 * (double)(m * k) * r - 2.0 * (double)(m + k) * r * r;
    struct workspace room = workspace_of(w, "orgqr", (operations + 4.0 / 3 * r * r * r) * (double)w->batch);
    if (w->status < 0)
        return;
    int status = orgqr_room(w, a, (int)m, (int)k, (int)reflectors, tau, &count);
    room.device_bytes = (size_t)count * ah_dtype_size(w->dtype);
    workspace_open(w, &room, status, "orgqr_bufferSize");
    for (int64_t i = 0; i < w->batch && w->status == 0 && !status; i++)
        status = orgqr_one(w, real_at(w, a, i, m * wide), (int)m, (int)k, (int)reflectors,
                           real_at(w, tau, i, reflectors), room.device, count, info_at(info, i));
    workspace_close(w, &room, status);
}

void ah_linalg_syevd(struct ah_linalg_work *w, uint64_t a, int64_t n, cublasFillMode_t uplo, bool vectors,
                     uint64_t values, uint64_t info)
{
    const struct ah_solver *s = w->solver;
    cudaDataType type = linalg_type(w);
    cusolverEigMode_t job = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
    struct workspace room = workspace_of(w, "syevd", 0);
    if (w->status < 0)
        return;
    int status = s->call->syevd_room(s->dense, s->params, job, uplo, n, type, AT(a), n, type, AT(values), type,
                                     &room.device_bytes, &room.host_bytes);
    workspace_open(w, &room, status, "syevd_bufferSize");
    for (int64_t i = 0; i < w->batch && w->status == 0 && !status; i++)
        status = s->call->syevd(s->dense, s->params, job, uplo, n, type, real_at(w, a, i, n * n), n, type,
                                real_at(w, values, i, n), type, room.device, room.device_bytes, room.host,
                                room.host_bytes, info_at(info, i));
    workspace_close(w, &room, status);
}

void ah_linalg_gesvd(struct ah_linalg_work *w, int job, uint64_t a, int64_t m, int64_t n, uint64_t s, uint64_t u,
                     uint64_t vt, uint64_t info)
{
    const struct ah_solver *solver = w->solver;
    const struct ah_cusolver *call = solver->call;
    cudaDataType type = linalg_type(w);
    signed char letter = (signed char)job;
    int64_t columns = job == 'A' ? m : job == 'S' ? n : 0;
    struct workspace room = workspace_of(w, "gesvd", 0);
    if (w->status < 0)
        return;
    int status = call->gesvd_room(solver->dense, solver->params, letter, letter, m, n, type, AT(a), m, type, AT(s),
                                  type, AT(u), m, type, AT(vt), n, type, &room.device_bytes, &room.host_bytes);
    workspace_open(w, &room, status, "gesvd_bufferSize");
    for (int64_t i = 0; i < w->batch && w->status == 0 && !status; i++)
        status = call->gesvd(solver->dense, solver->params, letter, letter, m, n, type, real_at(w, a, i, m * n), m,
                             type, real_at(w, s, i, n), type, real_at(w, u, i, m * columns), m, type,
                             real_at(w, vt, i, columns ? n * n : 0), n, type, room.device, room.device_bytes, room.host,
                             room.host_bytes, info_at(info, i));
    workspace_close(w, &room, status);
}

/* With a form for a batch. */

/* An array of the addresses of matrices of `count` reals. */
static uint64_t linalg_pointers(struct ah_linalg_work *w, uint64_t base, int64_t count)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("linalg", "linalg_pointers");
    struct ah_linalg_pointers_args args = {ah_linalg_longs(w, 1), base, w->batch,
                                           count * (int64_t)ah_dtype_size(w->dtype)};
    if (w->status == 0)
        w->status = ah_cuda_launch(w->call->device, &kernel, w->call->op->name,
                                   ah_cuda_grid_for(args.count, AH_LINALG_THREADS), &args);
    return args.to;
}

static void linalg_getrf_batched(struct ah_linalg_work *w, uint64_t a, int64_t n, uint64_t pivots, uint64_t info)
{
    const struct ah_cusolver *call = w->solver->call;
    uint64_t all = linalg_pointers(w, a, n * n);
    struct ah_linalg_span span = ah_linalg_begin(w, "getrfBatched", 2.0 / 3 * (double)(n * n * n * w->batch));
    if (w->status < 0)
        return;
    int status = w->dtype == AH_F32
                     ? (int)call->getrf_batched_f32(w->solver->blas, (int)n, AS(float *const *, all), (int)n,
                                                    AS(int *, pivots), AS(int *, info), (int)w->batch)
                     : (int)call->getrf_batched_f64(w->solver->blas, (int)n, AS(double *const *, all), (int)n,
                                                    AS(int *, pivots), AS(int *, info), (int)w->batch);
    ah_linalg_end(w, span, status, "cuBLAS", "getrfBatched");
}

void ah_linalg_getrf(struct ah_linalg_work *w, uint64_t a, int64_t m, int64_t n, uint64_t pivots, uint64_t info)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("linalg", "linalg_narrow");
    int64_t k = m < n ? m : n;
    if (w->batch > 1 && m == n && n <= BATCHED_LU) {
        linalg_getrf_batched(w, a, n, pivots, info);
        return;
    }
    struct ah_linalg_narrow_args args = {pivots, ah_linalg_longs(w, k), w->batch * k};
    linalg_getrf_each(w, a, m, n, args.from, info);
    if (w->status == 0)
        w->status = ah_cuda_launch(w->call->device, &kernel, w->call->op->name,
                                   ah_cuda_grid_for(args.count, AH_LINALG_THREADS), &args);
}

void ah_linalg_potrf(struct ah_linalg_work *w, uint64_t a, int64_t n, cublasFillMode_t uplo, uint64_t info)
{
    const struct ah_cusolver *call = w->solver->call;
    if (w->batch == 1) {
        linalg_potrf_one(w, a, n, uplo, info);
        return;
    }
    uint64_t all = linalg_pointers(w, a, n * n);
    struct ah_linalg_span span = ah_linalg_begin(w, "potrfBatched", 1.0 / 3 * (double)(n * n * n * w->batch));
    if (w->status < 0)
        return;
    int status = w->dtype == AH_F32
                     ? (int)call->potrf_batched_f32(w->solver->dense, uplo, (int)n, AS(float **, all), (int)n,
                                                    AS(int *, info), (int)w->batch)
                     : (int)call->potrf_batched_f64(w->solver->dense, uplo, (int)n, AS(double **, all), (int)n,
                                                    AS(int *, info), (int)w->batch);
    ah_linalg_end(w, span, status, "cuSOLVER", "potrfBatched");
}

static int linalg_trsm_batched(struct ah_linalg_work *w, const struct ah_linalg_triangle *t, int64_t n, uint64_t a,
                               uint64_t b)
{
    const struct ah_cusolver *call = w->solver->call;
    const float one = 1;
    const double wide_one = 1;
    if (w->dtype == AH_F32)
        return (int)call->trsm_batched_f32(w->solver->blas, t->side, t->uplo, t->trans, t->diag, (int)t->m, (int)t->n,
                                           &one, AS(const float *const *, a), (int)n, AS(float *const *, b),
                                           (int)t->m, (int)w->batch);
    return (int)call->trsm_batched_f64(w->solver->blas, t->side, t->uplo, t->trans, t->diag, (int)t->m, (int)t->n,
                                       &wide_one, AS(const double *const *, a), (int)n, AS(double *const *, b),
                                       (int)t->m, (int)w->batch);
}

static int linalg_trsm_one(struct ah_linalg_work *w, const struct ah_linalg_triangle *t, int64_t n)
{
    const struct ah_cusolver *call = w->solver->call;
    const float one = 1;
    const double wide_one = 1;
    if (w->dtype == AH_F32)
        return (int)call->trsm_f32(w->solver->blas, t->side, t->uplo, t->trans, t->diag, (int)t->m, (int)t->n, &one,
                                   AS(const float *, t->a), (int)n, AS(float *, t->b), (int)t->m);
    return (int)call->trsm_f64(w->solver->blas, t->side, t->uplo, t->trans, t->diag, (int)t->m, (int)t->n, &wide_one,
                               AS(const double *, t->a), (int)n, AS(double *, t->b), (int)t->m);
}

void ah_linalg_trsm(struct ah_linalg_work *w, const struct ah_linalg_triangle *t)
{
    int64_t n = t->side == CUBLAS_SIDE_LEFT ? t->m : t->n;
    uint64_t a = t->a, b = t->b;
    bool batched = w->batch > 1;
    if (batched) {
        a = linalg_pointers(w, t->a, n * n);
        b = linalg_pointers(w, t->b, t->m * t->n);
    }
    const char *name = batched ? "trsmBatched" : "trsm";
    struct ah_linalg_span span = ah_linalg_begin(w, name, (double)(n * t->m * t->n * w->batch));
    if (w->status < 0)
        return;
    int status = batched ? linalg_trsm_batched(w, t, n, a, b) : linalg_trsm_one(w, t, n);
    ah_linalg_end(w, span, status, "cuBLAS", name);
}
