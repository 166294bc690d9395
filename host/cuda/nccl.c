/* Opens NCCL. */
#include "cuda/nccl.h"

#include "base/status.h"
#include "cuda/library.h"

static struct ah_nccl table;

static const char *const files[] = {"libnccl.so.2", NULL};

static const struct ah_cuda_symbol symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_nccl, field)},
#include "cuda/nccl.def"
#undef CALL
};

static struct ah_cuda_library library = {.title = "NCCL", .files = files, .symbols = symbols,
                                         .count = sizeof symbols / sizeof symbols[0], .table = &table,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

int ah_nccl_open(const struct ah_nccl **out)
{
    *out = &table;
    return ah_cuda_library_open(&library);
}
