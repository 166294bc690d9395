/* zlib reads the file, and passes bytes of one that is not compressed on as they are. The buffer holds bytes that are
 * not yet made rows; it grows while a row does not fit. */
#include "data/row_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory/array.h"

enum { BLOCK = 256 << 10, LONGEST_ROW = 1 << 30 };

struct ah_row_file {
    gzFile zip;
    struct ah_rows rows;
    char *bytes;
    size_t from, to, room; /* the unread part of the buffer */
    bool ended, through;   /* the file has no more bytes; and all rows are read */
};

static int open_zip(gzFile *zip, const char *path)
{
    struct stat what;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &what) < 0) {
        int status = ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (!S_ISREG(what.st_mode)) {
        close(fd);
        return ah_fail(AH_EIO, "cannot read: it is no regular file");
    }
    *zip = gzdopen(fd, "rb");
    if (!*zip) {
        close(fd);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    gzbuffer(*zip, BLOCK);
    return 0;
}

int ah_row_file_open(struct ah_row_file **out, const char *path, const struct ah_rows_format *format)
{
    struct ah_row_file *file = calloc(1, sizeof *file);
    *out = NULL;
    AH_TRY_MEMORY(file, "out of memory");
    int status = open_zip(&file->zip, path);
    if (status == 0)
        status = ah_rows_open(&file->rows, format);
    if (status < 0) {
        ah_row_file_close(file);
        return status;
    }
    *out = file;
    return 0;
}

void ah_row_file_close(struct ah_row_file *file)
{
    if (!file)
        return;
    if (file->zip)
        gzclose(file->zip);
    ah_rows_close(&file->rows);
    free(file->bytes);
    free(file);
}

static int row_file_failed(const struct ah_row_file *file)
{
    int code;
    const char *text = gzerror(file->zip, &code);
    if (code == Z_ERRNO)
        return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
    return ah_fail(AH_EIO, "damaged gzip data (%s)", code == Z_BUF_ERROR ? "it ends early" : text);
}

/* Read one more block after the remaining bytes. */
static int row_file_fill(struct ah_row_file *file)
{
    size_t left = file->to - file->from;
    int code;
    if (left > LONGEST_ROW)
        return ah_fail(AH_EIO, "line %lld: a row of more than %d bytes; is a quote or bracket not closed?",
                       (long long)file->rows.place.line + 1, LONGEST_ROW);
    if (left > 0 && file->from > 0)
        memmove(file->bytes, file->bytes + file->from, left);
    file->from = 0;
    file->to = left;
    size_t wanted = left < BLOCK ? BLOCK : left; /* doubles while a row does not fit */
    AH_TRY(ah_grow(&file->bytes, left + wanted, &file->room, 1));
    int got = gzread(file->zip, file->bytes + left, (unsigned)wanted);
    if (got < 0)
        return row_file_failed(file);
    gzerror(file->zip, &code);
    if ((size_t)got < wanted && code == Z_BUF_ERROR)
        return row_file_failed(file);
    file->to += (size_t)got;
    file->ended = (size_t)got < wanted;
    return 0;
}

int ah_row_file_read(struct ah_row_file *file, struct ah_table *table, int64_t most)
{
    int64_t before = table->rows;
    while (table->rows == before && !file->through) {
        size_t used, left = file->to - file->from;
        if (left == 0 && !file->ended)
            AH_TRY(row_file_fill(file));
        left = file->to - file->from;
        AH_TRY(ah_rows_read(&file->rows, table, left ? file->bytes + file->from : NULL, left, file->ended, most,
                            &used));
        file->from += used;
        if (table->rows > before)
            break;
        if (file->ended)
            file->through = true;
        else
            AH_TRY(row_file_fill(file));
    }
    return 0;
}

struct ah_rows_place ah_row_file_place(const struct ah_row_file *file)
{
    return file->rows.place;
}

int ah_row_file_seek(struct ah_row_file *file, struct ah_rows_place place)
{
    file->from = file->to = 0;
    file->ended = file->through = false;
    file->rows.place = place;
    return gzseek(file->zip, (z_off_t)place.offset, SEEK_SET) < 0 ? row_file_failed(file) : 0;
}
