/* Opens cuDNN. */
#include "cuda/vendor/dnn.h"

#include "cuda/driver/api/library.h"

static struct ah_cudnn dnn_table;

static const char *const dnn_files[] = {"libcudnn.so.9", NULL};

static const struct ah_cuda_symbol dnn_symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_cudnn, field)},
#include "cuda/vendor/dnn.def"
#undef CALL
};

static struct ah_cuda_library dnn_library = {.title = "cuDNN", .files = dnn_files, .symbols = dnn_symbols,
                                         .count = sizeof dnn_symbols / sizeof dnn_symbols[0], .table = &dnn_table,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

int ah_cudnn_open(const struct ah_cudnn **out)
{
    *out = &dnn_table;
    return ah_cuda_library_open(&dnn_library);
}
