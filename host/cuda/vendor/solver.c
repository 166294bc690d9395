/* Opens cuSOLVER, and a device's handles of it and of cuBLAS. */
#include "cuda/vendor/solver.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/api/device.h"
#include "cuda/driver/api/library.h"

static struct ah_cusolver solver_table;

static const char *const solver_files[] = {"libcusolver.so.12", "libcusolver.so.11", NULL};

static const struct ah_cuda_symbol solver_symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_cusolver, field)},
#include "cuda/vendor/solver.def"
#undef CALL
};

static struct ah_cuda_library solver_library = {.title = "cuSOLVER", .files = solver_files, .symbols = solver_symbols,
                                                .count = sizeof solver_symbols / sizeof solver_symbols[0],
                                                .table = &solver_table, .lock = PTHREAD_MUTEX_INITIALIZER};

static struct ah_solver solvers[AH_CUDA_DEVICES];

static void solver_destroy(struct ah_solver *solver)
{
    if (solver->params)
        solver->call->params_destroy(solver->params);
    if (solver->dense)
        solver->call->destroy(solver->dense);
    if (solver->blas)
        solver->call->blas_destroy(solver->blas);
    memset(solver, 0, sizeof *solver);
}

/* Create the handles of a device; false after a failure. */
static bool solver_create(struct ah_solver *solver, CUstream stream)
{
    solver->call = &solver_table;
    bool good = solver_table.create(&solver->dense) == CUSOLVER_STATUS_SUCCESS &&
                solver_table.set_stream(solver->dense, stream) == CUSOLVER_STATUS_SUCCESS &&
                solver_table.params_create(&solver->params) == CUSOLVER_STATUS_SUCCESS &&
                solver_table.blas_create(&solver->blas) == CUBLAS_STATUS_SUCCESS &&
                solver_table.blas_set_stream(solver->blas, stream) == CUBLAS_STATUS_SUCCESS;
    if (!good)
        solver_destroy(solver);
    return good;
}

const struct ah_solver *ah_solver_open(struct ah_cuda_device *cuda)
{
    static bool failed[AH_CUDA_DEVICES]; /* it did not open before */
    struct ah_solver *solver = &solvers[cuda->ordinal];
    if (failed[cuda->ordinal] || ah_cuda_library_open(&solver_library) < 0 || ah_cuda_enter(cuda) < 0)
        return NULL;
    if (!solver->call)
        failed[cuda->ordinal] = !solver_create(solver, cuda->compute);
    return failed[cuda->ordinal] ? NULL : solver;
}

void ah_solver_close(const struct ah_cuda_device *cuda)
{
    if (solvers[cuda->ordinal].call)
        solver_destroy(&solvers[cuda->ordinal]);
}

int ah_solver_check(int status, const char *library, const char *op_name, const char *routine)
{
    if (status == CUSOLVER_STATUS_SUCCESS)
        return 0;
    bool memory = !strcmp(library, "cuBLAS") ? status == CUBLAS_STATUS_ALLOC_FAILED
                                             : status == CUSOLVER_STATUS_ALLOC_FAILED;
    return ah_fail(memory ? AH_ENOMEM : AH_EIO, "%s: %s: %s: %s%d", op_name, library, routine,
                   memory ? "out of memory, status " : "status ", status);
}
