/* Hidden folders next to a target folder: their names, and the removal of those of dead processes. */
#include "io/hidden.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io/file_system.h"
#include "base/io/folder.h"
#include "base/status/notice.h"
#include "base/status/status.h"
#include "io/manifest.h"

#define MARK ".saving-"
#define DIGITS "0123456789"

enum { GOAL = 140, HOST = 64 }; /* characters of each in a hidden name, which has at most NAME_MAX */

const char *ah_hidden_split(const char *path, char above[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) : 0;
    snprintf(above, PATH_MAX, "%.*s", slash == path ? 1 : slash ? length : 1, slash ? path : ".");
    return slash ? slash + 1 : path;
}

static void get_host(char host[HOST + 1])
{
    if (gethostname(host, HOST + 1))
        host[0] = '\0';
    host[HOST] = '\0';
    for (char *at = host; *at; at++)
        if (*at == '/')
            *at = '_';
}

int ah_hidden_name(char out[PATH_MAX], const char *goal, int attempt)
{
    char above[PATH_MAX], host[HOST + 1];
    const char *name = ah_hidden_split(goal, above);
    get_host(host);
    int length = snprintf(out, PATH_MAX, "%s/.%.*s" MARK "%s-%ld-%d", above, GOAL, name, host, (long)getpid(), attempt);
    return length < PATH_MAX ? 0 : ah_fail(AH_EIO, "%s: %s", goal, strerror(ENAMETOOLONG));
}

/* Skip digits; NULL when there are none. */
static const char *skip_digits(const char *at)
{
    size_t count = at ? strspn(at, DIGITS) : 0;
    return count ? at + count : NULL;
}

/* Does the name end in "-PID-N"? Its length before that; -1 when not. */
static ptrdiff_t before_numbers(const char *name)
{
    const char *last = strrchr(name, '-');
    if (!last || !last[1] || last[1 + strspn(last + 1, DIGITS)] || last == name)
        return -1;
    const char *first = last;
    while (first > name && first[-1] >= '0' && first[-1] <= '9')
        first--;
    return first < last && first > name && first[-1] == '-' ? first - 1 - name : -1;
}

/* Is `entry` a hidden name of `goal` (the last part of its path), or of one with another number at its end? */
static bool is_hidden_name(const char *entry, const char *goal, bool of_any_host)
{
    char host[HOST + 1];
    int length = (int)strnlen(goal, GOAL), stem = length;
    while (length == (int)strlen(goal) && stem > 0 && strchr(DIGITS, goal[stem - 1]))
        stem--;
    bool numbered = stem < length;
    if (entry[0] != '.' || strncmp(entry + 1, goal, (size_t)(numbered ? stem : length)))
        return false;
    const char *at = numbered ? skip_digits(entry + 1 + stem) : entry + 1 + length;
    if (!at || strncmp(at, MARK, sizeof MARK - 1))
        return false;
    at += sizeof MARK - 1;
    ptrdiff_t own = before_numbers(at);
    get_host(host);
    return own > 0 && (of_any_host || ((size_t)own == strlen(host) && !strncmp(at, host, (size_t)own)));
}

int ah_hidden_lock(const char *path)
{
    struct stat opened, named;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int reason = folder < 0 ? errno : flock(folder, LOCK_EX | LOCK_NB) ? errno : 0;
    /* Another process may have removed the folder before the lock was acquired. */
    if (!reason && (fstat(folder, &opened) || lstat(path, &named) || opened.st_ino != named.st_ino))
        reason = ENOENT;
    if (!reason)
        return folder;
    if (folder >= 0)
        close(folder);
    errno = reason;
    return -1;
}

int ah_hidden_remove(const char *path)
{
    struct stat info;
    char manifest_path[PATH_MAX + sizeof AH_MANIFEST];
    struct ah_manifest *manifest = NULL;
    snprintf(manifest_path, sizeof manifest_path, "%s/" AH_MANIFEST, path);
    if (lstat(manifest_path, &info) && errno == ENOENT)
        return ah_folder_remove(path, NULL);
    int status = ah_manifest_read(&manifest, path);
    if (status < 0)
        return ah_fail_prefix(status, "not removed: '%s'", path);
    status = ah_folder_remove(path, &(struct ah_folder_rule){ah_manifest_keeps, manifest, AH_MANIFEST});
    ah_manifest_free(manifest);
    return status;
}

void ah_hidden_sweep(const char *goal)
{
    char above[PATH_MAX];
    const char *name = ah_hidden_split(goal, above);
    bool local = ah_path_is_local(above);
    DIR *list = opendir(above);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char path[PATH_MAX];
        if (!is_hidden_name(entry->d_name, name, local) ||
            snprintf(path, sizeof path, "%s/%s", above, entry->d_name) >= (int)sizeof path)
            continue;
        int held = ah_hidden_lock(path);
        if (held < 0)
            continue;
        if (ah_hidden_remove(path) < 0)
            ah_notice_once("%s", ah_error_text());
        close(held);
    }
    if (list)
        closedir(list);
}
