/* A value is a letter, then a number's 8 bytes, a text's length and bytes, a table's pairs up to an end mark, or a
 * tensor's header and its elements. The bytes were written by a process of the same program; damaged lengths are
 * detected all the same. Their count does not depend on the order of a table's pairs, which differs between
 * processes. */
#include "bind/format/pack.h"

#include <stdio.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/lua/handle.h"

enum { DEEPEST = 100 };

struct header {
    int32_t dtype, ndim;
    int64_t size[AH_MAX_DIMS];
};

static int pack_reserve(struct ah_packer *packer, size_t more)
{
    if (packer->count + more > packer->room) {
        size_t room = packer->count + more + packer->room / 2;
        AH_TRY(packer->grow(packer->context, room, &packer->bytes));
        packer->room = room;
    }
    return 0;
}

static int pack_write(struct ah_packer *packer, const void *bytes, size_t count)
{
    if (packer->grow)
        AH_TRY(pack_reserve(packer, count));
    if (packer->grow && count)
        memcpy(packer->bytes + packer->count, bytes, count);
    packer->count += count;
    return 0;
}

enum ah_pack_kind ah_pack_kind(lua_State *L, int index)
{
    switch (lua_type(L, index)) {
    case LUA_TBOOLEAN:
    case LUA_TNUMBER:
    case LUA_TSTRING: return AH_PACK_SCALAR;
    case LUA_TTABLE:
        if (!lua_getmetatable(L, index))
            return AH_PACK_TABLE;
        lua_pop(L, 1);
        return AH_PACK_NONE;
    default: return ah_to_tensor(L, index) ? AH_PACK_TENSOR : AH_PACK_NONE;
    }
}

/* Report the value at `index`, which cannot be serialised. */
static int pack_refuse(lua_State *L, int index, struct ah_packer *packer, const char *why, const char *text)
{
    if (packer->refusal) {
        lua_pushvalue(L, index);
        lua_setfield(L, packer->refusal, "value");
        lua_pushstring(L, why);
        lua_setfield(L, packer->refusal, "why");
    }
    return ah_fail(AH_EINVAL, "%s", text);
}

static int write_tensor(lua_State *L, int index, struct ah_packer *packer);

/* The type of its device, and the tensor as it is on the CPU. */
static int write_far(lua_State *L, struct ah_tensor *tensor, struct ah_packer *packer)
{
    const char *type = tensor->storage->device->type->name;
    uint8_t length = (uint8_t)strlen(type);
    struct ah_tensor *here;
    AH_TRY(pack_write(packer, "Y", 1));
    AH_TRY(pack_write(packer, &length, 1));
    AH_TRY(pack_write(packer, type, length));
    AH_TRY(ah_host_copy(&here, tensor));
    ah_push_tensor(L, here);
    int status = write_tensor(L, lua_gettop(L), packer);
    lua_pop(L, 1);
    return status;
}

static int write_tensor(lua_State *L, int index, struct ah_packer *packer)
{
    struct ah_tensor *tensor = ah_to_tensor(L, index);
    struct header header = {.dtype = tensor->dtype, .ndim = tensor->ndim};
    if (packer->takes_far && !ah_device_has_values(tensor->storage->device))
        return pack_refuse(L, index, packer, "", "a tensor without values");
    if (!packer->grow)
        return 0;
    if (!ah_on_cpu(tensor) && packer->takes_far)
        return write_far(L, tensor, packer);
    if (!ah_on_cpu(tensor))
        return ah_fail(AH_EINVAL, "a tensor on %s; only tensors on cpu travel", tensor->storage->device->name);
    AH_TRY(ah_tensor_row_major(tensor));
    if (!ah_tensor_is_contiguous(tensor)) { /* made so by Lua, as packing is */
        lua_getfield(L, index, "contiguous");
        lua_pushvalue(L, index);
        lua_call(L, 1, 1);
        int status = write_tensor(L, lua_gettop(L), packer);
        lua_pop(L, 1);
        return status;
    }
    memcpy(header.size, tensor->size, (size_t)tensor->ndim * sizeof *header.size);
    AH_TRY(pack_write(packer, "X", 1));
    AH_TRY(pack_write(packer, &header, sizeof header));
    return pack_write(packer, ah_tensor_data(tensor), ah_tensor_bytes(tensor));
}

/* The tables around a value. */
struct outer {
    const struct outer *outer;
    const void *table;
    int depth;
};

static int write_value(lua_State *L, int index, struct ah_packer *packer, const struct outer *outer);

static int check_table(lua_State *L, int index, struct ah_packer *packer, const struct outer *outer)
{
    const void *table = lua_topointer(L, index);
    char why[64], text[64];
    if (ah_pack_kind(L, index) == AH_PACK_NONE)
        return pack_refuse(L, index, packer, "", "an object");
    for (const struct outer *each = outer; each; each = each->outer)
        if (each->table == table)
            return pack_refuse(L, index, packer, " (it holds itself)", "a table that holds itself");
    if (!outer || outer->depth < DEEPEST)
        return 0;
    snprintf(why, sizeof why, " (nested deeper than %d tables)", DEEPEST);
    snprintf(text, sizeof text, "tables nested deeper than %d", DEEPEST);
    return pack_refuse(L, index, packer, why, text);
}

/* Write the pair on top of the stack. */
static int write_pair(lua_State *L, struct ah_packer *packer, const struct outer *outer)
{
    int key = lua_gettop(L) - 1, status;
    if (ah_pack_kind(L, key) != AH_PACK_SCALAR)
        return pack_refuse(L, key, packer, " as a key", "a key that is no number, text or boolean");
    AH_TRY(write_value(L, key, packer, outer));
    status = write_value(L, key + 1, packer, outer);
    if (status < 0 && packer->refusal) {
        lua_pushvalue(L, key);
        lua_rawseti(L, packer->refusal, (int)lua_objlen(L, packer->refusal) + 1);
    }
    if (status < 0 && packer->names_path)
        status = ah_fail_prefix(status, "item %s", ah_value_text(L, key));
    return status;
}

static int write_table(lua_State *L, int index, struct ah_packer *packer, const struct outer *outer)
{
    struct outer own = {outer, lua_topointer(L, index), outer ? outer->depth + 1 : 1};
    AH_TRY(check_table(L, index, packer, outer));
    AH_TRY(pack_write(packer, "{", 1));
    for (lua_pushnil(L); lua_next(L, index);) {
        int status = write_pair(L, packer, &own);
        if (status < 0) {
            lua_pop(L, 2);
            return status;
        }
        lua_pop(L, 1);
    }
    return pack_write(packer, "}", 1);
}

static int write_value(lua_State *L, int index, struct ah_packer *packer, const struct outer *outer)
{
    luaL_checkstack(L, 10, "tables nested too deep");
    switch (lua_type(L, index)) {
    case LUA_TNIL: return pack_write(packer, "N", 1);
    case LUA_TBOOLEAN: return pack_write(packer, lua_toboolean(L, index) ? "T" : "F", 1);
    case LUA_TNUMBER: {
        double number = lua_tonumber(L, index);
        AH_TRY(pack_write(packer, "D", 1));
        return pack_write(packer, &number, sizeof number);
    }
    case LUA_TSTRING: {
        size_t length;
        const char *text = lua_tolstring(L, index, &length);
        uint64_t count = length;
        AH_TRY(pack_write(packer, "S", 1));
        AH_TRY(pack_write(packer, &count, sizeof count));
        return pack_write(packer, text, length);
    }
    case LUA_TTABLE: return write_table(L, index, packer, outer);
    default:
        if (ah_pack_kind(L, index) == AH_PACK_TENSOR)
            return write_tensor(L, index, packer);
        return pack_refuse(L, index, packer, "", ah_value_text(L, index));
    }
}

int ah_pack(lua_State *L, int index, struct ah_packer *packer)
{
    return write_value(L, index < 0 ? lua_gettop(L) + index + 1 : index, packer, NULL);
}

/* Return the next bytes; NULL when there are fewer. */
static const unsigned char *pack_read(const unsigned char *bytes, size_t count, size_t *at, size_t want)
{
    if (want > count - *at)
        return NULL;
    *at += want;
    return bytes + *at - want;
}

static int pack_damaged(void)
{
    return ah_fail(AH_EIO, "a packed value is damaged");
}

static int read_tensor(lua_State *L, const unsigned char *bytes, size_t count, size_t *at)
{
    struct header header;
    struct ah_tensor *tensor = NULL;
    const unsigned char *from = pack_read(bytes, count, at, sizeof header);
    if (!from)
        return pack_damaged();
    memcpy(&header, from, sizeof header);
    if (header.dtype < 0 || header.dtype >= AH_DTYPE_COUNT || header.ndim < 0 || header.ndim > AH_MAX_DIMS)
        return pack_damaged();
    AH_TRY(ah_tensor_empty(&tensor, header.size, header.ndim, (enum ah_dtype)header.dtype, &ah_cpu));
    ah_push_tensor(L, tensor);
    size_t size = ah_tensor_bytes(tensor);
    from = pack_read(bytes, count, at, size);
    if (!from)
        return pack_damaged();
    if (size)
        memcpy(ah_tensor_data(tensor), from, size);
    return 0;
}

/* Read the next tensor, onto the current device of its type. */
static int read_far(lua_State *L, const unsigned char *bytes, size_t count, size_t *at)
{
    const unsigned char *length = pack_read(bytes, count, at, 1),
                        *type = length ? pack_read(bytes, count, at, *length) : NULL;
    const unsigned char *tag = type ? pack_read(bytes, count, at, 1) : NULL;
    if (!tag || *tag != 'X')
        return pack_damaged();
    AH_TRY(read_tensor(L, bytes, count, at));
    lua_getfield(L, -1, "to");
    lua_insert(L, -2);
    lua_pushlstring(L, (const char *)type, *length);
    lua_call(L, 2, 1);
    return 0;
}

static int read_table(lua_State *L, const unsigned char *bytes, size_t count, size_t *at)
{
    lua_newtable(L);
    for (;;) {
        if (*at >= count)
            return pack_damaged();
        if (bytes[*at] == '}') {
            (*at)++;
            return 0;
        }
        AH_TRY(ah_unpack(L, bytes, count, at));
        AH_TRY(ah_unpack(L, bytes, count, at));
        lua_rawset(L, -3);
    }
}

int ah_unpack(lua_State *L, const unsigned char *bytes, size_t count, size_t *at)
{
    const unsigned char *from = pack_read(bytes, count, at, 1);
    double number;
    uint64_t length;
    luaL_checkstack(L, 10, "tables nested too deep");
    switch (from ? *from : 0) {
    case 'N': lua_pushnil(L); return 0;
    case 'T':
    case 'F': lua_pushboolean(L, *from == 'T'); return 0;
    case 'D':
        if (!(from = pack_read(bytes, count, at, sizeof number)))
            return pack_damaged();
        memcpy(&number, from, sizeof number);
        lua_pushnumber(L, number);
        return 0;
    case 'S':
        if (!(from = pack_read(bytes, count, at, sizeof length)))
            return pack_damaged();
        memcpy(&length, from, sizeof length);
        if (!(from = pack_read(bytes, count, at, length)))
            return pack_damaged();
        lua_pushlstring(L, (const char *)from, length);
        return 0;
    case 'X': return read_tensor(L, bytes, count, at);
    case 'Y': return read_far(L, bytes, count, at);
    case '{': return read_table(L, bytes, count, at);
    default: return pack_damaged();
    }
}
