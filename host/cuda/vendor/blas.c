/* Opens cuBLASLt. */
#include "cuda/vendor/blas.h"

#include "cuda/driver/api/library.h"

static struct ah_cublas blas_table;

static const char *const blas_files[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};

static const struct ah_cuda_symbol blas_symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_cublas, field)},
#include "cuda/vendor/blas.def"
#undef CALL
};

static struct ah_cuda_library blas_library = {.title = "cuBLASLt", .files = blas_files, .symbols = blas_symbols,
                                         .count = sizeof blas_symbols / sizeof blas_symbols[0], .table = &blas_table,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

int ah_cublas_open(const struct ah_cublas **out)
{
    *out = &blas_table;
    return ah_cuda_library_open(&blas_library);
}
