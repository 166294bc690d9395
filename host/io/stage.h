/* A folder that is made under a hidden name beside its goal, and takes the goal's name when it is whole: a reader finds
 * the old folder or the new one. What processes that died have left is removed when the next one is made there. */
#ifndef AH_IO_STAGE_H
#define AH_IO_STAGE_H

#include <limits.h>

struct ah_stage {
    char folder[PATH_MAX]; /* the hidden one, "" when there is none (any more) */
    char goal[PATH_MAX];
    int lock; /* held on the folder; -1 without */
};

/* Make the hidden folder, and what is missing above it. AH_EIO; close it in any case. */
int ah_stage_open(struct ah_stage *stage, const char *goal);

/* Give the folder the goal's name and bring that to the disk; a folder that had it is removed. AH_EIO. What cannot be
 * removed is told (base/tell.h) and left to the next sweep. */
int ah_stage_commit(struct ah_stage *stage);

/* Remove the hidden folder, unless it has its name. */
void ah_stage_close(struct ah_stage *stage);

/* Take a folder out of sight, so that nobody meets half of it, and remove it. A failure is told. */
void ah_stage_remove(const char *path);

#endif
