/* Compiled where CUDA's toolkit is, never linked: the declarations of host/cuda/vendor/solver.h equal cusolverDn.h's.
 * */
#include <cuda.h>

#include <cublasLt.h>
#include <cusolverDn.h>

#include "cuda/vendor/solver.h"

#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), "differs from cusolverDn.h: " #a)

#define CALL(result, field, symbol, parameters) \
    SAME(__typeof__(&symbol), __typeof__(((struct ah_cusolver *)0)->field));
#include "cuda/vendor/solver.def"
#undef CALL

/* The definitions of the plugin's own types. */
_Static_assert(sizeof(cusolverStatus_t) == sizeof(int), "a status is an int");
_Static_assert(sizeof(cusolverEigMode_t) == sizeof(int), "a mode is an int");
_Static_assert(sizeof(cublasFillMode_t) == sizeof(int), "a triangle is an int");
_Static_assert(sizeof(cublasSideMode_t) == sizeof(int), "a side is an int");
_Static_assert(sizeof(cublasDiagType_t) == sizeof(int), "a diagonal is an int");
_Static_assert(sizeof(cublasOperation_t) == sizeof(int), "an operation is an int");
SAME(cudaDataType, cudaDataType_t);

#define NAME(name, value) _Static_assert((int)name == (value), #name " has another value in cusolverDn.h");
AH_CUSOLVER_CODES(NAME)
#undef NAME
