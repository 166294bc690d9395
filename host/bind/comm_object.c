/* Lua values as tensors of bytes, for collectives on objects.
 *
 * pack_value(value) -> uint8 [n]       tensors, numbers, texts, booleans, nil and tables of them
 * unpack_value(bytes) -> value         reads nothing but data; AH_EIO when the bytes are no such value */
#include <string.h>

#include "bind/comm.h"
#include "bind/pack.h"

enum { VALUE = 1, BUFFER = 2 };

struct room {
    lua_State *L;
    size_t count;
};

/* The buffer is a userdata in its place on the stack. */
static int grow(void *context, size_t room, unsigned char **bytes)
{
    struct room *state = context;
    unsigned char *larger = lua_newuserdata(state->L, room);
    if (state->count)
        memcpy(larger, *bytes, state->count);
    lua_replace(state->L, BUFFER);
    *bytes = larger;
    state->count = room;
    return 0;
}

static int pack_value(lua_State *L)
{
    struct room state = {L, 0};
    struct ah_packer packer = {.grow = grow, .context = &state};
    struct ah_tensor *tensor;
    lua_settop(L, BUFFER);
    ah_check(L, ah_pack(L, VALUE, &packer));
    int64_t size = (int64_t)packer.count;
    ah_check(L, ah_tensor_empty(&tensor, &size, 1, AH_U8, &ah_cpu));
    memcpy(ah_tensor_data(tensor), packer.bytes, packer.count);
    ah_push_tensor(L, tensor);
    return 1;
}

static int unpack_value(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    size_t at = 0;
    if (tensor->dtype != AH_U8 || !ah_tensor_is_contiguous(tensor) || !ah_on_cpu(tensor))
        return ah_raise_text(L, "unpack_value: expected contiguous bytes on the cpu");
    ah_check(L, ah_unpack(L, ah_tensor_data(tensor), (size_t)tensor->numel, &at));
    return 1;
}

const luaL_Reg ah_comm_objects[] = {{"pack_value", pack_value}, {"unpack_value", unpack_value}, {NULL, NULL}};
