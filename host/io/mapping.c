/* Mappings and the tensors that lie in them. Opening never waits: what is not a regular file is refused by its kind. */
#include "io/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map(struct ah_mapping *mapping, int file)
{
    struct stat info;
    if (fstat(file, &info))
        return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ah_fail(AH_EIO, "cannot read: %s", S_ISDIR(info.st_mode) ? "it is a folder" : "not a file");
    mapping->count = (size_t)info.st_size;
    if (!mapping->count)
        return 0;
    void *bytes = mmap(NULL, mapping->count, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
        return ah_fail(errno == ENOMEM ? AH_ENOMEM : AH_EIO, "cannot map %zu bytes: %s", mapping->count,
                       strerror(errno));
    mapping->bytes = bytes;
    return 0;
}

int ah_mapping_open(struct ah_mapping **out, const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), status;
    if (file < 0)
        return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
    struct ah_mapping *mapping = calloc(1, sizeof *mapping);
    status = mapping ? map(mapping, file) : ah_fail(AH_ENOMEM, "out of memory");
    close(file);
    if (status < 0) {
        free(mapping);
        return status;
    }
    mapping->refs = 1;
    *out = mapping;
    return 0;
}

struct ah_mapping *ah_mapping_retain(struct ah_mapping *mapping)
{
    mapping->refs++;
    return mapping;
}

void ah_mapping_release(struct ah_mapping *mapping)
{
    if (!mapping || --mapping->refs > 0)
        return;
    if (mapping->bytes)
        munmap(mapping->bytes, mapping->count);
    free(mapping);
}

static void release_storage(struct ah_storage *storage)
{
    ah_mapping_release(storage->owner);
}

int ah_mapping_tensor(struct ah_tensor **out, struct ah_mapping *mapping, size_t at, const int64_t *size, int ndim,
                      enum ah_dtype dtype)
{
    size_t item = ah_dtype_size(dtype), bytes = item;
    for (int d = 0; d < ndim; d++)
        bytes *= (size_t)size[d];
    for (size_t i = 0; dtype == AH_BOOL && i < bytes; i++)
        if (mapping->bytes[at + i] > 1)
            return ah_fail(AH_EIO, "a bool is %d, expected 0 or 1", mapping->bytes[at + i]);
    if (bytes && at % item == 0) {
        AH_TRY(ah_tensor_from_memory(out, mapping->bytes + at, size, ndim, dtype, &ah_cpu, release_storage, mapping));
        ah_mapping_retain(mapping);
        return 0;
    }
    AH_TRY(ah_tensor_empty(out, size, ndim, dtype, &ah_cpu));
    if (bytes)
        memcpy(ah_tensor_data(*out), mapping->bytes + at, bytes);
    return 0;
}
