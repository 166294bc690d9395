/* accelhost._C.json: text and values (bind/format/json_value.h), the value of null, and the mark of empty arrays. */
#include "base/status/status.h"
#include "bind/format/json_value.h"
#include "bind/lua/bind.h"
#include "bind/lua/function.h"

#define ARRAY "accelhost.json.array"

static int json_answer(lua_State *L, const char *name, int status)
{
    return ah_check(L, status < 0 ? ah_fail_prefix(status, "%s", name) : 0) + 1;
}

static int json_decode(lua_State *L)
{
    size_t bytes;
    const char *text = lua_tolstring(L, 1, &bytes);
    luaL_getmetatable(L, ARRAY);
    return json_answer(L, "decode", ah_json_read(L, text, bytes, lua_gettop(L)));
}

static int json_encode(lua_State *L)
{
    int indent = (int)luaL_optinteger(L, 2, 0);
    if (indent < 0 || indent > 16)
        return ah_raise_text(L, "encode: indent: expected 0 to 16, got %d", indent);
    luaL_getmetatable(L, ARRAY);
    return json_answer(L, "encode", ah_json_write(L, 1, lua_gettop(L), indent));
}

static int json_array(lua_State *L)
{
    if (!lua_istable(L, 1))
        return ah_raise_text(L, "array: table: expected a table, got %s", ah_value_text(L, 1));
    lua_settop(L, 1);
    luaL_getmetatable(L, ARRAY);
    lua_setmetatable(L, 1);
    return 1;
}

int ah_open_json(lua_State *L)
{
    static const struct ah_function list[] = {
        {"decode", json_decode, "text:s"},
        {"encode", json_encode, "value:*, indent:i?"},
        {"array", json_array, "table:*"},
        {NULL, NULL, NULL},
    };
    luaL_newmetatable(L, ARRAY);
    lua_pop(L, 1);
    ah_new_library(L, list);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    return 1;
}
