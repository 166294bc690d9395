/* ZIP archives. The directory at the end decides; a local header is read only for where its content begins. All numbers
 * are little-endian and are read byte by byte, so nothing needs to be aligned. */
#include "io/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/status/status.h"

enum {
    LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50, END64 = 0x06064b50, LOCATOR64 = 0x07064b50,
    LOCAL_SIZE = 30, CENTRAL_SIZE = 46, END_SIZE = 22, END64_SIZE = 56, LOCATOR64_SIZE = 20,
    MAX_COMMENT = 65535, MAX_ENTRIES = 1000000, EXTRA64 = 1, STORED = 0, DEFLATED = 8,
    RATIO = 1032, /* largest expansion of a byte by deflate */
};
#define WIDE 0xffffffffu /* in a 32-bit field: see the ZIP64 field */

struct bytes {
    const unsigned char *at;
    size_t count;
};

static uint64_t zip_number(const unsigned char *at, int width)
{
    uint64_t value = 0;
    for (int i = width - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static bool zip_holds(struct bytes file, uint64_t at, uint64_t count)
{
    return at <= file.count && count <= file.count - at;
}

struct directory {
    uint64_t begin, size, count;
};

static int find_directory64(struct bytes file, size_t end, struct directory *directory)
{
    if (end < LOCATOR64_SIZE || zip_number(file.at + end - LOCATOR64_SIZE, 4) != LOCATOR64)
        return 0;
    uint64_t at = zip_number(file.at + end - LOCATOR64_SIZE + 8, 8);
    if (!zip_holds(file, at, END64_SIZE) || zip_number(file.at + at, 4) != END64)
        return ah_fail(AH_EIO, "zip: the ZIP64 record is not where it should be");
    directory->count = zip_number(file.at + at + 32, 8);
    directory->size = zip_number(file.at + at + 40, 8);
    directory->begin = zip_number(file.at + at + 48, 8);
    return 0;
}

static int find_directory(struct bytes file, struct directory *directory)
{
    size_t furthest = END_SIZE + MAX_COMMENT;
    for (size_t back = END_SIZE; back <= file.count && back <= furthest; back++) {
        const unsigned char *at = file.at + file.count - back;
        if (zip_number(at, 4) != END || zip_number(at + 20, 2) != back - END_SIZE)
            continue;
        if (zip_number(at + 4, 2) || zip_number(at + 6, 2))
            return ah_fail(AH_ENOTIMPL, "zip: an archive of several volumes");
        directory->count = zip_number(at + 10, 2);
        directory->size = zip_number(at + 12, 4);
        directory->begin = zip_number(at + 16, 4);
        AH_TRY(find_directory64(file, file.count - back, directory));
        if (!zip_holds(file, directory->begin, directory->size) || directory->count > directory->size / CENTRAL_SIZE)
            return ah_fail(AH_EIO, "zip: the directory of %llu entries does not fit into the file",
                           (unsigned long long)directory->count);
        return 0;
    }
    return ah_fail(AH_EIO, "zip: no directory at the end: cut, or not a zip archive");
}

/* The wide values of an entry, in the order of the narrow fields that refer to them. */
static int read_wide(const unsigned char *extra, size_t count, uint64_t *value[], int wanted)
{
    while (wanted && count >= 4) {
        size_t size = zip_number(extra + 2, 2);
        if (size > count - 4)
            break;
        if (zip_number(extra, 2) == EXTRA64) {
            if (size < 8 * (size_t)wanted)
                break;
            for (int i = 0; i < wanted; i++)
                *value[i] = zip_number(extra + 4 + 8 * i, 8);
            return 0;
        }
        extra += 4 + size;
        count -= 4 + size;
    }
    return wanted ? ah_fail(AH_EIO, "zip: an entry's ZIP64 field is missing or cut") : 0;
}

/* Find the begin and end of the content, by the local header at `local`. */
static int find_content(struct bytes file, struct ah_zip_entry *entry, uint64_t local, uint64_t packed)
{
    if (!zip_holds(file, local, LOCAL_SIZE) || zip_number(file.at + local, 4) != LOCAL)
        return ah_fail(AH_EIO, "zip: '%s' is not at its offset in the directory", entry->name);
    uint64_t begin = local + LOCAL_SIZE + zip_number(file.at + local + 26, 2) + zip_number(file.at + local + 28, 2);
    if (!zip_holds(file, begin, packed))
        return ah_fail(AH_EIO, "zip: '%s' reaches beyond the file", entry->name);
    entry->begin = (size_t)begin;
    entry->end = (size_t)(begin + packed);
    if (entry->deflated ? entry->size > packed * RATIO : entry->size != packed)
        return ah_fail(AH_EIO, "zip: '%s': %llu bytes cannot unpack to %llu", entry->name, (unsigned long long)packed,
                       (unsigned long long)entry->size);
    return 0;
}

/* One entry of the directory; *at moves behind it, *names behind the copy of its name. */
static int read_entry(struct bytes file, struct directory directory, uint64_t *at, struct ah_zip_entry *entry,
                      char **names)
{
    struct bytes rest = {file.at, (size_t)(directory.begin + directory.size)};
    const unsigned char *head = file.at + *at;
    if (!zip_holds(rest, *at, CENTRAL_SIZE) || zip_number(head, 4) != CENTRAL)
        return ah_fail(AH_EIO, "zip: the directory is damaged");
    size_t name = zip_number(head + 28, 2), extra = zip_number(head + 30, 2), comment = zip_number(head + 32, 2);
    if (!zip_holds(rest, *at + CENTRAL_SIZE, name + extra + comment) || memchr(head + CENTRAL_SIZE, 0, name))
        return ah_fail(AH_EIO, "zip: the directory is damaged");
    memcpy(*names, head + CENTRAL_SIZE, name);
    (*names)[name] = '\0';
    entry->name = *names;
    *names += name + 1;
    int flags = (int)zip_number(head + 8, 2), method = (int)zip_number(head + 10, 2), wanted = 0;
    if (flags & 1 || (method != STORED && method != DEFLATED))
        return ah_fail(AH_ENOTIMPL, "zip: '%s' is %s", entry->name,
                       flags & 1 ? "encrypted" : "packed by a method other than deflate");
    entry->deflated = method == DEFLATED;
    entry->crc = (uint32_t)zip_number(head + 16, 4);
    entry->size = zip_number(head + 24, 4);
    uint64_t packed = zip_number(head + 20, 4), local = zip_number(head + 42, 4), *wide[3];
    if (entry->size == WIDE)
        wide[wanted++] = &entry->size;
    if (packed == WIDE)
        wide[wanted++] = &packed;
    if (local == WIDE)
        wide[wanted++] = &local;
    AH_TRY(read_wide(head + CENTRAL_SIZE + name, extra, wide, wanted));
    *at += CENTRAL_SIZE + name + extra + comment;
    return find_content(file, entry, local, packed);
}

static int by_place(const void *left, const void *right)
{
    const struct ah_zip_entry *a = left, *b = right;
    return a->begin != b->begin ? (a->begin < b->begin ? -1 : 1) : (a->end > b->end) - (a->end < b->end);
}

static int read_directory(struct ah_zip *zip, struct bytes file, struct directory directory)
{
    if (directory.count > MAX_ENTRIES)
        return ah_fail(AH_EIO, "zip: %llu entries, the limit is %d", (unsigned long long)directory.count,
                       MAX_ENTRIES);
    zip->entry = calloc(directory.count + 1, sizeof *zip->entry);
    zip->names = malloc(directory.size + directory.count + 1);
    if (!zip->entry || !zip->names)
        return ah_fail(AH_ENOMEM, "out of memory");
    char *names = zip->names;
    uint64_t at = directory.begin;
    for (; zip->count < directory.count; zip->count++)
        AH_TRY(read_entry(file, directory, &at, &zip->entry[zip->count], &names));
    qsort(zip->entry, zip->count, sizeof *zip->entry, by_place);
    for (size_t i = 1; i < zip->count; i++)
        if (zip->entry[i].begin < zip->entry[i - 1].end)
            return ah_fail(AH_EIO, "zip: '%s' and '%s' overlap", zip->entry[i - 1].name, zip->entry[i].name);
    return 0;
}

int ah_zip_parse(struct ah_zip **out, const void *bytes, size_t count)
{
    struct bytes file = {bytes, count};
    struct directory directory = {0};
    AH_TRY(find_directory(file, &directory));
    struct ah_zip *zip = calloc(1, sizeof *zip);
    AH_TRY_MEMORY(zip, "out of memory");
    int status = read_directory(zip, file, directory);
    if (status < 0)
        ah_zip_close(zip);
    else
        *out = zip;
    return status;
}

void ah_zip_close(struct ah_zip *zip)
{
    if (!zip)
        return;
    free(zip->entry);
    free(zip->names);
    free(zip);
}

static int check_sum(const struct ah_zip_entry *entry, const void *content)
{
    if (crc32_z(0, content, entry->size) != entry->crc)
        return ah_fail(AH_EIO, "zip: '%s' is damaged: its checksum differs", entry->name);
    return 0;
}

static int inflate_to(const struct ah_zip_entry *entry, const unsigned char *from, unsigned char *to)
{
    z_stream zip = {0};
    size_t left = entry->end - entry->begin;
    uint64_t room = entry->size;
    int result = inflateInit2(&zip, -15);
    if (result != Z_OK)
        return ah_fail(AH_ENOMEM, "out of memory");
    zip.next_in = (unsigned char *)(uintptr_t)from;
    zip.next_out = to;
    do { /* zlib counts in 32 bits */
        unsigned fed = left > 1u << 30 ? 1u << 30 : (unsigned)left;
        unsigned free_room = room > 1u << 30 ? 1u << 30 : (unsigned)room;
        zip.avail_in = fed;
        zip.avail_out = free_room;
        result = inflate(&zip, Z_NO_FLUSH);
        left -= fed - zip.avail_in;
        room -= free_room - zip.avail_out;
        if (fed == zip.avail_in && free_room == zip.avail_out)
            break;
    } while (result == Z_OK);
    inflateEnd(&zip);
    if (result != Z_STREAM_END || room || left)
        return ah_fail(AH_EIO, "zip: '%s' is damaged: it does not unpack to %llu bytes", entry->name,
                       (unsigned long long)entry->size);
    return 0;
}

int ah_zip_read(const struct ah_zip_entry *entry, const void *bytes, void *to)
{
    const unsigned char *from = (const unsigned char *)bytes + entry->begin;
    if (!entry->deflated)
        memcpy(to, from, entry->size);
    else
        AH_TRY(inflate_to(entry, from, to));
    return check_sum(entry, to);
}

int ah_zip_check(const struct ah_zip_entry *entry, const void *bytes)
{
    return check_sum(entry, (const unsigned char *)bytes + entry->begin);
}

/* A record under construction. */
struct record {
    unsigned char bytes[128];
    size_t count;
};

static void zip_put(struct record *record, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        record->bytes[record->count++] = (unsigned char)(value >> 8 * i);
}

struct place {
    uint64_t local, size;
    size_t extra; /* bytes of the local header's extra field */
    uint32_t crc;
};

/* Write the common fields of local header and directory entry: version, flags, method, a fixed date, checksum,
 * sizes. */
static void put_common(struct record *record, const struct place *place, size_t name, size_t extra)
{
    enum { VERSION64 = 45, UTF8 = 1 << 11, FIRST_DAY = 0x21 };
    zip_put(record, VERSION64, 2);
    zip_put(record, UTF8, 2);
    zip_put(record, STORED, 2);
    zip_put(record, 0, 2);
    zip_put(record, FIRST_DAY, 2); /* 1980-01-01: equal content yields equal bytes */
    zip_put(record, place->crc, 4);
    zip_put(record, WIDE, 4);
    zip_put(record, WIDE, 4);
    zip_put(record, name, 2);
    zip_put(record, extra, 2);
}

/* Write a field without meaning, so that data at byte `at` of the file move to a multiple of `align`. Its kind is
 * PyTorch's. */
static void put_padding(struct record *record, uint64_t at, size_t align)
{
    enum { PADDING = 'F' | 'B' << 8, FIELD = 4 };
    if (!align || at % align == 0)
        return;
    size_t count = (align - (size_t)((at + FIELD) % align)) % align;
    zip_put(record, PADDING, 2);
    zip_put(record, count, 2);
    memset(record->bytes + record->count, 'Z', count);
    record->count += count;
}

static int write_content(struct ah_writer *writer, const struct ah_zip_piece *piece, struct place *place)
{
    struct record head = {.count = 0}, extra = {.count = 0};
    size_t name = strlen(piece->name);
    if (name > 0xffff)
        return ah_fail(AH_EINVAL, "zip: a name of %zu bytes", name);
    place->size = piece->head_count + piece->body_count;
    place->crc = (uint32_t)crc32_z(crc32_z(0, piece->head, piece->head_count), piece->body, piece->body_count);
    zip_put(&extra, EXTRA64, 2);
    zip_put(&extra, 16, 2);
    zip_put(&extra, place->size, 8);
    zip_put(&extra, place->size, 8);
    put_padding(&extra, place->local + LOCAL_SIZE + name + extra.count + piece->head_count, piece->align);
    place->extra = extra.count;
    zip_put(&head, LOCAL, 4);
    put_common(&head, place, name, extra.count);
    AH_TRY(ah_writer_write(writer, head.bytes, head.count));
    AH_TRY(ah_writer_write(writer, piece->name, name));
    AH_TRY(ah_writer_write(writer, extra.bytes, extra.count));
    AH_TRY(ah_writer_write(writer, piece->head, piece->head_count));
    return ah_writer_write(writer, piece->body, piece->body_count);
}

static int write_entry(struct ah_writer *writer, const struct ah_zip_piece *piece, const struct place *place,
                       uint64_t *size)
{
    enum { EXTRA = 28 };
    struct record head = {.count = 0}, extra = {.count = 0};
    zip_put(&head, CENTRAL, 4);
    zip_put(&head, 3 << 8 | 45, 2); /* made on Unix */
    put_common(&head, place, strlen(piece->name), EXTRA);
    zip_put(&head, 0, 2 + 2 + 2);          /* no comment, first volume, binary */
    zip_put(&head, (uint64_t)0100644 << 16, 4); /* the mode of an extracted file */
    zip_put(&head, WIDE, 4);
    zip_put(&extra, EXTRA64, 2);
    zip_put(&extra, 24, 2);
    zip_put(&extra, place->size, 8);
    zip_put(&extra, place->size, 8);
    zip_put(&extra, place->local, 8);
    *size += head.count + strlen(piece->name) + extra.count;
    AH_TRY(ah_writer_write(writer, head.bytes, head.count));
    AH_TRY(ah_writer_write(writer, piece->name, strlen(piece->name)));
    return ah_writer_write(writer, extra.bytes, extra.count);
}

static int write_end(struct ah_writer *writer, uint64_t count, uint64_t begin, uint64_t size)
{
    struct record end = {.count = 0};
    zip_put(&end, END64, 4);
    zip_put(&end, END64_SIZE - 12, 8);
    zip_put(&end, 45, 2);
    zip_put(&end, 45, 2);
    zip_put(&end, 0, 8); /* both volume numbers */
    zip_put(&end, count, 8);
    zip_put(&end, count, 8);
    zip_put(&end, size, 8);
    zip_put(&end, begin, 8);
    zip_put(&end, LOCATOR64, 4);
    zip_put(&end, 0, 4);
    zip_put(&end, begin + size, 8);
    zip_put(&end, 1, 4);
    zip_put(&end, END, 4);
    zip_put(&end, 0, 4);
    zip_put(&end, count < 0xffff ? count : 0xffff, 2);
    zip_put(&end, count < 0xffff ? count : 0xffff, 2);
    zip_put(&end, size < WIDE ? size : WIDE, 4);
    zip_put(&end, begin < WIDE ? begin : WIDE, 4);
    zip_put(&end, 0, 2);
    return ah_writer_write(writer, end.bytes, end.count);
}

int ah_zip_write(struct ah_writer *writer, const struct ah_zip_piece *list, size_t count)
{
    uint64_t at = 0, size = 0;
    AH_FREED struct place *place = calloc(count + 1, sizeof *place);
    AH_TRY_MEMORY(place, "out of memory");
    for (size_t i = 0; i < count; i++) {
        place[i].local = at;
        AH_TRY(write_content(writer, &list[i], &place[i]));
        at += LOCAL_SIZE + strlen(list[i].name) + place[i].extra + place[i].size;
    }
    for (size_t i = 0; i < count; i++)
        AH_TRY(write_entry(writer, &list[i], &place[i], &size));
    return write_end(writer, count, at, size);
}
