/* Errors on their way into Lua: the text of the last failure with the script line that called in front, frames of the
 * library itself passed over. */
#include <stdio.h>
#include <string.h>

#include "base/status/printable.h"
#include "base/status/status.h"
#include "bind/library.h"
#include "bind/lua/bind.h"

bool ah_is_library_chunk(const char *source)
{
    return !strncmp(source, AH_LIBRARY_CHUNK, sizeof AH_LIBRARY_CHUNK - 1);
}

const char *ah_call_site(lua_State *L)
{
    static _Thread_local char text[160];
    lua_Debug frame;
    for (int level = 0; lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "Sl", &frame);
        if (frame.currentline > 0 && !ah_is_library_chunk(frame.source)) {
            snprintf(text, sizeof text, "%s:%d", frame.short_src, frame.currentline);
            return text;
        }
    }
    return "?";
}

/* Push "in layers.0 (Linear): " when modules are running (lua/accelhost/nn/module.lua keeps the function), else "". */
static void push_module_path(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, "accelhost.module_path");
    if (lua_isfunction(L, -1) && lua_pcall(L, 0, 1, 0) == 0 && lua_isstring(L, -1))
        lua_pushfstring(L, "in %s: ", lua_tostring(L, -1));
    else
        lua_pushliteral(L, "");
    lua_remove(L, -2);
}

int ah_raise_top(lua_State *L)
{
    const char *where = ah_call_site(L);
    push_module_path(L);
    if (where[0] == '?')
        lua_pushfstring(L, "%s%s", lua_tostring(L, -1), lua_tostring(L, -2));
    else
        lua_pushfstring(L, "%s: %s%s", where, lua_tostring(L, -1), lua_tostring(L, -2));
    return lua_error(L);
}

int ah_raise(lua_State *L, int status)
{
    if (status == AH_ELUA)
        return lua_error(L); /* a callback raised: its error value is on top of the stack */
    lua_pushstring(L, ah_error_text()); /* before Lua code runs, which may fail itself */
    return ah_raise_top(L);
}

const char *ah_value_text(lua_State *L, int index)
{
    static _Thread_local char text[96];
    size_t length;
    const char *name = NULL;
    switch (lua_type(L, index)) {
    case LUA_TNONE: return "nothing";
    case LUA_TNIL: return "nil";
    case LUA_TBOOLEAN: return lua_toboolean(L, index) ? "true" : "false";
    case LUA_TNUMBER: snprintf(text, sizeof text, "number %.14g", lua_tonumber(L, index)); return text;
    case LUA_TSTRING:
        name = lua_tolstring(L, index, &length);
        snprintf(text, sizeof text, "'%.60s%s'", name, length > 60 ? "..." : "");
        return text;
    default: break;
    }
    if (ah_to_tensor(L, index) || ah_was_freed(L, index))
        return ah_was_freed(L, index) ? "a tensor that was freed" : "a tensor";
    if (ah_to_generator(L, index))
        return "a Generator";
    /* An object of the library's classes names its class. */
    if ((lua_istable(L, index) || lua_isuserdata(L, index)) && lua_getmetatable(L, index)) {
        if (lua_istable(L, -1)) {
            lua_getfield(L, -1, "_name");
            if (lua_type(L, -1) == LUA_TSTRING)
                name = lua_tostring(L, -1); /* the class keeps it */
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    snprintf(text, sizeof text, "a %.60s", name ? name : luaL_typename(L, index));
    return text;
}

int ah_check(lua_State *L, int status)
{
    return status < 0 ? ah_raise(L, status) : status;
}

int ah_push_error(lua_State *L)
{
    lua_pushnil(L);
    lua_pushstring(L, ah_error_text());
    return 2;
}

int ah_raise_text(lua_State *L, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ah_vfail(AH_EINVAL, format, args);
    va_end(args);
    return ah_raise(L, AH_EINVAL);
}

enum { FRAMES = 20 }; /* of a traceback: the script may recurse without end */

/* Add the place of a frame, for a traceback line. */
static void push_frame(luaL_Buffer *text, const lua_Debug *frame)
{
    char line[256];
    const char *what = !strcmp(frame->what, "main") ? "main chunk" : frame->name ? frame->name : "function";
    snprintf(line, sizeof line, "\n  %s:%d: in %s", frame->short_src, frame->currentline, what);
    luaL_addstring(text, line);
}

static void push_fold(luaL_Buffer *text, int folded)
{
    char line[64];
    if (!folded)
        return;
    snprintf(line, sizeof line, "\n  (%d library frame%s)", folded, folded == 1 ? "" : "s");
    luaL_addstring(text, line);
}

/* Push the text of the value at 1; none if its __tostring raises. */
static bool push_text(lua_State *L)
{
    if (lua_isstring(L, 1)) {
        lua_pushvalue(L, 1);
        return true;
    }
    if (!luaL_getmetafield(L, 1, "__tostring"))
        return false;
    lua_pushvalue(L, 1);
    return lua_pcall(L, 1, 1, 0) == 0 && lua_isstring(L, -1);
}

/* The error value as text: any value is accepted, and a position inside the library is replaced by the script's. */
static void push_message(lua_State *L)
{
    if (!push_text(L))
        lua_pushfstring(L, "(error value of type %s)", luaL_typename(L, 1));
    const char *message = lua_tostring(L, -1);
    if (message && !strncmp(message, &AH_LIBRARY_CHUNK[1], sizeof AH_LIBRARY_CHUNK - 2)) {
        const char *after = strchr(message + sizeof AH_LIBRARY_CHUNK - 2, ':');
        after = after ? strstr(after, ": ") : NULL;
        if (after) {
            lua_pushfstring(L, "%s%s", ah_call_site(L), after);
            lua_remove(L, -2);
        }
    }
}

/* The innermost frame of the script from `level` on: its level, or -1. */
static int script_level(lua_State *L, int level, lua_Debug *frame)
{
    for (; lua_getstack(L, level, frame); level++) {
        lua_getinfo(L, "Sln", frame);
        if (frame->currentline > 0 && !ah_is_library_chunk(frame->source))
            return level;
    }
    return -1;
}

/* Is the first argument of the script's method in this frame, its `self`, something else than an object? */
static bool lacks_self(lua_State *L, lua_Debug *frame)
{
    if (!strcmp(frame->namewhat, "method"))
        return false;
    lua_getinfo(L, "f", frame);
    const char *parameter = lua_getlocal(L, NULL, 1); /* of the function on top */
    lua_pop(L, 1);
    if (!parameter || strcmp(parameter, "self") || !lua_getlocal(L, frame, 1))
        return false;
    bool lacks = lua_type(L, -1) != LUA_TTABLE && (lua_type(L, -1) != LUA_TUSERDATA || ah_to_tensor(L, -1));
    if (!lacks)
        lua_pop(L, 1);
    return lacks; /* the value stays on the stack */
}

/* A method of the script's own that was called with '.' fails somewhere inside, with a message that does not mention
 * the call: replace the message on top of the stack by one about the call. */
static void blame_call(lua_State *L)
{
    lua_Debug frame, caller;
    int level = script_level(L, 1, &frame);
    if (level < 0 || !lacks_self(L, &frame))
        return;
    const char *value = ah_value_text(L, -1), *name = frame.name ? frame.name : "method";
    lua_pop(L, 1);
    bool known = script_level(L, level + 1, &caller) >= 0;
    const lua_Debug *at = known ? &caller : &frame;
    lua_pushfstring(L, "%s:%d: %s: expected an object before it, got %s: write ':' instead of '.' (object:%s(...)); "
                    "inside of it, %s", at->short_src, at->currentline, name, value, name, lua_tostring(L, -1));
    lua_remove(L, -2);
}

/* Names of chunks and parts of sources are in messages, too. */
static void make_printable(lua_State *L)
{
    size_t length;
    const char *text = lua_tolstring(L, -1, &length);
    char *copy = lua_newuserdata(L, length + 1);
    memcpy(copy, text, length + 1);
    ah_make_printable(copy);
    lua_pushstring(L, copy);
    lua_replace(L, -3);
    lua_pop(L, 1);
}

static void add_hint(lua_State *L)
{
    int top = lua_gettop(L);
    const char *message = lua_tostring(L, top);
    if (!message || strstr(message, "stack overflow") || strstr(message, "not enough memory"))
        return; /* no room to search for a hint */
    lua_getglobal(L, "require");
    lua_pushliteral(L, "accelhost.util.hints");
    if (lua_pcall(L, 1, 1, 0) == 0 && lua_istable(L, -1)) {
        lua_getfield(L, -1, "add");
        lua_pushvalue(L, top);
        if (lua_pcall(L, 1, 1, 0) == 0 && lua_isstring(L, -1))
            lua_replace(L, top);
    }
    lua_settop(L, top);
}

void ah_explain(lua_State *L)
{
    add_hint(L);
    if (lua_type(L, -1) == LUA_TSTRING)
        make_printable(L);
}

static lua_CFunction outermost;

void ah_traceback_end_at(lua_CFunction function)
{
    outermost = function;
}

static bool is_outermost(lua_State *L, lua_Debug *frame)
{
    if (!outermost || strcmp(frame->what, "C"))
        return false;
    lua_getinfo(L, "f", frame);
    bool is = lua_tocfunction(L, -1) == outermost;
    lua_pop(L, 1);
    return is;
}

int ah_traceback(lua_State *L)
{
    lua_settop(L, 1);
    push_message(L);
    blame_call(L);
    add_hint(L);
    luaL_Buffer text;
    size_t length;
    const char *message = lua_tolstring(L, -1, &length);
    luaL_buffinit(L, &text);
    luaL_addlstring(&text, message ? message : "?", message ? length : 1);
    lua_Debug frame;
    int folded = 0, shown = 0;
    for (int level = 1; lua_getstack(L, level, &frame); level++) {
        if (shown == FRAMES) {
            luaL_addstring(&text, "\n  ...");
            break;
        }
        lua_getinfo(L, "Sln", &frame);
        if (is_outermost(L, &frame))
            break;
        if (frame.currentline <= 0)
            continue; /* a C function means nothing to a script author */
        if (ah_is_library_chunk(frame.source)) {
            folded++;
            continue;
        }
        push_fold(&text, folded);
        folded = 0;
        push_frame(&text, &frame);
        shown++;
    }
    push_fold(&text, folded);
    luaL_pushresult(&text);
    make_printable(L);
    return 1;
}
