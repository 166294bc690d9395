/* Token files: numbers are widened to int64 when they are read, and checked, since an embedding would report an id
 * beyond the vocabulary far from the file. */
#include "io/tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/npy.h"

enum { CHUNK = 16384 };

static bool is_npy(const char *path)
{
    size_t length = strlen(path);
    return length >= 4 && !strcmp(path + length - 4, ".npy");
}

static int tokens_find(struct ah_tokens *tokens, bool npy, int bytes)
{
    const struct ah_mapping *mapping = tokens->mapping;
    struct ah_npy_numbers numbers = {.bytes = bytes ? bytes : 2};
    if (npy)
        AH_TRY(ah_npy_find_unsigned(&numbers, mapping->bytes, mapping->count));
    else if (mapping->count % (size_t)numbers.bytes)
        return ah_fail(AH_EIO, "%zu bytes are no whole number of uint%d", mapping->count, 8 * numbers.bytes);
    else
        numbers.count = (int64_t)(mapping->count / (size_t)numbers.bytes);
    if ((numbers.bytes != 2 && numbers.bytes != 4) || (bytes && bytes != numbers.bytes))
        return ah_fail(AH_EIO, "it holds uint%d, expected %s", 8 * numbers.bytes,
                       bytes == 2 ? "uint16" : bytes == 4 ? "uint32" : "uint16 or uint32");
    tokens->at = mapping->bytes ? mapping->bytes + numbers.begin : NULL;
    tokens->count = numbers.count;
    tokens->bytes = numbers.bytes;
    return 0;
}

int ah_tokens_open(struct ah_tokens *out, const char *path, int bytes)
{
    *out = (struct ah_tokens){0};
    AH_TRY(ah_mapping_open(&out->mapping, path));
    int status = tokens_find(out, is_npy(path), bytes);
    if (status < 0)
        ah_tokens_close(out);
    return status;
}

void ah_tokens_close(struct ah_tokens *tokens)
{
    ah_mapping_release(tokens->mapping);
    *tokens = (struct ah_tokens){0};
}

/* Tokens as int64; the largest of them. The file's numbers may be at any address. */
static int64_t tokens_widen(int64_t *to, const struct ah_tokens *tokens, int64_t from, int64_t count)
{
    const unsigned char *at = tokens->at + from * tokens->bytes;
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        uint16_t narrow;
        uint32_t wide;
        if (tokens->bytes == 2) {
            memcpy(&narrow, at + 2 * i, sizeof narrow);
            wide = narrow;
        } else {
            memcpy(&wide, at + 4 * i, sizeof wide);
        }
        to[i] = wide;
        most = to[i] > most ? to[i] : most;
    }
    return most;
}

int ah_tokens_blocks(struct ah_tensor **out, const struct ah_tokens *tokens, const int64_t *place, int64_t rows,
                     int64_t length, int64_t limit)
{
    struct ah_tensor *tensor;
    for (int64_t r = 0; r < rows; r++)
        if (length > tokens->count || place[r] < 0 || place[r] > tokens->count - length)
            return ah_fail(AH_EINVAL, "%lld tokens from %lld on are not in a file of %lld", (long long)length,
                           (long long)place[r], (long long)tokens->count);
    AH_TRY(ah_tensor_empty(&tensor, (int64_t[]){rows, length}, 2, AH_I64, &ah_cpu));
    int64_t *to = ah_tensor_data(tensor);
    for (int64_t r = 0; r < rows; r++, to += length) {
        if (tokens_widen(to, tokens, place[r], length) < limit || !limit)
            continue;
        int64_t i = 0;
        while (to[i] < limit)
            i++;
        int status = ah_fail(AH_EINVAL, "token %lld at place %lld is outside 0..%lld", (long long)to[i],
                             (long long)(place[r] + i), (long long)limit - 1);
        ah_tensor_release(tensor);
        return status;
    }
    *out = tensor;
    return 0;
}

int ah_token_writer_open(struct ah_token_writer *out, const char *path, int bytes)
{
    char header[AH_NPY_HEADER];
    *out = (struct ah_token_writer){.bytes = bytes, .named = is_npy(path)};
    AH_TRY(ah_writer_open(&out->writer, path));
    /* As long as the final header, with the number of tokens, will be. */
    size_t length = out->named ? ah_npy_unsigned_header(header, bytes, INT64_MAX) : 0;
    int status = ah_writer_write(out->writer, header, length);
    if (status < 0)
        ah_token_writer_abandon(out);
    return status;
}

int ah_token_writer_add(struct ah_token_writer *out, const int64_t *id, int64_t count, int64_t limit)
{
    uint16_t narrow[CHUNK];
    uint32_t wide[CHUNK];
    int64_t fits = out->bytes == 2 ? UINT16_MAX : UINT32_MAX, most = limit && limit <= fits ? limit - 1 : fits;
    for (int64_t done = 0, piece; done < count; done += piece, out->count += piece) {
        piece = count - done < CHUNK ? count - done : CHUNK;
        for (int64_t i = 0; i < piece; i++) {
            int64_t value = id[done + i];
            if (value < 0 || value > most)
                return ah_fail(AH_EINVAL, "token %lld at place %lld is outside 0..%lld%s", (long long)value,
                               (long long)(out->count + i), (long long)most,
                               value > fits && most == fits ? " (uint32 holds more)" : "");
            narrow[i] = (uint16_t)value;
            wide[i] = (uint32_t)value;
        }
        const void *bytes = out->bytes == 2 ? (const void *)narrow : wide;
        AH_TRY(ah_writer_write(out->writer, bytes, (size_t)(piece * out->bytes)));
    }
    return 0;
}

int ah_token_writer_commit(struct ah_token_writer *out)
{
    char header[AH_NPY_HEADER];
    struct ah_writer *writer = out->writer;
    int status = 0;
    if (out->named)
        status = ah_writer_overwrite(writer, 0, header, ah_npy_unsigned_header(header, out->bytes, out->count));
    out->writer = NULL;
    if (status == 0)
        return ah_writer_commit(writer);
    ah_writer_abandon(writer);
    return status;
}

void ah_token_writer_abandon(struct ah_token_writer *out)
{
    ah_writer_abandon(out->writer);
    out->writer = NULL;
}
