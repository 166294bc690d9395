/* The hidden folder stays locked while its process lives, which is how the next one knows what dead processes have
 * left. */
#include "io/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/status.h"
#include "base/tell.h"

/* Hidden names: ".NAME.saving-PID-N". */
#define MARK ".saving-"

enum { ATTEMPTS = 1000 };

/* The folder above `path`, and the name in it. */
static const char *split(const char *path, char above[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) : 0;
    snprintf(above, PATH_MAX, "%.*s", slash == path ? 1 : slash ? length : 1, slash ? path : ".");
    return slash ? slash + 1 : path;
}

/* A hidden name beside `path` that is not taken: the `attempt`-th. */
static int hide(char out[PATH_MAX], const char *path, int attempt)
{
    char above[PATH_MAX];
    const char *name = split(path, above);
    int length = snprintf(out, PATH_MAX, "%s/.%.200s" MARK "%ld-%d", above, name, (long)getpid(), attempt);
    return length < PATH_MAX ? 0 : ah_fail(AH_EIO, "%s: %s", path, strerror(ENAMETOOLONG));
}

static int lock(const char *path)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0 && flock(folder, LOCK_EX | LOCK_NB)) {
        close(folder);
        return -1;
    }
    return folder;
}

/* Remove what dead processes have left in a folder; a living one holds the lock. */
static void sweep(const char *above)
{
    DIR *list = opendir(above);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char path[PATH_MAX];
        if (entry->d_name[0] != '.' || !strstr(entry->d_name, MARK) ||
            snprintf(path, sizeof path, "%s/%s", above, entry->d_name) >= (int)sizeof path)
            continue;
        int held = lock(path);
        if (held >= 0) {
            ah_folder_remove(path);
            close(held);
        }
    }
    if (list)
        closedir(list);
}

/* It is in nobody's way any more. */
static void remove_hidden(const char *path)
{
    if (ah_folder_remove(path) < 0)
        ah_tell("%s (the next save tries again)", ah_error_text());
}

/* 1 when the folder has the hidden name, 0 when it is not there. */
static int take_away(const char *path, char hidden[PATH_MAX])
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        AH_TRY(hide(hidden, path, attempt));
        if (rename(path, hidden) == 0)
            return 1;
        if (errno == ENOENT)
            return 0;
        if (errno != EEXIST && errno != ENOTEMPTY)
            break;
    }
    return ah_fail(AH_EIO, "cannot remove %s: %s", path, strerror(errno));
}

void ah_stage_remove(const char *path)
{
    char hidden[PATH_MAX];
    int status = take_away(path, hidden);
    if (status > 0)
        remove_hidden(hidden);
    else if (status < 0)
        ah_tell("%s", ah_error_text());
}

static int make_hidden(struct ah_stage *stage)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        AH_TRY(hide(stage->folder, stage->goal, attempt));
        if (mkdir(stage->folder, 0777) == 0) {
            stage->lock = lock(stage->folder);
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    int reason = errno;
    stage->folder[0] = '\0';
    return ah_fail(AH_EIO, "cannot write beside '%s': %s", stage->goal, strerror(reason));
}

int ah_stage_open(struct ah_stage *stage, const char *goal)
{
    char above[PATH_MAX];
    size_t length = strlen(goal);
    *stage = (struct ah_stage){.lock = -1};
    while (length > 1 && goal[length - 1] == '/')
        length--;
    if (length == 0 || length >= PATH_MAX - 64)
        return ah_fail(AH_EIO, "'%s' is not the name of a folder", goal);
    snprintf(stage->goal, sizeof stage->goal, "%.*s", (int)length, goal);
    split(stage->goal, above);
    AH_TRY(ah_folder_make(above));
    sweep(above);
    return make_hidden(stage);
}

int ah_stage_commit(struct ah_stage *stage)
{
    char above[PATH_MAX], before[PATH_MAX] = "";
    split(stage->goal, above);
    if (access(stage->goal, F_OK)) {
        if (rename(stage->folder, stage->goal))
            return ah_fail(AH_EIO, "'%s': cannot name the folder so: %s", stage->goal, strerror(errno));
    } else if (renameat2(AT_FDCWD, stage->folder, AT_FDCWD, stage->goal, RENAME_EXCHANGE) == 0) {
        snprintf(before, sizeof before, "%s", stage->folder);
    } else {
        /* Not every file system can exchange: for a moment nothing has the name. */
        AH_TRY(hide(before, stage->goal, ATTEMPTS));
        if (rename(stage->goal, before) || rename(stage->folder, stage->goal))
            return ah_fail(AH_EIO, "'%s': cannot name the folder so: %s", stage->goal, strerror(errno));
    }
    stage->folder[0] = '\0';
    AH_TRY(ah_folder_sync(above));
    if (before[0])
        remove_hidden(before);
    return 0;
}

void ah_stage_close(struct ah_stage *stage)
{
    if (stage->folder[0])
        ah_folder_remove(stage->folder);
    if (stage->lock >= 0) {
        flock(stage->lock, LOCK_UN); /* a fork may have the descriptor too */
        close(stage->lock);
    }
    *stage = (struct ah_stage){.lock = -1};
}
