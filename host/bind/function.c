/* The door of plain C functions: one closure per function, whose upvalues are its row and whether it is a method. The
 * signature is read at each call; it is a few letters long. */
#include "bind/function.h"

#include <math.h>
#include <string.h>

enum { MAX_PARAMS = 8 };

static bool is_integral(lua_State *L, int index)
{
    double value = lua_tonumber(L, index);
    return lua_type(L, index) == LUA_TNUMBER && value == floor(value) && fabs(value) <= 0x1p53;
}

/* What an argument of this letter must be, NULL when the value at `index` is that. */
static const char *unmet(lua_State *L, int index, char letter)
{
    enum ah_dtype dtype;
    switch (letter) {
    case 'T': return ah_to_tensor(L, index) ? NULL : "a tensor";
    case 'i': return is_integral(L, index) ? NULL : "an integer";
    case 'n': return lua_type(L, index) == LUA_TNUMBER ? NULL : "a number";
    case 'b': return lua_isboolean(L, index) ? NULL : "true or false";
    case 's': return lua_type(L, index) == LUA_TSTRING ? NULL : "a string";
    case 'I': return lua_istable(L, index) || is_integral(L, index) ? NULL : "an integer or a table of integers";
    case 'F': return lua_isfunction(L, index) || luaL_getmetafield(L, index, "__call") ? NULL : "a function";
    case 'G': return ah_to_generator(L, index) ? NULL : "a Generator";
    case 'D': return lua_type(L, index) == LUA_TSTRING ? NULL : "the name of a device such as \"cpu\"";
    case 'd':
        return lua_type(L, index) == LUA_TSTRING && ah_dtype_parse(lua_tostring(L, index), &dtype) == 0
                   ? NULL
                   : "a dtype name such as \"float32\"";
    default: return NULL;
    }
}

int ah_raise_not_method(lua_State *L, const char *name, const char *wanted)
{
    if (ah_was_freed(L, 1))
        return ah_raise_text(L, "%s: this tensor was freed", name);
    return ah_raise_text(L, "%s: expected %s before it, got %s: write ':' instead of '.' (object:%s(...))", name,
                         wanted, ah_value_text(L, 1), name);
}

static int too_many(lua_State *L, const struct ah_function *function, int count)
{
    char names[256] = "";
    for (const char *at = function->signature; *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ":"), used = strlen(names);
        if (used + length + 3 < sizeof names) {
            memcpy(names + used, used ? ", " : "", used ? 3 : 1);
            strncat(names, at, length);
        }
        at += strcspn(at, ",");
    }
    return ah_raise_text(L, "%s: expected at most %d argument%s%s%s%s, got %d", function->name, count,
                         count == 1 ? "" : "s", count ? " (" : "", names, count ? ")" : "", lua_gettop(L));
}

/* A last table of named arguments is spread over their places. */
static void spread_named(lua_State *L, const struct ah_function *function)
{
    const char *known[MAX_PARAMS + 1] = {NULL};
    char names[256];
    size_t used = 0;
    int count = 0, top = lua_gettop(L);
    for (const char *at = function->signature; *at && count < MAX_PARAMS; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ":");
        if (count + 1 == top && strchr("*I", at[length + 1]))
            return; /* this parameter takes a table itself */
        memcpy(names + used, at, length);
        names[used + length] = '\0';
        known[count++] = names + used;
        used += length + 1;
        at += strcspn(at, ",");
    }
    ah_check_options(L, top, function->name, known);
    for (int i = 0; i < count; i++) {
        lua_getfield(L, top, known[i]);
        if (i + 1 >= top)
            continue; /* in the order of the places that are left */
        if (!lua_isnil(L, -1))
            ah_raise_text(L, "%s: '%s' is given twice, by position and by name", function->name, known[i]);
        lua_pop(L, 1);
    }
    lua_remove(L, top);
}

static bool is_named(lua_State *L, int index)
{
    if (!lua_istable(L, index))
        return false;
    lua_pushnil(L);
    if (!lua_next(L, index))
        return false;
    bool named = lua_type(L, -2) == LUA_TSTRING;
    lua_pop(L, 2);
    return named;
}

static int door(lua_State *L)
{
    const struct ah_function *function = lua_touserdata(L, lua_upvalueindex(1));
    int index = 0;
    if (lua_gettop(L) > 0 && is_named(L, lua_gettop(L)))
        spread_named(L, function);
    for (const char *at = function->signature; *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ":");
        char letter = at[length + 1];
        bool optional = at[length + 2] == '?';
        index++;
        if (!lua_isnoneornil(L, index) || !optional) {
            int top = lua_gettop(L);
            const char *wanted = unmet(L, index, letter);
            if (wanted && index == 1 && lua_toboolean(L, lua_upvalueindex(2)))
                return ah_raise_not_method(L, function->name, wanted);
            if (wanted)
                return ah_raise_text(L, "%s: %.*s: expected %s, got %s", function->name, (int)length, at, wanted,
                                     ah_value_text(L, index));
            if (letter == 'D') {
                struct ah_device *device;
                int status = ah_device_find(lua_tostring(L, index), &device);
                if (status < 0)
                    return ah_raise(L, ah_fail_prefix(status, "%s: %.*s", function->name, (int)length, at));
            }
            if (letter == '*' && lua_isnoneornil(L, index))
                return ah_raise_text(L, "%s: '%.*s' is missing", function->name, (int)length, at);
            lua_settop(L, top);
        }
        at += strcspn(at, ",");
    }
    if (lua_gettop(L) > index)
        return too_many(L, function, index);
    return function->call(L);
}

static void set(lua_State *L, int table, const struct ah_function *list, bool methods)
{
    for (; list->name; list++) {
        lua_pushlightuserdata(L, (void *)(uintptr_t)list);
        lua_pushboolean(L, methods);
        lua_pushcclosure(L, door, 2);
        lua_setfield(L, table, list->name);
    }
}

void ah_set_functions(lua_State *L, int table, const struct ah_function *list)
{
    set(L, table, list, false);
}

void ah_set_methods(lua_State *L, int table, const struct ah_function *list)
{
    set(L, table, list, true);
}

const struct ah_function *ah_to_function(lua_State *L, int index)
{
    if (lua_tocfunction(L, index) != door || !lua_getupvalue(L, index, 1))
        return NULL;
    const struct ah_function *function = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return function;
}
