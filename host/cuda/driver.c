/* The driver's table: one library is opened, every row of driver.def looked up in it, cuInit called, all once; how that
 * went is kept, so that whoever asks later hears the same. The library stays open, since memory of its may live as long
 * as the process. */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin.h"
#include "base/status.h"

struct ah_cuda_driver ah_cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int opened;
static char reason[512];
static bool simulated;
static int version;

static const struct row {
    const char *symbol;
    size_t place;
} rows[] = {
#define CALL(field, symbol, parameters) {#symbol, offsetof(struct ah_cuda_driver, field)},
#include "cuda/driver.def"
#undef CALL
};

static void *open_library(void)
{
    const char *choice = getenv("ACCELHOST_CUDA");
    simulated = choice && !strcmp(choice, "sim");
    if (choice && *choice && !simulated) {
        ah_fail(AH_EINVAL, "ACCELHOST_CUDA: expected \"sim\" or nothing, got \"%s\"", choice);
        return NULL;
    }
    char path[4096] = "libcuda.so.1";
    if (simulated && !ah_plugin_find("cudasim", path, sizeof path)) {
        ah_fail(AH_EINVAL, "the simulated GPU accelhost-cudasim.so is not here (looked for %s; make sim builds it)",
                path);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *text = dlerror();
        if (simulated || !strstr(text, "cannot open shared object file"))
            ah_fail(AH_EINVAL, "%s", text);
        else
            ah_fail(AH_EINVAL, "libcuda.so.1 not found (is the NVIDIA driver installed?)");
    }
    return library;
}

static int open_driver(void)
{
    void *library = open_library();
    if (!library)
        return AH_EINVAL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = dlsym(library, rows[i].symbol);
        if (!function)
            return ah_fail(AH_EINVAL, "the driver has no %s: it is older than CUDA 12", rows[i].symbol);
        memcpy((char *)&ah_cuda + rows[i].place, &function, sizeof function);
    }
    AH_TRY(ah_cuda_check(ah_cuda.init(0), "the driver does not start"));
    return ah_cuda_check(ah_cuda.driver_version(&version), "the driver's version");
}

static void open_once(void)
{
    opened = open_driver();
    snprintf(reason, sizeof reason, "%s", opened < 0 ? ah_error_text() : "");
}

int ah_cuda_driver_open(void)
{
    pthread_once(&once, open_once);
    return opened < 0 ? ah_fail(opened, "%s", reason) : 0;
}

bool ah_cuda_is_simulated(void)
{
    return simulated;
}

int ah_cuda_driver_version(void)
{
    return version;
}

static int status_of(CUresult code)
{
    switch ((int)code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return AH_ENOMEM;
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return AH_EINVAL;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
        return AH_ESTATE;
    default:
        return AH_EIO;
    }
}

int ah_cuda_check(CUresult code, const char *format, ...)
{
    if (code == CUDA_SUCCESS)
        return 0;
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *name = NULL, *text = NULL;
    if (ah_cuda.error_name)
        ah_cuda.error_name(code, &name);
    if (ah_cuda.error_text)
        ah_cuda.error_text(code, &text);
    return ah_fail(status_of(code), "%s: %s (%s)", what, text ? text : "unknown error", name ? name : "no name");
}
