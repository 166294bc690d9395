/* cuSOLVER's dense routines, and cuBLAS's LU and triangular solves, as works of a stream. Workspaces are checked and
 * spoiled, and so are triangles that a routine may destroy. */
#include "solver.h"

#include <math.h>
#include <string.h>

#include "blas.h"

using namespace sim;

namespace
{
enum { DEVICE_ROOM = 512, HOST_ROOM = 64, COUNT_ROOM = 32 };

int create(CUcontext *context)
{
    if (fault_now(FAULT_SOLVER))
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    return current(context) ? CUSOLVER_STATUS_NOT_INITIALIZED : CUSOLVER_STATUS_SUCCESS;
}

Matrix load(int type, const void *from, int64_t rows, int64_t columns, int64_t leading)
{
    Matrix matrix(rows, columns);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            matrix(i, j) = load_real(type, from, j * leading + i);
    return matrix;
}

void store(int type, void *to, const Matrix &matrix, int64_t leading)
{
    for (int64_t j = 0; j < matrix.columns; j++)
        for (int64_t i = 0; i < matrix.rows; i++)
            store_real(type, to, j * leading + i, matrix(i, j));
}

void store(int type, void *to, const std::vector<double> &values)
{
    for (size_t i = 0; i < values.size(); i++)
        store_real(type, to, (int64_t)i, values[i]);
}

/* Queue a routine; `places` are addresses that must be the device's. */
template <class Handle>
int give(Handle handle, std::initializer_list<const void *> places, const char *name, std::function<void()> run)
{
    CUstream stream;
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (stream_of(handle->stream, &stream) || stream->context != handle->context)
        return CUSOLVER_STATUS_EXECUTION_FAILED;
    if (fault_now(FAULT_SOLVER))
        return CUSOLVER_STATUS_INTERNAL_ERROR;
    for (const void *place : places) {
        std::lock_guard<std::mutex> running(stream->context->run);
        if (!stream->context->memory.find(place, 1)) {
            report(CUDA_ERROR_INVALID_VALUE, std::string(name) + ": an operand is not in device memory");
            return CUSOLVER_STATUS_INVALID_VALUE;
        }
    }
    return stream_give(stream, {run, true}) ? CUSOLVER_STATUS_EXECUTION_FAILED : CUSOLVER_STATUS_SUCCESS;
}

int ask(cusolverDnHandle_t handle, size_t *on_device, size_t *on_host)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    *on_device = DEVICE_ROOM;
    *on_host = HOST_ROOM;
    return CUSOLVER_STATUS_SUCCESS;
}

bool is_enough(const void *on_host, size_t device_bytes, size_t host_bytes)
{
    if (on_host && host_bytes >= HOST_ROOM)
        memset(const_cast<void *>(on_host), 0xff, host_bytes);
    return on_host && host_bytes >= HOST_ROOM && device_bytes >= DEVICE_ROOM;
}

int factor(cusolverDnHandle_t handle, int type, bool upper, int64_t n, void *a, int64_t lda, void *room, size_t bytes,
           int *info)
{
    return give(handle, {a, room, info}, "potrf", [=] {
        memset(room, 0xff, bytes);
        Matrix matrix = load(type, a, n, n, lda);
        *info = cholesky(matrix, upper);
        store(type, a, matrix, lda);
    });
}

template <class T>
int factor_all(cusolverDnHandle_t handle, int type, bool upper, int n, T *a[], int lda, int *info, int batch)
{
    return give(handle, {a, info}, "potrfBatched", [=] {
        for (int i = 0; i < batch; i++) {
            Matrix matrix = load(type, a[i], n, n, lda);
            info[i] = cholesky(matrix, upper);
            store(type, a[i], matrix, lda);
        }
    });
}

template <class T>
int lu_all(cublasHandle_t handle, int type, int n, T *const a[], int lda, int *pivots, int *info, int batch)
{
    return give(handle, {a, pivots, info}, "getrfBatched", [=] {
        for (int b = 0; b < batch; b++) {
            std::vector<int64_t> places;
            Matrix matrix = load(type, a[b], n, n, lda);
            info[b] = lu(matrix, places);
            store(type, a[b], matrix, lda);
            for (int i = 0; i < n; i++)
                pivots[b * n + i] = (int)places[(size_t)i];
        }
    });
}

struct Triangle {
    int side, uplo, trans, diag, m, n;
    double alpha;
};

void solve_one(int type, const Triangle &t, const void *a, int lda, void *b, int ldb)
{
    bool left = t.side == CUBLAS_SIDE_LEFT;
    int64_t n = left ? t.m : t.n;
    Matrix x = load(type, b, t.m, t.n, ldb);
    for (double &value : x.at)
        value *= t.alpha;
    triangular(load(type, a, n, n, lda), x, left, t.uplo == CUBLAS_FILL_MODE_UPPER, t.trans != CUBLAS_OP_N,
               t.diag == CUBLAS_DIAG_UNIT);
    store(type, b, x, ldb);
}

int solve(cublasHandle_t handle, int type, const Triangle &t, const void *a, int lda, void *b, int ldb)
{
    return give(handle, {a, b}, "trsm", [=] { solve_one(type, t, a, lda, b, ldb); });
}

template <class T>
int solve_all(cublasHandle_t handle, int type, const Triangle &t, const T *const a[], int lda, T *const b[], int ldb,
              int batch)
{
    return give(handle, {a, b}, "trsmBatched", [=] {
        for (int i = 0; i < batch; i++)
            solve_one(type, t, a[i], lda, b[i], ldb);
    });
}

int columns(cusolverDnHandle_t handle, int type, int m, int n, int k, void *a, int lda, const void *tau, void *room,
            int count, int *info)
{
    if (count < COUNT_ROOM)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return give(handle, {a, tau, room, info}, "orgqr", [=] {
        memset(room, 0xff, (size_t)count * size_of_type(type));
        std::vector<double> factors;
        for (int i = 0; i < k; i++)
            factors.push_back(load_real(type, tau, i));
        store(type, a, columns_of_q(load(type, a, m, k, lda), factors, n), lda);
        *info = 0;
    });
}
} // namespace

SIM_API cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle)
{
    Api hold(api);
    CUcontext context;
    int status = create(&context);
    *handle = status ? nullptr : new cusolverDnContext{context, nullptr};
    return status;
}

SIM_API cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle)
{
    delete handle;
    return CUSOLVER_STATUS_SUCCESS;
}

SIM_API cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, CUstream stream)
{
    handle->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

SIM_API cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *params)
{
    *params = new cusolverDnParams();
    return CUSOLVER_STATUS_SUCCESS;
}

SIM_API cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params)
{
    delete params;
    return CUSOLVER_STATUS_SUCCESS;
}

SIM_API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    Api hold(api);
    CUcontext context;
    *handle = nullptr;
    if (current(&context))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext{context, nullptr};
    return CUBLAS_STATUS_SUCCESS;
}

SIM_API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

SIM_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

SIM_API cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                                     cublasFillMode_t uplo, int64_t n, cudaDataType type, const void *a,
                                                     int64_t lda, cudaDataType compute, size_t *on_device,
                                                     size_t *on_host)
{
    return ask(handle, on_device, on_host);
}

SIM_API cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo,
                                          int64_t n, cudaDataType type, void *a, int64_t lda, cudaDataType compute,
                                          void *on_device, size_t device_bytes, void *on_host, size_t host_bytes,
                                          int *info)
{
    Api hold(api);
    if (!is_enough(on_host, device_bytes, host_bytes))
        return CUSOLVER_STATUS_INVALID_VALUE;
    return factor(handle, type, uplo == CUBLAS_FILL_MODE_UPPER, n, a, lda, on_device, device_bytes, info);
}

SIM_API cusolverStatus_t cusolverDnSpotrfBatched(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, float *a[],
                                                 int lda, int *info, int batch)
{
    Api hold(api);
    return factor_all(handle, CUDA_R_32F, uplo == CUBLAS_FILL_MODE_UPPER, n, a, lda, info, batch);
}

SIM_API cusolverStatus_t cusolverDnDpotrfBatched(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, double *a[],
                                                 int lda, int *info, int batch)
{
    Api hold(api);
    return factor_all(handle, CUDA_R_64F, uplo == CUBLAS_FILL_MODE_UPPER, n, a, lda, info, batch);
}

SIM_API cusolverStatus_t cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m,
                                                     int64_t n, cudaDataType type, const void *a, int64_t lda,
                                                     cudaDataType compute, size_t *on_device, size_t *on_host)
{
    return ask(handle, on_device, on_host);
}

SIM_API cusolverStatus_t cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                          cudaDataType type, void *a, int64_t lda, int64_t *pivots,
                                          cudaDataType compute, void *on_device, size_t device_bytes, void *on_host,
                                          size_t host_bytes, int *info)
{
    Api hold(api);
    if (!is_enough(on_host, device_bytes, host_bytes))
        return CUSOLVER_STATUS_INVALID_VALUE;
    return give(handle, {a, pivots, on_device, info}, "getrf", [=] {
        memset(on_device, 0xff, device_bytes);
        std::vector<int64_t> places;
        Matrix matrix = load(type, a, m, n, lda);
        *info = lu(matrix, places);
        store(type, a, matrix, lda);
        memcpy(pivots, places.data(), places.size() * sizeof(int64_t));
    });
}

SIM_API cublasStatus_t cublasSgetrfBatched(cublasHandle_t handle, int n, float *const a[], int lda, int *pivots,
                                           int *info, int batch)
{
    Api hold(api);
    return lu_all(handle, CUDA_R_32F, n, a, lda, pivots, info, batch);
}

SIM_API cublasStatus_t cublasDgetrfBatched(cublasHandle_t handle, int n, double *const a[], int lda, int *pivots,
                                           int *info, int batch)
{
    Api hold(api);
    return lu_all(handle, CUDA_R_64F, n, a, lda, pivots, info, batch);
}

SIM_API cusolverStatus_t cusolverDnXgeqrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m,
                                                     int64_t n, cudaDataType type, const void *a, int64_t lda,
                                                     cudaDataType tau_type, const void *tau, cudaDataType compute,
                                                     size_t *on_device, size_t *on_host)
{
    return ask(handle, on_device, on_host);
}

SIM_API cusolverStatus_t cusolverDnXgeqrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                          cudaDataType type, void *a, int64_t lda, cudaDataType tau_type, void *tau,
                                          cudaDataType compute, void *on_device, size_t device_bytes, void *on_host,
                                          size_t host_bytes, int *info)
{
    Api hold(api);
    if (!is_enough(on_host, device_bytes, host_bytes))
        return CUSOLVER_STATUS_INVALID_VALUE;
    return give(handle, {a, tau, on_device, info}, "geqrf", [=] {
        memset(on_device, 0xff, device_bytes);
        std::vector<double> factors;
        Matrix matrix = load(type, a, m, n, lda);
        reflect(matrix, factors);
        store(type, a, matrix, lda);
        store(type, tau, factors);
        *info = 0;
    });
}

SIM_API cusolverStatus_t cusolverDnSorgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const float *a,
                                                     int lda, const float *tau, int *count)
{
    *count = COUNT_ROOM;
    return CUSOLVER_STATUS_SUCCESS;
}

SIM_API cusolverStatus_t cusolverDnDorgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const double *a,
                                                     int lda, const double *tau, int *count)
{
    *count = COUNT_ROOM;
    return CUSOLVER_STATUS_SUCCESS;
}

SIM_API cusolverStatus_t cusolverDnSorgqr(cusolverDnHandle_t handle, int m, int n, int k, float *a, int lda,
                                          const float *tau, float *work, int count, int *info)
{
    Api hold(api);
    return columns(handle, CUDA_R_32F, m, n, k, a, lda, tau, work, count, info);
}

SIM_API cusolverStatus_t cusolverDnDorgqr(cusolverDnHandle_t handle, int m, int n, int k, double *a, int lda,
                                          const double *tau, double *work, int count, int *info)
{
    Api hold(api);
    return columns(handle, CUDA_R_64F, m, n, k, a, lda, tau, work, count, info);
}

SIM_API cusolverStatus_t cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                                     cusolverEigMode_t job, cublasFillMode_t uplo, int64_t n,
                                                     cudaDataType type, const void *a, int64_t lda, cudaDataType w_type,
                                                     const void *w, cudaDataType compute, size_t *on_device,
                                                     size_t *on_host)
{
    return ask(handle, on_device, on_host);
}

SIM_API cusolverStatus_t cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t job,
                                          cublasFillMode_t uplo, int64_t n, cudaDataType type, void *a, int64_t lda,
                                          cudaDataType w_type, void *w, cudaDataType compute, void *on_device,
                                          size_t device_bytes, void *on_host, size_t host_bytes, int *info)
{
    Api hold(api);
    if (!is_enough(on_host, device_bytes, host_bytes))
        return CUSOLVER_STATUS_INVALID_VALUE;
    return give(handle, {a, w, on_device, info}, "syevd", [=] {
        memset(on_device, 0xff, device_bytes);
        std::vector<double> values;
        Matrix matrix = load(type, a, n, n, lda);
        eigen(matrix, uplo == CUBLAS_FILL_MODE_UPPER, values);
        if (job == CUSOLVER_EIG_MODE_NOVECTOR)
            matrix.at.assign(matrix.at.size(), NAN);
        store(type, a, matrix, lda);
        store(type, w, values);
        *info = 0;
    });
}

SIM_API cusolverStatus_t cusolverDnXgesvd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                                     signed char job_u, signed char job_vt, int64_t m, int64_t n,
                                                     cudaDataType type, const void *a, int64_t lda, cudaDataType s_type,
                                                     const void *s, cudaDataType u_type, const void *u, int64_t ldu,
                                                     cudaDataType vt_type, const void *vt, int64_t ldvt,
                                                     cudaDataType compute, size_t *on_device, size_t *on_host)
{
    /* As cuSOLVER's. */
    if (m < n)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return ask(handle, on_device, on_host);
}

SIM_API cusolverStatus_t cusolverDnXgesvd(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char job_u,
                                          signed char job_vt, int64_t m, int64_t n, cudaDataType type, void *a,
                                          int64_t lda, cudaDataType s_type, void *s, cudaDataType u_type, void *u,
                                          int64_t ldu, cudaDataType vt_type, void *vt, int64_t ldvt,
                                          cudaDataType compute, void *on_device, size_t device_bytes, void *on_host,
                                          size_t host_bytes, int *info)
{
    Api hold(api);
    if (!is_enough(on_host, device_bytes, host_bytes) || m < n)
        return CUSOLVER_STATUS_INVALID_VALUE;
    bool vectors = job_u != 'N';
    return give(handle, {a, s, vectors ? u : a, vectors ? vt : a, on_device, info}, "gesvd", [=] {
        memset(on_device, 0xff, device_bytes);
        std::vector<double> values;
        Matrix matrix = load(type, a, m, n, lda), left(0, 0), right(0, 0);
        singular(matrix, job_u == 'A', left, values, right);
        matrix.at.assign(matrix.at.size(), NAN);
        store(type, a, matrix, lda);
        store(type, s, values);
        if (vectors) {
            store(type, u, left, ldu);
            store(type, vt, right, ldvt);
        }
        *info = 0;
    });
}

SIM_API cublasStatus_t cublasStrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                                      cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const float *alpha,
                                      const float *a, int lda, float *b, int ldb)
{
    Api hold(api);
    return solve(handle, CUDA_R_32F, {side, uplo, trans, diag, m, n, *alpha}, a, lda, b, ldb);
}

SIM_API cublasStatus_t cublasDtrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                                      cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const double *alpha,
                                      const double *a, int lda, double *b, int ldb)
{
    Api hold(api);
    return solve(handle, CUDA_R_64F, {side, uplo, trans, diag, m, n, *alpha}, a, lda, b, ldb);
}

SIM_API cublasStatus_t cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                                          cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                                          const float *alpha, const float *const a[], int lda, float *const b[],
                                          int ldb, int batch)
{
    Api hold(api);
    return solve_all(handle, CUDA_R_32F, {side, uplo, trans, diag, m, n, *alpha}, a, lda, b, ldb, batch);
}

SIM_API cublasStatus_t cublasDtrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                                          cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                                          const double *alpha, const double *const a[], int lda, double *const b[],
                                          int ldb, int batch)
{
    Api hold(api);
    return solve_all(handle, CUDA_R_64F, {side, uplo, trans, diag, m, n, *alpha}, a, lda, b, ldb, batch);
}
