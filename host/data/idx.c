/* The header is read first and checked against the number of bytes, plain or unpacked by zlib in pieces; only then is
 * memory allocated. */
#include "data/idx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/status/status.h"

enum { TYPE_U8 = 8, MAX_IDX_DIMS = 4, MAX_HEADER = 4 + 4 * MAX_IDX_DIMS };

/* The bytes of a file after decompression, in order. */
struct reader {
    const unsigned char *bytes;
    size_t count, at;
    bool compressed, ended; /* ended: the last gzip member is complete */
    z_stream zip;
};

static int open_reader(struct reader *reader, const void *bytes, size_t count)
{
    memset(reader, 0, sizeof *reader);
    reader->bytes = bytes;
    reader->count = count;
    reader->compressed = count >= 2 && reader->bytes[0] == 0x1f && reader->bytes[1] == 0x8b;
    if (reader->compressed && inflateInit2(&reader->zip, 15 + 16) != Z_OK)
        return ah_fail(AH_ENOMEM, "out of memory");
    return 0;
}

static void close_reader(struct reader *reader)
{
    if (reader->compressed)
        inflateEnd(&reader->zip);
}

static bool another_member(const struct reader *reader)
{
    const unsigned char *rest = reader->bytes + reader->at;
    return reader->count - reader->at >= 2 && rest[0] == 0x1f && rest[1] == 0x8b;
}

static int inflate_some(struct reader *reader, unsigned char *to, size_t want, size_t *got)
{
    z_stream *zip = &reader->zip;
    *got = 0;
    while (*got < want && !reader->ended) {
        /* zlib counts in 32 bits. */
        size_t feed = reader->count - reader->at, room = want - *got;
        zip->next_in = (unsigned char *)reader->bytes + reader->at;
        zip->avail_in = feed > (1u << 30) ? 1u << 30 : (unsigned)feed;
        zip->next_out = to + *got;
        zip->avail_out = room > (1u << 30) ? 1u << 30 : (unsigned)room;
        unsigned fed = zip->avail_in, free_before = zip->avail_out;
        int result = inflate(zip, Z_NO_FLUSH);
        reader->at += fed - zip->avail_in;
        *got += free_before - zip->avail_out;
        if (result == Z_STREAM_END) {
            if (!another_member(reader))
                reader->ended = true;
            else if (inflateReset(zip) != Z_OK)
                return ah_fail(AH_EIO, "damaged gzip data");
        } else if (result == Z_MEM_ERROR) {
            return ah_fail(AH_ENOMEM, "out of memory");
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            return ah_fail(AH_EIO, "damaged gzip data at byte %zu (%s)", reader->at,
                           zip->msg ? zip->msg : "unexpected stream");
        } else if (fed == zip->avail_in && free_before == zip->avail_out) {
            return ah_fail(AH_EIO, "gzip data ends early, after %zu bytes", reader->count);
        }
    }
    return 0;
}

/* Read up to `want` bytes; fewer only at the end of the data. */
static int read_some(struct reader *reader, void *to, size_t want, size_t *got)
{
    if (reader->compressed)
        return inflate_some(reader, to, want, got);
    size_t left = reader->count - reader->at;
    *got = want < left ? want : left;
    memcpy(to, reader->bytes + reader->at, *got);
    reader->at += *got;
    return 0;
}

static int64_t big_endian(const unsigned char *at)
{
    return (int64_t)at[0] << 24 | (int64_t)at[1] << 16 | (int64_t)at[2] << 8 | at[3];
}

static const char *magic_name(int64_t magic)
{
    return magic == 2051 ? " (images)" : magic == 2049 ? " (labels)" : "";
}

static int check_magic(const unsigned char *bytes, enum ah_idx_kind kind)
{
    int64_t magic = big_endian(bytes);
    int64_t expected = kind == AH_IDX_IMAGES ? 2051 : 2049;
    if (kind != AH_IDX_ANY && magic != expected) {
        return ah_fail(AH_EIO, "expected magic %d%s, got %lld%s", (int)expected, magic_name(expected), (long long)magic,
                       magic_name(magic));
    }
    if (bytes[0] || bytes[1])
        return ah_fail(AH_EIO, "expected an IDX file (its first two bytes are 0), got magic %lld", (long long)magic);
    if (bytes[2] != TYPE_U8)
        return ah_fail(AH_EIO, "expected elements of type 8 (unsigned byte), got type %d", bytes[2]);
    if (bytes[3] < 1 || bytes[3] > MAX_IDX_DIMS)
        return ah_fail(AH_EIO, "expected 1 to %d dimensions, got %d", MAX_IDX_DIMS, bytes[3]);
    return 0;
}

/* The largest number of bytes that `count` bytes of file can become: deflate shrinks at most 1032 to 1. */
static uint64_t idx_capacity(const struct reader *reader)
{
    return reader->compressed ? (uint64_t)reader->count * 1032 : reader->count;
}

static int read_header(struct reader *reader, enum ah_idx_kind kind, int64_t *size, int *ndim)
{
    unsigned char header[MAX_HEADER];
    size_t got;
    AH_TRY(read_some(reader, header, 4, &got));
    if (got < 4)
        return ah_fail(AH_EIO, "expected an IDX header, got %zu bytes", got);
    AH_TRY(check_magic(header, kind));
    *ndim = header[3];
    size_t rest = 4 * (size_t)*ndim;
    AH_TRY(read_some(reader, header + 4, rest, &got));
    if (got < rest)
        return ah_fail(AH_EIO, "truncated: the header has %zu of %zu bytes", got + 4, rest + 4);
    uint64_t total = 1;
    bool huge = false;
    for (int d = 0; d < *ndim; d++) {
        size[d] = big_endian(header + 4 + 4 * d);
        huge |= __builtin_mul_overflow(total, (uint64_t)size[d], &total);
    }
    if (huge || total > idx_capacity(reader)) {
        return ah_fail(AH_EIO, "truncated: the header has shape %s, more than fits into %zu bytes of file",
                       ah_shape_text(size, *ndim), reader->count);
    }
    return 0;
}

static int read_elements(struct reader *reader, const int64_t *size, int ndim, struct ah_tensor *tensor)
{
    size_t want = (size_t)tensor->numel, got, more;
    AH_TRY(read_some(reader, ah_tensor_data(tensor), want, &got));
    if (got < want) {
        return ah_fail(AH_EIO, "truncated: expected %zu bytes of data for %s, got %zu", want, ah_shape_text(size, ndim),
                       got);
    }
    unsigned char extra;
    AH_TRY(read_some(reader, &extra, 1, &more)); /* a gzip checksum is verified here at the latest */
    if (more || reader->at < reader->count)
        return ah_fail(AH_EIO, "trailing bytes after the %zu bytes of data for %s", want, ah_shape_text(size, ndim));
    return 0;
}

int ah_idx_parse(struct ah_tensor **out, const void *bytes, size_t count, enum ah_idx_kind kind)
{
    struct reader reader;
    struct ah_tensor *tensor = NULL;
    int64_t size[MAX_IDX_DIMS] = {0};
    int ndim = 0, status;
    AH_TRY(open_reader(&reader, bytes, count));
    AH_TRYGO(read_header(&reader, kind, size, &ndim), done);
    AH_TRYGO(ah_tensor_empty(&tensor, size, ndim, AH_U8, &ah_cpu), done);
    AH_TRYGO(read_elements(&reader, size, ndim, tensor), done);
    *out = tensor;
    tensor = NULL;
done:
    ah_tensor_release(tensor);
    close_reader(&reader);
    return status;
}

static int read_open_file(int file, void **bytes, size_t *count)
{
    struct stat info;
    if (fstat(file, &info))
        return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ah_fail(AH_EIO, "cannot read: not a file");
    *count = (size_t)info.st_size;
    *bytes = malloc(*count + 1);
    if (!*bytes)
        return ah_fail(AH_ENOMEM, "out of memory: a file of %zu bytes", *count);
    size_t at = 0;
    while (at < *count) {
        ssize_t got = read(file, (char *)*bytes + at, *count - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(*bytes);
            return ah_fail(AH_EIO, "cannot read: %s", got ? strerror(errno) : "the file became shorter");
        }
        at += (size_t)got;
    }
    return 0;
}

static int read_file(const char *path, void **bytes, size_t *count)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return ah_fail(AH_EIO, "cannot open: %s", strerror(errno));
    int status = read_open_file(file, bytes, count);
    close(file);
    return status;
}

int ah_idx_read(struct ah_tensor **out, const char *path, enum ah_idx_kind kind)
{
    const char *slash = strrchr(path, '/');
    void *bytes = NULL;
    size_t count = 0;
    int status = read_file(path, &bytes, &count);
    if (status == 0) {
        status = ah_idx_parse(out, bytes, count, kind);
        free(bytes);
    }
    return status < 0 ? ah_fail_prefix(status, "%s", slash ? slash + 1 : path) : 0;
}
