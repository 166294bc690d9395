/* A file that is linked to its name only when it is complete: a reader finds the old content or the new one.
 *
 * Until then it has no name, so that a kill leaves nothing; where the system cannot do that (the file system, no /proc,
 * a sandbox without linkat) it is a hidden file next to the goal, which the next writer of the same goal removes. */
#pragma once

#include <stddef.h>

#include "base/numeric/sha256.h"

struct ah_writer;

/* Begin a file that shall be `path`; a link is followed, an existing file's permissions are kept. AH_EIO, AH_ENOMEM. */
int ah_writer_open(struct ah_writer **out, const char *path);

/* Have all that is appended from now on go into a hash too, which the caller begins and ends. */
void ah_writer_hash(struct ah_writer *writer, struct ah_sha256 *hash);

/* Append; AH_EIO names the reason (a full disk). */
int ah_writer_write(struct ah_writer *writer, const void *bytes, size_t count);

/* Overwrite appended bytes from byte `at`; not of a file that is hashed. */
int ah_writer_overwrite(struct ah_writer *writer, size_t at, const void *bytes, size_t count);

/* Omit the sync of the folder in ah_writer_commit: the caller, which writes several files into it, does it once. */
void ah_writer_share_folder(struct ah_writer *writer);

/* Sync the content to the disk and link its name. Frees the writer, whatever the result. */
int ah_writer_commit(struct ah_writer *writer);

/* Discard the file; an earlier file of that name stays. NULL is ignored. */
void ah_writer_abandon(struct ah_writer *writer);
