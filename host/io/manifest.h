/* manifest.json: the contents of a folder of files. A JSON object of facts, "files" (name -> {"size", "sha256"}; a
 * symbolic link has "link", its target's path, too) and, last, "sha256": the hash of the text before it, so that every
 * byte of the folder is covered. Only entries that it names may be removed. */
#pragma once

#include "base/io/folder.h"
#include "base/numeric/sha256.h"

#define AH_MANIFEST "manifest.json"

struct ah_manifest;

/* An empty one; `facts` is a JSON object. AH_EINVAL, AH_ENOMEM. */
int ah_manifest_new(struct ah_manifest **out, const char *facts);
void ah_manifest_free(struct ah_manifest *manifest); /* NULL is ignored */

/* Note a file; one that is noted already is left as it is. */
int ah_manifest_add(struct ah_manifest *manifest, const char *name, uint64_t size, const char *hash);
/* Note the files of a list, a line "HASH SIZE NAME" each. AH_EIO when the list is damaged. */
int ah_manifest_add_list(struct ah_manifest *manifest, const char *lines);
/* The same with a list in a file. */
int ah_manifest_add_list_file(struct ah_manifest *manifest, const char *path);
/* Note every file and link below a folder that is not noted yet, but for the temporary ones of its writers; files are
 * read, and flushed to the disk with the folders below. AH_EIO. */
int ah_manifest_add_folder(struct ah_manifest *manifest, const char *folder);

/* Read the manifest of a folder. AH_EIO when there is none or its own hash is wrong; AH_ENOMEM. */
int ah_manifest_read(struct ah_manifest **out, const char *folder);
/* The rule (base/io/folder.h) by which entries that a manifest, `context`, does not name have to stay. */
const char *ah_manifest_keeps(void *context, const struct ah_folder_entry *entry);

/* The text of the file, which the caller frees. */
int ah_manifest_text(const struct ah_manifest *manifest, char **out);
