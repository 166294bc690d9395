/* accelhost._C.autograd: gradient mode, backward, grad, hooks, and nodes whose rule is a Lua function. */
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "bind/bind.h"
#include "bind/handle.h"

/* The state that entered the engine last: callbacks run there. Set for the time of each entry. */
static lua_State *entered;
/* A coroutine kept for good, for luaL_unref: the one that made a callback may be gone before it. */
static lua_State *keeper;

struct lua_callback {
    int function;
};

static int begin_options(lua_State *L, int index, struct ah_backward_options *options)
{
    static const char *const known[] = {"gradient",     "grad_outputs", "retain_graph",
                                        "create_graph", "allow_unused", NULL};
    ah_check_options(L, index, "backward", known);
    options->create_graph = ah_opt_flag(L, index, "create_graph", false);
    options->retain_graph = ah_opt_flag(L, index, "retain_graph", options->create_graph);
    options->allow_unused = ah_opt_flag(L, index, "allow_unused", false);
    return 0;
}

/* Tensors of the value at `index` (one tensor or a Lua array; false stands for an absent one) in memory owned by Lua,
 * left on the stack. */
static struct ah_tensor **check_tensors(lua_State *L, int index, int *count, bool absent_ok)
{
    bool single = !lua_istable(L, index);
    *count = single ? 1 : (int)lua_objlen(L, index);
    struct ah_tensor **list = lua_newuserdata(L, (size_t)(*count ? *count : 1) * sizeof *list);
    for (int i = 0; i < *count; i++) {
        if (single)
            lua_pushvalue(L, index);
        else
            lua_rawgeti(L, index, i + 1);
        bool absent = absent_ok && !lua_toboolean(L, -1);
        list[i] = absent ? NULL : ah_check_tensor(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return list;
}

static struct ah_tensor **opt_grads(lua_State *L, int index, int expected)
{
    int count;
    if (lua_isnoneornil(L, index))
        return NULL;
    struct ah_tensor **grads = check_tensors(L, index, &count, true);
    if (count != expected)
        ah_raise_text(L, "backward: expected %d gradients, got %d", expected, count);
    return grads;
}

/* backward(tensors, gradients, options) */
static int backward(lua_State *L)
{
    int count;
    struct ah_backward_options options = {0};
    lua_settop(L, 3);
    if (lua_istable(L, 2) && lua_isnil(L, 3) && lua_objlen(L, 2) == 0) {
        lua_replace(L, 3); /* backward(loss, {retain_graph = true}) */
        lua_pushnil(L);
        lua_insert(L, 2);
        lua_settop(L, 3);
    }
    begin_options(L, 3, &options);
    if (lua_isnil(L, 2) && lua_istable(L, 3)) {
        lua_getfield(L, 3, "gradient");
        lua_replace(L, 2);
    }
    struct ah_tensor **roots = check_tensors(L, 1, &count, false);
    struct ah_tensor **grads = opt_grads(L, 2, count);
    /* Now, not afterwards: the handles of intermediate results are dead already, and without them each result goes
     * as soon as its node is through. */
    ah_collect_if_due(L, AH_COLLECT_STEP);
    lua_State *outer = entered;
    entered = L;
    int status = ah_backward(roots, grads, count, &options);
    entered = outer;
    ah_check(L, status);
    return 0;
}

/* grad(outputs, inputs, options) -> array of gradients (false where unused and allow_unused) */
static int grad(lua_State *L)
{
    int count, input_count;
    struct ah_backward_options options = {0};
    lua_settop(L, 3);
    begin_options(L, 3, &options);
    if (lua_istable(L, 3))
        lua_getfield(L, 3, "grad_outputs");
    else
        lua_pushnil(L);
    struct ah_tensor **roots = check_tensors(L, 1, &count, false);
    struct ah_tensor **inputs = check_tensors(L, 2, &input_count, false);
    struct ah_tensor **grads = opt_grads(L, 4, count);
    struct ah_tensor **out = lua_newuserdata(L, (size_t)(input_count ? input_count : 1) * sizeof *out);
    ah_collect_if_due(L, AH_COLLECT_STEP); /* before, as in backward */
    lua_State *outer = entered;
    entered = L;
    int status = ah_gradients(roots, grads, count, inputs, input_count, out, &options);
    entered = outer;
    ah_check(L, status);
    lua_createtable(L, input_count, 0);
    for (int i = 0; i < input_count; i++) {
        if (out[i])
            ah_push_tensor(L, out[i]);
        else
            lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Lua callbacks. */

static struct lua_callback *callback_new(lua_State *L, int index)
{
    luaL_checktype(L, index, LUA_TFUNCTION);
    struct lua_callback *callback = malloc(sizeof *callback);
    if (!callback)
        luaL_error(L, "out of memory");
    lua_pushvalue(L, index);
    callback->function = luaL_ref(L, LUA_REGISTRYINDEX);
    return callback;
}

static void callback_free(struct lua_callback *callback)
{
    luaL_unref(keeper, LUA_REGISTRYINDEX, callback->function);
    free(callback);
}

static int call_hook(struct ah_hook *hook, struct ah_tensor **gradient)
{
    struct lua_callback *callback = hook->context;
    lua_State *L = entered;
    lua_rawgeti(L, LUA_REGISTRYINDEX, callback->function);
    ah_push_shared_tensor(L, *gradient);
    if (lua_pcall(L, 1, 1, 0))
        return AH_ELUA;
    if (!lua_isnil(L, -1)) {
        struct ah_tensor *replaced = ah_to_tensor(L, -1);
        if (!replaced || !ah_same_shape(replaced, *gradient)) {
            lua_pop(L, 1);
            return ah_fail(AH_EINVAL, "hook: expected nil or a gradient of shape %s", ah_shape(*gradient));
        }
        ah_tensor_retain(replaced);
        ah_tensor_release(*gradient);
        *gradient = replaced;
    }
    lua_pop(L, 1);
    return 0;
}

static void free_hook(struct ah_hook *hook)
{
    callback_free(hook->context);
    free(hook);
}

/* register_hook(t, fn) -> id; fn(grad) may return a replacement */
static int register_hook(lua_State *L)
{
    static int next_id;
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    struct lua_callback *callback = callback_new(L, 2);
    struct ah_hook *hook = calloc(1, sizeof *hook);
    if (!hook) {
        callback_free(callback);
        return luaL_error(L, "out of memory");
    }
    hook->id = ++next_id;
    hook->call = call_hook;
    hook->free = free_hook;
    hook->context = callback;
    int id = hook->id;
    ah_check(L, ah_add_hook(tensor, hook));
    lua_pushinteger(L, id);
    return 1;
}

static int remove_hook(lua_State *L)
{
    ah_remove_hook(ah_check_tensor(L, 1), (int)luaL_checkinteger(L, 2));
    return 0;
}

static int retain_grad(lua_State *L)
{
    ah_check(L, ah_retain_grad(ah_check_tensor(L, 1)));
    lua_settop(L, 1);
    return 1;
}

static int run_custom(struct ah_node *node, struct ah_rule *rule)
{
    struct lua_callback *callback = node->context;
    lua_State *L = entered;
    int base = lua_gettop(L);
    if (!lua_checkstack(L, rule->output_count + rule->input_count + 8))
        return ah_fail(AH_ENOMEM, "out of Lua stack");
    lua_rawgeti(L, LUA_REGISTRYINDEX, callback->function);
    for (int k = 0; k < rule->output_count; k++) {
        if (rule->grad_out[k]) {
            ah_push_shared_tensor(L, rule->grad_out[k]);
        } else {
            struct ah_tensor *zeros;
            AH_TRY(ah_tensor_zeros(&zeros, node->output[k].size, node->output[k].ndim, node->output[k].dtype,
                                   node->output[k].device));
            ah_push_tensor(L, zeros);
        }
    }
    if (lua_pcall(L, rule->output_count, LUA_MULTRET, 0))
        return AH_ELUA;
    int returned = lua_gettop(L) - base;
    for (int i = 0; i < rule->input_count; i++) {
        if (!rule->needs[i] || i >= returned || lua_isnil(L, base + 1 + i))
            continue;
        struct ah_tensor *gradient = ah_to_tensor(L, base + 1 + i);
        if (!gradient) {
            const char *got = luaL_typename(L, base + 1 + i);
            lua_settop(L, base);
            return ah_fail(AH_EINVAL, "backward of %s: gradient %d must be a tensor or nil, got %s", ah_node_name(node),
                           i + 1, got);
        }
        rule->grad_in[i] = ah_rule_keep(rule, ah_tensor_retain(gradient));
    }
    lua_settop(L, base);
    return 0;
}

/* Dropped as soon as backward consumed the node: what the function saved may hold the node's own results. */
static void free_custom(struct ah_node *node)
{
    if (node->context)
        callback_free(node->context);
    node->context = NULL;
}

static const struct ah_node_class function_class = {
    .name = "function", .run = run_custom, .drop_saved = free_custom, .free = free_custom};
static const struct ah_node_class checkpoint_class = {
    .name = "checkpoint", .run = run_custom, .drop_saved = free_custom, .free = free_custom, .reenters = true};

/* record(backward, inputs, outputs, reenters): make outputs the results of a node whose rule is the Lua function
 * backward(grad_output...) -> grad_input... */
static int record(lua_State *L)
{
    int input_count, output_count;
    lua_settop(L, 4);
    struct ah_tensor **inputs = check_tensors(L, 2, &input_count, false);
    struct ah_tensor **outputs = check_tensors(L, 3, &output_count, false);
    bool reenters = lua_toboolean(L, 4);
    struct lua_callback *callback = callback_new(L, 1);
    ah_check(L, ah_record_custom(reenters ? &checkpoint_class : &function_class, callback, inputs, input_count, outputs,
                                 output_count));
    return 0;
}

static int set_grad_enabled(lua_State *L)
{
    lua_pushboolean(L, ah_grad_enabled);
    ah_grad_enabled = lua_toboolean(L, 1);
    return 1;
}

static int is_grad_enabled(lua_State *L)
{
    lua_pushboolean(L, ah_grad_enabled);
    return 1;
}

static int call_with_mode(lua_State *L, bool mode)
{
    bool callable = lua_isfunction(L, 1);
    if (!callable && luaL_getmetafield(L, 1, "__call")) { /* a module, for example */
        lua_pop(L, 1);
        callable = true;
    }
    if (!callable)
        return ah_raise_text(L, "%s: expected a function to run, got %s", mode ? "enable_grad" : "no_grad",
                             lua_isnone(L, 1) ? "nothing" : luaL_typename(L, 1));
    bool before = ah_grad_enabled;
    ah_grad_enabled = mode;
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    ah_grad_enabled = before;
    return status ? lua_error(L) : lua_gettop(L);
}

/* no_grad(fn, ...): what fn returns; the mode is restored also when fn raises */
static int no_grad(lua_State *L)
{
    return call_with_mode(L, false);
}

static int enable_grad(lua_State *L)
{
    return call_with_mode(L, true);
}

int ah_open_autograd(lua_State *L)
{
    static const luaL_Reg list[] = {
        {"backward", backward},
        {"grad", grad},
        {"register_hook", register_hook},
        {"remove_hook", remove_hook},
        {"retain_grad", retain_grad},
        {"record", record},
        {"no_grad", no_grad},
        {"enable_grad", enable_grad},
        {"set_grad_enabled", set_grad_enabled},
        {"is_grad_enabled", is_grad_enabled},
        {NULL, NULL},
    };
    keeper = lua_newthread(L);
    luaL_ref(L, LUA_REGISTRYINDEX);
    lua_newtable(L);
    luaL_register(L, NULL, list);
    ah_push_methods(L);
    lua_pushcfunction(L, backward);
    lua_setfield(L, -2, "backward");
    lua_pushcfunction(L, retain_grad);
    lua_setfield(L, -2, "retain_grad");
    lua_pop(L, 1);
    return 1;
}
