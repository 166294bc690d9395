/* The safetensors format: a header in JSON that names tensors, then their bytes.
 *
 * The reader accepts only valid files: every byte of the file belongs to exactly one tensor or to the header, sizes are
 * checked without overflow, names are unique. It reads bytes in memory; tensors point into them.
 * https://github.com/huggingface/safetensors#format */
#pragma once

#include "io/mapping.h"
#include "io/writer.h"

/* One tensor of a file. */
struct ah_stored {
    const char *name; /* UTF-8, without NUL; any other text */
    const char *kind; /* the format's name of a dtype that is not one of ours (F8_E4M3), else NULL */
    enum ah_dtype dtype; /* without `kind` */
    int ndim;
    int64_t size[AH_MAX_DIMS];
    size_t begin, end; /* bytes from the start of the data */
};

/* A text of the header's "__metadata__". */
struct ah_note {
    const char *key, *text;
};

struct ah_safetensors {
    struct ah_stored *tensor; /* in the order of their bytes */
    size_t tensor_count;
    struct ah_note *note;
    size_t note_count;
    size_t data;  /* where the data starts in the file */
    void *header; /* owner of the texts */
};

/* Read the header of a file of `count` bytes. AH_EIO reports the error with the tensor's name. A dtype that is not
 * one of ours is no error: the other tensors can be read. Free with ah_safetensors_close. */
int ah_safetensors_parse(struct ah_safetensors **out, const void *bytes, size_t count);
void ah_safetensors_close(struct ah_safetensors *file); /* NULL is ignored */

/* The tensor of one entry without `kind`, as ah_mapping_tensor makes it. */
int ah_safetensors_tensor(struct ah_tensor **out, const struct ah_safetensors *file, size_t index,
                          struct ah_mapping *mapping);

/* A tensor to be written: row-major, on the CPU. */
struct ah_named {
    const char *name;
    struct ah_tensor *tensor; /* borrowed */
};

/* Write a file: tensors by falling size of their elements, then by name, so that each is aligned. `list` is sorted in
 * place. AH_EINVAL for a name twice, not UTF-8 or "__metadata__"; AH_EIO of the writer. */
int ah_safetensors_write(struct ah_writer *writer, struct ah_named *list, size_t count, const struct ah_note *note,
                         size_t note_count);
