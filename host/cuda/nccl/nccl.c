/* Opens NCCL. */
#include "cuda/nccl/nccl.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "cuda/driver/api/library.h"

static struct ah_nccl table;

static const char *const files[] = {"libnccl.so.2", NULL};

static const struct ah_cuda_symbol symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_nccl, field)},
#include "cuda/nccl/nccl.def"
#undef CALL
};

static struct ah_cuda_library library = {.title = "NCCL",
                                         .files = files,
                                         .symbols = symbols,
                                         .count = sizeof symbols / sizeof symbols[0],
                                         .table = &table,
                                         .lock = PTHREAD_MUTEX_INITIALIZER};

/* NCCL would register the buffers of captured collectives with the other ranks, which requires one allocation for the
 * whole of a buffer; those of the allocator's range (range.h) are many. */
static void set_variable(void)
{
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

int ah_nccl_open(const struct ah_nccl **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_variable);
    *out = &table;
    return ah_cuda_library_open(&library);
}
