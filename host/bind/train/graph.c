/* accelhost._C.graph: captured and replayed work of a device (struct ah_graph_functions).
 *
 * new(device)       an empty graph; nil when the device's type has no graphs
 * graph:begin()     capture the device's work from here on
 * graph:finish(keep)  end the capture; without `keep` the graph is empty again
 * graph:revise(on)  while it is on, optimizers' steps update their scalars in the graph
 * graph:replay(results)  run the captured work; the tensors in the array count an in-place write
 * graph:close()     free it */
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "tensor/device.h"

struct handle {
    struct ah_device *device;
    struct ah_graph *graph; /* NULL: closed */
};

static const struct ah_class graph_class;

static struct handle *check_handle(lua_State *L)
{
    struct handle *handle = ah_class_to(L, 1, &graph_class);
    if (!handle)
        ah_raise_text(L, "graph: expected a graph, got %s", ah_value_text(L, 1));
    if (!handle->graph)
        ah_raise_text(L, "graph: it was closed");
    return handle;
}

static int graph_new(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    if (!device->type->graphs)
        return 0;
    struct handle *handle = ah_class_new(L, &graph_class, sizeof *handle);
    handle->device = device;
    ah_check(L, device->type->graphs->open(device, &handle->graph));
    return 1;
}

static int graph_begin(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->begin(handle->graph));
    return 0;
}

static int graph_finish(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->end(handle->graph, lua_toboolean(L, 2)));
    return 0;
}

static int graph_revise(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->revise(handle->graph, lua_toboolean(L, 2)));
    return 0;
}

static int graph_replay(lua_State *L)
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

static int graph_close(lua_State *L)
{
    struct handle *handle = ah_class_to(L, 1, &graph_class);
    if (handle && handle->graph)
        handle->device->type->graphs->close(handle->graph);
    if (handle)
        handle->graph = NULL;
    return 0;
}

static const luaL_Reg graph_methods[] = {
    {"begin", graph_begin},   {"finish", graph_finish}, {"revise", graph_revise},
    {"replay", graph_replay}, {"close", graph_close},   {NULL, NULL},
};
static const struct ah_class graph_class = {"accelhost.graph", graph_methods, NULL, graph_close};

int ah_open_graph(lua_State *L)
{
    lua_newtable(L);
    lua_pushcfunction(L, graph_new);
    lua_setfield(L, -2, "new");
    return 1;
}
