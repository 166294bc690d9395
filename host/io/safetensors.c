/* Reader and writer of safetensors. The header is parsed by jansson, which refuses names given twice and text that is
 * not UTF-8; every offset in it is then checked against the file's length before a tensor is made. */
#include "io/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

enum { MAX_HEADER = 100000000, PREFIX = 8, MAX_TENSORS = 1000000 };

/* The format's names, and the bits of an element; dtype -1: none of ours. */
static const struct {
    const char *name;
    int dtype, bits;
} safetensors_kinds[] = {
    {"BOOL", AH_BOOL, 8},  {"U8", AH_U8, 8},      {"I8", AH_I8, 8},      {"I16", AH_I16, 16},   {"U16", AH_U16, 16},
    {"I32", AH_I32, 32},   {"U32", AH_U32, 32},   {"I64", AH_I64, 64},   {"U64", AH_U64, 64},   {"F16", AH_F16, 16},
    {"BF16", AH_BF16, 16}, {"F32", AH_F32, 32},   {"F64", AH_F64, 64},   {"F4", -1, 4},         {"F6_E2M3", -1, 6},
    {"F6_E3M2", -1, 6},    {"F8_E5M2", -1, 8},    {"F8_E4M3", -1, 8},    {"F8_E8M0", -1, 8},    {"C64", -1, 64},
    {"F8_E4M3FNUZ", -1, 8}, {"F8_E5M2FNUZ", -1, 8},
};
enum { KINDS = sizeof safetensors_kinds / sizeof safetensors_kinds[0] };

static const char *kind_name(enum ah_dtype dtype)
{
    for (int i = 0; i < KINDS; i++)
        if (safetensors_kinds[i].dtype == (int)dtype)
            return safetensors_kinds[i].name;
    return NULL;
}

static uint64_t little_endian(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (int i = PREFIX - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* *bits: of an element. */
static int read_dtype(struct ah_stored *stored, const json_t *value, int *bits)
{
    const char *name = json_string_value(value);
    for (int i = 0; i < KINDS && name; i++) {
        if (strcmp(safetensors_kinds[i].name, name))
            continue;
        *bits = safetensors_kinds[i].bits;
        if (safetensors_kinds[i].dtype < 0)
            stored->kind = name;
        else
            stored->dtype = (enum ah_dtype)safetensors_kinds[i].dtype;
        return 0;
    }
    return ah_fail(AH_EIO, "tensor '%s': expected a \"dtype\" of the format, got %s", stored->name,
                   name ? name : "none");
}

static int read_shape(struct ah_stored *stored, const json_t *value)
{
    if (!json_is_array(value))
        return ah_fail(AH_EIO, "tensor '%s': expected a list as \"shape\"", stored->name);
    if (json_array_size(value) > AH_MAX_DIMS)
        return ah_fail(AH_ENOTIMPL, "tensor '%s' has %zu dims, at most %d are possible here", stored->name,
                       json_array_size(value), AH_MAX_DIMS);
    stored->ndim = (int)json_array_size(value);
    for (int d = 0; d < stored->ndim; d++) {
        const json_t *size = json_array_get(value, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return ah_fail(AH_EIO, "tensor '%s': a size in \"shape\" is not a whole number from 0", stored->name);
        stored->size[d] = json_integer_value(size);
    }
    return 0;
}

static int read_offsets(struct ah_stored *stored, const json_t *value, size_t room)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return ah_fail(AH_EIO, "tensor '%s': expected two whole numbers as \"data_offsets\"", stored->name);
    json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > room)
        return ah_fail(AH_EIO, "tensor '%s': data_offsets [%lld, %lld] are outside the %zu bytes of data",
                       stored->name, (long long)from, (long long)to, room);
    stored->begin = (size_t)from;
    stored->end = (size_t)to;
    return 0;
}

/* Do the bytes hold just the elements of the shape? */
static int check_extent(const struct ah_stored *stored, int bits)
{
    uint64_t count = (uint64_t)bits;
    bool huge = false, none = false;
    for (int d = 0; d < stored->ndim; d++) {
        none |= stored->size[d] == 0;
        huge |= __builtin_mul_overflow(count, (uint64_t)stored->size[d], &count);
    }
    if (none && !huge)
        count = 0;
    if (huge || count % 8 || count / 8 != stored->end - stored->begin)
        return ah_fail(AH_EIO, "tensor '%s': %s of %s needs other than the %zu bytes of its data_offsets", stored->name,
                       ah_shape_text(stored->size, stored->ndim),
                       stored->kind ? stored->kind : ah_dtype_name(stored->dtype), stored->end - stored->begin);
    return 0;
}

static int read_entry(struct ah_stored *stored, const json_t *value, size_t room)
{
    if (json_object_size(value) != 3)
        return ah_fail(AH_EIO, "tensor '%s': expected \"dtype\", \"shape\" and \"data_offsets\"", stored->name);
    int bits = 0;
    AH_TRY(read_dtype(stored, json_object_get(value, "dtype"), &bits));
    AH_TRY(read_shape(stored, json_object_get(value, "shape")));
    AH_TRY(read_offsets(stored, json_object_get(value, "data_offsets"), room));
    return check_extent(stored, bits);
}

static int read_notes(struct ah_safetensors *file, json_t *notes)
{
    if (!json_is_object(notes))
        return ah_fail(AH_EIO, "\"__metadata__\" is not an object");
    file->note = calloc(json_object_size(notes) + 1, sizeof *file->note);
    AH_TRY_MEMORY(file->note, "out of memory");
    const char *key;
    json_t *value;
    json_object_foreach(notes, key, value) {
        if (!json_is_string(value))
            return ah_fail(AH_EIO, "\"__metadata__\": '%s' is not a text", key);
        file->note[file->note_count++] = (struct ah_note){key, json_string_value(value)};
    }
    return 0;
}

static int by_bytes(const void *left, const void *right)
{
    const struct ah_stored *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Every byte of data belongs to one tensor. */
static int check_cover(const struct ah_safetensors *file, size_t room)
{
    size_t at = 0;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct ah_stored *stored = &file->tensor[i];
        if (stored->begin != at)
            return ah_fail(AH_EIO, "tensor '%s' begins at byte %zu of the data, expected %zu: tensors %s", stored->name,
                           stored->begin, at, stored->begin < at ? "overlap" : "leave a gap");
        at = stored->end;
    }
    if (at != room)
        return ah_fail(AH_EIO, "%zu bytes after the last tensor", room - at);
    return 0;
}

static int read_header(struct ah_safetensors *file, json_t *header, size_t room)
{
    const char *key;
    json_t *value;
    if (json_object_size(header) > MAX_TENSORS)
        return ah_fail(AH_EIO, "%zu tensors, the limit is %d", json_object_size(header), MAX_TENSORS);
    file->tensor = calloc(json_object_size(header) + 1, sizeof *file->tensor);
    AH_TRY_MEMORY(file->tensor, "out of memory");
    json_object_foreach(header, key, value) {
        if (!strcmp(key, "__metadata__")) {
            AH_TRY(read_notes(file, value));
            continue;
        }
        struct ah_stored *stored = &file->tensor[file->tensor_count++];
        stored->name = key;
        AH_TRY(read_entry(stored, value, room));
    }
    qsort(file->tensor, file->tensor_count, sizeof *file->tensor, by_bytes);
    return check_cover(file, room);
}

int ah_safetensors_parse(struct ah_safetensors **out, const void *bytes, size_t count)
{
    json_error_t error;
    if (count < PREFIX)
        return ah_fail(AH_EIO, "not a safetensors file: %zu bytes", count);
    uint64_t length = little_endian(bytes);
    if (length > MAX_HEADER || length > count - PREFIX || length < 2 || ((const char *)bytes)[PREFIX] != '{')
        return ah_fail(AH_EIO, "not a safetensors file, or cut: a header of %llu bytes in a file of %zu",
                       (unsigned long long)length, count);
    struct ah_safetensors *file = calloc(1, sizeof *file);
    AH_TRY_MEMORY(file, "out of memory");
    file->data = PREFIX + (size_t)length;
    json_t *header = json_loadb((const char *)bytes + PREFIX, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    file->header = header;
    int status = header ? read_header(file, header, count - file->data)
                        : ah_fail(AH_EIO, "the header: %s, at its byte %d", error.text, error.position);
    if (status < 0)
        ah_safetensors_close(file);
    else
        *out = file;
    return status;
}

void ah_safetensors_close(struct ah_safetensors *file)
{
    if (!file)
        return;
    json_decref(file->header);
    free(file->tensor);
    free(file->note);
    free(file);
}

int ah_safetensors_tensor(struct ah_tensor **out, const struct ah_safetensors *file, size_t index,
                          struct ah_mapping *mapping)
{
    const struct ah_stored *stored = &file->tensor[index];
    int status = ah_mapping_tensor(out, mapping, file->data + stored->begin, stored->size, stored->ndim, stored->dtype);
    return status < 0 ? ah_fail_prefix(status, "tensor '%s'", stored->name) : 0;
}

static int by_size(const void *left, const void *right)
{
    const struct ah_named *a = left, *b = right;
    size_t of_a = ah_dtype_size(a->tensor->dtype), of_b = ah_dtype_size(b->tensor->dtype);
    return of_a != of_b ? (of_a > of_b ? -1 : 1) : strcmp(a->name, b->name);
}

/* The entry of one tensor that begins at `at`; NULL when memory runs out. */
static json_t *make_entry(const struct ah_tensor *tensor, size_t at)
{
    json_t *shape = json_array();
    for (int d = 0; d < tensor->ndim; d++)
        if (json_array_append_new(shape, json_integer(tensor->size[d])))
            return json_decref(shape), NULL;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", kind_name(tensor->dtype), "shape", shape, "data_offsets",
                     (json_int_t)at, (json_int_t)(at + ah_tensor_bytes(tensor)));
}

static int fill_header(json_t *header, const struct ah_named *list, size_t count, const struct ah_note *note,
                       size_t note_count)
{
    json_t *notes = json_object();
    for (size_t i = 0; i < note_count; i++)
        if (json_object_set_new(notes, note[i].key, json_string(note[i].text)))
            return json_decref(notes), ah_fail(AH_EINVAL, "metadata '%s' is not UTF-8 text", note[i].key);
    if (note_count ? json_object_set_new(header, "__metadata__", notes) : (json_decref(notes), 0))
        return ah_fail(AH_ENOMEM, "out of memory");
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (json_object_get(header, list[i].name) || !strcmp(list[i].name, "__metadata__"))
            return ah_fail(AH_EINVAL, "a tensor cannot be named '%s' (%s)", list[i].name,
                           strcmp(list[i].name, "__metadata__") ? "given twice" : "the format keeps that for itself");
        if (json_object_set_new(header, list[i].name, make_entry(list[i].tensor, at)))
            return ah_fail(AH_EINVAL, "the name '%s' is not UTF-8 text", list[i].name);
        at += ah_tensor_bytes(list[i].tensor);
    }
    return 0;
}

static int write_header(struct ah_writer *writer, const char *text)
{
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    if (padded > MAX_HEADER)
        return ah_fail(AH_EINVAL, "the header has %zu bytes, the format allows %d", padded, MAX_HEADER);
    unsigned char prefix[PREFIX];
    for (int i = 0; i < PREFIX; i++)
        prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    AH_TRY(ah_writer_write(writer, prefix, PREFIX));
    AH_TRY(ah_writer_write(writer, text, length));
    return ah_writer_write(writer, "       ", padded - length);
}

int ah_safetensors_write(struct ah_writer *writer, struct ah_named *list, size_t count, const struct ah_note *note,
                         size_t note_count)
{
    int status;
    char *text = NULL;
    json_t *header = json_object();
    qsort(list, count, sizeof *list, by_size);
    AH_TRYGO(fill_header(header, list, count, note, note_count), out);
    text = json_dumps(header, JSON_COMPACT);
    AH_TRYGO(text ? write_header(writer, text) : ah_fail(AH_ENOMEM, "out of memory"), out);
    for (size_t i = 0; i < count && status == 0; i++)
        status = ah_writer_write(writer, ah_tensor_data(list[i].tensor), ah_tensor_bytes(list[i].tensor));
out:
    free(text);
    json_decref(header);
    return status;
}
