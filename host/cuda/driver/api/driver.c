/* The driver's table: one library is opened, every row of driver.def searched in it, cuInit called, all once; the
 * result is kept, so that all later callers get the same. The library stays open, since its memory may live as long as
 * the process. */
#include "cuda/driver/api/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process/plugin.h"
#include "base/status/status.h"

struct ah_cuda_driver ah_cuda;

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static int driver_opened;
static char driver_reason[512];
static bool simulated;
static int version;

/* The failure by which a context was lost. */
static struct {
    pthread_mutex_t lock;
    _Atomic bool known; /* released after `text`; relaxed under the lock */
    char text[1024];
} driver_loss = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct row {
    const char *symbol;
    size_t place;
} driver_rows[] = {
#define CALL(field, symbol, parameters) {#symbol, offsetof(struct ah_cuda_driver, field)},
#include "cuda/driver/api/driver.def"
#undef CALL
};

bool ah_cuda_is_to_be_simulated(void)
{
    const char *choice = getenv("ACCELHOST_CUDA");
    return choice && !strcmp(choice, "sim");
}

static void *open_library(void)
{
    const char *choice = getenv("ACCELHOST_CUDA");
    simulated = ah_cuda_is_to_be_simulated();
    if (choice && *choice && !simulated) {
        ah_fail(AH_EINVAL, "ACCELHOST_CUDA: expected \"sim\" or nothing, got \"%s\"", choice);
        return NULL;
    }
    char path[4096] = "libcuda.so.1";
    if (simulated && !ah_plugin_find("cudasim", path, sizeof path)) {
        ah_fail(AH_EINVAL, "the simulated GPU accelhost-cudasim.so is not here (searched: %s; make sim builds it)",
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
    for (size_t i = 0; i < sizeof driver_rows / sizeof driver_rows[0]; i++) {
        void *function = dlsym(library, driver_rows[i].symbol);
        if (!function)
            return ah_fail(AH_EINVAL, "the driver has no %s: it is older than CUDA 12", driver_rows[i].symbol);
        memcpy((char *)&ah_cuda + driver_rows[i].place, &function, sizeof function);
    }
    AH_TRY(ah_cuda_check(ah_cuda.init(0), "the driver does not start"));
    return ah_cuda_check(ah_cuda.driver_version(&version), "the driver's version");
}

static void open_once(void)
{
    driver_opened = open_driver();
    snprintf(driver_reason, sizeof driver_reason, "%s", driver_opened < 0 ? ah_error_text() : "");
}

int ah_cuda_driver_open(void)
{
    pthread_once(&driver_once, open_once);
    return driver_opened < 0 ? ah_fail(driver_opened, "%s", driver_reason) : 0;
}

bool ah_cuda_is_simulated(void)
{
    return simulated;
}

int ah_cuda_driver_version(void)
{
    return version;
}

/* After these, by cuda.h, each call for the context returns the same error until the process ends. */
static bool is_loss(CUresult code)
{
    enum { CONTAINED = 226, TENSOR_MEMORY_LEAK = 721 }; /* of headers since 12.8 */
    static const int losses[] = {
        CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, CONTAINED,
        CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED, TENSOR_MEMORY_LEAK, CUDA_ERROR_MPS_CLIENT_TERMINATED,
        CUDA_ERROR_EXTERNAL_DEVICE,
    };
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++)
        if ((int)code == losses[i])
            return true;
    return false;
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
    default:
        return AH_EIO;
    }
}

int ah_cuda_check_lost(void)
{
    return atomic_load_explicit(&driver_loss.known, memory_order_acquire) ? ah_fail(AH_ESTATE, "%s", driver_loss.text)
                                                                          : 0;
}

/* Keep the text of the first failure that loses a context; it stays the text of all that follow. */
static int driver_lose(const char *what, const char *text, const char *name)
{
    AH_LOCK_SCOPE(&driver_loss.lock);
    if (!atomic_load_explicit(&driver_loss.known, memory_order_relaxed)) {
        snprintf(driver_loss.text, sizeof driver_loss.text,
                 "%s: %s (%s); the device cannot be used any more: start the process again", what, text, name);
        atomic_store_explicit(&driver_loss.known, true, memory_order_release);
    }
    return ah_cuda_check_lost();
}

int ah_cuda_check(CUresult code, const char *format, ...)
{
    if (code == CUDA_SUCCESS)
        return 0;
    AH_TRY(ah_cuda_check_lost());
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
    text = text ? text : "unknown error";
    name = name ? name : "no name";
    return is_loss(code) ? driver_lose(what, text, name) : ah_fail(status_of(code), "%s: %s (%s)", what, text, name);
}
