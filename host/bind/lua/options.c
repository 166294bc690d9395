/* Reading tables of options and lists of integers from the Lua stack. */
#include <math.h>
#include <string.h>

#include "base/status/nearest.h"
#include "bind/lua/bind.h"

static bool push_option(lua_State *L, int index, const char *name)
{
    if (!lua_istable(L, index))
        return false;
    lua_getfield(L, index, name);
    if (!lua_isnil(L, -1))
        return true;
    lua_pop(L, 1);
    return false;
}

static void options_expect(lua_State *L, bool fits, const char *name, const char *wanted)
{
    if (!fits)
        ah_raise_text(L, "option '%s': expected %s, got %s", name, wanted, ah_value_text(L, -1));
}

double ah_opt_number(lua_State *L, int index, const char *name, double fallback)
{
    if (!push_option(L, index, name))
        return fallback;
    options_expect(L, lua_type(L, -1) == LUA_TNUMBER, name, "a number");
    double value = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

int64_t ah_opt_int(lua_State *L, int index, const char *name, int64_t fallback)
{
    if (!push_option(L, index, name))
        return fallback;
    double value = lua_tonumber(L, -1);
    options_expect(L, lua_type(L, -1) == LUA_TNUMBER && value == floor(value) && fabs(value) <= 0x1p53, name,
                   "an integer");
    lua_pop(L, 1);
    return (int64_t)value;
}

bool ah_opt_flag(lua_State *L, int index, const char *name, bool fallback)
{
    if (!push_option(L, index, name))
        return fallback;
    options_expect(L, lua_isboolean(L, -1), name, "true or false");
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

const char *ah_opt_string(lua_State *L, int index, const char *name, const char *fallback)
{
    if (!push_option(L, index, name))
        return fallback;
    options_expect(L, lua_type(L, -1) == LUA_TSTRING, name, "a string");
    const char *value = lua_tostring(L, -1); /* the table keeps it alive */
    lua_pop(L, 1);
    return value;
}

void ah_check_options(lua_State *L, int index, const char *op, const char *const *known)
{
    if (!lua_istable(L, index))
        return;
    bool strange = false;
    const char *first = NULL; /* by its bytes: a table has no order */
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING) {
            strange = true;
            break;
        }
        const char *key = lua_tostring(L, -1);
        const char *const *name = known;
        while (*name && strcmp(*name, key))
            name++;
        if (!*name && (!first || strcmp(key, first) < 0))
            first = key;
    }
    if (!strange && !first)
        return;
    const char *near = strange ? NULL : ah_nearest(first, known);
    char list[512] = "";
    for (const char *const *name = known; *name; name++) {
        strncat(list, name == known ? "" : ", ", sizeof list - strlen(list) - 1);
        strncat(list, *name, sizeof list - strlen(list) - 1);
    }
    ah_raise_text(L, "%s: unknown option '%s' (known: %s)%s%s%s", op, strange ? ah_value_text(L, -1) : first, list,
                  near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* Beyond the length only keys of the hash part can follow, so a long array is not read again. */
int ah_check_array(lua_State *L, int index, const char *what, bool named_ok)
{
    int count = (int)lua_objlen(L, index);
    if (count > 32) {
        lua_pushinteger(L, count);
    } else {
        for (int i = 1; i <= count; i++) {
            lua_rawgeti(L, index, i);
            if (lua_isnil(L, -1))
                ah_raise_text(L, "%s: item %d of the table is nil", what, i);
            lua_pop(L, 1);
        }
        lua_pushnil(L);
    }
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        double key = lua_tonumber(L, -1);
        if (lua_type(L, -1) == LUA_TNUMBER) {
            if (key < 1 || key > count || key != floor(key))
                ah_raise_text(L, "%s: item %d of the table is nil", what, count + 1);
        } else if (!named_ok) {
            ah_raise_text(L, "%s: expected a table of items in order, got the field %s", what, ah_value_text(L, -1));
        }
    }
    return count;
}

int ah_check_ints(lua_State *L, int index, int64_t *out, int max, const char *what)
{
    if (lua_type(L, index) == LUA_TNUMBER) {
        double value = lua_tonumber(L, index);
        if (value != floor(value) || fabs(value) > 0x1p53)
            return ah_raise_text(L, "%s: expected integers, got %s", what, ah_value_text(L, index));
        out[0] = (int64_t)value;
        return 1;
    }
    if (!lua_istable(L, index))
        return ah_raise_text(L, "%s: expected a table of integers, got %s", what, ah_value_text(L, index));
    int count = ah_check_array(L, index, what, false);
    if (count > max)
        return ah_raise_text(L, "%s: expected at most %d integers, got %d", what, max, count);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, index, i + 1);
        double value = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || value != floor(value) || fabs(value) > 0x1p53)
            return ah_raise_text(L, "%s: expected integers, item %d is %s", what, i + 1,
                                 ah_value_text(L, -1));
        out[i] = (int64_t)value;
        lua_pop(L, 1);
    }
    return count;
}

void ah_set_number(lua_State *L, const char *name, double value)
{
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

enum ah_dtype ah_check_dtype(lua_State *L, int index)
{
    enum ah_dtype dtype = AH_F32;
    if (lua_type(L, index) != LUA_TSTRING)
        ah_raise_text(L, "expected a dtype name such as \"float32\", got %s", ah_value_text(L, index));
    ah_check(L, ah_dtype_parse(lua_tostring(L, index), &dtype));
    return dtype;
}

struct ah_device *ah_check_device(lua_State *L, int index)
{
    struct ah_device *device = NULL;
    if (lua_type(L, index) != LUA_TSTRING)
        ah_raise_text(L, "expected the name of a device such as \"cpu\", got %s", ah_value_text(L, index));
    ah_check(L, ah_device_find(lua_tostring(L, index), &device));
    return device;
}

void ah_push_dtype(lua_State *L, enum ah_dtype dtype)
{
    lua_pushstring(L, ah_dtype_name(dtype));
}
