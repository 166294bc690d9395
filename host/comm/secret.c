/* Files are the user's alone, as ssh wants its keys. */
#include "comm/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "comm/address.h"

static int take(struct ah_secret *out, const char *where, const char *text, size_t bytes)
{
    while (bytes && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    if (bytes < AH_SECRET_LEAST || bytes > AH_SECRET)
        return ah_fail(AH_EINVAL, "%s: expected a secret of %d to %d bytes, got %zu", where, AH_SECRET_LEAST, AH_SECRET,
                       bytes);
    memcpy(out->text, text, bytes);
    out->text[bytes] = 0;
    out->bytes = bytes;
    return strlen(out->text) == bytes ? 0 : ah_fail(AH_EINVAL, "%s: expected a text, got a byte of 0", where);
}

static int read_secret(struct ah_secret *out, const char *path)
{
    char text[AH_SECRET + 8];
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ah_fail(AH_EIO, "the job's secret: %s: %s", path, strerror(errno));
    bool looked = !fstat(fd, &info), shared = looked && (info.st_mode & 077);
    ssize_t bytes = looked ? read(fd, text, sizeof text) : -1;
    close(fd);
    if (bytes < 0)
        return ah_fail(AH_EIO, "the job's secret: %s: %s", path, strerror(errno));
    if (shared)
        return ah_fail(AH_EINVAL, "%s: others may read it, and it is the job's secret (chmod 600)", path);
    return take(out, path, text, (size_t)bytes);
}

static int read_named(struct ah_secret *out, const char *path)
{
    out->open = !strcmp(path, "none");
    return out->open ? 0 : read_secret(out, path);
}

int ah_secret_find(struct ah_secret *out, const char *file, const char *key)
{
    const char *named = getenv("ACCELHOST_SECRET_FILE"), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    const char *text = getenv("ACCELHOST_SECRET"), *drawn = key ? getenv(key) : NULL;
    char path[4096];
    *out = (struct ah_secret){0};
    if (file)
        return read_named(out, file);
    if (text && *text)
        return take(out, "ACCELHOST_SECRET", text, strlen(text));
    if (named && *named)
        return read_named(out, named);
    if (drawn && *drawn)
        return take(out, key, drawn, strlen(drawn));
    if (config && *config)
        snprintf(path, sizeof path, "%s/accelhost/secret", config);
    else
        snprintf(path, sizeof path, "%s/.config/accelhost/secret", home ? home : "");
    return access(path, F_OK) ? 0 : read_secret(out, path);
}

void ah_secret_forget(void)
{
    char *text = getenv("ACCELHOST_SECRET");
    if (text)
        explicit_bzero(text, strlen(text)); /* /proc/PID/environ shows the memory that the process began with */
    unsetenv("ACCELHOST_SECRET");
}

int ah_secret_check(const struct ah_secret *secret, const char *host)
{
    if (secret->bytes || secret->open || ah_address_is_loopback(host))
        return 0;
    return ah_fail(AH_EINVAL, "a job on several hosts needs a secret, or whoever reaches %s could join it: head -c 32 "
                   "/dev/urandom | base64 > ~/.config/accelhost/secret; chmod 600; and the same file on each host (or "
                   "--secret_file FILE, ACCELHOST_SECRET; --secret_file none trusts the network)", host);
}
