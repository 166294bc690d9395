/* A whole file, mapped for reading.
 *
 * The mapping is private: writes to it stay in this process. It is counted, since tensors may lie in it. A file that
 * another program cuts while it is mapped raises SIGBUS in whoever reads the lost part; programs that replace files, as
 * io/writer.h does, cannot cause that. */
#ifndef AH_IO_MAPPING_H
#define AH_IO_MAPPING_H

#include "tensor/tensor.h"

struct ah_mapping {
    int refs;
    unsigned char *bytes; /* page-aligned; NULL for an empty file */
    size_t count;
};

/* AH_EIO when the path names no regular file that can be read (a pipe is refused without waiting for its writer);
 * AH_ENOMEM. */
int ah_mapping_open(struct ah_mapping **out, const char *path);
struct ah_mapping *ah_mapping_retain(struct ah_mapping *mapping);
void ah_mapping_release(struct ah_mapping *mapping); /* NULL is ignored */

/* A CPU tensor with the elements that begin at byte `at`, which must all lie in the mapping. It keeps the mapping and
 * lies in it, but is a copy where its dtype's alignment is not met. AH_EIO for a bool that is neither 0 nor 1. */
int ah_mapping_tensor(struct ah_tensor **out, struct ah_mapping *mapping, size_t at, const int64_t *size, int ndim,
                      enum ah_dtype dtype);

#endif
