/* Compiled where CUDA's toolkit is, never linked: the declarations of host/cuda/vendor/blas.h equal cublasLt.h's. */
#include <cuda.h>

#include <cublasLt.h>

#include "cuda/vendor/blas.h"

#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), "differs from cublasLt.h: " #a)

#define CALL(result, field, symbol, parameters) \
    SAME(__typeof__(&symbol), __typeof__(((struct ah_cublas *)0)->field));
#include "cuda/vendor/blas.def"
#undef CALL

/* The definitions of the plugin's own types. */
_Static_assert(sizeof(cublasStatus_t) == sizeof(int), "a status is an int");
_Static_assert(sizeof(cublasComputeType_t) == sizeof(int), "a compute type is an int");
_Static_assert(sizeof(cudaDataType_t) == sizeof(int), "a data type is an int");
_Static_assert(sizeof(cublasLtMatmulDescAttributes_t) == sizeof(int), "an attribute is an int");
_Static_assert(sizeof(cublasLtMatrixLayoutAttribute_t) == sizeof(int), "an attribute is an int");
_Static_assert(sizeof(cublasLtMatmulPreferenceAttributes_t) == sizeof(int), "an attribute is an int");
_Static_assert(sizeof(cublasLtMatmulDesc_t) == sizeof(void *), "a description is a pointer");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == 64, "an algorithm has 64 bytes");
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96, "a result has 96 bytes");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64, "the workspace's size is second");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72, "then the state");

#define NAME(name, value) _Static_assert((int)name == (value), #name " has another value in cublasLt.h");
AH_CUBLAS_CODES(NAME)
#undef NAME
