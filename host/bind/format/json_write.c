/* One walk over the value, which writes into a buffer that Lua owns and that is replaced by a larger one when full.
 * jansson writes the strings: it escapes characters and refuses bytes that are no UTF-8. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/format/json_value.h"

enum { DEEPEST = 2048, FIRST_ROOM = 1024 };

/* A place in the value: the path to a table's item. */
struct place {
    const struct place *outer;
    const char *key; /* NULL: item `at` of an array */
    int at, depth;
};

struct writer {
    lua_State *L;
    int buffer, arrays; /* on the stack */
    int indent;
    char *text;
    size_t used, room;
};

static void json_reserve(struct writer *w, size_t bytes)
{
    if (w->used + bytes <= w->room)
        return;
    size_t room = 2 * (w->used + bytes) + FIRST_ROOM;
    char *wider = lua_newuserdata(w->L, room);
    if (w->used)
        memcpy(wider, w->text, w->used);
    lua_replace(w->L, w->buffer);
    w->text = wider;
    w->room = room;
}

static void json_put(struct writer *w, const char *text)
{
    size_t bytes = strlen(text);
    json_reserve(w, bytes);
    memcpy(w->text + w->used, text, bytes);
    w->used += bytes;
}

static void put_line(struct writer *w, int depth)
{
    if (!w->indent)
        return;
    size_t blanks = (size_t)depth * (size_t)w->indent;
    json_put(w, "\n");
    json_reserve(w, blanks);
    memset(w->text + w->used, ' ', blanks);
    w->used += blanks;
}

static void json_describe(const struct place *place, char *text, size_t room)
{
    if (!place->outer) {
        snprintf(text, room, "value");
        return;
    }
    json_describe(place->outer, text, room);
    size_t used = strlen(text);
    if (place->key)
        snprintf(text + used, room - used, ".%s", place->key);
    else
        snprintf(text + used, room - used, "[%d]", place->at);
}

static int json_refuse(const struct place *place, const char *what)
{
    char where[160];
    if (place->depth > DEEPEST)
        return ah_fail(AH_EINVAL, "nested deeper than %d tables (does one contain itself?)", (int)DEEPEST);
    json_describe(place, where, sizeof where);
    return ah_fail(AH_EINVAL, "%s: %s", where, what);
}

static int put_number(struct writer *w, const struct place *place, double value)
{
    char text[40];
    if (!isfinite(value))
        return json_refuse(place, isnan(value) ? "NaN is no JSON" : "infinity is no JSON");
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    json_put(w, text);
    return 0;
}

static int put_string(struct writer *w, const struct place *place, const char *text, size_t bytes)
{
    json_reserve(w, 6 * bytes + 2);
    json_t *string = json_stringn(text, bytes);
    if (!string)
        return json_refuse(place, "a string that is not UTF-8");
    w->used += json_dumpb(string, w->text + w->used, w->room - w->used, JSON_ENCODE_ANY);
    json_decref(string);
    return 0;
}

static int put_value(struct writer *w, const struct place *place);

static int put_array(struct writer *w, const struct place *place, int count)
{
    json_put(w, "[");
    for (int i = 1; i <= count; i++) {
        struct place item = {place, NULL, i, place->depth + 1};
        json_put(w, i > 1 ? w->indent ? "," : ", " : "");
        put_line(w, item.depth);
        lua_rawgeti(w->L, -1, i);
        AH_TRY(put_value(w, &item));
        lua_pop(w->L, 1);
    }
    if (count)
        put_line(w, place->depth);
    json_put(w, "]");
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The table's keys, sorted, in memory that is pushed above the table; the table keeps the strings. */
static int push_keys(struct writer *w, const struct place *place, int count)
{
    lua_State *L = w->L;
    const char **key = lua_newuserdata(L, ((size_t)count + 1) * sizeof *key);
    int at = 0;
    for (lua_pushnil(L); lua_next(L, -3); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || strlen(lua_tostring(L, -2)) != lua_objlen(L, -2)) {
            lua_pop(L, 2);
            return json_refuse(place, "expected keys that are strings without NUL, or items from 1 without holes");
        }
        key[at++] = lua_tostring(L, -2);
    }
    qsort(key, (size_t)count, sizeof *key, by_bytes);
    return 0;
}

static int put_object(struct writer *w, const struct place *place, int count)
{
    lua_State *L = w->L;
    AH_TRY(push_keys(w, place, count));
    const char **key = lua_touserdata(L, -1);
    json_put(w, "{");
    for (int i = 0; i < count; i++) {
        struct place item = {place, key[i], 0, place->depth + 1};
        json_put(w, i ? w->indent ? "," : ", " : "");
        put_line(w, item.depth);
        AH_TRY(put_string(w, &item, key[i], strlen(key[i])));
        json_put(w, ": ");
        lua_pushstring(L, key[i]);
        lua_rawget(L, -3);
        AH_TRY(put_value(w, &item));
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    if (count)
        put_line(w, place->depth);
    json_put(w, "}");
    return 0;
}

/* Write a table: an array when it has the metatable of arrays or a first item, else an object. */
static int put_table(struct writer *w, const struct place *place)
{
    lua_State *L = w->L;
    if (place->depth > DEEPEST)
        return json_refuse(place, "");
    if (!lua_checkstack(L, 8))
        return ah_fail(AH_ENOMEM, "out of Lua stack");
    int fields = 0, items = (int)lua_objlen(L, -1);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        fields++;
    bool array = items > 0;
    if (lua_getmetatable(L, -1)) {
        array |= lua_rawequal(L, -1, w->arrays);
        lua_pop(L, 1);
    }
    if (!array)
        return put_object(w, place, fields);
    if (fields != items)
        return json_refuse(place, "an array with holes, or with names in addition to its items");
    return put_array(w, place, items);
}

static int put_value(struct writer *w, const struct place *place)
{
    lua_State *L = w->L;
    char what[96];
    size_t bytes;
    const char *text;
    switch (lua_type(L, -1)) {
    case LUA_TTABLE: return put_table(w, place);
    case LUA_TNUMBER: return put_number(w, place, lua_tonumber(L, -1));
    case LUA_TSTRING: text = lua_tolstring(L, -1, &bytes); return put_string(w, place, text, bytes);
    case LUA_TBOOLEAN: json_put(w, lua_toboolean(L, -1) ? "true" : "false"); return 0;
    case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(L, -1))
            break;
        json_put(w, "null");
        return 0;
    case LUA_TUSERDATA:
        return json_refuse(place, "a tensor or another object (item() and tolist() return plain values)");
    default: break;
    }
    snprintf(what, sizeof what, "expected a table, string, number, boolean or json.null, got %s",
             lua_typename(L, lua_type(L, -1)));
    return json_refuse(place, what);
}

int ah_json_write(lua_State *L, int index, int arrays, int indent)
{
    if (!lua_checkstack(L, 4))
        return ah_fail(AH_ENOMEM, "out of Lua stack");
    const struct place top = {0};
    lua_pushnil(L);
    int buffer = lua_gettop(L);
    struct writer w = {.L = L, .buffer = buffer, .arrays = arrays, .indent = indent};
    lua_pushvalue(L, index);
    int status = put_value(&w, &top);
    if (status < 0) {
        lua_settop(L, buffer - 1);
        return status;
    }
    lua_pushlstring(L, w.text, w.used);
    lua_replace(L, buffer);
    lua_settop(L, buffer);
    return 0;
}
