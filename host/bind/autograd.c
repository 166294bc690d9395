/* accelhost._C.autograd: gradient mode, backward, grad, hooks, and nodes whose rule is a Lua function. */
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "base/array.h"
#include "bind/bind.h"
#include "bind/function.h"
#include "bind/handle.h"

/* Of each state, in its registry: a coroutine kept for good. */
static char keeper_key;

struct lua_callback {
    lua_State *keeper; /* for luaL_unref: the coroutine that made the callback may be gone before it */
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
static struct ah_tensor **check_tensors(lua_State *L, int index, int *count, bool absent_ok, const char *what)
{
    bool single = !lua_istable(L, index);
    *count = single ? 1 : ah_check_array(L, index, what, false);
    struct ah_tensor **list = lua_newuserdata(L, (size_t)(*count ? *count : 1) * sizeof *list);
    for (int i = 0; i < *count; i++) {
        if (single)
            lua_pushvalue(L, index);
        else
            lua_rawgeti(L, index, i + 1);
        bool absent = absent_ok && !lua_toboolean(L, -1);
        list[i] = absent ? NULL : ah_to_tensor(L, -1);
        if (!absent && !list[i])
            ah_raise_text(L, "%s: expected a tensor or a table of tensors, got %s%s", what, ah_value_text(L, -1),
                          single ? "" : " in the table");
        lua_pop(L, 1);
    }
    return list;
}

static struct ah_tensor **opt_grads(lua_State *L, int index, int expected, const char *what)
{
    int count;
    if (lua_isnoneornil(L, index))
        return NULL;
    struct ah_tensor **grads = check_tensors(L, index, &count, true, what);
    if (count != expected)
        ah_raise_text(L, "%s: expected %d of them, one per output, got %d", what, expected, count);
    return grads;
}

/* watch_backward(before, after, failed): what is called around each backward that Lua starts, but for those within
 * another one: before(roots), then after(), or failed() when the engine failed. One set for the process. */
enum { BEFORE = 1, AFTER, FAILED };
static int watchers;

static int watch_backward(lua_State *L)
{
    lua_pushlightuserdata(L, &watchers);
    lua_createtable(L, FAILED, 0);
    for (int i = BEFORE; i <= FAILED; i++) {
        luaL_checktype(L, i, LUA_TFUNCTION);
        lua_pushvalue(L, i);
        lua_rawseti(L, -2, i);
    }
    lua_rawset(L, LUA_REGISTRYINDEX);
    return 0;
}

/* Call one of the functions; false when there is none. */
static bool tell_watcher(lua_State *L, int which)
{
    lua_pushlightuserdata(L, &watchers);
    lua_rawget(L, LUA_REGISTRYINDEX);
    if (!lua_istable(L, -1)) {
        lua_pop(L, 1);
        return false;
    }
    lua_rawgeti(L, -1, which);
    if (which == BEFORE)
        lua_pushvalue(L, 1);
    lua_call(L, which == BEFORE ? 1 : 0, 0);
    lua_pop(L, 1);
    return true;
}

struct leaves {
    struct ah_tensor **leaf;
    int count, status;
    size_t room;
};

static void keep_prepared(void *context, struct ah_tensor *leaf)
{
    struct leaves *leaves = context;
    if (!leaf->grad || !leaf->grad->slot || leaves->status < 0)
        return;
    leaves->status = ah_grow(&leaves->leaf, (size_t)leaves->count + 1, &leaves->room, sizeof *leaves->leaf);
    if (leaves->status == 0)
        leaves->leaf[leaves->count++] = ah_tensor_retain(leaf);
}

/* prepared_leaves(tensors): an array of the prepared parameters that a backward from these would reach. */
static int prepared_leaves(lua_State *L)
{
    int count;
    struct ah_tensor **roots = check_tensors(L, 1, &count, false, "prepared_leaves");
    struct leaves leaves = {0};
    int status = ah_backward_leaves(roots, count, keep_prepared, &leaves);
    if (status == 0)
        status = leaves.status;
    lua_createtable(L, leaves.count, 0);
    for (int i = 0; i < leaves.count; i++) {
        ah_push_shared_tensor(L, leaves.leaf[i]);
        lua_rawseti(L, -2, i + 1);
        ah_tensor_release(leaves.leaf[i]);
    }
    free(leaves.leaf);
    ah_check(L, status);
    return 1;
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
    struct ah_tensor **roots = check_tensors(L, 1, &count, false, "backward: tensors");
    struct ah_tensor **grads = opt_grads(L, 2, count, "backward: gradient");
    /* Now, not afterwards: the handles of intermediate results are dead already, and without them each result goes
     * as soon as its node is through. */
    ah_collect_if_due(L, AH_COLLECT_STEP);
    bool watched = !ah_entered() && tell_watcher(L, BEFORE);
    lua_State *outer = ah_enter(L);
    int status = ah_backward(roots, grads, count, &options);
    ah_leave(outer);
    if (status < 0 && watched) {
        /* What is to be raised stays on the stack: the watcher may fail in C meanwhile. */
        if (status != AH_ELUA)
            lua_pushstring(L, ah_error_text());
        tell_watcher(L, FAILED);
        return status == AH_ELUA ? lua_error(L) : ah_raise_top(L);
    }
    ah_check(L, status);
    if (watched)
        tell_watcher(L, AFTER);
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
    struct ah_tensor **roots = check_tensors(L, 1, &count, false, "grad: outputs");
    struct ah_tensor **inputs = check_tensors(L, 2, &input_count, false, "grad: inputs");
    struct ah_tensor **grads = opt_grads(L, 4, count, "grad: grad_outputs");
    if (input_count == 0)
        return ah_raise_text(L, "grad: expected at least one input");
    struct ah_tensor **out = lua_newuserdata(L, (size_t)input_count * sizeof *out);
    ah_collect_if_due(L, AH_COLLECT_STEP); /* before, as in backward */
    lua_State *outer = ah_enter(L);
    int status = ah_gradients(roots, grads, count, inputs, input_count, out, &options);
    ah_leave(outer);
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
        ah_raise_text(L, "out of memory");
    lua_pushlightuserdata(L, &keeper_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    callback->keeper = lua_tothread(L, -1);
    lua_pop(L, 1);
    lua_pushvalue(L, index);
    callback->function = luaL_ref(L, LUA_REGISTRYINDEX);
    return callback;
}

static void callback_free(struct lua_callback *callback)
{
    luaL_unref(callback->keeper, LUA_REGISTRYINDEX, callback->function);
    free(callback);
}

/* Call the function below `arguments` values on the stack of the state that is inside C; `results` as in lua_pcall. */
static int call_lua(lua_State *L, int arguments, int results)
{
    lua_State *outer = ah_enter(NULL); /* Lua runs now */
    int failed = lua_pcall(L, arguments, results, 0);
    ah_leave(outer);
    return failed ? AH_ELUA : 0;
}

static int call_hook(struct ah_hook *hook, struct ah_tensor **gradient)
{
    struct lua_callback *callback = hook->context;
    lua_State *L = ah_entered();
    if (!lua_checkstack(L, 4))
        return ah_fail(AH_ENOMEM, "out of Lua stack");
    lua_rawgeti(L, LUA_REGISTRYINDEX, callback->function);
    ah_push_shared_tensor(L, *gradient);
    AH_TRY(call_lua(L, 1, 1));
    if (!lua_isnil(L, -1)) {
        struct ah_tensor *replaced = ah_to_tensor(L, -1);
        if (!replaced || !ah_same_shape(replaced, *gradient) || replaced->dtype != (*gradient)->dtype) {
            const char *got = replaced ? ah_dtype_name(replaced->dtype) : luaL_typename(L, -1);
            ah_fail(AH_EINVAL, "hook: expected nil or a %s gradient of shape %s, got %s %s",
                    ah_dtype_name((*gradient)->dtype), ah_shape(*gradient), got, replaced ? ah_shape(replaced) : "");
            lua_pop(L, 1);
            return AH_EINVAL;
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

static const char hook_type[] = "accelhost.hook";

/* register_hook(t, fn) -> handle; fn(grad) may return a replacement */
static int register_hook(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    struct ah_hook **handle = lua_newuserdata(L, sizeof(struct ah_hook *));
    *handle = NULL;
    luaL_getmetatable(L, hook_type);
    lua_setmetatable(L, -2);
    struct ah_hook *hook = calloc(1, sizeof *hook);
    if (!hook)
        return ah_raise_text(L, "out of memory");
    hook->refs = 1;
    hook->call = call_hook;
    hook->free = free_hook;
    hook->context = callback_new(L, 2);
    *handle = hook;
    ah_check(L, ah_add_hook(tensor, hook));
    return 1;
}

static int collect_hook(lua_State *L)
{
    struct ah_hook **handle = lua_touserdata(L, 1);
    ah_hook_release(*handle);
    *handle = NULL;
    return 0;
}

/* remove_hook(handle): off its tensor; again is nothing */
static int remove_hook(lua_State *L)
{
    struct ah_hook **handle = luaL_checkudata(L, 1, hook_type);
    if (*handle)
        ah_remove_hook(*handle);
    return 0;
}

static int retain_grad(lua_State *L)
{
    ah_check(L, ah_retain_grad(ah_check_tensor(L, 1)));
    lua_settop(L, 1);
    return 1;
}

static int run_function(struct ah_node *node, struct ah_rule *rule)
{
    struct lua_callback *callback = node->context;
    lua_State *L = ah_entered();
    int base = lua_gettop(L);
    if (!lua_checkstack(L, rule->output_count + rule->input_count + 8))
        return ah_fail(AH_ENOMEM, "out of Lua stack");
    lua_rawgeti(L, LUA_REGISTRYINDEX, callback->function);
    for (int k = 0; k < rule->output_count; k++) {
        if (rule->grad_out[k]) {
            ah_push_shared_tensor(L, rule->grad_out[k]);
        } else {
            struct ah_tensor *zeros;
            const struct ah_input_meta *meta = &node->output[k];
            int status = ah_tensor_zeros(&zeros, meta->size, meta->ndim, meta->dtype, meta->device);
            if (status < 0) {
                lua_settop(L, base);
                return status;
            }
            ah_push_tensor(L, zeros);
        }
    }
    AH_TRY(call_lua(L, rule->output_count, LUA_MULTRET));
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
static void free_function(struct ah_node *node)
{
    if (node->context)
        callback_free(node->context);
    node->context = NULL;
}

static const struct ah_node_class function_class = {
    .name = "function", .run = run_function, .drop_saved = free_function, .free = free_function};

/* record(backward, inputs, outputs): make outputs the results of a node whose rule is the Lua function
 * backward(grad_output...) -> grad_input... */
static int record(lua_State *L)
{
    int input_count, output_count;
    lua_settop(L, 3);
    struct ah_tensor **inputs = check_tensors(L, 2, &input_count, false, "record");
    struct ah_tensor **outputs = check_tensors(L, 3, &output_count, false, "record");
    struct lua_callback *callback = callback_new(L, 1);
    int status = ah_record_custom(&function_class, callback, inputs, input_count, outputs, output_count);
    if (status < 0)
        callback_free(callback);
    ah_check(L, status);
    return 0;
}

/* The results of the second run whose gradients arrived, as roots; the Lua values stay on the stack meanwhile. */
static int collect_roots(lua_State *L, const struct ah_rule *rule, struct ah_tensor **roots, struct ah_tensor **grads,
                         int *count)
{
    if (!lua_istable(L, -1) || (int)lua_objlen(L, -1) != rule->output_count)
        return ah_fail(AH_ESTATE, "checkpoint: the second run gave other results than the first");
    *count = 0;
    for (int k = 0; k < rule->output_count; k++) {
        if (!rule->grad_out[k])
            continue;
        lua_rawgeti(L, -1, k + 1);
        struct ah_tensor *root = ah_to_tensor(L, -1);
        lua_pop(L, 1);
        if (!root || !ah_requires_grad(root) || !ah_same_shape(root, rule->grad_out[k]))
            return ah_fail(AH_ESTATE, "checkpoint: result %d of the second run is not what the first run gave", k + 1);
        roots[*count] = root;
        grads[(*count)++] = rule->grad_out[k];
    }
    return 0;
}

/* Run the function again, this time keeping its graph, and take the gradients of its results at the edges where the
 * graph of the first run ended. With create_graph the new graph stays behind the gradients. */
static int run_checkpoint(struct ah_node *node, struct ah_rule *rule)
{
    struct lua_callback *callback = node->context;
    lua_State *L = ah_entered();
    int base = lua_gettop(L), count = 0;
    struct ah_backward_options options = {.create_graph = ah_grad_enabled};
    if (!lua_checkstack(L, 4))
        return ah_fail(AH_ENOMEM, "out of Lua stack");
    uint64_t since = ah_next_sequence();
    lua_rawgeti(L, LUA_REGISTRYINDEX, callback->function);
    {
        AH_GRAD_SCOPE(true);
        AH_TRY(call_lua(L, 0, 1));
    }
    int status = 0;
    struct ah_tensor **list = malloc((2 * (size_t)rule->output_count + 1) * sizeof(struct ah_tensor *));
    if (!list)
        status = ah_fail(AH_ENOMEM, "out of memory");
    if (status == 0)
        status = collect_roots(L, rule, list, list + rule->output_count, &count);
    if (status == 0)
        status = ah_gradients_at(list, list + rule->output_count, count, node->edge, rule->input_count, since,
                                 rule->grad_in, &options);
    for (int i = 0; status == 0 && i < rule->input_count; i++)
        ah_rule_keep(rule, rule->grad_in[i]);
    free(list);
    lua_settop(L, base);
    return status;
}

static const struct ah_node_class checkpoint_class = {
    .name = "checkpoint", .run = run_checkpoint, .drop_saved = free_function, .free = free_function};

/* next_sequence() -> a mark for record_checkpoint */
static int next_sequence(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)ah_next_sequence());
    return 1;
}

/* record_checkpoint(again, outputs, mark): what made `outputs` since the mark is forgotten; again() -> outputs makes
 * them anew when their gradients are wanted. */
static int record_checkpoint(lua_State *L)
{
    int output_count;
    bool recorded;
    lua_settop(L, 3);
    struct ah_tensor **outputs = check_tensors(L, 2, &output_count, false, "record");
    struct lua_callback *callback = callback_new(L, 1);
    int status = ah_record_segment(&checkpoint_class, callback, (uint64_t)luaL_checknumber(L, 3), outputs,
                                   output_count, &recorded);
    if (status < 0 || !recorded)
        callback_free(callback);
    ah_check(L, status);
    return 0;
}

static int set_grad_enabled(lua_State *L)
{
    lua_pushboolean(L, ah_grad_switch(lua_toboolean(L, 1)));
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
    bool before = ah_grad_switch(mode);
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    ah_grad_switch(before);
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
    static const struct ah_function functions[] = {
        {"backward", backward, "tensors:*, gradients:*?, options:*?"},
        {"set_grad_enabled", set_grad_enabled, "mode:b"},
        {"is_grad_enabled", is_grad_enabled, ""},
        {NULL, NULL, NULL},
    };
    static const struct ah_function methods[] = {
        {"backward", backward, "input:T, gradient:*?, options:*?"},
        {"retain_grad", retain_grad, "input:T"},
        {NULL, NULL, NULL},
    };
    static const luaL_Reg list[] = {
        {"watch_backward", watch_backward},
        {"prepared_leaves", prepared_leaves},
        {"grad", grad},
        {"register_hook", register_hook},
        {"remove_hook", remove_hook},
        {"retain_grad", retain_grad},
        {"record", record},
        {"next_sequence", next_sequence},
        {"record_checkpoint", record_checkpoint},
        {"no_grad", no_grad},
        {"enable_grad", enable_grad},
        {NULL, NULL},
    };
    luaL_newmetatable(L, hook_type);
    lua_pushcfunction(L, collect_hook);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    lua_pushlightuserdata(L, &keeper_key);
    lua_newthread(L);
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_newtable(L);
    luaL_register(L, NULL, list);
    ah_set_functions(L, lua_gettop(L), functions);
    ah_push_methods(L);
    ah_set_methods(L, lua_gettop(L), methods);
    lua_pop(L, 1);
    return 1;
}
