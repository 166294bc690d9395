/* Plugins are searched for next to the running program, not next to a link to it. */
#include "base/process/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/process/program.h"
#include "base/status/status.h"

bool ah_plugin_find(const char *name, char *path, size_t room)
{
    static const char *const places[] = {"../lib/accelhost/", ""};
    char program[3072];
    ah_program_path(program, sizeof program);
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, room, "%s/%saccelhost-%s.so", slash ? program : ".", places[i], name);
        if (!access(path, F_OK))
            return true;
    }
    return false;
}

static int plugin_symbol(const char *name, const char *symbol, const void **out)
{
    char path[4096];
    if (!ah_plugin_find(name, path, sizeof path))
        return ah_fail(AH_EINVAL, "accelhost-%s.so is not here (searched: %s)", name, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ah_fail(AH_EINVAL, "%s", dlerror());
    *out = dlsym(library, symbol);
    if (!*out) {
        dlclose(library);
        return ah_fail(AH_EINVAL, "%s is not a plugin of this program (no symbol %s)", path, symbol);
    }
    return 0;
}

int ah_plugin_open(const char *name, const char *symbol, unsigned abi, const char *needs, const void **out)
{
    const void *interface = NULL;
    if (*out)
        return 0;
    int status = plugin_symbol(name, symbol, &interface);
    if (status < 0)
        return needs ? ah_fail_prefix(status, "%s", needs) : status;
    unsigned found = *(const unsigned *)interface;
    if (found != abi)
        return ah_fail(AH_EINVAL, "accelhost-%s.so has interface %u, this program %u: build both again", name, found,
                       abi);
    *out = interface;
    return 0;
}
