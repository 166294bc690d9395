/* cuBLASLt, as one struct of function pointers (blas.def), with the types and codes it needs.
 *
 * As with driver.h nothing of the toolkit is included, and where cublasLt.h was included before, its own declarations
 * serve. The library is opened on first use (library.h): libcublasLt.so.13 or .12, or the simulated GPU's. */
#pragma once

#include "cuda/driver/api/driver.h"

/* NAME(name, value) */
#define AH_CUBLAS_CODES(NAME)                             \
    NAME(CUBLAS_STATUS_SUCCESS, 0)                        \
    NAME(CUBLAS_STATUS_NOT_INITIALIZED, 1)                \
    NAME(CUBLAS_STATUS_ALLOC_FAILED, 3)                   \
    NAME(CUBLAS_STATUS_INVALID_VALUE, 7)                  \
    NAME(CUBLAS_STATUS_EXECUTION_FAILED, 13)              \
    NAME(CUBLAS_STATUS_NOT_SUPPORTED, 15)                 \
    NAME(CUDA_R_32F, 0)                                   \
    NAME(CUDA_R_64F, 1)                                   \
    NAME(CUDA_R_16F, 2)                                   \
    NAME(CUDA_R_16BF, 14)                                 \
    NAME(CUDA_R_8F_E4M3, 28)                              \
    NAME(CUDA_R_8F_E5M2, 29)                              \
    NAME(CUBLAS_COMPUTE_32F, 68)                          \
    NAME(CUBLAS_COMPUTE_32F_PEDANTIC, 69)                 \
    NAME(CUBLAS_COMPUTE_64F, 70)                          \
    NAME(CUBLAS_COMPUTE_32F_FAST_16BF, 75)                \
    NAME(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                \
    NAME(CUBLAS_OP_N, 0)                                  \
    NAME(CUBLAS_OP_T, 1)                                  \
    NAME(CUBLASLT_ORDER_COL, 0)                           \
    NAME(CUBLASLT_ORDER_ROW, 1)                           \
    NAME(CUBLASLT_POINTER_MODE_HOST, 0)                   \
    NAME(CUBLASLT_POINTER_MODE_DEVICE, 1)                 \
    NAME(CUBLASLT_MATRIX_LAYOUT_TYPE, 0)                  \
    NAME(CUBLASLT_MATRIX_LAYOUT_ORDER, 1)                 \
    NAME(CUBLASLT_MATRIX_LAYOUT_ROWS, 2)                  \
    NAME(CUBLASLT_MATRIX_LAYOUT_COLS, 3)                  \
    NAME(CUBLASLT_MATRIX_LAYOUT_LD, 4)                    \
    NAME(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)           \
    NAME(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)  \
    NAME(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 0)            \
    NAME(CUBLASLT_MATMUL_DESC_SCALE_TYPE, 1)              \
    NAME(CUBLASLT_MATMUL_DESC_POINTER_MODE, 2)            \
    NAME(CUBLASLT_MATMUL_DESC_TRANSA, 3)                  \
    NAME(CUBLASLT_MATMUL_DESC_TRANSB, 4)                  \
    NAME(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                \
    NAME(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)            \
    NAME(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10)      \
    NAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)   \
    NAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)        \
    NAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, 13) \
    NAME(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 17)        \
    NAME(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 18)        \
    NAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 22) \
    NAME(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)         \
    NAME(CUBLASLT_MATMUL_PREF_SEARCH_MODE, 0)             \
    NAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)     \
    NAME(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)   \
    NAME(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)       \
    NAME(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 4)        \
    NAME(CUBLASLT_REDUCTION_SCHEME_MASK, 7)               \
    NAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)   \
    NAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)   \
    NAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)   \
    NAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)   \
    NAME(CUBLASLT_EPILOGUE_DEFAULT, 1)                    \
    NAME(CUBLASLT_EPILOGUE_RELU, 2)                       \
    NAME(CUBLASLT_EPILOGUE_BIAS, 4)                       \
    NAME(CUBLASLT_EPILOGUE_RELU_BIAS, 6)                  \
    NAME(CUBLASLT_EPILOGUE_RELU_AUX, 130)                 \
    NAME(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 134)            \
    NAME(CUBLASLT_EPILOGUE_DRELU, 136)                    \
    NAME(CUBLASLT_EPILOGUE_DRELU_BGRAD, 152)              \
    NAME(CUBLASLT_EPILOGUE_GELU, 32)                      \
    NAME(CUBLASLT_EPILOGUE_GELU_BIAS, 36)                 \
    NAME(CUBLASLT_EPILOGUE_GELU_AUX, 160)                 \
    NAME(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)            \
    NAME(CUBLASLT_EPILOGUE_DGELU, 192)                    \
    NAME(CUBLASLT_EPILOGUE_DGELU_BGRAD, 208)              \
    NAME(CUBLASLT_EPILOGUE_BGRADA, 256)                   \
    NAME(CUBLASLT_EPILOGUE_BGRADB, 512)

#ifndef CUBLASAPI /* of cublasLt.h */
typedef int cublasStatus_t;
typedef int cublasComputeType_t;
typedef int cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct ah_cublas_matmul *cublasLtMatmulDesc_t;
typedef struct ah_cublas_layout *cublasLtMatrixLayout_t;
typedef struct ah_cublas_preference *cublasLtMatmulPreference_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

enum {
#define NAME(name, value) name = value,
    AH_CUBLAS_CODES(NAME)
#undef NAME
};
#endif

struct ah_cublas {
#define CALL(result, field, symbol, parameters) result(*field) parameters;
#include "cuda/vendor/blas.def"
#undef CALL
};

/* Open cuBLASLt, once; later calls return the first result. AH_EINVAL names the missing part in one line. Any
 * thread. */
int ah_cublas_open(const struct ah_cublas **out);
