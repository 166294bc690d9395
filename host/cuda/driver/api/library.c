/* Opening a library: the first of its names that is here, then every symbol; the result is kept. A library stays open,
 * since its objects may live as long as the process. */
#include "cuda/driver/api/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/process/plugin.h"
#include "base/status/status.h"
#include "cuda/driver/api/driver.h"

static int library_find(struct ah_cuda_library *library)
{
    if (!library->without_driver)
        AH_TRY(ah_cuda_driver_open());
    void *opened = NULL;
    bool simulated = ah_cuda_is_to_be_simulated();
    if (simulated) {
        char path[4096];
        ah_plugin_find("cudasim", path, sizeof path);
        opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    for (int i = 0; !opened && !simulated && library->files[i]; i++)
        opened = dlopen(library->files[i], RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        const char *text = dlerror();
        return ah_fail(AH_EINVAL, "%s cannot be opened (searched: %s): %s", library->title, library->files[0],
                       text ? text : "not found");
    }
    for (size_t i = 0; i < library->count; i++) {
        void *function = dlsym(opened, library->symbols[i].name);
        if (!function)
            return ah_fail(AH_EINVAL, "%s has no %s: it is too old", library->title, library->symbols[i].name);
        memcpy((char *)library->table + library->symbols[i].place, &function, sizeof function);
    }
    return 0;
}

int ah_cuda_library_open(struct ah_cuda_library *library)
{
    AH_LOCK_SCOPE(&library->lock);
    if (!library->state) {
        int status = library_find(library);
        library->state = status < 0 ? status : 1;
        snprintf(library->reason, sizeof library->reason, "%s", status < 0 ? ah_error_text() : "");
    }
    int state = library->state;
    return state < 0 ? ah_fail(state, "%s", library->reason) : 0;
}
