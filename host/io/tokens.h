/* Files of tokens for language models: consecutive numbers of 16 or 32 bits.
 *
 * A file whose name ends in .npy is NumPy's and states the number width; any other has no header (nanoGPT's .bin) and
 * is as wide as it is read. Reading maps the file; writing streams to a temporary file, which is renamed when it is
 * complete. Reader and writer belong to one thread. */
#pragma once

#include "io/mapping.h"
#include "io/writer.h"

struct ah_tokens {
    struct ah_mapping *mapping;
    const unsigned char *at;
    int64_t count;
    int bytes; /* of a number: 2 or 4 */
};

/* bytes: 2 or 4; 0: as in a .npy file's header, else 2. AH_EIO for a bad file. */
int ah_tokens_open(struct ah_tokens *out, const char *path, int bytes);
void ah_tokens_close(struct ah_tokens *tokens);

/* The `length` tokens from each of `rows` places on, as int64 [rows, length]. AH_EINVAL for a place beyond the file; it
 * names a token that is not below `limit` (0: none). */
int ah_tokens_blocks(struct ah_tensor **out, const struct ah_tokens *tokens, const int64_t *place, int64_t rows,
                     int64_t length, int64_t limit);

struct ah_token_writer {
    struct ah_writer *writer; /* NULL: closed */
    int64_t count;
    int bytes;
    bool named; /* the file gets a header */
};

int ah_token_writer_open(struct ah_token_writer *out, const char *path, int bytes);

/* Append; AH_EINVAL names an id that does not fit, or is not below `limit` (0: none). */
int ah_token_writer_add(struct ah_token_writer *out, const int64_t *id, int64_t count, int64_t limit);
int ah_token_writer_commit(struct ah_token_writer *out);

/* Discard the file; an earlier file of that name stays. */
void ah_token_writer_abandon(struct ah_token_writer *out);
