/* jansson's tree, copied into tables under one pcall, so that the tree is freed whatever Lua does. */
#include <jansson.h>

#include "base/status/status.h"
#include "bind/format/json_value.h"

static void json_push(lua_State *L, const json_t *value)
{
    size_t i;
    const char *key;
    const json_t *item;
    if (!lua_checkstack(L, 4)) { /* the tree is at most 2048 deep */
        lua_pushliteral(L, "stack");
        lua_error(L);
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        lua_createtable(L, 0, (int)json_object_size(value));
        json_object_foreach((json_t *)value, key, item)
        {
            lua_pushstring(L, key);
            json_push(L, item);
            lua_rawset(L, -3);
        }
        break;
    case JSON_ARRAY:
        lua_createtable(L, (int)json_array_size(value), 0);
        json_array_foreach(value, i, item)
        {
            json_push(L, item);
            lua_rawseti(L, -2, (int)i + 1);
        }
        if (json_array_size(value) == 0) {
            lua_pushvalue(L, 2);
            lua_setmetatable(L, -2);
        }
        break;
    case JSON_STRING: lua_pushlstring(L, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER:
    case JSON_REAL: lua_pushnumber(L, json_number_value(value)); break;
    case JSON_TRUE: lua_pushboolean(L, 1); break;
    case JSON_FALSE: lua_pushboolean(L, 0); break;
    case JSON_NULL: lua_pushlightuserdata(L, NULL); break;
    }
}

/* (tree, the arrays' metatable) -> value */
static int push_tree(lua_State *L)
{
    json_push(L, lua_touserdata(L, 1));
    return 1;
}

int ah_json_read(lua_State *L, const char *text, size_t bytes, int arrays)
{
    json_error_t error;
    json_t *tree = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_REJECT_DUPLICATES |
                              JSON_ALLOW_NUL, &error);
    if (!tree)
        return ah_fail(AH_EINVAL, "line %d, column %d: %s", error.line, error.column, error.text);
    if (!lua_checkstack(L, 4)) {
        json_decref(tree);
        return ah_fail(AH_ENOMEM, "out of Lua stack");
    }
    lua_pushvalue(L, arrays);
    lua_pushcfunction(L, push_tree);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, tree);
    lua_insert(L, -2);
    int failed = lua_pcall(L, 2, 1, 0);
    json_decref(tree);
    return failed ? ah_fail(AH_ENOMEM, "out of memory") : 0;
}
