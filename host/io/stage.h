/* A folder that is written under a hidden name next to its target (io/hidden.h) and renamed to the target when it is
 * complete: a reader finds the old folder or the new one. Folders of dead processes are removed when the next one is
 * made there. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct ah_stage {
    char folder[PATH_MAX]; /* the hidden one, "" when there is none (any more) */
    char goal[PATH_MAX];
    int lock; /* held on the folder; -1 without */
    ino_t replaced; /* the folder that had the goal's name when the stage was opened and may be replaced; 0: none */
};

/* Create the hidden folder and missing parents. A target that is a link is resolved. `replace`: an existing folder of
 * the target's name may be replaced. AH_EIO; ah_stage_close must be called in any case. */
int ah_stage_open(struct ah_stage *stage, const char *goal, bool replace);

/* Rename the folder to the goal and flush that to the disk. The folder that may be replaced is removed as by
 * ah_stage_remove, or renamed to "GOAL.replaced-N" where something in it has to stay. AH_EIO; also when another process
 * has made a folder of that name since, which stays. */
int ah_stage_commit(struct ah_stage *stage);

/* Remove the hidden folder, unless it has its name. */
void ah_stage_close(struct ah_stage *stage);

/* Remove a folder that ah_stage_commit named. It is renamed to a hidden name first, so that no process finds half of
 * it. Only entries of its manifest are removed: a folder without a manifest, with another entry in it, or that is a
 * link or a mount point stays and is reported once per process (ah_notice_once). */
void ah_stage_remove(const char *path);

/* Check whether ah_stage_remove would remove a folder: 0, AH_ESTATE with the reason, AH_EIO. */
int ah_stage_check(const char *path);
