/* accelhost._C.comm: collectives on tensors, and the reducer.
 *
 * rank() size() local_rank() local_size() backend()
 * all_reduce(t, op) broadcast(t, root)         in place; return t
 * all_gather(t) all_gather_ragged(t)           concatenation on dim 0; ragged: its size may differ between ranks
 * gather(t, root) scatter(t, root)             gather gives nil, scatter takes nil, on all ranks but the root
 * reduce_scatter(t, op) all_to_all(t)          dim 0 is split into one part per rank
 * barrier()
 * arena_empty(shape, dtype)                    a tensor in shared memory
 * all_reduce_async(t, op) -> work              work:wait() -> t, work:is_completed()
 * new_reducer(params, buffers, {bucket_cap_mb}) -> reducer
 *     begin(weight) finish() cancel() touched() stats() close()
 *     parameters()    an array, in registration order
 *     has_gradient()  does any parameter have one?
 *     changed()       the first parameter (from 1) whose dtype or shape is no longer that of its slot, what it was and
 *                     what it is, as texts; or nil
 *     abandoned()     is every parameter held by nobody else, or taken over by another reducer?
 *
 * op is "sum" (default), "mean", "max", "min" or "product"; roots count from 0. Every call is fingerprinted with the
 * script line it comes from. A 0-dim tensor counts as one of shape (1) where dim 0 is needed. */
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "bind/bind.h"
#include "bind/handle.h"
#include "comm/bucket.h"
#include "comm/group.h"
#include "comm/rank.h"

#define WORK "accelhost.comm.work"
#define REDUCER "accelhost.comm.reducer"

/* The group, told where this call comes from. */
static struct ah_group *enter(lua_State *L)
{
    struct ah_group *group;
    ah_check(L, ah_group_default(&group));
    ah_group_set_call_site(group, ah_call_site(L));
    return group;
}

static enum ah_reduce_op check_op(lua_State *L, int index)
{
    static const char *const names[] = {"sum", "mean", "max", "min", "product", NULL};
    const char *name = lua_isnoneornil(L, index) ? "sum" : luaL_checkstring(L, index);
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name))
            return (enum ah_reduce_op)i;
    ah_raise_text(L, "expected the reduction sum, mean, max, min or product, got '%s'", name);
    return AH_REDUCE_SUM;
}

static int check_root(lua_State *L, int index)
{
    lua_Number root = lua_isnoneornil(L, index) ? 0 : luaL_checknumber(L, index);
    if (root != (int)root)
        ah_raise_text(L, "expected a whole number as root, got %g", root);
    return (int)root;
}

/* A row-major tensor with the same elements: `tensor` itself, retained, where that is one. */
static int packed(struct ah_tensor **out, struct ah_tensor *tensor)
{
    AH_TRY(ah_tensor_row_major(tensor));
    if (ah_tensor_is_contiguous(tensor)) {
        *out = ah_tensor_retain(tensor);
        return 0;
    }
    bool enabled = ah_grad_enabled;
    ah_grad_enabled = false;
    int status = ah_op1(AH_OP_contiguous, out, AH_T(tensor));
    ah_grad_enabled = enabled;
    return status;
}

/* Bring the elements back after a collective in place, and release the packed tensor. */
static int unpack(struct ah_tensor *tensor, struct ah_tensor *buffer, int status)
{
    if (status == 0 && buffer != tensor) {
        bool enabled = ah_grad_enabled;
        struct ah_tensor *same = NULL;
        ah_grad_enabled = false;
        status = ah_op1(AH_OP_copy_, &same, AH_T(tensor), AH_T(buffer));
        ah_grad_enabled = enabled;
        ah_tensor_release(same);
    }
    tensor->storage->version++;
    ah_tensor_release(buffer);
    return status;
}

static int all_reduce(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *buffer;
    enum ah_reduce_op op = check_op(L, 2);
    struct ah_group *group = enter(L);
    ah_check(L, packed(&buffer, tensor));
    ah_group_set_shape(group, tensor->size, tensor->ndim);
    int status = ah_group_all_reduce(group, ah_tensor_data(buffer), tensor->numel, tensor->dtype, op);
    ah_check(L, unpack(tensor, buffer, status));
    lua_settop(L, 1);
    return 1;
}

static int broadcast(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *buffer;
    int root = check_root(L, 2);
    struct ah_group *group = enter(L);
    ah_check(L, packed(&buffer, tensor));
    ah_group_set_shape(group, tensor->size, tensor->ndim);
    int status = ah_group_broadcast(group, ah_tensor_data(buffer), tensor->numel, tensor->dtype, root);
    ah_check(L, unpack(tensor, buffer, status));
    lua_settop(L, 1);
    return 1;
}

/* What a collective with a new result makes of its input. */
enum shape_rule { GROW, SHRINK, KEEP };

typedef int (*exchange_fn)(struct ah_group *group, struct ah_tensor *out, struct ah_tensor *in, int64_t count,
                           int argument);

static int do_all_gather(struct ah_group *group, struct ah_tensor *out, struct ah_tensor *in, int64_t count, int unused)
{
    return ah_group_all_gather(group, ah_tensor_data(out), ah_tensor_data(in), count, in->dtype);
}

static int do_gather(struct ah_group *group, struct ah_tensor *out, struct ah_tensor *in, int64_t count, int root)
{
    return ah_group_gather(group, out ? ah_tensor_data(out) : NULL, ah_tensor_data(in), count, in->dtype, root);
}

static int do_reduce_scatter(struct ah_group *group, struct ah_tensor *out, struct ah_tensor *in, int64_t count, int op)
{
    return ah_group_reduce_scatter(group, ah_tensor_data(out), ah_tensor_data(in), count, in->dtype,
                                   (enum ah_reduce_op)op);
}

static int do_all_to_all(struct ah_group *group, struct ah_tensor *out, struct ah_tensor *in, int64_t count, int unused)
{
    return ah_group_all_to_all(group, ah_tensor_data(out), ah_tensor_data(in), count, in->dtype);
}

/* Shape of the result: dim 0 times or over the number of ranks. */
static int result_of(struct ah_tensor **out, const char *name, const struct ah_tensor *in, enum shape_rule rule,
                     int ranks)
{
    int64_t size[AH_MAX_DIMS] = {1};
    int ndim = in->ndim ? in->ndim : 1;
    memcpy(size, in->size, (size_t)in->ndim * sizeof *size);
    if (rule != GROW && size[0] % ranks)
        return ah_fail(AH_EINVAL, "%s: dim 0 of %s does not divide by %d ranks", name, ah_shape(in), ranks);
    size[0] = rule == GROW ? size[0] * ranks : rule == SHRINK ? size[0] / ranks : size[0];
    return ah_tensor_empty(out, size, ndim, in->dtype, &ah_cpu);
}

static int exchange(struct ah_tensor **out, const char *name, struct ah_group *group, struct ah_tensor *tensor,
                    enum shape_rule rule, bool wanted, exchange_fn fn, int argument)
{
    struct ah_tensor *in = NULL, *result = NULL;
    int size = ah_group_size(group), status;
    AH_TRYGO(packed(&in, tensor), out);
    if (wanted)
        AH_TRYGO(result_of(&result, name, tensor, rule, size), out);
    ah_group_set_shape(group, tensor->size, tensor->ndim);
    AH_TRYGO(fn(group, result, in, rule == GROW ? in->numel : in->numel / size, argument), out);
    *out = result;
    result = NULL;
out:
    ah_tensor_release(in);
    ah_tensor_release(result);
    return status;
}

static int push_exchange(lua_State *L, const char *name, enum shape_rule rule, bool wanted, exchange_fn fn,
                         int argument)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *result = NULL;
    ah_check(L, exchange(&result, name, enter(L), tensor, rule, wanted, fn, argument));
    ah_push_tensor(L, result);
    return 1;
}

static int all_gather(lua_State *L)
{
    return push_exchange(L, "all_gather", GROW, true, do_all_gather, 0);
}

static int gather(lua_State *L)
{
    int root = check_root(L, 2);
    return push_exchange(L, "gather", GROW, ah_group_rank(enter(L)) == root, do_gather, root);
}

static int reduce_scatter(lua_State *L)
{
    enum ah_reduce_op op = check_op(L, 2);
    return push_exchange(L, "reduce_scatter", SHRINK, true, do_reduce_scatter, (int)op);
}

static int all_to_all(lua_State *L)
{
    return push_exchange(L, "all_to_all", KEEP, true, do_all_to_all, 0);
}

static int ragged(struct ah_tensor **out, struct ah_group *group, struct ah_tensor *tensor)
{
    struct ah_tensor *in = NULL, *result = NULL;
    int ranks = ah_group_size(group), ndim = tensor->ndim ? tensor->ndim : 1, status = 0;
    int64_t size[AH_MAX_DIMS] = {1}, inner = 1, *counts = malloc((size_t)ranks * sizeof *counts);
    if (!counts)
        return ah_fail(AH_ENOMEM, "out of memory");
    memcpy(size, tensor->size, (size_t)tensor->ndim * sizeof *size);
    for (int d = 1; d < ndim; d++)
        inner *= size[d];
    AH_TRYGO(packed(&in, tensor), out);
    AH_TRYGO(ah_group_all_gather(group, counts, &size[0], 1, AH_I64), out);
    int64_t own[AH_MAX_DIMS];
    memcpy(own, size, sizeof own);
    size[0] = 0;
    for (int r = 0; r < ranks; r++) {
        size[0] += counts[r];
        counts[r] *= inner;
    }
    /* Ranks whose inner sizes differ would disagree on the counts: the shape tells them apart. */
    AH_TRYGO(ah_tensor_empty(&result, size, ndim, tensor->dtype, &ah_cpu), out);
    ah_group_set_shape(group, own, ndim);
    AH_TRYGO(ah_group_all_gather_v(group, ah_tensor_data(result), ah_tensor_data(in), counts, tensor->dtype), out);
    *out = result;
    result = NULL;
out:
    free(counts);
    ah_tensor_release(in);
    ah_tensor_release(result);
    return status;
}

static int all_gather_ragged(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *result = NULL;
    ah_check(L, ragged(&result, enter(L), tensor));
    ah_push_tensor(L, result);
    return 1;
}

/* The root tells the shape first, so that the others need not know it. */
static int do_scatter(struct ah_tensor **out, struct ah_group *group, struct ah_tensor *tensor, int root)
{
    int64_t head[2 + AH_MAX_DIMS] = {0};
    struct ah_tensor *in = NULL, *result = NULL;
    int status = 0, ranks = ah_group_size(group);
    if (tensor) {
        int64_t first = tensor->ndim ? tensor->size[0] : 1;
        if (first % ranks)
            return ah_fail(AH_EINVAL, "scatter: dim 0 of %s does not divide by %d ranks", ah_shape(tensor), ranks);
        AH_TRY(packed(&in, tensor));
        head[0] = tensor->dtype;
        head[1] = tensor->ndim ? tensor->ndim : 1;
        memcpy(head + 2, tensor->size, (size_t)tensor->ndim * sizeof *head);
        head[2] = first / ranks;
    }
    AH_TRYGO(ah_group_broadcast(group, head, 2 + AH_MAX_DIMS, AH_I64, root), out);
    AH_TRYGO(ah_tensor_empty(&result, head + 2, (int)head[1], (enum ah_dtype)head[0], &ah_cpu), out);
    ah_group_set_shape(group, head + 2, (int)head[1]);
    AH_TRYGO(ah_group_scatter(group, ah_tensor_data(result), in ? ah_tensor_data(in) : NULL, result->numel,
                              result->dtype, root), out);
    *out = result;
    result = NULL;
out:
    ah_tensor_release(in);
    ah_tensor_release(result);
    return status;
}

static int scatter(lua_State *L)
{
    int root = check_root(L, 2);
    struct ah_group *group = enter(L);
    struct ah_tensor *result = NULL;
    struct ah_tensor *tensor = ah_group_rank(group) == root ? ah_check_tensor(L, 1) : NULL;
    ah_check(L, do_scatter(&result, group, tensor, root));
    ah_push_tensor(L, result);
    return 1;
}

static void keep_memory(struct ah_storage *storage)
{
}

/* arena_empty(shape, dtype = "float32") -> a tensor in memory that all ranks reach: collectives on it copy nothing. It
 * must be made by every rank in the same order, and its memory is given back when the job ends. */
static int arena_empty(lua_State *L)
{
    int64_t size[AH_MAX_DIMS];
    int ndim = ah_check_ints(L, 1, size, AH_MAX_DIMS, "arena_empty");
    enum ah_dtype dtype = lua_isnoneornil(L, 2) ? AH_F32 : ah_check_dtype(L, 2);
    int64_t count = 1, bytes;
    for (int d = 0; d < ndim; d++)
        if (size[d] < 0 || __builtin_mul_overflow(count, size[d], &count))
            return ah_raise_text(L, "arena_empty: shape %s is out of range", ah_shape_text(size, ndim));
    if (__builtin_mul_overflow(count, (int64_t)ah_dtype_size(dtype), &bytes))
        return ah_raise_text(L, "arena_empty: shape %s is out of range", ah_shape_text(size, ndim));
    struct ah_tensor *tensor;
    void *memory;
    ah_check(L, ah_group_arena_alloc(enter(L), (size_t)bytes, &memory));
    ah_check(L, ah_tensor_from_memory(&tensor, memory, size, ndim, dtype, &ah_cpu, keep_memory, NULL));
    ah_push_tensor(L, tensor);
    return 1;
}

static int barrier(lua_State *L)
{
    ah_check(L, ah_group_barrier(enter(L)));
    return 0;
}

/* Works. */

struct work {
    struct ah_work *work;
    struct ah_tensor *buffer, *tensor; /* the tensor's handle is kept in the userdata's environment */
};

static int all_reduce_async(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    enum ah_reduce_op op = check_op(L, 2);
    struct ah_group *group = enter(L);
    struct work *work = lua_newuserdata(L, sizeof *work);
    memset(work, 0, sizeof *work);
    luaL_getmetatable(L, WORK);
    lua_setmetatable(L, -2);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    ah_check(L, packed(&work->buffer, tensor));
    work->tensor = ah_tensor_retain(tensor);
    ah_group_set_shape(group, tensor->size, tensor->ndim);
    ah_check(L, ah_group_all_reduce_start(group, ah_tensor_data(work->buffer), tensor->numel, tensor->dtype, op,
                                          &work->work));
    return 1;
}

static int finish_work(struct work *work)
{
    if (!work->work)
        return 0;
    struct ah_work *pending = work->work;
    work->work = NULL;
    int status = unpack(work->tensor, work->buffer, ah_work_wait(pending));
    work->buffer = NULL;
    return status;
}

static int work_wait(lua_State *L)
{
    struct work *work = luaL_checkudata(L, 1, WORK);
    ah_check(L, finish_work(work));
    lua_getfenv(L, 1);
    lua_rawgeti(L, -1, 1);
    return 1;
}

static int work_is_completed(lua_State *L)
{
    struct work *work = luaL_checkudata(L, 1, WORK);
    bool done = true;
    if (work->work)
        ah_check(L, ah_work_test(work->work, &done));
    lua_pushboolean(L, done);
    return 1;
}

static int work_gc(lua_State *L)
{
    struct work *work = luaL_checkudata(L, 1, WORK);
    if (work->work)
        ah_work_abandon(work->work);
    work->work = NULL;
    ah_tensor_release(work->buffer);
    ah_tensor_release(work->tensor);
    work->buffer = work->tensor = NULL;
    return 0;
}

/* The reducer. */

struct reducer {
    struct ah_reducer *reducer;
    struct ah_group *group;
    bool active;
    struct reducer *next; /* of all that are open */
};
static struct reducer *open_reducers;

static void make_progress(void)
{
    for (struct reducer *r = open_reducers; r; r = r->next)
        if (r->active)
            ah_reducer_progress(r->reducer);
}

/* The engine asks between nodes, only while a backward is synchronised. */
static void set_active(struct reducer *reducer, bool active)
{
    bool any = false;
    reducer->active = active;
    for (struct reducer *r = open_reducers; r; r = r->next)
        any |= r->active && ah_group_size(r->group) > 1;
    ah_engine_progress = any ? make_progress : NULL;
}

static struct reducer *check_reducer(lua_State *L)
{
    struct reducer *reducer = luaL_checkudata(L, 1, REDUCER);
    if (!reducer->reducer)
        ah_raise_text(L, "the reducer was closed");
    return reducer;
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

static void close_reducer(struct reducer *reducer)
{
    struct ah_reducer *r = reducer->reducer;
    if (!r)
        return;
    set_active(reducer, false);
    for (struct reducer **at = &open_reducers; *at; at = &(*at)->next) {
        if (*at == reducer) {
            *at = reducer->next;
            break;
        }
    }
    reducer->reducer = NULL;
    for (int i = 0; i < ah_reducer_count(r); i++) {
        struct ah_tensor *param = ah_reducer_param(r, i);
        /* Another reducer may have taken the parameter over. A failed copy of a gradient leaves none. */
        if (param->grad && param->grad->slot == ah_reducer_grad(r, i))
            ah_set_grad_slot(param, NULL, NULL, NULL, NULL, 0);
    }
    ah_reducer_free(r);
}

static int new_reducer(lua_State *L)
{
    static const char *const known[] = {"bucket_cap_mb", NULL};
    int count, buffer_count;
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
    reducer->group = enter(L);
    ah_check(L, ah_reducer_new(&reducer->reducer, reducer->group, params, count, buffers, buffer_count,
                               (int64_t)(cap * (1 << 20))));
    for (int i = 0; i < (int)lua_objlen(L, 1); i++) {
        lua_rawgeti(L, 1, i + 1);
        ah_share_handle(L, -1); /* parameters() gives it back */
        lua_pop(L, 1);
    }
    reducer->next = open_reducers;
    open_reducers = reducer;
    for (int i = 0; i < count; i++)
        ah_check(L, ah_set_grad_slot(params[i], ah_reducer_grad(reducer->reducer, i),
                                     ah_reducer_has_grad(reducer->reducer, i), ah_reducer_param_ready,
                                     reducer->reducer, i));
    return 1;
}

static int reducer_begin(lua_State *L)
{
    struct reducer *reducer = check_reducer(L);
    enter(L);
    ah_check(L, ah_reducer_begin(reducer->reducer, luaL_optnumber(L, 2, 1)));
    set_active(reducer, true);
    return 0;
}

static int reducer_finish(lua_State *L)
{
    struct reducer *reducer = check_reducer(L);
    set_active(reducer, false);
    enter(L);
    ah_check(L, ah_reducer_finish(reducer->reducer));
    return 0;
}

static int reducer_touched(lua_State *L)
{
    lua_pushboolean(L, ah_reducer_touched(check_reducer(L)->reducer));
    return 1;
}

static int reducer_cancel(lua_State *L)
{
    struct reducer *reducer = check_reducer(L);
    set_active(reducer, false);
    ah_reducer_cancel(reducer->reducer);
    return 0;
}

static int reducer_parameters(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L)->reducer;
    lua_createtable(L, ah_reducer_count(r), 0);
    for (int i = 0; i < ah_reducer_count(r); i++) {
        ah_push_shared_tensor(L, ah_reducer_param(r, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int reducer_has_gradient(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L)->reducer;
    bool any = false;
    for (int i = 0; i < ah_reducer_count(r) && !any; i++)
        any = *ah_reducer_has_grad(r, i);
    lua_pushboolean(L, any);
    return 1;
}

static int reducer_changed(lua_State *L)
{
    struct ah_reducer *r = check_reducer(L)->reducer;
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
    struct ah_reducer *r = check_reducer(L)->reducer;
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
    struct ah_reducer *r = check_reducer(L)->reducer;
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
    close_reducer(luaL_checkudata(L, 1, REDUCER));
    return 0;
}

/* Who we are. */

static int topology(lua_State *L, size_t field)
{
    struct ah_topology who;
    ah_check(L, ah_topology_from_environment(&who));
    lua_pushinteger(L, *(const int *)((const char *)&who + field));
    return 1;
}

static int rank(lua_State *L)
{
    return topology(L, offsetof(struct ah_topology, rank));
}

static int size(lua_State *L)
{
    return topology(L, offsetof(struct ah_topology, size));
}

static int local_rank(lua_State *L)
{
    return topology(L, offsetof(struct ah_topology, local_rank));
}

static int local_size(lua_State *L)
{
    return topology(L, offsetof(struct ah_topology, local_size));
}

static int backend(lua_State *L)
{
    lua_pushstring(L, ah_group_backend(enter(L)));
    return 1;
}

/* is_terminal(fd) -> boolean, columns: of the job's output (1) or error (2), whoever writes it in the end. */
static int is_terminal(lua_State *L)
{
    int columns;
    lua_pushboolean(L, ah_board_terminal((int)luaL_checkinteger(L, 1), &columns));
    lua_pushinteger(L, columns);
    return 2;
}

static void new_class(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc)
{
    if (luaL_newmetatable(L, name)) {
        lua_newtable(L);
        luaL_register(L, NULL, methods);
        lua_setfield(L, -2, "__index");
        lua_pushcfunction(L, gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_pop(L, 1);
}

int ah_open_comm(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"rank", rank},
        {"size", size},
        {"local_rank", local_rank},
        {"local_size", local_size},
        {"backend", backend},
        {"is_terminal", is_terminal},
        {"all_reduce", all_reduce},
        {"broadcast", broadcast},
        {"all_gather", all_gather},
        {"all_gather_ragged", all_gather_ragged},
        {"gather", gather},
        {"scatter", scatter},
        {"reduce_scatter", reduce_scatter},
        {"all_to_all", all_to_all},
        {"barrier", barrier},
        {"arena_empty", arena_empty},
        {"all_reduce_async", all_reduce_async},
        {"new_reducer", new_reducer},
        {NULL, NULL},
    };
    static const luaL_Reg work_methods[] = {
        {"wait", work_wait}, {"is_completed", work_is_completed}, {NULL, NULL}};
    static const luaL_Reg reducer_methods[] = {{"begin", reducer_begin},
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
    new_class(L, WORK, work_methods, work_gc);
    new_class(L, REDUCER, reducer_methods, reducer_close);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
