/* accelhost._C.codec: Lua values as bytes, for other processes of this program.
 *
 * pack(value) -> uint8 tensor; nil and the reason when the value cannot travel: tensors on cpu, numbers, texts,
 * booleans and tables of them do
 * unpack(bytes) -> value; bytes are such a tensor, or a text of the same bytes */
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"
#include "bind/handle.h"
#include "bind/pack.h"

/* Memory of Lua's, which an error frees: the block of each size stays on the stack. */
static int grow(void *context, size_t room, unsigned char **bytes)
{
    lua_State *L = context;
    unsigned char *larger = lua_newuserdata(L, room);
    size_t count = lua_objlen(L, 2);
    if (count)
        memcpy(larger, *bytes, count);
    lua_replace(L, 2);
    *bytes = larger;
    return 0;
}

static int pack(lua_State *L)
{
    struct ah_packer packer = {.grow = grow, .context = L, .tells_path = true};
    struct ah_tensor *tensor;
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    lua_newuserdata(L, 0);
    if (ah_pack(L, 1, &packer) < 0) {
        lua_pushnil(L);
        lua_pushstring(L, ah_error_text());
        return 2;
    }
    int64_t count = (int64_t)packer.count;
    ah_check(L, ah_tensor_empty(&tensor, &count, 1, AH_U8, &ah_cpu));
    memcpy(ah_tensor_data(tensor), packer.bytes, packer.count);
    ah_push_tensor(L, tensor);
    return 1;
}

static int unpack(lua_State *L)
{
    size_t at = 0, count;
    if (lua_type(L, 1) == LUA_TSTRING) {
        const char *text = lua_tolstring(L, 1, &count);
        ah_check(L, ah_unpack(L, (const unsigned char *)text, count, &at));
        return 1;
    }
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    if (tensor->dtype != AH_U8 || tensor->ndim != 1 || !ah_on_cpu(tensor) || !ah_tensor_is_contiguous(tensor))
        return ah_raise_text(L, "unpack: expected the bytes that pack gave");
    ah_check(L, ah_unpack(L, ah_tensor_data(tensor), (size_t)tensor->numel, &at));
    return 1;
}

int ah_open_codec(lua_State *L)
{
    static const luaL_Reg functions[] = {{"pack", pack}, {"unpack", unpack}, {NULL, NULL}};
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
