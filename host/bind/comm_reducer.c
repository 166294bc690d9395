/* The reducer in Lua; what it does lies in host/sync.
 *
 * begin(weight) finish() cancel() touched() stats() close()
 * parameters()    an array, in registration order
 * has_gradient()  does any parameter have one?
 * changed()       the first parameter (from 1) whose dtype or shape is no longer that of its slot, what it was and what
 *                 it is, as texts; or nil
 * abandoned()     is every parameter held by nobody else, or taken over by another reducer? */
#include <string.h>

#include "autograd/graph.h"
#include "bind/comm.h"
#include "bind/handle.h"
#include "sync/reducer.h"

#define REDUCER "accelhost.comm.reducer"

struct reducer {
    struct ah_reducer *reducer;
};

static struct ah_reducer *check_reducer(lua_State *L)
{
    struct reducer *reducer = luaL_checkudata(L, 1, REDUCER);
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

int ah_comm_new_reducer(lua_State *L)
{
    static const char *const known[] = {"bucket_cap_mb", NULL};
    int count, buffer_count;
    struct ah_group *group;
    ah_check_options(L, 3, "new_reducer", known);
    double cap = ah_opt_number(L, 3, "bucket_cap_mb", 0);
    if (!(cap >= 0) || cap > 1e6)
        return ah_raise_text(L, "bucket_cap_mb: expected a size above 0, got %g", cap);
    struct ah_tensor **params = check_list(L, 1, &count);
    struct ah_tensor **buffers = check_list(L, 2, &buffer_count);
    struct reducer *reducer = lua_newuserdata(L, sizeof *reducer);
    memset(reducer, 0, sizeof *reducer);
    luaL_getmetatable(L, REDUCER);
    lua_setmetatable(L, -2);
    ah_check(L, ah_group_default(&group));
    ah_check(L, ah_reducer_new(&reducer->reducer, group, params, count, buffers, buffer_count,
                               (int64_t)(cap * (1 << 20)), ah_call_site(L)));
    for (int i = 0; i < (int)lua_objlen(L, 1); i++) {
        lua_rawgeti(L, 1, i + 1);
        ah_share_handle(L, -1); /* parameters() gives it back */
        lua_pop(L, 1);
    }
    return 1;
}

static int reducer_begin(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L);
    ah_check(L, ah_reducer_begin(r, luaL_optnumber(L, 2, 1), ah_call_site(L)));
    return 0;
}

static int reducer_finish(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L);
    ah_check(L, ah_reducer_finish(r, ah_call_site(L)));
    return 0;
}

static int reducer_touched(lua_State *L)
{
    lua_pushboolean(L, ah_reducer_touched(check_reducer(L)));
    return 1;
}

static int reducer_cancel(lua_State *L)
{
    ah_reducer_cancel(check_reducer(L));
    return 0;
}

static int reducer_parameters(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L);
    lua_createtable(L, ah_reducer_count(r), 0);
    for (int i = 0; i < ah_reducer_count(r); i++) {
        ah_push_shared_tensor(L, ah_reducer_param(r, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int reducer_has_gradient(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L);
    bool any = false;
    for (int i = 0; i < ah_reducer_count(r) && !any; i++)
        any = *ah_reducer_has_grad(r, i);
    lua_pushboolean(L, any);
    return 1;
}

static int reducer_changed(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L);
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
    struct ah_reducer *r = check_reducer(L);
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
    struct ah_reducer *r = check_reducer(L);
    lua_createtable(L, 0, 2);
    ah_set_number(L, "backward_end_ns", (double)ah_reducer_backward_end(r));
    lua_createtable(L, ah_reducer_buckets(r), 0);
    for (int b = 0; b < ah_reducer_buckets(r); b++) {
        struct ah_bucket_times times = ah_reducer_times(r, b);
        lua_createtable(L, 0, 5);
        ah_set_number(L, "bytes", (double)times.bytes);
        ah_set_number(L, "parameters", times.count);
        ah_set_number(L, "ready_ns", (double)times.ready_ns);
        ah_set_number(L, "posted_ns", (double)times.posted_ns);
        ah_set_number(L, "reduced_ns", (double)times.reduced_ns);
        lua_rawseti(L, -2, b + 1);
    }
    lua_setfield(L, -2, "buckets");
    return 1;
}

static int reducer_close(lua_State *L)
{
    struct reducer *reducer = luaL_checkudata(L, 1, REDUCER);
    ah_reducer_free(reducer->reducer);
    reducer->reducer = NULL;
    return 0;
}

void ah_open_reducer_class(lua_State *L)
{
    static const luaL_Reg methods[] = {{"begin", reducer_begin},
                                       {"finish", reducer_finish},
                                       {"cancel", reducer_cancel},
                                       {"touched", reducer_touched},
                                       {"parameters", reducer_parameters},
                                       {"has_gradient", reducer_has_gradient},
                                       {"changed", reducer_changed},
                                       {"abandoned", reducer_abandoned},
                                       {"stats", reducer_stats},
                                       {"close", reducer_close},
                                       {NULL, NULL}};
    ah_new_class(L, REDUCER, methods, reducer_close);
}
