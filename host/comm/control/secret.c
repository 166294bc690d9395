/* Files are the user's alone, as ssh wants its keys. */
#include "comm/control/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status/status.h"
#include "comm/control/address.h"

static int secret_read(struct ah_secret *out, const char *where, const char *text, size_t bytes)
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
    return secret_read(out, path, text, (size_t)bytes);
}

static int read_named(struct ah_secret *out, const char *path)
{
    out->open = !strcmp(path, "none");
    return out->open ? 0 : read_secret(out, path);
}

/* Of the user's files for this program. */
static int find_folder(char *folder, size_t room)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && *config)
        snprintf(folder, room, "%s/accelhost", config);
    else if (home && *home)
        snprintf(folder, room, "%s/.config/accelhost", home);
    else
        return ah_fail(AH_EINVAL, "neither XDG_CONFIG_HOME nor HOME is set");
    return 0;
}

int ah_secret_find(struct ah_secret *out, const char *file, const char *key)
{
    const char *named = getenv("ACCELHOST_SECRET_FILE");
    const char *text = getenv("ACCELHOST_SECRET"), *drawn = key ? getenv(key) : NULL;
    char folder[PATH_MAX], path[PATH_MAX + 16];
    *out = (struct ah_secret){0};
    if (file)
        return read_named(out, file);
    if (text && *text)
        return secret_read(out, "ACCELHOST_SECRET", text, strlen(text));
    if (named && *named)
        return read_named(out, named);
    if (drawn && *drawn)
        return secret_read(out, key, drawn, strlen(drawn));
    if (find_folder(folder, sizeof folder) < 0)
        return 0;
    snprintf(path, sizeof path, "%s/secret", folder);
    return access(path, F_OK) ? 0 : read_secret(out, path);
}

void ah_secret_forget(void)
{
    char *text = getenv("ACCELHOST_SECRET");
    if (text)
        explicit_bzero(text, strlen(text)); /* /proc/PID/environ shows the memory that the process began with */
    unsetenv("ACCELHOST_SECRET");
}

int ah_secret_draw(struct ah_secret *out)
{
    unsigned char bytes[24];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return ah_fail(AH_EIO, "the job's secret: the system returned no random bytes");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out->text + 2 * i, 3, "%02x", bytes[i]);
    out->bytes = 2 * sizeof bytes;
    return 0;
}

/* Write a new secret under the path, unless there is a file by now: processes that draw at once read one of theirs. */
static int draw_file(const char *path)
{
    struct ah_secret drawn = {0};
    char temporary[PATH_MAX + 144];
    AH_TRY(ah_secret_draw(&drawn));
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC); /* the user's alone */
    if (fd < 0)
        return ah_fail(AH_EIO, "%s: %s", path, strerror(errno));
    bool good = write(fd, drawn.text, drawn.bytes) == (ssize_t)drawn.bytes && !fsync(fd) &&
                (!link(temporary, path) || errno == EEXIST);
    int error = errno;
    close(fd);
    unlink(temporary);
    return good ? 0 : ah_fail(AH_EIO, "%s: %s", path, strerror(error));
}

static int find_own(char *path, size_t room)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char host[64], folder[PATH_MAX];
    if (runtime && *runtime && !access(runtime, W_OK)) {
        snprintf(path, room, "%s/accelhost-secret", runtime);
        return 0;
    }
    ah_address_own_name(host, sizeof host); /* a home folder may be that of several hosts */
    AH_TRY(find_folder(folder, sizeof folder));
    snprintf(path, room, "%s/secret-%s", folder, host);
    for (char *at = folder + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = 0;
        mkdir(folder, 0700);
    }
    mkdir(folder, 0700);
    return 0;
}

int ah_secret_need(struct ah_secret *secret, const char *host)
{
    char path[PATH_MAX + 128];
    int status = 0;
    if (secret->bytes || secret->open)
        return 0;
    if (!ah_address_is_loopback(host))
        return ah_fail(AH_EINVAL, "a job on several hosts needs a secret, or any process that reaches %s could join "
                       "it: head -c 32 /dev/urandom | base64 > ~/.config/accelhost/secret; chmod 600; and the same "
                       "file on each host (or --secret_file FILE, ACCELHOST_SECRET; --secret_file none trusts the "
                       "network). It authenticates hosts at the start; the traffic is neither encrypted nor protected "
                       "against change, which requires a private network or WireGuard", host);
    AH_TRYGO(find_own(path, sizeof path), failed);
    if (access(path, F_OK))
        AH_TRYGO(draw_file(path), failed);
    AH_TRYGO(read_secret(secret, path), failed);
    return 0;
failed:
    return ah_fail_prefix(status, "cannot keep a secret for %s, which other users of this host reach (--secret_file "
                          "FILE, ACCELHOST_SECRET; --secret_file none trusts them)", host);
}
