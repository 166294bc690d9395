/* accelhost._C.graph: captured and replayed work of a device (struct ah_graph_functions).
 *
 * new(device)       an empty graph; nil when the device's type has no graphs
 * graph:begin()     capture the device's work from here on
 * graph:finish(keep, results)  end the capture; without `keep` the graph is empty again. The tensors in the array
 *                   are stored row-major by the captured work
 * graph:revise(on)  while it is on, optimizers' steps update their scalars in the graph
 * graph:advance()   begin to run the captured work, up to the first optimizer's step, where the device can
 * graph:replay(results)  run the captured work; the tensors in the array count an in-place write
 * graph:leaves()    after the capture, of leaves without a slot whose gradients it makes: an array of them, and one of
 *                   their gradients at its beginning: false, the tensor, or 0 where it replaces them
 * graph:close()     free it
 * graph:inputs(tensors)  after the capture: tensors from outside whose values change from replay to replay
 * graph:fill(tensors, ...)  have the next replay read the arguments in the place of these inputs, in their memory or
 *                   copied, and return true; false, having changed nothing, unless they are tensors like the inputs:
 *                   dtype, shape, device, contiguous, no gradient
 * graph:own(tensors)  have the next replays read the inputs in their own memory
 * gradients(parameters, wanted)  the place of the first parameter whose gradient is not wanted[i]: that tensor, none
 *                   where it is false, any where it is true, whatever where it is 0; nil if there is none */
#include "autograd/graph/graph.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/handle.h"
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
    lua_State *outer = ah_enter(L); /* it may collect garbage */
    int status = handle->device->type->graphs->begin(handle->graph);
    ah_leave(outer);
    ah_check(L, status);
    return 0;
}

static int graph_finish(lua_State *L)
{
    struct handle *handle = check_handle(L);
    bool keep = lua_toboolean(L, 2);
    for (int i = 1; keep && lua_istable(L, 3) && i <= (int)lua_objlen(L, 3); i++) {
        lua_rawgeti(L, 3, i);
        if (ah_to_tensor(L, -1))
            ah_check(L, ah_tensor_row_major(ah_to_tensor(L, -1)));
        lua_pop(L, 1);
    }
    ah_check(L, handle->device->type->graphs->end(handle->graph, keep));
    return 0;
}

static int graph_revise(lua_State *L)
{
    struct handle *handle = check_handle(L);
    ah_check(L, handle->device->type->graphs->revise(handle->graph, lua_toboolean(L, 2)));
    return 0;
}

static int graph_advance(lua_State *L)
{
    struct handle *handle = check_handle(L);
    if (handle->device->type->graphs->advance)
        ah_check(L, handle->device->type->graphs->advance(handle->graph));
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

/* Is this argument a tensor whose bytes can be copied into the input? */
static bool graph_fits(const struct ah_tensor *input, const struct ah_tensor *given)
{
    return input && given && given->dtype == input->dtype && ah_same_shape(given, input) &&
           given->storage->device == input->storage->device && !given->storage->channels_last &&
           ah_tensor_is_contiguous(given) && !ah_requires_grad(given);
}

static int graph_fill(lua_State *L)
{
    struct handle *handle = check_handle(L);
    const struct ah_graph_functions *graphs = handle->device->type->graphs;
    int count = lua_gettop(L) - 2;
    luaL_checktype(L, 2, LUA_TTABLE);
    if ((int)lua_objlen(L, 2) != count)
        return lua_pushboolean(L, false), 1;
    luaL_checkstack(L, count, "compile");
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 2, i);
        if (!graph_fits(ah_to_tensor(L, -1), ah_to_tensor(L, i + 2)))
            return lua_pushboolean(L, false), 1;
    }
    for (int i = 1; i <= count; i++) {
        struct ah_tensor *input = ah_to_tensor(L, 2 + count + i), *given = ah_to_tensor(L, i + 2);
        struct ah_device *device = input->storage->device;
        if (graphs->redirect && graphs->redirect(handle->graph, i - 1, given))
            continue;
        ah_check(L, ah_device_copy(ah_tensor_data(input), device, ah_tensor_data(given), device,
                                   ah_tensor_bytes(input)));
        ah_tensor_touch(input);
    }
    lua_pushboolean(L, true);
    return 1;
}

static int graph_inputs(lua_State *L)
{
    struct handle *handle = check_handle(L);
    int count = (int)lua_objlen(L, 2);
    struct ah_tensor **input = lua_newuserdata(L, (size_t)(count + 1) * sizeof *input);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        input[i] = ah_check_tensor(L, -1);
        lua_pop(L, 1);
    }
    if (handle->device->type->graphs->inputs)
        ah_check(L, handle->device->type->graphs->inputs(handle->graph, input, count));
    return 0;
}

static int graph_leaves(lua_State *L)
{
    struct handle *handle = check_handle(L);
    const struct ah_graph_functions *graphs = handle->device->type->graphs;
    const struct ah_graph_leaf *leaf;
    lua_newtable(L);
    lua_newtable(L);
    for (size_t i = 0; graphs->leaf && (leaf = graphs->leaf(handle->graph, i)); i++) {
        ah_push_shared_tensor(L, leaf->tensor);
        lua_rawseti(L, -3, (int)i + 1);
        if (leaf->replaces)
            lua_pushinteger(L, 0);
        else if (leaf->grad)
            ah_push_shared_tensor(L, leaf->grad);
        else
            lua_pushboolean(L, false);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 2;
}

static int graph_own(lua_State *L)
{
    struct handle *handle = check_handle(L);
    for (int i = 1; handle->device->type->graphs->redirect && i <= (int)lua_objlen(L, 2); i++) {
        lua_rawgeti(L, 2, i);
        handle->device->type->graphs->redirect(handle->graph, i - 1, ah_check_tensor(L, -1));
        lua_pop(L, 1);
    }
    return 0;
}

static int graph_gradients(lua_State *L)
{
    int count = (int)lua_objlen(L, 1);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        lua_rawgeti(L, 2, i);
        const struct ah_tensor *param = ah_to_tensor(L, -2), *wanted = ah_to_tensor(L, -1);
        const struct ah_tensor *grad = param ? ah_grad(param) : NULL;
        bool same = lua_isnumber(L, -1) ? true : wanted ? grad == wanted : (grad != NULL) == (bool)lua_toboolean(L, -1);
        lua_pop(L, 2);
        if (!same)
            return lua_pushinteger(L, i), 1;
    }
    return 0;
}

static const luaL_Reg graph_methods[] = {
    {"begin", graph_begin},   {"finish", graph_finish}, {"revise", graph_revise},
    {"replay", graph_replay}, {"close", graph_close},   {"inputs", graph_inputs},
    {"fill", graph_fill},     {"own", graph_own},       {"advance", graph_advance},
    {"leaves", graph_leaves}, {NULL, NULL},
};
static const struct ah_class graph_class = {"accelhost.graph", graph_methods, NULL, graph_close};

int ah_open_graph(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"new", graph_new}, {"gradients", graph_gradients}, {NULL, NULL}};
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
