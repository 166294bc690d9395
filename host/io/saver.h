/* A folder of files, written by threads of one or several processes, that appears complete or not at all.
 *
 * It is filled under a hidden name next to its goal. The process of part 0 creates it, locks it, and when the files of
 * all parts are on the disk, writes manifest.json into it (io/manifest.h), syncs the folder and renames it; a previous
 * folder of that name is removed afterwards. A kill at any point leaves the old folder or the new one; hidden folders
 * that remain are removed when the next one is begun. The other parts report their completion by a small file in the
 * folder, so that nothing but the file system is shared.
 *
 * Thread rule: all functions are called by one thread; the files' contents belong to the saver's own thread, which only
 * reads them, from ah_saver_start until ah_saver_wait. */
#pragma once

#include <stdbool.h>

#include "io/safetensors.h"

struct ah_saver;

/* One file: a text, or tensors by name. */
struct ah_saver_file {
    const char *name; /* in the folder, without '/' */
    const char *text; /* NULL: tensors */
    size_t bytes;
    struct ah_named *tensor;
    size_t tensor_count;
    const struct ah_note *note;
    size_t note_count;
};

struct ah_saver_plan {
    struct ah_saver_file *file;
    size_t count;
    /* Of part 0: */
    int parts;                  /* processes that write, itself included */
    const char *facts;          /* a JSON object, to which the manifest adds the files */
    const char *const *victim;  /* folders to be removed when the new one has its name; NULL-ended */
    double timeout;             /* seconds to wait for the other parts */
};

/* Begin the folder that shall be `goal`: part 0. Its folder above is made. `replace`: a folder of that name may be
 * replaced. AH_EIO, AH_ENOMEM. */
int ah_saver_begin(struct ah_saver **out, const char *goal, bool replace);
/* Join a save that another process began, whose hidden folder is `folder`. */
int ah_saver_join(struct ah_saver **out, const char *folder, int part);
/* Return the hidden folder, for files to be written before ah_saver_start. */
const char *ah_saver_folder(const struct ah_saver *saver);

/* Start writing. The plan and all that it points to are borrowed until ah_saver_wait. */
int ah_saver_start(struct ah_saver *saver, const struct ah_saver_plan *plan);

/* Wait until this part's files are on the disk. AH_EIO names the file and the error. */
int ah_saver_written(struct ah_saver *saver);
/* Wait for the end; for part 0: until the folder has its name. The failure of any part is its failure. */
int ah_saver_wait(struct ah_saver *saver);
/* Is it over? Never waits. */
bool ah_saver_is_over(struct ah_saver *saver);
/* Cancel the save, unless the folder has its name already: another part has failed. */
void ah_saver_cancel(struct ah_saver *saver);

/* Cancel a running save and free the saver; part 0 removes the hidden folder. NULL is ignored. */
void ah_saver_close(struct ah_saver *saver);

/* The program ends: wait for all savers; those with several parts are cancelled unless it ends well. Return the first
 * unreported failure. */
int ah_saver_finish_all(bool well);
