/* The dispatcher of plain C functions: one closure per function, whose upvalue is its row with the parsed signature,
 * since methods such as size() are called millions of times. */
#include "bind/lua/function.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status/status.h"

enum { MAX_PARAMS = 8 };

/* A function's row, read once. Names stay in the signature. */
struct entry {
    const struct ah_function *function;
    bool method; /* the first argument is the object of a method call */
    int count;
    struct {
        const char *name;
        int length; /* of the name */
        char letter;
        bool optional;
    } param[MAX_PARAMS];
};

static bool is_integral(lua_State *L, int index)
{
    double value = lua_tonumber(L, index);
    return lua_type(L, index) == LUA_TNUMBER && value == floor(value) && fabs(value) <= 0x1p53;
}

static bool is_callable(lua_State *L, int index)
{
    if (lua_isfunction(L, index))
        return true;
    if (!luaL_getmetafield(L, index, "__call"))
        return false;
    lua_pop(L, 1);
    return true;
}

/* Return the expected kind of an argument of this letter, NULL when the value at `index` is of it. */
static const char *function_unmet(lua_State *L, int index, char letter)
{
    enum ah_dtype dtype;
    switch (letter) {
    case 'T': return ah_to_tensor(L, index) ? NULL : "a tensor";
    case 'i': return is_integral(L, index) ? NULL : "an integer";
    case 'n': return lua_type(L, index) == LUA_TNUMBER ? NULL : "a number";
    case 'O':
        return ah_to_tensor(L, index) || lua_type(L, index) == LUA_TNUMBER || lua_isboolean(L, index)
                   ? NULL
                   : "a tensor or a number";
    case 'b': return lua_isboolean(L, index) ? NULL : "true or false";
    case 's': return lua_type(L, index) == LUA_TSTRING ? NULL : "a string";
    case 'I': return lua_istable(L, index) || is_integral(L, index) ? NULL : "an integer or a table of integers";
    case 'F': return is_callable(L, index) ? NULL : "a function";
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

static int too_many(lua_State *L, const struct entry *entry)
{
    char names[256] = "";
    for (int i = 0; i < entry->count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%.*s", i ? ", " : " (", entry->param[i].length,
                 entry->param[i].name);
    }
    return ah_raise_text(L, "%s: expected at most %d argument%s%s%s, got %d", entry->function->name, entry->count,
                         entry->count == 1 ? "" : "s", names, entry->count ? ")" : "", lua_gettop(L));
}

/* A last table of named arguments is spread over their places. */
static void spread_named(lua_State *L, const struct entry *entry)
{
    const char *known[MAX_PARAMS + 1] = {NULL}, *function = entry->function->name;
    char names[256];
    size_t used = 0;
    int top = lua_gettop(L);
    for (int i = 0; i < entry->count; i++) {
        if (i + 1 == top && strchr("*I", entry->param[i].letter))
            return; /* this parameter accepts a table itself */
        known[i] = names + used;
        used += (size_t)snprintf(names + used, sizeof names - used, "%.*s", entry->param[i].length,
                                 entry->param[i].name) + 1;
    }
    ah_check_options(L, top, function, known);
    for (int i = 0; i < entry->count; i++) {
        lua_getfield(L, top, known[i]);
        if (i + 1 >= top)
            continue; /* in the order of the places that are left */
        if (!lua_isnil(L, -1))
            ah_raise_text(L, "%s: '%s' is given twice, by position and by name", function, known[i]);
        lua_pop(L, 1);
    }
    lua_remove(L, top);
}

bool ah_is_named(lua_State *L, int index, bool empty)
{
    if (!lua_istable(L, index))
        return false;
    lua_pushnil(L);
    if (!lua_next(L, index))
        return empty;
    bool named = lua_type(L, -2) == LUA_TSTRING;
    lua_pop(L, 2);
    return named;
}

/* The argument at place i + 1, given or demanded, raises unless it matches the signature. */
static void function_check(lua_State *L, const struct entry *entry, int i)
{
    const char *function = entry->function->name, *name = entry->param[i].name;
    int index = i + 1, length = entry->param[i].length;
    const char *wanted = function_unmet(L, index, entry->param[i].letter);
    if (wanted && i == 0 && entry->method)
        ah_raise_not_method(L, function, wanted);
    if (wanted)
        ah_raise_text(L, "%s: %.*s: expected %s, got %s", function, length, name, wanted, ah_value_text(L, index));
    if (entry->param[i].letter == 'D') {
        struct ah_device *device;
        int status = ah_device_find(lua_tostring(L, index), &device);
        if (status < 0)
            ah_raise(L, ah_fail_prefix(status, "%s: %.*s", function, length, name));
    }
    if (entry->param[i].letter == '*' && lua_isnoneornil(L, index))
        ah_raise_text(L, "%s: '%.*s' is missing", function, length, name);
}

static int function_entry(lua_State *L)
{
    const struct entry *entry = lua_touserdata(L, lua_upvalueindex(1));
    int top = lua_gettop(L);
    if (top > 0 && ah_is_named(L, top, false))
        spread_named(L, entry);
    for (int i = 0; i < entry->count; i++)
        if (!entry->param[i].optional || !lua_isnoneornil(L, i + 1))
            function_check(L, entry, i);
    if (lua_gettop(L) > entry->count)
        return too_many(L, entry);
    return entry->function->call(L);
}

static void push_door(lua_State *L, const struct ah_function *function, bool method)
{
    struct entry *entry = lua_newuserdata(L, sizeof *entry);
    *entry = (struct entry){.function = function, .method = method};
    for (const char *at = function->signature; *at && entry->count < MAX_PARAMS; at += strspn(at, ", ")) {
        int i = entry->count++, length = (int)strcspn(at, ":");
        entry->param[i].name = at;
        entry->param[i].length = length;
        entry->param[i].letter = at[length + 1];
        entry->param[i].optional = at[length + 2] == '?';
        at += strcspn(at, ",");
    }
    lua_pushcclosure(L, function_entry, 1);
}

static void function_set(lua_State *L, int table, const struct ah_function *list, bool methods)
{
    for (; list->name; list++) {
        push_door(L, list, methods);
        lua_setfield(L, table, list->name);
    }
}

void ah_set_functions(lua_State *L, int table, const struct ah_function *list)
{
    function_set(L, table, list, false);
}

void ah_set_methods(lua_State *L, int table, const struct ah_function *list)
{
    function_set(L, table, list, true);
}

int ah_new_library(lua_State *L, const struct ah_function *list)
{
    lua_newtable(L);
    ah_set_functions(L, lua_gettop(L), list);
    return 1;
}

const struct ah_function *ah_to_function(lua_State *L, int index)
{
    if (lua_tocfunction(L, index) != function_entry || !lua_getupvalue(L, index, 1))
        return NULL;
    const struct entry *entry = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return entry->function;
}
