/* The part of ZIP that .npz and .pt files use: entries that are stored or deflated, in one file, of any size (ZIP64).
 *
 * Own code in place of libzip's, because a stored entry can then be used in place in the mapping, and because that
 * library loads five others at every start of the program. https://pkware.cachefly.net/webdocs/APPNOTE */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/writer.h"

struct ah_zip_entry {
    const char *name;  /* as in the archive, without NUL; never a path to be opened */
    bool deflated;
    uint32_t crc;
    uint64_t size;     /* of the content */
    size_t begin, end; /* of its data in the file */
};

struct ah_zip {
    struct ah_zip_entry *entry; /* in the order of the file */
    size_t count;
    char *names;
};

/* Read the directory of an archive in memory. Entries share no byte, and none claims more than deflate can make of its
 * bytes. AH_EIO, AH_ENOTIMPL (encrypted, other methods, several volumes), AH_ENOMEM. */
int ah_zip_parse(struct ah_zip **out, const void *bytes, size_t count);
void ah_zip_close(struct ah_zip *zip); /* NULL is ignored */

/* The content of an entry into `to`, which has room for entry->size; AH_EIO when it does not match its checksum. */
int ah_zip_read(const struct ah_zip_entry *entry, const void *bytes, void *to);

/* Check a stored entry's checksum in place; AH_EIO. */
int ah_zip_check(const struct ah_zip_entry *entry, const void *bytes);

/* An archive of stored entries. Each has two pieces (a header and its elements), of which the second begins at a
 * multiple of `align` (0: anywhere) in the file. */
struct ah_zip_piece {
    const char *name;
    const void *head, *body;
    size_t head_count, body_count;
    size_t align; /* at most 64 */
};
int ah_zip_write(struct ah_writer *writer, const struct ah_zip_piece *list, size_t count);
