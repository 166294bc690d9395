/* The hidden folder stays locked while its process lives, by which the next one detects folders of dead processes. */
#include "io/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io/folder.h"
#include "base/status/notice.h"
#include "base/status/status.h"
#include "io/hidden.h"
#include "io/manifest.h"

/* 1 when the folder has the hidden name, 0 and "" when it does not exist. */
static int stage_hide(const char *path, char hidden[PATH_MAX])
{
    for (int attempt = 0; attempt < AH_HIDDEN_ATTEMPTS; attempt++) {
        AH_TRY(ah_hidden_name(hidden, path, attempt));
        if (rename(path, hidden) == 0)
            return 1;
        if (errno == ENOENT) {
            hidden[0] = '\0';
            return 0;
        }
        if (errno != EEXIST && errno != ENOTEMPTY)
            break;
    }
    return ah_fail(AH_EIO, "cannot remove '%s': %s", path, strerror(errno));
}

int ah_stage_check(const char *path)
{
    struct stat info;
    struct ah_manifest *manifest = NULL;
    if (lstat(path, &info) || !S_ISDIR(info.st_mode))
        return ah_folder_check(path, NULL); /* which names the reason */
    if (ah_manifest_read(&manifest, path) < 0)
        return ah_fail(AH_ESTATE, "'%s' is no checkpoint of this program: %s", path, ah_error_text());
    int status = ah_folder_check(path, &(struct ah_folder_rule){ah_manifest_keeps, manifest, AH_MANIFEST});
    ah_manifest_free(manifest);
    return status;
}

void ah_stage_remove(const char *path)
{
    char hidden[PATH_MAX];
    int status = ah_stage_check(path);
    if (status < 0)
        status = ah_fail_prefix(status, "not removed");
    else
        status = stage_hide(path, hidden);
    if (status > 0)
        status = ah_hidden_remove(hidden);
    if (status < 0)
        ah_notice_once("%s", ah_error_text());
}

static int make_hidden(struct ah_stage *stage)
{
    for (int attempt = 0; attempt < AH_HIDDEN_ATTEMPTS; attempt++) {
        AH_TRY(ah_hidden_name(stage->folder, stage->goal, attempt));
        if (mkdir(stage->folder, 0777) == 0) {
            stage->lock = ah_hidden_lock(stage->folder);
            /* Another process's sweep may have been faster. Without any locks on this file system no process sweeps. */
            if (stage->lock >= 0 || (errno != EWOULDBLOCK && errno != ENOENT))
                return 0;
        } else if (errno != EEXIST) {
            break;
        }
    }
    int reason = errno;
    stage->folder[0] = '\0';
    return ah_fail(AH_EIO, "cannot write next to '%s': %s", stage->goal, strerror(reason));
}

/* A goal that is a link means the folder to which it leads. */
static int resolve_goal(struct ah_stage *stage)
{
    struct stat info;
    char real[PATH_MAX];
    if (lstat(stage->goal, &info) || !S_ISLNK(info.st_mode))
        return 0;
    if (!realpath(stage->goal, real))
        return ah_fail(AH_EIO, "'%s' is a link that leads to no folder: %s", stage->goal, strerror(errno));
    snprintf(stage->goal, sizeof stage->goal, "%s", real);
    return 0;
}

int ah_stage_open(struct ah_stage *stage, const char *goal, bool replace)
{
    char above[PATH_MAX];
    size_t length = strlen(goal);
    *stage = (struct ah_stage){.lock = -1};
    while (length > 1 && goal[length - 1] == '/')
        length--;
    if (length == 0 || length >= PATH_MAX - 64)
        return ah_fail(AH_EIO, "'%s' is not the name of a folder", goal);
    snprintf(stage->goal, sizeof stage->goal, "%.*s", (int)length, goal);
    AH_TRY(resolve_goal(stage));
    ah_hidden_split(stage->goal, above);
    AH_TRY(ah_folder_make(above));
    ah_hidden_sweep(stage->goal);
    struct stat info;
    if (replace && lstat(stage->goal, &info) == 0)
        stage->replaced = info.st_ino;
    return make_hidden(stage);
}

static int commit_failed(const struct ah_stage *stage)
{
    if (errno == EEXIST || errno == ENOTEMPTY)
        return ah_fail(AH_EIO, "another process has made '%s' since this save began: set a different project_dir or "
                       "folder for each job", stage->goal);
    return ah_fail(AH_EIO, "'%s': cannot name the folder so: %s", stage->goal, strerror(errno));
}

/* Rename the previous folder, which may not be removed (the reason is the error text), and report its new name. */
static int keep_before(const struct ah_stage *stage)
{
    char kept[PATH_MAX], reason[1024];
    snprintf(reason, sizeof reason, "%s", ah_error_text());
    for (int i = 0; i < AH_HIDDEN_ATTEMPTS; i++) {
        if (snprintf(kept, sizeof kept, "%s.replaced-%d", stage->goal, i) >= (int)sizeof kept)
            break;
        if (rename(stage->goal, kept) == 0) {
            ah_notice("%s; the folder is now '%s'", reason, kept);
            return rename(stage->folder, stage->goal) ? commit_failed(stage) : 0;
        }
        if (errno != EEXIST && errno != ENOTEMPTY)
            break;
    }
    return ah_fail(AH_EIO, "%s", reason);
}

/* Replace the folder that had the goal's name at ah_stage_open by the hidden one; the old one gets the hidden name
 * `before`, "" when it has to stay. */
static int replace_before(const struct ah_stage *stage, char before[PATH_MAX])
{
    if (ah_stage_check(stage->goal) < 0)
        return keep_before(stage);
    if (renameat2(AT_FDCWD, stage->folder, AT_FDCWD, stage->goal, RENAME_EXCHANGE) == 0) {
        memcpy(before, stage->folder, PATH_MAX);
        return 0;
    }
    /* Not every file system can exchange: for a moment no folder has the name. */
    AH_TRY(stage_hide(stage->goal, before));
    if (rename(stage->folder, stage->goal) == 0)
        return 0;
    int status = commit_failed(stage);
    if (*before)
        rename(before, stage->goal);
    return status;
}

int ah_stage_commit(struct ah_stage *stage)
{
    struct stat info;
    char above[PATH_MAX], before[PATH_MAX] = "";
    /* A rename replaces no folder but an empty one. */
    int status = rename(stage->folder, stage->goal) ? commit_failed(stage) : 0;
    if (status < 0 && stage->replaced && lstat(stage->goal, &info) == 0 && info.st_ino == stage->replaced)
        status = replace_before(stage, before);
    if (status < 0)
        return status;
    stage->folder[0] = '\0';
    ah_hidden_split(stage->goal, above);
    AH_TRY(ah_folder_sync(above));
    if (*before && ah_hidden_remove(before) < 0)
        ah_notice("%s (the next save tries again)", ah_error_text());
    return 0;
}

void ah_stage_close(struct ah_stage *stage)
{
    if (stage->folder[0] && ah_folder_remove(stage->folder, NULL) < 0)
        ah_notice_once("%s", ah_error_text());
    if (stage->lock >= 0) {
        flock(stage->lock, LOCK_UN); /* a fork may have the descriptor too */
        close(stage->lock);
    }
    *stage = (struct ah_stage){.lock = -1};
}
