/* Opens cuDNN. */
#include "cuda/vendor/dnn.h"

#include "base/status/status.h"
#include "cuda/driver/api/library.h"

static struct ah_cudnn table;

static const char *const files[] = {"libcudnn.so.9", NULL};

static const struct ah_cuda_symbol symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_cudnn, field)},
#include "cuda/vendor/dnn.def"
#undef CALL
};

static struct ah_cuda_library library = {.title = "cuDNN", .files = files, .symbols = symbols,
                                         .count = sizeof symbols / sizeof symbols[0], .table = &table,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

int ah_cudnn_open(const struct ah_cudnn **out)
{
    *out = &table;
    return ah_cuda_library_open(&library);
}
