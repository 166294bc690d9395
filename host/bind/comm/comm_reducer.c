/* The reducer in Lua, implemented in host/sync.
 *
 * begin(weight) finish() cancel() touched() stats() close()
 * set_hook(launch, finish)   functions of a launch position (from 0), instead of averaging
 * bucket_count()
 * bucket(launched)           its gradients as one tensor, gaps included
 * bucket_of(parameter)       the launch position of the bucket, and the gradient's slot; parameters count from 1
 * buffers_from(rank)         set the rank whose buffers are broadcast
 * replace_buffer(i, tensor)  a module has replaced buffer i by another tensor
 * parameters()    an array, in registration order
 * has_gradient()  does any parameter have one?
 * changed()       the first parameter (from 1) whose dtype or shape is no longer that of its slot, the old and the new
 *                 one as texts; or nil
 * Methods of shards are in comm_shard.c.
 * abandoned()     is every parameter without other references, or owned by another reducer? */
#include <string.h>

#include "autograd/graph/graph.h"
#include "base/status/status.h"
#include "bind/comm/comm.h"
#include "bind/lua/class.h"
#include "bind/lua/handle.h"
#include "io/mapping.h"
#include "sync/constants.h"
#include "sync/reducer.h"

static const struct ah_class reducer_class;

struct reducer {
    struct ah_reducer *reducer;
    int hooks; /* in the registry: {launch, finish}; 0: none */
};

struct ah_reducer *ah_check_reducer(lua_State *L)
{
    struct reducer *reducer = ah_class_check(L, 1, &reducer_class);
    if (!reducer->reducer)
        ah_raise_text(L, "the reducer was closed");
    return reducer->reducer;
}

/* Tensors of the array at `index`, each once, in memory owned by Lua (left on the stack). */
static struct ah_tensor **check_list(lua_State *L, int index, int *count)
{
    int n = lua_isnoneornil(L, index) ? 0 : (luaL_checktype(L, index, LUA_TTABLE), (int)lua_objlen(L, index));
    struct ah_tensor **list = lua_newuserdata(L, (size_t)(n + 1) * sizeof *list);
    *count = 0;
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, index, i + 1);
        struct ah_tensor *tensor = ah_check_tensor(L, lua_gettop(L));
        lua_pop(L, 1);
        bool known = false;
        for (int k = 0; k < *count && !known; k++)
            known = list[k] == tensor;
        if (!known)
            list[(*count)++] = tensor;
    }
    return list;
}

/* The field `sharding` of the table at `index`. */
static enum ah_sharding check_sharding(lua_State *L, int index)
{
    static const char *const known[] = {"none", "optimizer", "gradients", "full", NULL};
    if (lua_isnoneornil(L, index))
        return AH_SHARD_NONE;
    lua_getfield(L, index, "sharding");
    enum ah_sharding sharding = (enum ah_sharding)luaL_checkoption(L, -1, "none", known);
    lua_pop(L, 1);
    return sharding;
}

/* The field `units`, a number for each parameter, in memory owned by Lua (left on the stack); NULL without. */
static const int *check_units(lua_State *L, int index, int count)
{
    if (lua_isnoneornil(L, index))
        return NULL;
    lua_getfield(L, index, "units");
    if (lua_isnil(L, -1))
        return NULL;
    luaL_checktype(L, -1, LUA_TTABLE);
    if ((int)lua_objlen(L, -1) != count)
        ah_raise_text(L, "units: expected %d numbers, got %d", count, (int)lua_objlen(L, -1));
    int table = lua_gettop(L), *unit = lua_newuserdata(L, (size_t)(count + 1) * sizeof *unit);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, table, i + 1);
        unit[i] = (int)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    return unit;
}

int ah_comm_new_reducer(lua_State *L)
{
    static const char *const known[] = {"bucket_cap_mb", "group", "apart", "sharding", "units", NULL};
    int count, buffer_count;
    struct ah_reducer_options options = {.where = ah_call_site(L)};
    lua_settop(L, 3); /* values left on the stack below must not look like options */
    ah_check_options(L, 3, "new_reducer", known);
    double cap = ah_opt_number(L, 3, "bucket_cap_mb", 0);
    options.apart = ah_opt_flag(L, 3, "apart", false);
    options.bucket_bytes = (int64_t)(cap * (1 << 20));
    if (!(cap >= 0) || cap > 1e6)
        return ah_raise_text(L, "bucket_cap_mb: expected a size above 0, got %g", cap);
    struct ah_tensor **params = check_list(L, 1, &count);
    struct ah_tensor **buffers = check_list(L, 2, &buffer_count);
    options.sharding = check_sharding(L, 3);
    options.unit = check_units(L, 3, count);
    struct reducer *reducer = ah_class_new(L, &reducer_class, sizeof *reducer);
    struct ah_group *group = ah_comm_option_group(L, 3);
    ah_check(L, ah_reducer_new(&reducer->reducer, group, params, count, buffers, buffer_count, options));
    for (int i = 0; i < (int)lua_objlen(L, 1); i++) {
        lua_rawgeti(L, 1, i + 1);
        ah_share_handle(L, -1); /* parameters() returns it */
        lua_pop(L, 1);
    }
    return 1;
}

/* Is it worth sharing: dense, alone on its storage, on the CPU, and not in a mapped file, which ranks share? */
static bool is_own_constant(const struct ah_tensor *tensor)
{
    const struct ah_storage *storage = tensor->storage;
    return storage && storage->device == &ah_cpu && tensor->offset == 0 && !storage->contended &&
           storage->nbytes == ah_tensor_bytes(tensor) && ah_tensor_is_contiguous(tensor) &&
           !ah_mapping_is_mapped(tensor);
}

/* share_constants(tensors) -> were they moved to memory that the ranks of a host share? A collective. */
int ah_comm_share_constants(lua_State *L)
{
    int count, left = 0;
    bool shared = false;
    struct ah_group *group;
    struct ah_tensor **tensors = check_list(L, 1, &count);
    for (int i = 0; i < count; i++)
        if (is_own_constant(tensors[i]))
            tensors[left++] = tensors[i];
    ah_check(L, ah_group_default(&group));
    ah_check(L, ah_constants_share(tensors, left, group, ah_call_site(L), &shared));
    lua_pushboolean(L, shared);
    return 1;
}

static int reducer_begin(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    ah_check(L, ah_reducer_begin(r, luaL_optnumber(L, 2, 1), ah_call_site(L)));
    return 0;
}

static int reducer_finish(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    const char *where = ah_call_site(L);
    lua_State *outer = ah_enter(L);
    int status = ah_reducer_finish(r, where);
    ah_leave(outer);
    ah_check(L, status);
    return 0;
}

AH_LUA_VALUE(reducer_touched, lua_pushboolean, ah_reducer_touched(ah_check_reducer(L)))
AH_LUA_CALL(reducer_cancel, ah_reducer_cancel(ah_check_reducer(L)))

static int reducer_parameters(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    lua_createtable(L, ah_reducer_count(r), 0);
    for (int i = 0; i < ah_reducer_count(r); i++) {
        ah_push_shared_tensor(L, ah_reducer_param(r, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int reducer_has_gradient(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    bool any = false;
    for (int i = 0; i < ah_reducer_count(r) && !any; i++)
        any = *ah_reducer_has_grad(r, i);
    lua_pushboolean(L, any);
    return 1;
}

static int reducer_changed(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    for (int i = 0; i < ah_reducer_count(r); i++) {
        const struct ah_tensor *param = ah_reducer_param(r, i), *slot = ah_reducer_grad(r, i);
        if (param->dtype == slot->dtype && ah_same_shape(param, slot))
            continue;
        lua_pushinteger(L, i + 1);
        lua_pushfstring(L, "%s %s", ah_dtype_name(slot->dtype), ah_shape(slot));
        lua_pushfstring(L, "%s %s", ah_dtype_name(param->dtype), ah_shape(param));
        return 3;
    }
    return 0;
}

static int reducer_abandoned(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    bool held = false;
    for (int i = 0; i < ah_reducer_count(r) && !held; i++) {
        const struct ah_tensor *param = ah_reducer_param(r, i);
        held = param->refs > 1 && param->grad && param->grad->slot == ah_reducer_grad(r, i);
    }
    lua_pushboolean(L, !held);
    return 1;
}

static int reducer_stats(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    lua_createtable(L, 0, 4);
    ah_set_number(L, "rounds", ah_reducer_rounds(r));
    ah_set_number(L, "backward_begin_ns", (double)ah_reducer_backward_begin(r));
    ah_set_number(L, "backward_end_ns", (double)ah_reducer_backward_end(r));
    lua_createtable(L, ah_reducer_buckets(r), 0);
    for (int b = 0; b < ah_reducer_buckets(r); b++) {
        struct ah_bucket_times times = ah_reducer_times(r, b);
        lua_createtable(L, 0, 5);
        ah_set_number(L, "bytes", (double)times.bytes);
        ah_set_number(L, "parameters", times.count);
        ah_set_number(L, "ready_ns", (double)times.ready_ns);
        ah_set_number(L, "issued_ns", (double)times.issued_ns);
        ah_set_number(L, "reduced_ns", (double)times.reduced_ns);
        lua_rawseti(L, -2, b + 1);
    }
    lua_setfield(L, -2, "buckets");
    return 1;
}

/* Hooks. */

static int call_hook(struct reducer *reducer, int launched, int which)
{
    lua_State *L = ah_entered();
    if (!L || !lua_checkstack(L, 4))
        return ah_fail(AH_ESTATE, "a communication hook cannot run here");
    lua_rawgeti(L, LUA_REGISTRYINDEX, reducer->hooks);
    lua_rawgeti(L, -1, which);
    lua_remove(L, -2);
    lua_pushinteger(L, launched);
    lua_State *outer = ah_enter(NULL); /* Lua runs now */
    int failed = lua_pcall(L, 1, 0, 0);
    ah_leave(outer);
    if (!failed)
        return 0;
    const char *text = lua_tostring(L, -1);
    ah_fail(AH_ESTATE, "communication hook: %s", text ? text : luaL_typename(L, -1));
    lua_pop(L, 1);
    return AH_ESTATE;
}

static int launch_hook(void *context, int launched)
{
    return call_hook(context, launched, 1);
}

static int finish_hook(void *context, int launched)
{
    return call_hook(context, launched, 2);
}

static int reducer_set_hook(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    struct reducer *reducer = lua_touserdata(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    luaL_checktype(L, 3, LUA_TFUNCTION);
    lua_createtable(L, 2, 0);
    for (int i = 1; i <= 2; i++) {
        lua_pushvalue(L, i + 1);
        lua_rawseti(L, -2, i);
    }
    if (reducer->hooks)
        luaL_unref(L, LUA_REGISTRYINDEX, reducer->hooks);
    reducer->hooks = luaL_ref(L, LUA_REGISTRYINDEX);
    ah_reducer_set_hook(r, (struct ah_reducer_hook){launch_hook, finish_hook, reducer});
    return 0;
}

static int check_launched(lua_State *L, const struct ah_reducer *r)
{
    int launched = ah_check_whole(L, 2, "bucket");
    if (launched < 0 || launched >= ah_reducer_buckets(r))
        ah_raise_text(L, "expected a bucket in 0..%d, got %d", ah_reducer_buckets(r) - 1, launched);
    return launched;
}

static int reducer_bucket(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    struct ah_tensor *bucket;
    ah_check(L, ah_reducer_bucket(&bucket, r, check_launched(L, r)));
    ah_push_tensor(L, bucket);
    return 1;
}

AH_LUA_VALUE(reducer_bucket_count, lua_pushinteger, ah_reducer_buckets(ah_check_reducer(L)))

static int reducer_bucket_of(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    int index = ah_check_whole(L, 2, "parameter") - 1;
    if (index < 0 || index >= ah_reducer_count(r))
        return ah_raise_text(L, "expected a parameter in 1..%d", ah_reducer_count(r));
    lua_pushinteger(L, ah_reducer_bucket_of(r, index));
    ah_push_shared_tensor(L, ah_reducer_grad(r, index));
    return 2;
}

AH_LUA_CALL(reducer_buffers_from, ah_reducer_buffers_from(ah_check_reducer(L), ah_check_whole(L, 2, "rank")))

static int reducer_replace_buffer(lua_State *L)
{
    int index = ah_check_whole(L, 2, "buffer");
    ah_check(L, ah_reducer_replace_buffer(ah_check_reducer(L), index - 1, ah_check_tensor(L, 3)));
    return 0;
}

static int reducer_close(lua_State *L)
{
    struct reducer *reducer = ah_class_check(L, 1, &reducer_class);
    ah_reducer_free(reducer->reducer);
    reducer->reducer = NULL;
    if (reducer->hooks)
        luaL_unref(L, LUA_REGISTRYINDEX, reducer->hooks);
    reducer->hooks = 0;
    return 0;
}

static const luaL_Reg reducer_methods[] = {
    {"begin", reducer_begin}, {"finish", reducer_finish}, {"cancel", reducer_cancel}, {"touched", reducer_touched},
    {"parameters", reducer_parameters}, {"has_gradient", reducer_has_gradient}, {"changed", reducer_changed},
    {"abandoned", reducer_abandoned}, {"stats", reducer_stats}, {"set_hook", reducer_set_hook},
    {"bucket", reducer_bucket}, {"bucket_count", reducer_bucket_count}, {"bucket_of", reducer_bucket_of},
    {"buffers_from", reducer_buffers_from}, {"replace_buffer", reducer_replace_buffer},
    {"close", reducer_close}, {NULL, NULL},
};
static const struct ah_class reducer_class = {"accelhost.comm.reducer", reducer_methods, NULL, reducer_close};

void ah_open_reducer_class(lua_State *L)
{
    ah_class_add(L, &reducer_class, ah_comm_shards);
}
