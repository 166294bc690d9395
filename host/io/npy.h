/* NumPy's .npy format, versions 1 to 3: a header in the syntax of a Python dict, then the elements.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#pragma once

#include "io/writer.h"
#include "tensor/tensor.h"

/* Parse the tensor in a file's bytes; elements are copied in this machine's byte order and row-major. AH_EIO: the bytes
 * are no valid file, the text has the reason; AH_ENOTIMPL: descr is valid but has no dtype here (objects, records,
 * complex numbers ...). */
int ah_npy_parse(struct ah_tensor **out, const void *bytes, size_t count);

/* The tensor of elements without a header, as a pickled array holds them; errors as above. */
struct ah_npy_layout {
    const char *descr; /* "<f4", "|b1", ">i8" */
    bool columns;      /* Fortran's order */
    int ndim;
    int64_t size[AH_MAX_DIMS];
};
int ah_npy_elements(struct ah_tensor **out, const struct ah_npy_layout *layout, const void *bytes, size_t count);

/* Location of the elements of a file with one dim of unsigned integers of 16 or 32 bits (no dtype here) in this
 * machine's byte order. AH_EIO: the text names the contents found instead. */
struct ah_npy_numbers {
    size_t begin;
    int64_t count;
    int bytes; /* of each */
};
int ah_npy_find_unsigned(struct ah_npy_numbers *out, const void *bytes, size_t count);

/* The header of a tensor's file, padded so that the elements begin at a multiple of 64: its length, which is 0 for a
 * dtype that NumPy does not know (bfloat16). */
enum { AH_NPY_HEADER = 256 };
size_t ah_npy_header(const struct ah_tensor *tensor, char text[AH_NPY_HEADER]);
/* That of a file of `count` unsigned numbers. */
size_t ah_npy_unsigned_header(char text[AH_NPY_HEADER], int bytes, int64_t count);

/* Write a file; `tensor` is row-major, on the CPU. AH_EINVAL for bfloat16. */
int ah_npy_write(struct ah_writer *writer, const struct ah_tensor *tensor);
