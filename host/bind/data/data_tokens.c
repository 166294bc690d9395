/* accelhost._C.data.tokens(path, bytes or 0): a file of tokens (io/tokens.h): tokens:len(), tokens:bytes() of a number,
 * tokens:blocks({places}, length, limit or 0, op_name) -> int64 [places, length]. data.token_writer(path, bytes):
 * writer:add(int64 tensor, limit or 0, op_name), writer:len(), writer:commit(op_name), writer:abandon(). `op_name` is
 * the prefix of error texts. */
#include "base/status/status.h"
#include "bind/data/data.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "io/tokens.h"

static const struct ah_class tokens_class, writer_class;

static struct ah_tokens *check_tokens(lua_State *L) { return ah_class_check(L, 1, &tokens_class); }

static struct ah_token_writer *check_writer(lua_State *L)
{
    struct ah_token_writer *writer = ah_class_check(L, 1, &writer_class);
    if (!writer->writer)
        ah_raise_text(L, "the file is written already");
    return writer;
}

static int open_tokens(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int bytes = (int)luaL_checkinteger(L, 2);
    int status = ah_tokens_open(ah_class_new(L, &tokens_class, sizeof(struct ah_tokens)), path, bytes);
    return status < 0 ? ah_raise(L, ah_fail_prefix(status, "TokenFile: '%s'", path)) : 1;
}

AH_LUA_VALUE(count_tokens, lua_pushnumber, (lua_Number)check_tokens(L)->count)
AH_LUA_VALUE(bytes_of_token, lua_pushinteger, check_tokens(L)->bytes)

static int tokens_blocks(lua_State *L)
{
    struct ah_tokens *tokens = check_tokens(L);
    struct ah_tensor *tensor;
    luaL_checktype(L, 2, LUA_TTABLE);
    int64_t length = (int64_t)luaL_checknumber(L, 3), limit = (int64_t)luaL_checknumber(L, 4);
    int rows = (int)lua_objlen(L, 2);
    int64_t *place = lua_newuserdata(L, ((size_t)rows + 1) * sizeof *place);
    for (int r = 0; r < rows; r++) {
        lua_rawgeti(L, 2, r + 1);
        place[r] = (int64_t)luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    int status = ah_tokens_blocks(&tensor, tokens, place, rows, length, limit);
    if (status < 0)
        return ah_raise(L, ah_fail_prefix(status, "%s", luaL_checkstring(L, 5)));
    ah_push_tensor(L, tensor);
    return 1;
}

AH_LUA_CALL(collect_tokens, ah_tokens_close(check_tokens(L)))

static int open_writer(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int bytes = (int)luaL_checkinteger(L, 2);
    int status = ah_token_writer_open(ah_class_new(L, &writer_class, sizeof(struct ah_token_writer)), path, bytes);
    return status < 0 ? ah_raise(L, ah_fail_prefix(status, "write_tokens: '%s'", path)) : 1;
}

static int add_tokens(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 2);
    if (tensor->dtype != AH_I64 || tensor->storage->device != &ah_cpu || !ah_tensor_is_contiguous(tensor))
        return ah_raise_text(L, "expected a contiguous int64 tensor on the CPU");
    int status = ah_token_writer_add(check_writer(L), ah_tensor_data(tensor), tensor->numel,
                                     (int64_t)luaL_checknumber(L, 3));
    return status < 0 ? ah_raise(L, ah_fail_prefix(status, "%s", luaL_checkstring(L, 4))) : 0;
}

static int count_written(lua_State *L)
{
    const struct ah_token_writer *writer = ah_class_check(L, 1, &writer_class);
    lua_pushnumber(L, (lua_Number)writer->count);
    return 1;
}

static int tokens_commit(lua_State *L)
{
    int status = ah_token_writer_commit(check_writer(L));
    return status < 0 ? ah_raise(L, ah_fail_prefix(status, "%s", luaL_checkstring(L, 2))) : 0;
}

AH_LUA_CALL(tokens_abandon, ah_token_writer_abandon(ah_class_check(L, 1, &writer_class)))

static const luaL_Reg tokens_methods[] = {
    {"len", count_tokens}, {"bytes", bytes_of_token}, {"blocks", tokens_blocks}, {NULL, NULL},
};
static const luaL_Reg writer_methods[] = {
    {"add", add_tokens}, {"len", count_written}, {"commit", tokens_commit}, {"abandon", tokens_abandon}, {NULL, NULL},
};
static const struct ah_class tokens_class = {"accelhost.tokens", tokens_methods, NULL, collect_tokens},
                             writer_class = {"accelhost.token_writer", writer_methods, NULL, tokens_abandon};

void ah_add_tokens(lua_State *L)
{
    lua_pushcfunction(L, open_tokens);
    lua_setfield(L, -2, "tokens");
    lua_pushcfunction(L, open_writer);
    lua_setfield(L, -2, "token_writer");
}
