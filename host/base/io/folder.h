/* Folders of the file system. */
#pragma once

#include <sys/stat.h>

/* Make a folder and those above it that are missing. AH_EINVAL for a name over 4095 bytes, AH_EIO; one that is there
 * is fine. */
int ah_folder_make(const char *path);

/* An entry below a folder. */
struct ah_folder_entry {
    const char *name; /* its path below that folder: "model.safetensors", "tokenizer/vocab.txt" */
    const char *base; /* its last part, an entry of `folder` */
    int folder;       /* descriptor of the folder that holds it */
    const struct stat *info; /* of the entry itself, also where it is a link */
};

/* The rule by which entries of a folder may be removed. */
struct ah_folder_rule {
    /* Return why an entry has to stay ("is no part of the checkpoint"), NULL when it may be removed. */
    const char *(*keeps)(void *context, const struct ah_folder_entry *entry);
    void *context;
    const char *last; /* this file of the folder is removed after all others; NULL: none */
};

/* Remove a folder with all below it: the only function of this program that removes folders.
 *
 * All or nothing: every entry is checked before the first one is removed. AH_ESTATE, with one line that names the entry
 * and the reason, when something has to stay: an entry that `rule` keeps, a mount point, or `path` itself where it is a
 * link or a file. Links below are removed as links and never followed. NULL for `rule`: every entry may be removed. A
 * folder that does not exist is fine. AH_EIO: the file system refused, and a part may be left. */
int ah_folder_remove(const char *path, const struct ah_folder_rule *rule);

/* Check whether ah_folder_remove would remove the folder; nothing is changed. Same results. */
int ah_folder_check(const char *path, const struct ah_folder_rule *rule);

/* Remove a regular file; one that does not exist is fine. AH_ESTATE for a link, a folder or a device, AH_EIO. */
int ah_folder_remove_file(const char *path);

/* Flush a folder's list of names to the disk; file systems that cannot are ignored. AH_EIO. */
int ah_folder_sync(const char *path);
