/* A folder with all that leads to it: each part of the path in turn. */
#include "base/io/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status/status.h"

int ah_folder_make(const char *path)
{
    char part[4096];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return ah_fail(AH_EINVAL, "the folder's name is longer than %zu bytes", sizeof part - 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            return ah_fail(AH_EIO, "cannot make the folder %s: %s", part, strerror(errno));
    }
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISDIR(found.st_mode))
        return ah_fail(AH_EIO, "cannot make the folder %s: a file has this name", path);
    return 0;
}

int ah_folder_sync(const char *path)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return ah_fail(AH_EIO, "%s: cannot open: %s", path, strerror(errno));
    int failed = fsync(folder) && errno != EINVAL, reason = errno;
    close(folder);
    return failed ? ah_fail(AH_EIO, "%s: cannot write: %s", path, strerror(reason)) : 0;
}
