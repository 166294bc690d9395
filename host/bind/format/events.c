/* accelhost._C.events: TensorBoard's event files.
 *
 * field(number, kind, value) -> the bytes of one field: "int" and "double", "float" numbers, "bytes" a text (or a
 * message: fields behind one another), "doubles" a table of numbers, packed
 * record(text) -> the text as a record
 * is_utf8(text)
 * read(path) -> {tag = {step = {...}, wall_time = {...}, value = {...}}, ...}, nil or the error of the rest, nil or the
 * step from which on the file makes earlier events void */
#include <math.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/function.h"
#include "io/events.h"
#include "io/mapping.h"

static void add_field(luaL_Buffer *buffer, unsigned number, enum ah_protobuf_type type, uint64_t value)
{
    unsigned char bytes[AH_TRANSPORT_MOST];
    luaL_addlstring(buffer, (const char *)bytes, ah_protobuf_put(bytes, number, type, value));
}

static void add_doubles(lua_State *L, luaL_Buffer *buffer, unsigned number)
{
    int count = (int)lua_objlen(L, 3);
    add_field(buffer, number, AH_PROTOBUF_BYTES, (uint64_t)count * 8);
    for (int i = 1; i <= count; i++) {
        unsigned char bytes[8];
        lua_rawgeti(L, 3, i);
        ah_protobuf_put_little(bytes, ah_protobuf_double(lua_tonumber(L, -1)), 8);
        lua_pop(L, 1);
        luaL_addlstring(buffer, (const char *)bytes, 8);
    }
}

static int events_field(lua_State *L)
{
    static const char *const kinds[] = {"int", "double", "float", "bytes", "doubles", NULL};
    unsigned number = (unsigned)luaL_checkinteger(L, 1);
    int kind = luaL_checkoption(L, 2, NULL, kinds);
    size_t count = 0;
    const char *text = kind == 3 ? luaL_checklstring(L, 3, &count) : NULL;
    double value = kind < 3 ? luaL_checknumber(L, 3) : 0;
    if (kind == 4)
        luaL_checktype(L, 3, LUA_TTABLE);
    luaL_Buffer buffer;
    luaL_buffinit(L, &buffer);
    switch (kind) {
    case 0:
        add_field(&buffer, number, AH_PROTOBUF_VARINT, (uint64_t)(int64_t)value);
        break;
    case 1:
        add_field(&buffer, number, AH_PROTOBUF_FIXED64, ah_protobuf_double(value));
        break;
    case 2:
        add_field(&buffer, number, AH_PROTOBUF_FIXED32, ah_protobuf_float((float)value));
        break;
    case 3:
        add_field(&buffer, number, AH_PROTOBUF_BYTES, count);
        luaL_addlstring(&buffer, text, count);
        break;
    default:
        add_doubles(L, &buffer, number);
    }
    luaL_pushresult(&buffer);
    return 1;
}

static int events_record(lua_State *L)
{
    size_t count;
    const char *text = luaL_checklstring(L, 1, &count);
    unsigned char head[AH_RECORD_HEAD], foot[AH_RECORD_FOOT];
    ah_record_frame(head, foot, text, count);
    luaL_Buffer buffer;
    luaL_buffinit(L, &buffer);
    luaL_addlstring(&buffer, (const char *)head, sizeof head);
    luaL_addlstring(&buffer, text, count);
    luaL_addlstring(&buffer, (const char *)foot, sizeof foot);
    luaL_pushresult(&buffer);
    return 1;
}

static int is_utf8(lua_State *L)
{
    size_t count;
    const char *text = luaL_checklstring(L, 1, &count);
    lua_pushboolean(L, ah_protobuf_is_utf8(text, count));
    return 1;
}

/* Number `value` of a point's field, of the curve on top of the stack. */
static void set_point(lua_State *L, const char *name, int at, double value)
{
    lua_getfield(L, -1, name);
    lua_pushnumber(L, value);
    lua_rawseti(L, -2, at);
    lua_pop(L, 1);
}

static int length_of(lua_State *L)
{
    lua_getfield(L, -1, "step");
    int length = (int)lua_objlen(L, -1);
    lua_pop(L, 1);
    return length;
}

static const char *const point_fields[] = {"step", "wall_time", "value"};

/* Push the curve of a tag of the table at stack index `curves`. */
static void push_curve(lua_State *L, int curves, const char *tag, size_t length)
{
    lua_pushlstring(L, tag, length);
    lua_pushvalue(L, -1);
    lua_rawget(L, curves);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_createtable(L, 0, 3);
        for (int i = 0; i < 3; i++) {
            lua_newtable(L);
            lua_setfield(L, -2, point_fields[i]);
        }
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, curves);
    }
    lua_remove(L, -2);
}

/* Drop the points from `step` on: a run that was resumed there writes them again. */
static void events_purge(lua_State *L, int curves, int64_t step)
{
    for (lua_pushnil(L); lua_next(L, curves); lua_pop(L, 1)) {
        int kept = 0, length = length_of(L);
        for (int i = 1; i <= length; i++) {
            lua_getfield(L, -1, "step");
            lua_rawgeti(L, -1, i);
            bool stays = lua_tonumber(L, -1) < (double)step;
            lua_pop(L, 2);
            kept += stays;
            for (int k = 0; k < 3; k++) {
                lua_getfield(L, -1, point_fields[k]);
                if (stays && kept != i) {
                    lua_rawgeti(L, -1, i);
                    lua_rawseti(L, -2, kept);
                }
                if (!stays || kept != i) {
                    lua_pushnil(L);
                    lua_rawseti(L, -2, i);
                }
                lua_pop(L, 1);
            }
        }
    }
}

/* The mapping is owned by a userdata, so that it is unmapped even if Lua runs out of memory. */
static const struct ah_class mapping_class;
AH_CLASS_CLOSER(close_mapping, mapping_class, struct ah_mapping, ah_mapping_release)

static const struct ah_class mapping_class = {.name = "accelhost.events.mapping", .collect = close_mapping};

static struct ah_mapping *push_mapping(lua_State *L, const char *path)
{
    struct ah_mapping **mapping = ah_class_new(L, &mapping_class, sizeof *mapping);
    int status = ah_mapping_open(mapping, path);
    if (status < 0)
        ah_raise(L, ah_fail_prefix(status, "'%s'", path));
    return *mapping;
}

static int read_events(lua_State *L)
{
    const struct ah_mapping *mapping = push_mapping(L, luaL_checkstring(L, 1));
    struct ah_events events = {.bytes = mapping->bytes, .count = mapping->count};
    struct ah_event event;
    int status, curves = lua_gettop(L) + 1;
    double restart = HUGE_VAL;
    lua_newtable(L);
    while ((status = ah_events_next(&events, &event)) > 0) {
        if (event.restart) {
            events_purge(L, curves, event.step);
            restart = fmin(restart, (double)event.step);
            continue;
        }
        push_curve(L, curves, event.tag, event.tag_length);
        int at = length_of(L) + 1;
        set_point(L, "step", at, (double)event.step);
        set_point(L, "wall_time", at, event.wall_time);
        set_point(L, "value", at, event.value);
        lua_pop(L, 1);
    }
    lua_pushstring(L, status < 0 ? ah_error_text() : NULL);
    if (restart < HUGE_VAL)
        lua_pushnumber(L, restart);
    else
        lua_pushnil(L);
    return 3;
}

int ah_open_events(lua_State *L)
{
    static const struct ah_function list[] = {
        {"field", events_field, "number:i, kind:s, value:*"},
        {"record", events_record, "text:s"},
        {"is_utf8", is_utf8, "text:s"},
        {"read", read_events, "path:s"},
        {NULL, NULL, NULL},
    };
    return ah_new_library(L, list);
}
