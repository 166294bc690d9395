/* Removal of folders. Every step is relative to an open descriptor and refuses links, so that no rename by another
 * process can direct it elsewhere. One walk checks all entries, a second one removes them. */
#include "base/io/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status/status.h"

enum { DEPTH = 64 };

struct walk {
    const char *path; /* as the caller named the folder */
    const struct ah_folder_rule *rule;
    dev_t device;
    bool removing;
    int depth;
    size_t removed;
    size_t length;       /* of `name` */
    char name[PATH_MAX]; /* of the present entry, below the folder */
};

static int walk_failed(const struct walk *walk)
{
    return ah_fail(AH_EIO, "cannot remove '%s%s%s': %s", walk->path, walk->length ? "/" : "", walk->name,
                   strerror(errno));
}

static int walk_keeps(const struct walk *walk, const char *reason)
{
    return ah_fail(AH_ESTATE, "'%s': '%s' in it %s", walk->path, walk->name, reason);
}

/* Is a file system mounted on this folder? A bind mount may have the device number of the folder that holds it. */
static bool walk_is_mount(const struct walk *walk, int folder, const char *base, const struct stat *info)
{
    struct statx more;
    if (info->st_dev != walk->device)
        return true;
    return statx(folder, base, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &more) == 0 &&
           (more.stx_attributes & more.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT);
}

static int walk_folder(struct walk *walk, int folder);

static int walk_below(struct walk *walk, int folder, const char *base, const struct stat *info)
{
    struct stat opened;
    if (walk_is_mount(walk, folder, base, info))
        return walk_keeps(walk, "is a mount point");
    if (walk->depth == DEPTH)
        return walk_keeps(walk, "is nested too deeply");
    int below = openat(folder, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return walk_failed(walk);
    if (fstat(below, &opened) || opened.st_dev != info->st_dev || opened.st_ino != info->st_ino) {
        close(below);
        return walk_keeps(walk, "was replaced meanwhile");
    }
    walk->depth++;
    int status = walk_folder(walk, below);
    walk->depth--;
    return status;
}

static int walk_entry(struct walk *walk, int folder, const char *base)
{
    struct stat info;
    if (fstatat(folder, base, &info, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : walk_failed(walk);
    bool is_folder = S_ISDIR(info.st_mode);
    struct ah_folder_entry entry = {.name = walk->name, .base = base, .folder = folder, .info = &info};
    const char *reason = walk->rule && walk->rule->keeps ? walk->rule->keeps(walk->rule->context, &entry) : NULL;
    if (reason)
        return walk_keeps(walk, reason);
    if (is_folder)
        AH_TRY(walk_below(walk, folder, base, &info));
    if (!walk->removing || (walk->rule && walk->rule->last && !strcmp(walk->name, walk->rule->last)))
        return 0;
    if (unlinkat(folder, base, is_folder ? AT_REMOVEDIR : 0) && errno != ENOENT)
        return walk_failed(walk);
    walk->removed++;
    return 0;
}

/* Walk through a folder, whose descriptor this closes. A folder from which names go while it is read may omit some: so
 * it is read until nothing is removed any more. */
static int walk_folder(struct walk *walk, int folder)
{
    size_t length = walk->length, removed;
    int status = 0;
    DIR *list = fdopendir(folder);
    if (!list) {
        status = walk_failed(walk);
        close(folder);
        return status;
    }
    do {
        removed = walk->removed;
        rewinddir(list);
        for (struct dirent *entry; status == 0 && (entry = readdir(list));) {
            const char *base = entry->d_name;
            if (!strcmp(base, ".") || !strcmp(base, ".."))
                continue;
            int added = snprintf(walk->name + length, sizeof walk->name - length, "%s%s", length ? "/" : "", base);
            walk->length = length + (size_t)added;
            status = walk->length < sizeof walk->name ? walk_entry(walk, folder, base)
                                                      : ah_fail(AH_EIO, "%s: %s", walk->path, strerror(ENAMETOOLONG));
            if (status == 0)
                walk->name[walk->length = length] = '\0';
        }
    } while (status == 0 && walk->removed != removed);
    closedir(list);
    return status;
}

/* Split a path at its last '/', behind which it must have a name. */
static int split_path(const char *path, char above[PATH_MAX], char base[NAME_MAX + 1])
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (end == begin || end - begin > NAME_MAX || begin >= PATH_MAX)
        return ah_fail(AH_EIO, "cannot remove '%s': it is not the name of a folder", path);
    snprintf(base, NAME_MAX + 1, "%.*s", (int)(end - begin), path + begin);
    snprintf(above, PATH_MAX, "%.*s", begin ? (int)begin : 1, begin ? path : ".");
    return 0;
}

/* Remove the rest of the folder `base` after the walk: the last file, and itself. */
static int walk_finish(struct walk *walk, int above, int folder, const char *base)
{
    const char *last = walk->rule ? walk->rule->last : NULL;
    if (last && unlinkat(folder, last, 0) && errno != ENOENT)
        return walk_failed(walk);
    return unlinkat(above, base, AT_REMOVEDIR) && errno != ENOENT ? walk_failed(walk) : 0;
}

static int walk_root(struct walk *walk, int above, const char *base, bool removing)
{
    struct stat info, around;
    if (fstatat(above, base, &info, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : walk_failed(walk);
    if (!S_ISDIR(info.st_mode))
        return ah_fail(AH_ESTATE, "'%s' is %s", walk->path, S_ISLNK(info.st_mode) ? "a link" : "no folder");
    walk->device = fstat(above, &around) ? info.st_dev : around.st_dev;
    if (walk_is_mount(walk, above, base, &info))
        return ah_fail(AH_ESTATE, "'%s' is a mount point", walk->path);
    int folder = openat(above, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), status = 0;
    if (folder < 0)
        return walk_failed(walk);
    for (int round = 0; status == 0 && round <= removing; round++) {
        int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        walk->removing = round == 1;
        status = again < 0 ? walk_failed(walk) : walk_folder(walk, again);
    }
    if (status == 0 && removing)
        status = walk_finish(walk, above, folder, base);
    close(folder);
    return status;
}

static int walk_path(const char *path, const struct ah_folder_rule *rule, bool removing)
{
    char around[PATH_MAX], base[NAME_MAX + 1];
    struct walk walk = {.path = path, .rule = rule};
    AH_TRY(split_path(path, around, base));
    int above = open(around, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : walk_failed(&walk);
    int status = walk_root(&walk, above, base, removing);
    close(above);
    return status;
}

int ah_folder_remove(const char *path, const struct ah_folder_rule *rule)
{
    int status = walk_path(path, rule, true);
    return status == AH_ESTATE ? ah_fail_prefix(status, "not removed") : status;
}

int ah_folder_check(const char *path, const struct ah_folder_rule *rule)
{
    return walk_path(path, rule, false);
}

int ah_folder_remove_file(const char *path)
{
    struct stat info;
    if (lstat(path, &info))
        return errno == ENOENT ? 0 : ah_fail(AH_EIO, "cannot remove '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ah_fail(AH_ESTATE, "not removed: '%s' is %s", path,
                       S_ISLNK(info.st_mode) ? "a link" : S_ISDIR(info.st_mode) ? "a folder" : "no file");
    return unlink(path) && errno != ENOENT ? ah_fail(AH_EIO, "cannot remove '%s': %s", path, strerror(errno)) : 0;
}
