/* Hidden names of folders that are being made or removed next to a goal: ".GOAL.saving-HOST-PID-N". The process that
 * uses one holds a lock (flock) on the folder, so that others detect those of dead processes. */
#pragma once

#include <limits.h>

/* Attempts to find a name that no other folder has. */
enum { AH_HIDDEN_ATTEMPTS = 1000 };

/* The folder above `path` is copied into `above`; the name in it is returned. */
const char *ah_hidden_split(const char *path, char above[PATH_MAX]);

/* Write the hidden name of this process next to `goal`, for attempt 0, 1, ...; AH_EIO when it is too long. */
int ah_hidden_name(char out[PATH_MAX], const char *goal, int attempt);

/* Lock a folder without waiting: a descriptor that holds the lock until it is closed; -1 and errno. EWOULDBLOCK:
 * another process has it; ENOENT: the folder was removed. */
int ah_hidden_lock(const char *path);

/* Remove the hidden folders of dead processes next to a target, of its name and of names that differ in a last number
 * only (checkpoint_1, checkpoint_2). Those of other hosts are removed only on a local file system, since locks may not
 * reach across hosts. A folder that cannot be removed is reported once per process (ah_notice_once). */
void ah_hidden_sweep(const char *goal);

/* Remove a folder that this program filled: the entries of its manifest (io/manifest.h), or all entries when it has no
 * manifest. Returns as ah_folder_remove. */
int ah_hidden_remove(const char *path);
