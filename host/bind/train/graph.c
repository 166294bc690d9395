/* accelhost._C.graph: works of a device that are captured and done again (struct ah_graph_functions).
 *
 * new(device)       a graph of nothing; nil when the device's type has no graphs
 * graph:begin()     capture what is asked of the device from here on
 * graph:finish(keep)  end that; without `keep` the graph is of nothing again
 * graph:revise(on)  while it is on, optimizers' steps tell the graph their numbers
 * graph:replay(results)  do it again; the tensors in the array count an in-place write
 * graph:close()     it is not needed any more */
#include "bind/lua/bind.h"
#include "tensor/device.h"

struct handle {
    struct ah_device *device;
    struct ah_graph *graph; /* NULL: closed */
};

static char methods_key;

static struct handle *check_handle(lua_State *L)
{
    struct handle *handle = lua_touserdata(L, 1);
    bool is = handle && lua_getmetatable(L, 1);
    if (is) {
        lua_pushlightuserdata(L, &methods_key);
        lua_rawget(L, LUA_REGISTRYINDEX);
        is = lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
    }
    if (!is)
        ah_raise_text(L, "graph: expected a graph, got %s", ah_value_text(L, 1));
    if (!handle->graph)
        ah_raise_text(L, "graph: it was closed");
    return handle;
}

static int new(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    if (!device->type->graphs)
        return 0;
    struct handle *handle = lua_newuserdata(L, sizeof *handle);
    *handle = (struct handle){.device = device};
    lua_pushlightuserdata(L, &methods_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_setmetatable(L, -2);
    ah_check(L, device->type->graphs->open(device, &handle->graph));
    return 1;
}

static int begin(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->begin(handle->graph));
    return 0;
}

static int finish(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->end(handle->graph, lua_toboolean(L, 2)));
    return 0;
}

static int revise(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->revise(handle->graph, lua_toboolean(L, 2)));
    return 0;
}

static int replay(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->replay(handle->graph));
    for (int i = 1; lua_istable(L, 2) && i <= (int)lua_objlen(L, 2); i++) {
        lua_rawgeti(L, 2, i);
        if (ah_to_tensor(L, -1))
            ah_tensor_touch(ah_to_tensor(L, -1));
        lua_pop(L, 1);
    }
    return 0;
}

static int close(lua_State *L)
{
    struct handle *handle = lua_touserdata(L, 1);
    if (handle && handle->graph)
        handle->device->type->graphs->close(handle->graph);
    if (handle)
        handle->graph = NULL;
    return 0;
}

int ah_open_graph(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"begin", begin}, {"finish", finish}, {"revise", revise}, {"replay", replay},
        {"close", close}, {"__gc", close},    {NULL, NULL},
    };
    lua_pushlightuserdata(L, &methods_key);
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_newtable(L);
    lua_pushcfunction(L, new);
    lua_setfield(L, -2, "new");
    return 1;
}
