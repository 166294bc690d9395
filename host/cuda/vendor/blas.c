/* Opens cuBLASLt. */
#include "cuda/vendor/blas.h"

#include "base/status/status.h"
#include "cuda/driver/api/library.h"

static struct ah_cublas table;

static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};

static const struct ah_cuda_symbol symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_cublas, field)},
#include "cuda/vendor/blas.def"
#undef CALL
};

static struct ah_cuda_library library = {.title = "cuBLASLt", .files = files, .symbols = symbols,
                                         .count = sizeof symbols / sizeof symbols[0], .table = &table,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

int ah_cublas_open(const struct ah_cublas **out)
{
    *out = &table;
    return ah_cuda_library_open(&library);
}
