/* Reader and writer of .npy. The header's dict is read by a cursor that reads just NumPy's form: three keys in any
 * order, a text, True or False, a tuple of whole numbers. */
#include "io/npy.h"

#include <stdio.h>
#include <string.h>

#include "base/status/status.h"

/* As NumPy: a longer header is refused unless asked for. */
enum { MAX_HEADER = 10000, MAGIC = 6, ALIGNMENT = 64 };

static const struct {
    char kind;
    int bytes;
    enum ah_dtype dtype;
} npy_kinds[] = {
    {'b', 1, AH_BOOL}, {'u', 1, AH_U8},  {'u', 2, AH_U16}, {'u', 4, AH_U32}, {'u', 8, AH_U64},
    {'i', 1, AH_I8},   {'i', 2, AH_I16}, {'i', 4, AH_I32}, {'i', 8, AH_I64},
    {'f', 2, AH_F16},  {'f', 4, AH_F32}, {'f', 8, AH_F64},
};
enum { KINDS = sizeof npy_kinds / sizeof npy_kinds[0] };

enum { DESCR_ROOM = 32 };

struct header {
    char descr[DESCR_ROOM];
    char kind; /* of the elements, and the bytes of each; 0 when descr is none of a letter and a number */
    int bytes;
    enum ah_dtype dtype;
    bool swapped, columns; /* the other byte order; Fortran's order of elements */
    int ndim;
    int64_t size[AH_MAX_DIMS];
};

/* The rest of the header's text. */
struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *cursor)
{
    while (cursor->at < cursor->end && strchr(" \t\n", *cursor->at) && *cursor->at)
        cursor->at++;
}

/* Skip `text` if it follows; returns whether it did. */
static bool npy_take(struct cursor *cursor, const char *text)
{
    size_t length = strlen(text);
    skip_space(cursor);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, text, length))
        return false;
    cursor->at += length;
    return true;
}

/* A text in quotes without escapes into `to`. */
static bool take_text(struct cursor *cursor, char *to, size_t room)
{
    skip_space(cursor);
    if (cursor->at == cursor->end || (*cursor->at != '\'' && *cursor->at != '"'))
        return false;
    const char *begin = cursor->at + 1, *end = memchr(begin, *cursor->at, (size_t)(cursor->end - begin));
    if (!end || (size_t)(end - begin) >= room)
        return false;
    memcpy(to, begin, (size_t)(end - begin));
    to[end - begin] = '\0';
    cursor->at = end + 1;
    return true;
}

static bool take_size(struct cursor *cursor, int64_t *value)
{
    bool any = false, huge = false;
    skip_space(cursor);
    for (*value = 0; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++, any = true)
        huge = huge || __builtin_mul_overflow(*value, 10, value) ||
               __builtin_add_overflow(*value, *cursor->at - '0', value);
    npy_take(cursor, "L"); /* files of Python 2 */
    return any && !huge;
}

/* Parse descr, the elements' dtype and byte order: '<f4', '|b1', 'i8'. */
static void read_descr(struct header *header)
{
    bool order = header->descr[0] && strchr("<>|=", header->descr[0]);
    const char *kind = header->descr + order;
    header->swapped = header->descr[0] == '>';
    if (kind[0] && kind[1] >= '1' && kind[1] <= '8' && !kind[2]) {
        header->kind = kind[0];
        header->bytes = kind[1] - '0';
    }
}

static int take_descr(struct cursor *cursor, struct header *header)
{
    if (!take_text(cursor, header->descr, sizeof header->descr))
        return ah_fail(AH_ENOTIMPL, "npy: records and long descriptions of elements are not read");
    read_descr(header);
    return 0;
}

static int find_dtype(struct header *header)
{
    for (int i = 0; i < KINDS; i++) {
        header->dtype = npy_kinds[i].dtype;
        if (npy_kinds[i].kind == header->kind && npy_kinds[i].bytes == header->bytes)
            return 0;
    }
    return ah_fail(AH_ENOTIMPL, "npy: there is no dtype for '%s' here%s", header->descr,
                   strchr(header->descr, 'O') ? " (an array of Python objects is a pickle, which could run code)" : "");
}

static int take_shape(struct cursor *cursor, struct header *header)
{
    if (!npy_take(cursor, "("))
        return ah_fail(AH_EIO, "npy: expected a tuple as 'shape'");
    for (header->ndim = 0; !npy_take(cursor, ")"); header->ndim++) {
        if (header->ndim == AH_MAX_DIMS)
            return ah_fail(AH_ENOTIMPL, "npy: more than %d dims", AH_MAX_DIMS);
        if (!take_size(cursor, &header->size[header->ndim]))
            return ah_fail(AH_EIO, "npy: expected whole numbers in 'shape'");
        if (!npy_take(cursor, ",") && !(cursor->at < cursor->end && *cursor->at == ')'))
            return ah_fail(AH_EIO, "npy: 'shape' does not end");
    }
    return 0;
}

static int take_header(struct cursor *cursor, struct header *header)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };
    int seen = 0;
    if (!npy_take(cursor, "{"))
        return ah_fail(AH_EIO, "npy: expected a dict as header");
    while (!npy_take(cursor, "}")) {
        char key[16];
        if (!take_text(cursor, key, sizeof key) || !npy_take(cursor, ":"))
            return ah_fail(AH_EIO, "npy: the header's dict is damaged");
        int field = !strcmp(key, "descr") ? DESCR : !strcmp(key, "fortran_order") ? ORDER
                                                : !strcmp(key, "shape")           ? SHAPE : 0;
        if (!field || seen & field)
            return ah_fail(AH_EIO, "npy: key '%s' in the header %s", key, field ? "is there twice" : "is not known");
        seen |= field;
        if (field == DESCR)
            AH_TRY(take_descr(cursor, header));
        else if (field == SHAPE)
            AH_TRY(take_shape(cursor, header));
        else if (!(header->columns = npy_take(cursor, "True")) && !npy_take(cursor, "False"))
            return ah_fail(AH_EIO, "npy: expected True or False as 'fortran_order'");
        if (!npy_take(cursor, ",") && !(cursor->at < cursor->end && *cursor->at == '}'))
            return ah_fail(AH_EIO, "npy: the header's dict does not end");
    }
    skip_space(cursor);
    if (seen != ALL || cursor->at != cursor->end)
        return ah_fail(AH_EIO, "npy: the header's dict %s", seen != ALL ? "lacks a key" : "is followed by other text");
    return 0;
}

static void swap_bytes(unsigned char *elements, size_t bytes, size_t item)
{
    for (size_t i = 0; i < bytes; i += item) {
        for (size_t low = i, high = i + item - 1; low < high; low++, high--) {
            unsigned char kept = elements[low];
            elements[low] = elements[high];
            elements[high] = kept;
        }
    }
}

/* From Fortran's order, the first index running fastest, to row-major. */
static void copy_columns(unsigned char *to, const unsigned char *from, const struct header *header, int64_t numel,
                         size_t item)
{
    int64_t index[AH_MAX_DIMS] = {0}, stride[AH_MAX_DIMS], at = 0;
    ah_contiguous_strides(header->size, header->ndim, stride);
    for (int64_t i = 0; i < numel; i++) {
        memcpy(to + (size_t)at * item, from + (size_t)i * item, item);
        for (int d = 0; d < header->ndim; d++) {
            at += stride[d];
            if (++index[d] < header->size[d])
                break;
            at -= stride[d] * index[d];
            index[d] = 0;
        }
    }
}

static int read_elements(struct ah_tensor **out, const struct header *header, const unsigned char *bytes, size_t count)
{
    struct ah_tensor *tensor;
    size_t item = ah_dtype_size(header->dtype);
    uint64_t want = item;
    bool huge = false, none = false;
    for (int d = 0; d < header->ndim; d++) {
        none |= header->size[d] == 0;
        huge |= header->size[d] < 0;
        huge |= __builtin_mul_overflow(want, (uint64_t)header->size[d], &want);
    }
    if (huge || (none ? 0 : want) != count)
        return ah_fail(AH_EIO, "npy: %s of %s does not match the %zu bytes after the header",
                       ah_shape_text(header->size, header->ndim), ah_dtype_name(header->dtype), count);
    for (size_t i = 0; header->dtype == AH_BOOL && i < count; i++)
        if (bytes[i] > 1)
            return ah_fail(AH_EIO, "npy: a bool is %d, expected 0 or 1", bytes[i]);
    AH_TRY(ah_tensor_empty(&tensor, header->size, header->ndim, header->dtype, &ah_cpu));
    if (header->columns)
        copy_columns(ah_tensor_data(tensor), bytes, header, tensor->numel, item);
    else
        memcpy(ah_tensor_data(tensor), bytes, count);
    if (header->swapped)
        swap_bytes(ah_tensor_data(tensor), count, item);
    *out = tensor;
    return 0;
}

/* The header of a file, and where its elements begin. */
static int read_header(struct header *header, size_t *begin, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    if (count < MAGIC + 4 || memcmp(at, "\x93NUMPY", MAGIC))
        return ah_fail(AH_EIO, "not a .npy file: expected the bytes \\x93NUMPY at its start");
    int version = at[MAGIC];
    size_t start = version == 1 ? MAGIC + 4 : MAGIC + 6;
    if (version < 1 || version > 3 || count < start)
        return ah_fail(AH_EIO, "npy: version %d, expected 1 to 3", version);
    size_t length = at[8] | (size_t)at[9] << 8;
    if (version > 1)
        length |= (size_t)at[10] << 16 | (size_t)at[11] << 24;
    if (length > MAX_HEADER || length > count - start)
        return ah_fail(AH_EIO, "npy: a header of %zu bytes in a file of %zu (the limit is %d)", length, count,
                       MAX_HEADER);
    struct cursor cursor = {(const char *)at + start, (const char *)at + start + length};
    *begin = start + length;
    return take_header(&cursor, header);
}

int ah_npy_parse(struct ah_tensor **out, const void *bytes, size_t count)
{
    struct header header = {0};
    size_t begin = 0;
    AH_TRY(read_header(&header, &begin, bytes, count));
    AH_TRY(find_dtype(&header));
    return read_elements(out, &header, (const unsigned char *)bytes + begin, count - begin);
}

int ah_npy_elements(struct ah_tensor **out, const struct ah_npy_layout *layout, const void *bytes, size_t count)
{
    struct header header = {.columns = layout->columns, .ndim = layout->ndim};
    if (strlen(layout->descr) >= sizeof header.descr)
        return ah_fail(AH_ENOTIMPL, "npy: records and long descriptions of elements are not read");
    memcpy(header.descr, layout->descr, strlen(layout->descr) + 1);
    memcpy(header.size, layout->size, sizeof header.size);
    read_descr(&header);
    AH_TRY(find_dtype(&header));
    return read_elements(out, &header, bytes, count);
}

int ah_npy_find_unsigned(struct ah_npy_numbers *out, const void *bytes, size_t count)
{
    struct header header = {0};
    size_t begin = 0;
    AH_TRY(read_header(&header, &begin, bytes, count));
    if (header.kind != 'u' || header.swapped || header.ndim != 1)
        return ah_fail(AH_EIO, "npy: expected one dim of '<u2' or '<u4', got %d of '%s'", header.ndim, header.descr);
    uint64_t want;
    if (__builtin_mul_overflow((uint64_t)header.size[0], (uint64_t)header.bytes, &want) || want != count - begin)
        return ah_fail(AH_EIO, "npy: %lld elements of '%s' do not match the %zu bytes after the header",
                       (long long)header.size[0], header.descr, count - begin);
    *out = (struct ah_npy_numbers){.begin = begin, .count = header.size[0], .bytes = header.bytes};
    return 0;
}

/* The header's text for elements of a kind; its length. */
static size_t put_header(char text[AH_NPY_HEADER], char kind, int bytes, const int64_t *size, int ndim)
{
    enum { START = MAGIC + 4 };
    int at = START + snprintf(text + START, AH_NPY_HEADER - START,
                              "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (", bytes == 1 ? '|' : '<', kind,
                              bytes);
    for (int d = 0; d < ndim; d++)
        at += snprintf(text + at, (size_t)(AH_NPY_HEADER - at), "%s%lld%s", d ? " " : "", (long long)size[d],
                       d + 1 < ndim || ndim == 1 ? "," : "");
    at += snprintf(text + at, (size_t)(AH_NPY_HEADER - at), "), }");
    int total = (at + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(text + at, ' ', (size_t)(total - at));
    text[total - 1] = '\n';
    memcpy(text, "\x93NUMPY\x01", MAGIC + 2);
    text[8] = (char)((total - START) & 0xff);
    text[9] = (char)((total - START) >> 8);
    return (size_t)total;
}

size_t ah_npy_header(const struct ah_tensor *tensor, char text[AH_NPY_HEADER])
{
    for (int i = 0; i < KINDS; i++)
        if (npy_kinds[i].dtype == tensor->dtype)
            return put_header(text, npy_kinds[i].kind, npy_kinds[i].bytes, tensor->size, tensor->ndim);
    return 0;
}

size_t ah_npy_unsigned_header(char text[AH_NPY_HEADER], int bytes, int64_t count)
{
    return put_header(text, 'u', bytes, &count, 1);
}

int ah_npy_write(struct ah_writer *writer, const struct ah_tensor *tensor)
{
    char header[AH_NPY_HEADER];
    size_t length = ah_npy_header(tensor, header);
    if (!length)
        return ah_fail(AH_EINVAL, "npy: NumPy has no %s; convert it first", ah_dtype_name(tensor->dtype));
    AH_TRY(ah_writer_write(writer, header, length));
    return ah_writer_write(writer, ah_tensor_data(tensor), ah_tensor_bytes(tensor));
}
