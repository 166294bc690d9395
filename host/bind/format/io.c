/* accelhost._C.io: files of tensors. A file's contents are checked by host/io; names in it are only used as table keys.
 * Open files are owned by userdata, so that an error closes them. */
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/format/io.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/zip.h"
#include "tensor/capture.h"

/* A file being read or written. */
struct archive {
    char *path; /* of a file being read, for messages */
    struct ah_mapping *mapping;
    struct ah_safetensors *safetensors;
    struct ah_zip *zip;
    struct ah_writer *writer;
};

static int close_archive(lua_State *L)
{
    struct archive *archive = lua_touserdata(L, 1);
    ah_safetensors_close(archive->safetensors);
    ah_zip_close(archive->zip);
    ah_mapping_release(archive->mapping);
    ah_writer_abandon(archive->writer);
    free(archive->path);
    *archive = (struct archive){0};
    return 0;
}

static const struct ah_class archive_class = {.name = "accelhost.archive", .collect = close_archive};

static struct archive *push_archive(lua_State *L)
{
    return ah_class_new(L, &archive_class, sizeof(struct archive));
}

static struct archive *check_mapped(lua_State *L)
{
    struct archive *archive = ah_class_to(L, 1, &archive_class);
    if (!archive || !archive->mapping)
        ah_raise_text(L, "expected an open file");
    return archive;
}

static struct archive *check_archive(lua_State *L)
{
    struct archive *archive = check_mapped(L);
    if (!archive->zip)
        ah_raise_text(L, "expected an open zip archive");
    return archive;
}

/* Raise a failure with the operation and the file's name in front. */
static void io_check(lua_State *L, int status, const char *what, const char *path)
{
    if (status < 0)
        ah_raise(L, ah_fail_prefix(status, "%s: '%s'", what, path));
}

static struct archive *open_mapped(lua_State *L, const char *path)
{
    struct archive *archive = push_archive(L);
    io_check(L, ah_mapping_open(&archive->mapping, path), "load", path);
    archive->path = strdup(path);
    if (!archive->path)
        io_check(L, ah_fail(AH_ENOMEM, "out of memory"), "load", path);
    return archive;
}

static struct archive *open_writer(lua_State *L, const char *path)
{
    struct archive *archive = push_archive(L);
    io_check(L, ah_writer_open(&archive->writer, path), "save", path);
    return archive;
}

static void io_commit(lua_State *L, struct archive *archive, const char *path)
{
    struct ah_writer *writer = archive->writer;
    archive->writer = NULL;
    io_check(L, ah_writer_commit(writer), "save", path);
}

/* safetensors(path) -> {name = tensor}, {key = text}, {name = reason} of the tensors without a dtype of ours */
static int read_safetensors(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct archive *archive = open_mapped(L, path);
    struct ah_mapping *mapping = archive->mapping;
    io_check(L, ah_safetensors_parse(&archive->safetensors, mapping->bytes, mapping->count), "load", path);
    const struct ah_safetensors *file = archive->safetensors;
    lua_createtable(L, 0, (int)file->tensor_count);
    for (size_t i = 0; i < file->tensor_count; i++) {
        struct ah_tensor *tensor = NULL;
        if (file->tensor[i].kind)
            continue;
        io_check(L, ah_safetensors_tensor(&tensor, file, i, mapping), "load", path);
        ah_push_tensor(L, tensor);
        lua_setfield(L, -2, file->tensor[i].name);
    }
    lua_createtable(L, 0, (int)file->note_count);
    for (size_t i = 0; i < file->note_count; i++) {
        lua_pushstring(L, file->note[i].text);
        lua_setfield(L, -2, file->note[i].key);
    }
    lua_newtable(L);
    for (size_t i = 0; i < file->tensor_count; i++) {
        if (!file->tensor[i].kind)
            continue;
        lua_pushfstring(L, "there is no dtype for %s here", file->tensor[i].kind);
        lua_setfield(L, -2, file->tensor[i].name);
    }
    return 3;
}

struct ah_tensor *ah_check_plain(lua_State *L, int index, const char *name)
{
    struct ah_tensor *tensor = ah_check_tensor(L, index);
    ah_check(L, ah_capture_refuse("save", "reading values", "return the tensor from the step and save it afterwards"));
    ah_check(L, ah_tensor_row_major(tensor));
    if (!ah_on_cpu(tensor) || !ah_tensor_is_contiguous(tensor))
        ah_raise_text(L, "'%s': expected a contiguous tensor on the CPU", name);
    return tensor;
}

struct ah_named *ah_push_named(lua_State *L, int names, int tensors, size_t *count)
{
    luaL_checktype(L, names, LUA_TTABLE);
    luaL_checktype(L, tensors, LUA_TTABLE);
    *count = lua_objlen(L, names);
    struct ah_named *list = lua_newuserdata(L, (*count + 1) * sizeof *list);
    for (size_t i = 0; i < *count; i++) {
        lua_rawgeti(L, names, (int)i + 1);
        lua_rawgeti(L, tensors, (int)i + 1);
        size_t length;
        list[i].name = luaL_checklstring(L, -2, &length);
        if (strlen(list[i].name) != length)
            ah_raise_text(L, "the name '%s' has a byte of 0 in it", list[i].name);
        list[i].tensor = ah_check_plain(L, lua_gettop(L), list[i].name);
        lua_pop(L, 2);
    }
    return list;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct ah_note *)a)->key, ((const struct ah_note *)b)->key);
}

struct ah_note *ah_push_notes(lua_State *L, int index, const char *path, size_t *count)
{
    size_t room = 0;
    luaL_checktype(L, index, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1))
        room++;
    struct ah_note *note = lua_newuserdata(L, (room + 1) * sizeof *note);
    *count = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
            ah_raise_text(L, "save: '%s': metadata holds texts by name", path);
        note[(*count)++] = (struct ah_note){lua_tostring(L, -2), lua_tostring(L, -1)};
    }
    qsort(note, *count, sizeof *note, by_key);
    return note;
}

/* write_safetensors(path, {name, ...}, {tensor, ...}, {key = text}) */
static int write_safetensors(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    size_t count, note_count;
    struct ah_named *list = ah_push_named(L, 2, 3, &count);
    struct ah_note *note = ah_push_notes(L, 4, path, &note_count);
    struct archive *archive = open_writer(L, path);
    io_check(L, ah_safetensors_write(archive->writer, list, count, note, note_count), "save", path);
    io_commit(L, archive, path);
    return 0;
}

/* write_text(path, text): as all files are written */
static int write_text(lua_State *L)
{
    size_t bytes;
    const char *path = luaL_checkstring(L, 1), *text = luaL_checklstring(L, 2, &bytes);
    struct archive *archive = open_writer(L, path);
    io_check(L, ah_writer_write(archive->writer, text, bytes), "save", path);
    io_commit(L, archive, path);
    return 0;
}

/* npy(path) -> tensor */
static int read_npy(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct archive *archive = open_mapped(L, path);
    struct ah_tensor *tensor = NULL;
    io_check(L, ah_npy_parse(&tensor, archive->mapping->bytes, archive->mapping->count), "load", path);
    ah_push_tensor(L, tensor);
    return 1;
}

/* write_npy(path, tensor) */
static int write_npy(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct ah_tensor *tensor = ah_check_plain(L, 2, path);
    struct archive *archive = open_writer(L, path);
    io_check(L, ah_npy_write(archive->writer, tensor), "save", path);
    io_commit(L, archive, path);
    return 0;
}

/* write_npz(path, {name, ...}, {tensor, ...}) */
static int write_npz(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    size_t count;
    struct ah_named *list = ah_push_named(L, 2, 3, &count);
    struct ah_zip_piece *piece = lua_newuserdata(L, (count + 1) * sizeof *piece);
    char (*header)[AH_NPY_HEADER] = lua_newuserdata(L, (count + 1) * sizeof *header);
    for (size_t i = 0; i < count; i++) {
        const struct ah_tensor *tensor = list[i].tensor;
        size_t length = ah_npy_header(tensor, header[i]);
        if (!length)
            return ah_raise_text(L, "save: '%s': '%s': NumPy has no %s; convert it first", path, list[i].name,
                                 ah_dtype_name(tensor->dtype));
        piece[i] = (struct ah_zip_piece){
            .name = list[i].name, .head = header[i], .body = ah_tensor_data(tensor), .head_count = length,
            .body_count = ah_tensor_bytes(tensor)};
    }
    struct archive *archive = open_writer(L, path);
    io_check(L, ah_zip_write(archive->writer, piece, count), "save", path);
    io_commit(L, archive, path);
    return 0;
}

/* write_zip(path, {name, ...}, {tensor or text, ...}): stored entries; elements begin at multiples of 64, as in
 * PyTorch's files */
static int write_zip(lua_State *L)
{
    enum { ALIGNMENT = 64 };
    const char *path = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    size_t count = lua_objlen(L, 2);
    struct ah_zip_piece *piece = lua_newuserdata(L, (count + 1) * sizeof *piece);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 2, (int)i + 1);
        lua_rawgeti(L, 3, (int)i + 1);
        piece[i] = (struct ah_zip_piece){.name = luaL_checkstring(L, -2), .head = "", .align = ALIGNMENT};
        if (lua_type(L, -1) == LUA_TSTRING) {
            piece[i].body = lua_tolstring(L, -1, &piece[i].body_count);
        } else {
            const struct ah_tensor *tensor = ah_check_plain(L, lua_gettop(L), piece[i].name);
            piece[i].body = ah_tensor_data(tensor);
            piece[i].body_count = ah_tensor_bytes(tensor);
        }
        lua_pop(L, 2); /* the tables keep them */
    }
    struct archive *archive = open_writer(L, path);
    io_check(L, ah_zip_write(archive->writer, piece, count), "save", path);
    io_commit(L, archive, path);
    return 0;
}

/* zip(path) -> archive, {name, ...} in the order of the file */
static int open_zip(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct archive *archive = open_mapped(L, path);
    io_check(L, ah_zip_parse(&archive->zip, archive->mapping->bytes, archive->mapping->count), "load", path);
    lua_createtable(L, (int)archive->zip->count, 0);
    for (size_t i = 0; i < archive->zip->count; i++) {
        lua_pushstring(L, archive->zip->entry[i].name);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 2;
}

/* The entry of the number at stack index 2. */
static const struct ah_zip_entry *check_entry(lua_State *L, const struct archive *archive)
{
    size_t i = (size_t)luaL_checknumber(L, 2);
    if (i < 1 || i > archive->zip->count)
        ah_raise_text(L, "the archive has %zu entries", archive->zip->count);
    return &archive->zip->entry[i - 1];
}

/* Raise a failure about an entry, with the file's name and its own in front. */
static int refuse_entry(lua_State *L, const struct archive *archive, const struct ah_zip_entry *entry, int status)
{
    return ah_raise(L, ah_fail_prefix(status, "load: '%s': '%s'", archive->path, entry->name));
}

/* Return the entry's content: a pointer into the file, or into a userdata (pushed) with the unpacked bytes. */
static const void *push_content(lua_State *L, const struct archive *archive, const struct ah_zip_entry *entry)
{
    const unsigned char *bytes = archive->mapping->bytes;
    void *unpacked = entry->deflated ? lua_newuserdata(L, entry->size + 1) : NULL;
    if (!unpacked)
        lua_pushnil(L);
    int status = unpacked ? ah_zip_read(entry, bytes, unpacked) : ah_zip_check(entry, bytes);
    if (status < 0)
        refuse_entry(L, archive, entry, status);
    return unpacked ? unpacked : bytes + entry->begin;
}

/* zip_text(archive, number, most, most_deflated) -> the content as a string; raises when it has more than `most` bytes,
 * or is deflated and has more than `most_deflated` */
static int zip_text(lua_State *L)
{
    struct archive *archive = check_archive(L);
    const struct ah_zip_entry *entry = check_entry(L, archive);
    double most = entry->deflated ? luaL_checknumber(L, 4) : luaL_checknumber(L, 3);
    if ((double)entry->size > most)
        return refuse_entry(L, archive, entry, ah_fail(AH_EIO, "%llu bytes%s, at most %.0f are read",
                            (unsigned long long)entry->size, entry->deflated ? " when inflated" : "", most));
    const char *text = push_content(L, archive, entry);
    lua_pushlstring(L, text, entry->size);
    return 1;
}

/* The tensor, or nil and the reason when there is no dtype of ours for its elements; other failures are returned. */
static int push_or_reason(lua_State *L, int status, struct ah_tensor *tensor)
{
    if (status == AH_ENOTIMPL)
        return ah_push_error(L);
    if (status == 0)
        ah_push_tensor(L, tensor);
    return status < 0 ? status : 1;
}

/* zip_npy(archive, number) -> the tensor of a .npy entry, or nil and the reason when there is no dtype for it here */
static int zip_npy(lua_State *L)
{
    struct archive *archive = check_archive(L);
    const struct ah_zip_entry *entry = check_entry(L, archive);
    struct ah_tensor *tensor = NULL;
    int status = ah_npy_parse(&tensor, push_content(L, archive, entry), entry->size);
    int results = push_or_reason(L, status, tensor);
    return results < 0 ? refuse_entry(L, archive, entry, results) : results;
}

/* npy_elements(path, descr, columns, {size, ...}, bytes) -> a tensor, or nil and the reason when there is no dtype for
 * it here; `path` is for messages */
static int npy_elements(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct ah_npy_layout layout = {.descr = luaL_checkstring(L, 2), .columns = lua_toboolean(L, 3)};
    struct ah_tensor *tensor = NULL;
    size_t count;
    luaL_checktype(L, 4, LUA_TTABLE);
    const char *bytes = luaL_checklstring(L, 5, &count);
    if (lua_objlen(L, 4) > AH_MAX_DIMS)
        io_check(L, ah_fail(AH_EIO, "npy: more than %d dims", AH_MAX_DIMS), "load", path);
    layout.ndim = (int)lua_objlen(L, 4);
    for (int d = 0; d < layout.ndim; d++) {
        lua_rawgeti(L, 4, d + 1);
        layout.size[d] = (int64_t)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    int status = ah_npy_elements(&tensor, &layout, bytes, count);
    int results = push_or_reason(L, status, tensor);
    io_check(L, results, "load", path);
    return results;
}

/* zip_tensor(archive, number, dtype) -> the content's elements, 1-dim, in place where that can be */
static int zip_tensor(lua_State *L)
{
    struct archive *archive = check_archive(L);
    const struct ah_zip_entry *entry = check_entry(L, archive);
    enum ah_dtype dtype = ah_check_dtype(L, 3);
    struct ah_tensor *tensor = NULL;
    size_t item = ah_dtype_size(dtype);
    int64_t count = (int64_t)(entry->size / item);
    if (entry->size % item)
        return refuse_entry(L, archive, entry, ah_fail(AH_EIO, "%llu bytes are no whole number of %s",
                            (unsigned long long)entry->size, ah_dtype_name(dtype)));
    int status;
    const void *content = push_content(L, archive, entry);
    if (entry->deflated) {
        status = ah_tensor_empty(&tensor, &count, 1, dtype, &ah_cpu);
        if (status == 0)
            memcpy(ah_tensor_data(tensor), content, entry->size);
    } else {
        status = ah_mapping_tensor(&tensor, archive->mapping, entry->begin, &count, 1, dtype);
    }
    if (status < 0)
        return refuse_entry(L, archive, entry, status);
    ah_push_tensor(L, tensor);
    return 1;
}

/* mapped(path) -> file, the number of its bytes */
static int open_plain(lua_State *L)
{
    const struct archive *archive = open_mapped(L, luaL_checkstring(L, 1));
    lua_pushnumber(L, (lua_Number)archive->mapping->count);
    return 2;
}

/* mapped_text(file, at, count) -> up to `count` bytes from byte `at`, from 0, as a string */
static int mapped_text(lua_State *L)
{
    const struct archive *archive = check_mapped(L);
    double at = luaL_checknumber(L, 2), count = luaL_checknumber(L, 3), left = (double)archive->mapping->count - at;
    if (!(at >= 0 && count >= 0 && left >= 0))
        return ah_raise_text(L, "load: '%s': byte %.0f is beyond the end of the file", archive->path, at);
    lua_pushlstring(L, (const char *)archive->mapping->bytes + (size_t)at, (size_t)(count < left ? count : left));
    return 1;
}

/* mapped_tensor(file, at, count, dtype) -> `count` elements from byte `at`, 1-dim, in place where that can be */
static int mapped_tensor(lua_State *L)
{
    const struct archive *archive = check_mapped(L);
    double at = luaL_checknumber(L, 2), count = luaL_checknumber(L, 3), all = (double)archive->mapping->count;
    enum ah_dtype dtype = ah_check_dtype(L, 4);
    int64_t size = (int64_t)count;
    struct ah_tensor *tensor = NULL;
    if (!(at >= 0 && count >= 0 && at <= all && count <= (all - at) / (double)ah_dtype_size(dtype)))
        return ah_raise_text(L, "load: '%s': %.0f elements of %s from byte %.0f are beyond the end of the file",
                             archive->path, count, ah_dtype_name(dtype), at);
    io_check(L, ah_mapping_tensor(&tensor, archive->mapping, (size_t)at, &size, 1, dtype), "load", archive->path);
    ah_push_tensor(L, tensor);
    return 1;
}

int ah_open_io(lua_State *L)
{
    static const luaL_Reg list[] = {
        {"safetensors", read_safetensors}, {"write_safetensors", write_safetensors},
        {"npy", read_npy},                 {"write_npy", write_npy},
        {"write_npz", write_npz},          {"zip", open_zip},
        {"write_zip", write_zip},
        {"zip_text", zip_text},            {"zip_npy", zip_npy},
        {"npy_elements", npy_elements},    {"mapped", open_plain},
        {"mapped_text", mapped_text},      {"mapped_tensor", mapped_tensor},
        {"zip_tensor", zip_tensor},        {"write_text", write_text},
        {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, list);
    ah_register_folder_functions(L);
    return 1;
}
