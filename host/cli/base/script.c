/* A script that can be read only once is copied into a memfd, which several processes can read at once by pread. */
#include "cli/base/script.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status/status.h"
#include "cli/base/usage.h"

/* LuaJIT's stack for one call holds 8,000 values. */
enum { MOST_ARGUMENTS = 7900 };

int ah_script_check(const char *command, int argc, char **argv)
{
    struct stat info;
    if (argc < 1)
        return ah_usage(command, "expected a script, got nothing: accelhost %s [options] script.lua", command);
    if (!strcmp(argv[0], "-i"))
        return ah_usage(command, "-i is for a prompt after a script: accelhost -i script.lua");
    bool module = ah_script_is_module(argv[0]), code = !strcmp(argv[0], "-e") || module;
    if (code && argc < 2)
        return ah_usage(command, module ? "%s expects the name of a module" : "%s expects code", argv[0]);
    int own = argc - 1 - code;
    if (own > MOST_ARGUMENTS)
        return ah_usage(command, "%d arguments are more than the %d that a script can receive", own, MOST_ARGUMENTS);
    if (code)
        return 0;
    if (!strcmp(argv[0], "-"))
        return 0;
    if (stat(argv[0], &info) || access(argv[0], R_OK))
        return ah_usage(command, "cannot read '%s': %s", argv[0], strerror(errno));
    if (S_ISDIR(info.st_mode))
        return ah_usage(command, "expected a script, but '%s' is a directory", argv[0]);
    return 0;
}

bool ah_script_is_module(const char *word)
{
    return !strcmp(word, "-m") || !strcmp(word, "--module");
}

bool ah_script_is_stream(const char *path)
{
    struct stat info;
    /* /dev/stdin and /dev/fd/3 are other files in another process. */
    return !strcmp(path, "-") || !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6) ||
           (!stat(path, &info) && !S_ISREG(info.st_mode));
}

static int script_copy(int from, int to)
{
    char text[65536];
    for (;;) {
        ssize_t n = read(from, text, sizeof text);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        for (ssize_t at = 0; at < n;) {
            ssize_t written = write(to, text + at, (size_t)(n - at));
            if (written < 0)
                return -1;
            at += written;
        }
    }
}

int ah_script_keep(const char *path, int *fd)
{
    bool standard = !strcmp(path, "-");
    int from = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return ah_fail(AH_EIO, "cannot read '%s': %s", path, strerror(errno));
    int status = 0, kept = memfd_create("accelhost-script", MFD_CLOEXEC);
    if (kept < 0 || script_copy(from, kept)) {
        status = ah_fail(AH_EIO, "cannot read the script from '%s': %s", path, strerror(errno));
        if (kept >= 0)
            close(kept);
    }
    if (!standard)
        close(from);
    *fd = kept;
    return status;
}
