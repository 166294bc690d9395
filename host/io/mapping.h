/* A file in memory, for reading; writes to it stay in this process. It has a reference count, since tensors may be
 * views of it.
 *
 * A small file is copied: afterwards the file may change. A large one is mapped privately: another program that writes
 * into it changes the values read here (ah_mapping_check detects that), and one that truncates it raises SIGBUS in the
 * process that reads the lost part, which io/mapping.c reports with the file's name. Programs that replace files,
 * as io/writer.h does, cause neither. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "tensor/tensor.h"

/* The largest file, in bytes, that is copied. */
enum { AH_MAPPING_COPIED = 64 << 20 };

/* Identity of the file when it was opened. */
struct ah_mapping_mark {
    dev_t device;
    ino_t file;
    off_t size;
    struct timespec written;
};

struct ah_mapping {
    int refs;
    bool mapped;          /* false: a copy */
    unsigned char *bytes; /* aligned to 64 bytes at least; NULL for an empty file */
    size_t count;
    char *path; /* of a mapped file, absolute */
    struct ah_mapping_mark mark;
    struct ah_mapping *next; /* in the list of mapped files (io/mapping.c) */
};

/* AH_EIO when the path names no regular file that can be read (a pipe is refused without waiting for its writer), or
 * another program writes to it while it is copied; AH_ENOMEM. */
int ah_mapping_open(struct ah_mapping **out, const char *path);
struct ah_mapping *ah_mapping_retain(struct ah_mapping *mapping);
void ah_mapping_release(struct ah_mapping *mapping); /* NULL is ignored */

/* Make a CPU tensor of the elements from byte `at`, which must all be inside the mapping. It is a view of the mapping,
 * to which it holds a reference, or a copy where its dtype's alignment is not met. AH_EIO for a bool that is neither 0
 * nor 1. */
int ah_mapping_tensor(struct ah_tensor **out, struct ah_mapping *mapping, size_t at, const int64_t *size, int ndim,
                      enum ah_dtype dtype);

/* Return AH_EIO when the tensor is a view of a mapped file that was written to after it was opened; 0 for every other
 * tensor. */
int ah_mapping_check(const struct ah_tensor *tensor);
/* Is the tensor a view of a file that is mapped? Processes that map it have its pages in common. */
bool ah_mapping_is_mapped(const struct ah_tensor *tensor);
