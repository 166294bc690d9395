/* Opens NCCL. */
#include "cuda/nccl/nccl.h"

#include <pthread.h>
#include <stdlib.h>

#include "cuda/driver/api/library.h"

static struct ah_nccl nccl_table;

static const char *const nccl_files[] = {"libnccl.so.2", NULL};

static const struct ah_cuda_symbol nccl_symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_nccl, field)},
#include "cuda/nccl/nccl.def"
#undef CALL
};

static struct ah_cuda_library nccl_library = {.title = "NCCL",
                                         .files = nccl_files,
                                         .symbols = nccl_symbols,
                                         .count = sizeof nccl_symbols / sizeof nccl_symbols[0],
                                         .table = &nccl_table,
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
    *out = &nccl_table;
    return ah_cuda_library_open(&nccl_library);
}
