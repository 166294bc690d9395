/* The metatables of userdata objects. Methods are in a separate table, so that a script cannot reach __gc. */
#include "bind/lua/class.h"

#include <stdbool.h>
#include <string.h>

void ah_class_push(lua_State *L, const struct ah_class *class)
{
    if (!luaL_newmetatable(L, class->name))
        return;
    lua_newtable(L);
    if (class->methods)
        luaL_register(L, NULL, class->methods);
    if (class->index)
        lua_pushcclosure(L, class->index, 1);
    lua_setfield(L, -2, "__index");
    if (class->collect) {
        lua_pushcfunction(L, class->collect);
        lua_setfield(L, -2, "__gc");
    }
}

void ah_class_add(lua_State *L, const struct ah_class *class, const luaL_Reg *methods)
{
    ah_class_push(L, class);
    lua_getfield(L, -1, "__index");
    luaL_register(L, NULL, methods);
    lua_pop(L, 2);
}

void *ah_class_new(lua_State *L, const struct ah_class *class, size_t bytes)
{
    void *object = memset(lua_newuserdata(L, bytes), 0, bytes);
    ah_class_push(L, class);
    lua_setmetatable(L, -2);
    return object;
}

void *ah_class_to(lua_State *L, int index, const struct ah_class *class)
{
    void *object = lua_touserdata(L, index);
    if (!object || !lua_getmetatable(L, index))
        return NULL;
    luaL_getmetatable(L, class->name);
    bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same ? object : NULL;
}

void *ah_class_check(lua_State *L, int index, const struct ah_class *class)
{
    return luaL_checkudata(L, index, class->name);
}
