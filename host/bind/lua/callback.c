/* A function of the script is held by a reference in the registry for as long as its hook or node lives, and is called
 * on the state that is inside C at that moment. Invariant: no Lua error passes through the engine; it is returned as
 * AH_ELUA, with its value on the stack. */
#include "bind/lua/callback.h"

#include <stdlib.h>

#include "autograd/engine/engine.h"
#include "base/status/status.h"
#include "bind/lua/class.h"
#include "bind/lua/handle.h"

/* Of each state, in its registry: a coroutine kept for good. */
static char keeper_key;

struct lua_callback {
    lua_State *keeper; /* for luaL_unref: the coroutine that made the callback may be collected before it */
    int function;
};

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

static const struct ah_class hook_class;
AH_CLASS_CLOSER(collect_hook, hook_class, struct ah_hook, ah_hook_release)

static const struct ah_class hook_class = {.name = "accelhost.hook", .collect = collect_hook};

/* register_hook(t, fn) -> handle; fn(grad) may return a replacement */
static int register_hook(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    struct ah_hook **handle = ah_class_new(L, &hook_class, sizeof *handle);
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

/* remove_hook(handle): off its tensor; again is nothing */
static int remove_hook(lua_State *L)
{
    struct ah_hook **handle = ah_class_check(L, 1, &hook_class);
    if (*handle)
        ah_remove_hook(*handle);
    return 0;
}

int ah_lua_retain_grad(lua_State *L)
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

/* Free the function as soon as backward has consumed the node: its saved values may hold the node's own results. */
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
static int callback_record(lua_State *L)
{
    int input_count, output_count;
    lua_settop(L, 3);
    struct ah_tensor **inputs = ah_check_tensors(L, 2, &input_count, false, "record");
    struct ah_tensor **outputs = ah_check_tensors(L, 3, &output_count, false, "record");
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
        return ah_fail(AH_ESTATE, "checkpoint: the second run returned other results than the first");
    *count = 0;
    for (int k = 0; k < rule->output_count; k++) {
        if (!rule->grad_out[k])
            continue;
        lua_rawgeti(L, -1, k + 1);
        struct ah_tensor *root = ah_to_tensor(L, -1);
        lua_pop(L, 1);
        if (!root || !ah_requires_grad(root) || !ah_same_shape(root, rule->grad_out[k]))
            return ah_fail(AH_ESTATE, "checkpoint: result %d of the second run differs from that of the first run",
                           k + 1);
        roots[*count] = root;
        grads[(*count)++] = rule->grad_out[k];
    }
    return 0;
}

/* Run the function again, this time keeping its graph, and compute the gradients of its results at the edges where the
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
    ah_collect_if_due(L, AH_COLLECT_STEP); /* before, as in backward */
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
AH_LUA_VALUE(next_sequence, lua_pushnumber, (lua_Number)ah_next_sequence())

/* record_checkpoint(again, outputs, mark): drop the graph of `outputs` since the mark; again() -> outputs computes them
 * again when their gradients are wanted. */
static int record_checkpoint(lua_State *L)
{
    int output_count;
    bool recorded;
    lua_settop(L, 3);
    struct ah_tensor **outputs = ah_check_tensors(L, 2, &output_count, false, "record");
    struct lua_callback *callback = callback_new(L, 1);
    int status = ah_record_segment(&checkpoint_class, callback, (uint64_t)luaL_checknumber(L, 3), outputs,
                                   output_count, &recorded);
    if (status < 0 || !recorded)
        callback_free(callback);
    ah_check(L, status);
    ah_collect_if_due(L, AH_COLLECT_STEP); /* dropped tensors still have handles */
    return 0;
}

void ah_open_callbacks(lua_State *L)
{
    static const luaL_Reg list[] = {
        {"register_hook", register_hook},
        {"remove_hook", remove_hook},
        {"retain_grad", ah_lua_retain_grad},
        {"record", callback_record},
        {"next_sequence", next_sequence},
        {"record_checkpoint", record_checkpoint},
        {NULL, NULL},
    };
    luaL_register(L, NULL, list);
    lua_pushlightuserdata(L, &keeper_key);
    lua_newthread(L);
    lua_rawset(L, LUA_REGISTRYINDEX);
}
