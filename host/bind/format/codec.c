/* accelhost._C.codec: Lua values as bytes, for other processes of this program.
 *
 * pack(value, far, refusal) -> uint8 tensor; nil and the reason when the value cannot be serialised. Serialised are
 *                  tensors on cpu (far: of other devices too, unpacked on the current device of that type), numbers,
 *                  texts, booleans and tables of them. `refusal` is a table for the refused value (struct ah_packer)
 * check(value, far, refusal) -> true; nil and the reason, as pack
 * kind(value) -> "scalar" (a number, text or boolean), "tensor" or "table"; nil for a value that cannot be serialised
 * unpack(bytes) -> value; bytes are such a tensor, or a text of the same bytes
 * share(bytes) -> path, keeper: another process of this user can `map` the path for as long as the keeper lives
 * map(path) -> the bytes, as a uint8 tensor that is a view of the shared memory; writes to it stay in this process */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status/status.h"
#include "bind/format/pack.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/handle.h"
#include "io/mapping.h"

enum { BUFFER = 4 }; /* its index on the stack */

/* Memory of Lua's, which an error frees: the block of each size stays on the stack. */
static int codec_grow(void *context, size_t room, unsigned char **bytes)
{
    lua_State *L = context;
    unsigned char *larger = lua_newuserdata(L, room);
    size_t count = lua_objlen(L, BUFFER);
    if (count)
        memcpy(larger, *bytes, count);
    lua_replace(L, BUFFER);
    *bytes = larger;
    return 0;
}

/* Read the arguments of pack and check. */
static struct ah_packer read_packer(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, BUFFER - 1);
    return (struct ah_packer){
        .context = L, .takes_far = lua_toboolean(L, 2), .names_path = true, .refusal = lua_istable(L, 3) ? 3 : 0,
    };
}

static int codec_check(lua_State *L)
{
    struct ah_packer packer = read_packer(L);
    if (ah_pack(L, 1, &packer) < 0)
        return ah_push_error(L);
    lua_pushboolean(L, 1);
    return 1;
}

static int codec_kind(lua_State *L)
{
    static const char *const names[] = {
        [AH_PACK_SCALAR] = "scalar", [AH_PACK_TENSOR] = "tensor", [AH_PACK_TABLE] = "table",
    };
    lua_settop(L, 1);
    lua_pushstring(L, names[ah_pack_kind(L, 1)]);
    return 1;
}

static int codec_pack(lua_State *L)
{
    struct ah_packer packer = read_packer(L);
    struct ah_tensor *tensor;
    packer.grow = codec_grow;
    lua_newuserdata(L, 0);
    if (ah_pack(L, 1, &packer) < 0)
        return ah_push_error(L);
    int64_t count = (int64_t)packer.count;
    ah_check(L, ah_tensor_empty(&tensor, &count, 1, AH_U8, &ah_cpu));
    memcpy(ah_tensor_data(tensor), packer.bytes, packer.count);
    ah_push_tensor(L, tensor);
    return 1;
}

static struct ah_tensor *check_bytes(lua_State *L, const char *what)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    if (tensor->dtype != AH_U8 || tensor->ndim != 1 || !ah_on_cpu(tensor) || !ah_tensor_is_contiguous(tensor))
        ah_raise_text(L, "%s: expected the bytes that pack returned", what);
    return tensor;
}

static int codec_unpack(lua_State *L)
{
    size_t at = 0, count;
    if (lua_type(L, 1) == LUA_TSTRING) {
        const char *text = lua_tolstring(L, 1, &count);
        ah_check(L, ah_unpack(L, (const unsigned char *)text, count, &at));
        return 1;
    }
    struct ah_tensor *tensor = check_bytes(L, "unpack");
    ah_check(L, ah_unpack(L, ah_tensor_data(tensor), (size_t)tensor->numel, &at));
    return 1;
}

static int write_all(int fd, const unsigned char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t n = write(fd, bytes, count);
        if (n < 0 && errno != EINTR)
            return ah_fail(AH_ENOMEM, "codec.share: cannot share %zu bytes: %s", count, strerror(errno));
        bytes += n > 0 ? n : 0;
        count -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int close_keeper(lua_State *L)
{
    int *fd = lua_touserdata(L, 1);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return 0;
}

static const struct ah_class keeper_class = {.name = "accelhost.codec.keeper", .collect = close_keeper};

static int codec_share(lua_State *L)
{
    struct ah_tensor *tensor = check_bytes(L, "share");
    char path[64];
    int *keeper = ah_class_new(L, &keeper_class, sizeof *keeper);
    *keeper = memfd_create("accelhost-values", MFD_CLOEXEC);
    if (*keeper < 0)
        return ah_raise_text(L, "codec.share: no memory to share: %s", strerror(errno));
    ah_check(L, write_all(*keeper, ah_tensor_data(tensor), (size_t)tensor->numel));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), *keeper);
    lua_pushstring(L, path);
    lua_insert(L, -2);
    return 2;
}

static int codec_map(lua_State *L)
{
    struct ah_mapping *file;
    struct ah_tensor *tensor;
    const char *path = luaL_checkstring(L, 1);
    int opened = ah_mapping_open(&file, path);
    if (opened < 0)
        return ah_raise(L, ah_fail_prefix(opened, "codec.map: %s", path));
    int64_t count = (int64_t)file->count;
    int status = ah_mapping_tensor(&tensor, file, 0, &count, 1, AH_U8);
    ah_mapping_release(file);
    ah_check(L, status);
    ah_push_tensor(L, tensor);
    return 1;
}

int ah_open_codec(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"pack", codec_pack}, {"check", codec_check}, {"kind", codec_kind}, {"unpack", codec_unpack},
        {"share", codec_share}, {"map", codec_map}, {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
