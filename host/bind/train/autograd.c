/* accelhost._C.autograd: gradient mode, backward, grad; callback.c adds hooks and nodes with a rule in Lua. */
#include <math.h>
#include <stdlib.h>

#include "autograd/engine/engine.h"
#include "autograd/graph/anomaly.h"
#include "base/memory/array.h"
#include "base/trace/counters.h"
#include "bind/lua/callback.h"
#include "bind/lua/function.h"
#include "bind/lua/handle.h"

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

struct ah_tensor **ah_check_tensors(lua_State *L, int index, int *count, bool absent_ok, const char *what)
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
    struct ah_tensor **grads = ah_check_tensors(L, index, &count, true, what);
    if (count != expected)
        ah_raise_text(L, "%s: expected %d of them, one per output, got %d", what, expected, count);
    return grads;
}

/* watch_backward(before, after, failed): set the functions that are called around each backward that Lua starts, but
 * for those within another one: before(roots), then after(), or failed() when the engine failed. One set for the
 * process. */
enum { BEFORE = 1, AFTER, FAILED };
static int autograd_watchers;

static int watch_backward(lua_State *L)
{
    lua_pushlightuserdata(L, &autograd_watchers);
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
static bool notify_watcher(lua_State *L, int which)
{
    lua_pushlightuserdata(L, &autograd_watchers);
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
    struct ah_tensor **roots = ah_check_tensors(L, 1, &count, false, "prepared_leaves");
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

/* Publish a backward for readers outside of the process: its line, and its loss where reading that waits for no
 * device. */
static void show_backward(lua_State *L, struct ah_tensor *const *roots, int count)
{
    const struct ah_tensor *loss = count == 1 && roots[0]->numel == 1 ? roots[0] : NULL;
    ah_counters_begin_backward(ah_call_site(L),
                               loss && loss->storage->device == &ah_cpu ? ah_tensor_get(loss, 0) : NAN);
}

/* backward(tensors, gradients, options) */
static int autograd_backward(lua_State *L)
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
    struct ah_tensor **roots = ah_check_tensors(L, 1, &count, false, "backward: tensors");
    struct ah_tensor **grads = opt_grads(L, 2, count, "backward: gradient");
    /* Now, not afterwards: the handles of intermediate results are dead already, and without them each result is freed
     * as soon as its node has completed. */
    ah_collect_if_due(L, AH_COLLECT_STEP);
    bool outermost = !ah_entered(), watched = outermost && notify_watcher(L, BEFORE);
    if (outermost)
        show_backward(L, roots, count);
    lua_State *outer = ah_enter(L);
    int status = ah_backward(roots, grads, count, &options);
    ah_leave(outer);
    if (outermost)
        ah_counters_end_backward();
    if (status < 0 && watched) {
        /* The error to raise stays on the stack: the watcher may fail in C meanwhile. */
        if (status != AH_ELUA)
            lua_pushstring(L, ah_error_text());
        notify_watcher(L, FAILED);
        return status == AH_ELUA ? lua_error(L) : ah_raise_top(L);
    }
    ah_check(L, status);
    if (watched)
        notify_watcher(L, AFTER);
    return 0;
}

/* grad(outputs, inputs, options) -> array of gradients (false where unused and allow_unused) */
static int autograd_grad(lua_State *L)
{
    int count, input_count;
    struct ah_backward_options options = {0};
    lua_settop(L, 3);
    begin_options(L, 3, &options);
    if (lua_istable(L, 3))
        lua_getfield(L, 3, "grad_outputs");
    else
        lua_pushnil(L);
    struct ah_tensor **roots = ah_check_tensors(L, 1, &count, false, "grad: outputs");
    struct ah_tensor **inputs = ah_check_tensors(L, 2, &input_count, false, "grad: inputs");
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

AH_LUA_VALUE(is_grad_enabled, lua_pushboolean, ah_grad_enabled)

static const char *site_of_op(void)
{
    lua_State *L = ah_entered();
    return L ? ah_call_site(L) : "?";
}

/* set_detect_anomaly(mode, check_nan) -> the earlier values of both */
static int set_detect_anomaly(lua_State *L)
{
    lua_pushboolean(L, ah_anomaly.on);
    lua_pushboolean(L, ah_anomaly.check_nan);
    ah_anomaly = (struct ah_anomaly){
        .on = lua_toboolean(L, 1), .check_nan = lua_toboolean(L, 2), .site = site_of_op};
    return 2;
}

static int call_with_mode(lua_State *L, bool mode, const char *name)
{
    bool callable = lua_isfunction(L, 1);
    if (!callable && luaL_getmetafield(L, 1, "__call")) { /* a module, for example */
        lua_pop(L, 1);
        callable = true;
    }
    if (!callable)
        return ah_raise_text(L, "%s: expected a function to run, got %s", name,
                             lua_isnone(L, 1) ? "nothing" : luaL_typename(L, 1));
    bool before = ah_grad_switch(mode);
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    ah_grad_switch(before);
    return status ? lua_error(L) : lua_gettop(L);
}

/* no_grad(fn, ...): the results of fn; the mode is restored also when fn raises */
static int no_grad(lua_State *L)
{
    return call_with_mode(L, false, "no_grad");
}

static int enable_grad(lua_State *L)
{
    return call_with_mode(L, true, "enable_grad");
}

/* set_grad_enabled(mode) -> the earlier mode; set_grad_enabled(mode, fn, ...): the results of fn, in that mode */
static int set_grad_enabled(lua_State *L)
{
    if (lua_istable(L, 1)) { /* {mode = true} */
        lua_getfield(L, 1, "mode");
        lua_replace(L, 1);
    }
    if (!lua_isboolean(L, 1))
        return ah_raise_text(L, "set_grad_enabled: mode: expected true or false, got %s", ah_value_text(L, 1));
    bool mode = lua_toboolean(L, 1);
    if (lua_gettop(L) > 1) {
        lua_remove(L, 1);
        return call_with_mode(L, mode, "set_grad_enabled");
    }
    lua_pushboolean(L, ah_grad_switch(mode));
    return 1;
}

/* t:detach_(): a leaf without history from now on */
static int autograd_detach(lua_State *L)
{
    ah_detach(ah_check_tensor(L, 1));
    lua_settop(L, 1);
    return 1;
}

static const struct ah_function autograd_functions[] = {
    /* Add the gradients of several tensors at once to the `grad` of their leaves: a tensor or a table of them, with
     * a table of gradients for those of more than one element. options = {retain_graph =, create_graph =}.
     *     accelhost.autograd.backward({loss, w:sum()})
     *     w.grad  --> tensor([3., 5., 7.]) */
    {"backward", autograd_backward, "tensors:*, gradients:*?, options:*?"},
    {"set_detect_anomaly", set_detect_anomaly, "mode:b, check_nan:b"},
    /* Are gradients recorded now?
     *     accelhost.is_grad_enabled()  --> true
     * @return boolean */
    {"is_grad_enabled", is_grad_enabled, ""},
    {NULL, NULL, NULL},
};

static const struct ah_function autograd_methods[] = {
    /* Add the gradients of this tensor (one element, or with `gradient` of its shape) to the `grad` of the leaves
     * that it was made from. options = {gradient =, retain_graph =, create_graph =}: keep the history for another
     * backward, record the gradients themselves.
     *     loss:backward()
     *     w.grad  --> tensor([2., 4., 6.]) */
    {"backward", autograd_backward, "input:T, gradient:*?, options:*?"},
    /* Keep the gradient of a tensor that is no leaf: its `grad` is set by backward.
     *     local twice = w * 2
     *     twice:retain_grad()
     *     twice:sum():backward()
     *     twice.grad  --> tensor([1., 1., 1.]) */
    {"retain_grad", ah_lua_retain_grad, "input:T"},
    /* Detach the tensor from its history, in place: it is a leaf from now on. Returns the tensor.
     *     loss:detach_().requires_grad  --> false
     * @return Tensor */
    {"detach_", autograd_detach, "input:T"},
    {NULL, NULL, NULL},
};

static const luaL_Reg autograd_list[] = {
    {"watch_backward", watch_backward},
    {"prepared_leaves", prepared_leaves},
    {"grad", autograd_grad},
    /* Run fn without recording gradients, and return its results; the mode is restored also after an error.
     *     accelhost.no_grad(function() return w * 2 end).requires_grad  --> false
     * @param fn function
     * @param ... any its arguments
     * @return any ... the results of fn */
    {"no_grad", no_grad},
    /* Run fn recording gradients, also within no_grad, and return its results.
     *     accelhost.enable_grad(function() return w * 2 end).requires_grad  --> true
     * @param fn function
     * @param ... any its arguments
     * @return any ... the results of fn */
    {"enable_grad", enable_grad},
    /* Record gradients from now on, or not, and return whether they were; with a function, only while it runs, and
     * return its results: PyTorch's `with torch.set_grad_enabled(training):`.
     *     accelhost.set_grad_enabled(true)
     *     accelhost.set_grad_enabled(false, function() return w * 2 end).requires_grad  --> false
     * @param mode boolean
     * @param fn? function
     * @param ... any its arguments
     * @return any ... */
    {"set_grad_enabled", set_grad_enabled},
    {NULL, NULL},
};

int ah_open_autograd(lua_State *L)
{
    lua_newtable(L);
    luaL_register(L, NULL, autograd_list);
    ah_open_callbacks(L);
    ah_set_functions(L, lua_gettop(L), autograd_functions);
    ah_push_methods(L);
    ah_set_methods(L, lua_gettop(L), autograd_methods);
    lua_pop(L, 1);
    return 1;
}
