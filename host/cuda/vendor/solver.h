/* cuSOLVER's dense routines, and cuBLAS's triangular ones, as one struct of function pointers (solver.def), with the
 * types and codes they need.
 *
 * As with driver.h nothing of the toolkit is included, and where cusolverDn.h was included before, its own declarations
 * serve. The library is opened on first use (library.h): libcusolver.so.12 or .11, or the simulated GPU's. Matrices are
 * column-major. Infos and matrices are in device memory. Lua thread only. */
#pragma once

#include "cuda/vendor/blas.h"

struct ah_cuda_device;

/* NAME(name, value); CUBLAS_OP_* and CUDA_R_* are blas.h's. */
#define AH_CUSOLVER_CODES(NAME)                \
    NAME(CUSOLVER_STATUS_SUCCESS, 0)           \
    NAME(CUSOLVER_STATUS_NOT_INITIALIZED, 1)   \
    NAME(CUSOLVER_STATUS_ALLOC_FAILED, 2)      \
    NAME(CUSOLVER_STATUS_INVALID_VALUE, 3)     \
    NAME(CUSOLVER_STATUS_EXECUTION_FAILED, 6)  \
    NAME(CUSOLVER_STATUS_INTERNAL_ERROR, 7)    \
    NAME(CUSOLVER_EIG_MODE_NOVECTOR, 0)        \
    NAME(CUSOLVER_EIG_MODE_VECTOR, 1)          \
    NAME(CUBLAS_FILL_MODE_LOWER, 0)            \
    NAME(CUBLAS_FILL_MODE_UPPER, 1)            \
    NAME(CUBLAS_SIDE_LEFT, 0)                  \
    NAME(CUBLAS_SIDE_RIGHT, 1)                 \
    NAME(CUBLAS_DIAG_NON_UNIT, 0)              \
    NAME(CUBLAS_DIAG_UNIT, 1)

#ifndef CUSOLVERDN_H_
typedef int cusolverStatus_t;
typedef int cusolverEigMode_t;
typedef int cublasFillMode_t;
typedef int cublasSideMode_t;
typedef int cublasDiagType_t;
typedef int cublasOperation_t;
typedef cudaDataType_t cudaDataType;
typedef struct cusolverDnContext *cusolverDnHandle_t;
typedef struct cusolverDnParams *cusolverDnParams_t;
typedef struct cublasContext *cublasHandle_t;

enum {
#define NAME(name, value) name = value,
    AH_CUSOLVER_CODES(NAME)
#undef NAME
};
#endif

struct ah_cusolver {
#define CALL(result, field, symbol, parameters) result(*field) parameters;
#include "cuda/vendor/solver.def"
#undef CALL
};

/* A device's handles, whose stream is its compute stream. */
struct ah_solver {
    const struct ah_cusolver *call;
    cusolverDnHandle_t dense;
    cusolverDnParams_t params;
    cublasHandle_t blas;
};

/* cuSOLVER with a device's handles; NULL if it is missing or fails to open, which is no error. Its context is this
 * thread's then. */
const struct ah_solver *ah_solver_open(struct ah_cuda_device *cuda);
/* Destroy the handles of a device that is closed. */
void ah_solver_close(const struct ah_cuda_device *cuda);

/* 0, or a failure's text from a status of cuSOLVER or of cuBLAS (`library`): "matrix_qr: cuSOLVER: geqrf: status 7".
 * AH_ENOMEM for memory, else AH_EIO. */
int ah_solver_check(int status, const char *library, const char *op_name, const char *routine);
