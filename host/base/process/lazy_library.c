/* The file is searched for as the dynamic linker does for the program's own libraries (RPATH of the Makefile). */
#include "base/process/lazy_library.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/status/status.h"

static pthread_mutex_t lazy_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local bool lazy_loading;

bool ah_lazy_is_loading(void)
{
    return lazy_loading;
}

static int lazy_load_locked(struct ah_lazy_library *library)
{
    if (atomic_load_explicit(&library->is_open, memory_order_relaxed))
        return 0;
    lazy_loading = true;
    void *file = dlopen(library->file, RTLD_LAZY | RTLD_LOCAL);
    lazy_loading = false;
    if (!file)
        return ah_fail(AH_EIO, "%s: %s", library->name, dlerror());
    for (int i = 0; i < library->count; i++) {
        library->calls[i] = dlsym(file, library->symbols[i]);
        if (!library->calls[i])
            return ah_fail(AH_EIO, "%s: %s has no function %s", library->name, library->file, library->symbols[i]);
    }
    atomic_store_explicit(&library->is_open, true, memory_order_release);
    return 0;
}

int ah_lazy_load(struct ah_lazy_library *library)
{
    AH_LOCK_SCOPE(&lazy_lock);
    return lazy_load_locked(library);
}
