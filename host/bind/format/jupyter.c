/* accelhost._C.jupyter: a kernel's side of the Jupyter protocol (base/process/jupyter.h), opened by `accelhost jupyter`
 * alone. Header, parent and content are texts of JSON; a route names a client.
 *
 * version()                           -> "4.3.4", ZeroMQ's
 * open(path, info)                    bind the sockets of a connection file; `info` is the content of
 *                                     kernel_info_reply
 * wait(channel, seconds)              -> {type =, route =, header =, content =}, or nil and "timeout" or "end";
 *                                     channel: "shell" or "stdin"; raises when Ctrl-C interrupts
 * send(channel, route, parent, type, content, metadata)
 *                                     channel: "shell", "control", "stdin" or "iopub"
 * begin(header, shared)               later text belongs to the request with this header; shared: that of processes
 *                                     started before too
 * close() */
#include "bind/format/jupyter.h"

#include <string.h>

#include "base/process/jupyter.h"
#include "base/status/status.h"
#include "bind/library.h"
#include "bind/lua/bind.h"

static const struct ah_jupyter *jupyter;
static const char *const channels[] = {"shell", "control", "stdin", "iopub", NULL};

AH_LUA_VALUE(jupyter_version, lua_pushstring, jupyter->version())
AH_LUA_CHECKED(open_kernel, jupyter->open(luaL_checkstring(L, 1), luaL_checkstring(L, 2)))

static void set_text(lua_State *L, const char *name, struct ah_jupyter_text text)
{
    lua_pushlstring(L, text.bytes, text.count);
    lua_setfield(L, -2, name);
}

static int jupyter_wait(lua_State *L)
{
    struct ah_jupyter_message *message = NULL;
    enum ah_jupyter_channel channel = (enum ah_jupyter_channel)luaL_checkoption(L, 1, NULL, channels);
    int status = jupyter->wait(&message, channel, luaL_checknumber(L, 2));
    if (status == AH_ETIMEOUT || status == AH_ESTATE) {
        lua_pushnil(L);
        lua_pushstring(L, status == AH_ESTATE ? "end" : "timeout");
        return 2;
    }
    ah_check(L, status);
    lua_createtable(L, 0, 4);
    lua_pushstring(L, message->type);
    lua_setfield(L, -2, "type");
    set_text(L, "route", message->route);
    set_text(L, "header", message->header);
    set_text(L, "content", message->content);
    jupyter->free(message);
    return 1;
}

static struct ah_jupyter_text text_at(lua_State *L, int index)
{
    struct ah_jupyter_text text;
    text.bytes = luaL_optlstring(L, index, "", &text.count);
    return text;
}

static int jupyter_send(lua_State *L)
{
    struct ah_jupyter_message message = {
        .channel = (enum ah_jupyter_channel)luaL_checkoption(L, 1, NULL, channels),
        .route = text_at(L, 2), .parent = text_at(L, 3), .content = text_at(L, 5), .metadata = text_at(L, 6),
    };
    size_t length;
    const char *type = luaL_checklstring(L, 4, &length);
    luaL_argcheck(L, length < sizeof message.type, 4, "a type of message");
    memcpy(message.type, type, length + 1);
    ah_check(L, jupyter->send(&message));
    return 0;
}

AH_LUA_CHECKED(jupyter_begin, jupyter->begin(text_at(L, 1), lua_toboolean(L, 2)))

static int close_kernel(lua_State *L)
{
    jupyter->close();
    return 0;
}

int ah_jupyter_bind(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"version", jupyter_version}, {"open", open_kernel}, {"wait", jupyter_wait}, {"send", jupyter_send},
        {"begin", jupyter_begin}, {"close", close_kernel}, {NULL, NULL},
    };
    AH_TRY(ah_jupyter_open(&jupyter));
    ah_library_add(jupyter->modules);
    lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
    lua_getfield(L, -1, "accelhost._C");
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "jupyter");
    lua_pop(L, 2);
    return 0;
}
