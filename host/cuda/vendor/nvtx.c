/* Opens NVTX, and passes the trace's ranges on to it. */
#include "cuda/vendor/nvtx.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cuda/driver/api/library.h"

static struct ah_nvtx nvtx_table;
static bool nvtx_always; /* to the end of the process */

static const char *const nvtx_files[] = {"libnvtx3interop.so.1", "libnvToolsExt.so.1", NULL};

static const struct ah_cuda_symbol nvtx_symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_nvtx, field)},
#include "cuda/vendor/nvtx.def"
#undef CALL
};

static struct ah_cuda_library nvtx_library = {.title = "NVTX", .files = nvtx_files, .symbols = nvtx_symbols,
                                              .count = sizeof nvtx_symbols / sizeof nvtx_symbols[0],
                                              .table = &nvtx_table, .lock = PTHREAD_MUTEX_INITIALIZER};

static void nvtx_push(const char *name)
{
    nvtx_table.push(name);
}

static void nvtx_pop(void)
{
    nvtx_table.pop();
}

int ah_nvtx_report(bool on)
{
    static const struct ah_trace_ranges ranges = {nvtx_push, nvtx_pop};
    if (on)
        AH_TRY(ah_cuda_library_open(&nvtx_library));
    ah_trace_set_ranges(on || nvtx_always ? &ranges : NULL);
    return 0;
}

int ah_nvtx_open(void)
{
    const char *asked = getenv("ACCELHOST_NVTX"), *attached = getenv("NVTX_INJECTION64_PATH");
    bool wanted = asked && !strcmp(asked, "1");
    if (nvtx_always || (!wanted && !(attached && *attached)))
        return 0;
    int status = ah_nvtx_report(true);
    nvtx_always = status == 0;
    return wanted ? status : 0;
}
