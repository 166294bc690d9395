/* IDX files: the format of MNIST and its relatives, gzip-compressed or not.
 *
 * A file is a 4-byte magic (0, 0, element type, number of dimensions), one big-endian 32-bit size per dimension, and
 * the elements. Only unsigned bytes (type 8) are read. Everything is checked against the size of the file before memory
 * is allocated, so a damaged or hostile file ends in an error text and nothing else. Any thread may call; nothing here
 * knows the folders of data sets. */
#pragma once

#include <stddef.h>

#include "tensor/tensor.h"

enum ah_idx_kind {
    AH_IDX_ANY,    /* 1 to 4 dimensions */
    AH_IDX_LABELS, /* magic 2049: one dimension */
    AH_IDX_IMAGES, /* magic 2051: count, rows, columns */
};

/* Parse a complete file in memory into a new uint8 tensor. AH_EIO: the text has the expected and the received value. */
int ah_idx_parse(struct ah_tensor **out, const void *bytes, size_t count, enum ah_idx_kind kind);

/* Read the file at `path`; error texts begin with its name (without directories) and a colon. */
int ah_idx_read(struct ah_tensor **out, const char *path, enum ah_idx_kind kind);
