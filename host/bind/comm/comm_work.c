/* Collectives into given tensors, blocking or as works.
 *
 * collective(kind, out, in, {op, root, counts, async, timeout, all}) -> work, nil for a blocking one
 *     kind: a name of ah_collective_name; out and in: the same tensor for a kind in place, nil on ranks that receive or
 *     send nothing; counts: of a ragged kind, the same table on every rank
 * all_reduce_async(t, op) -> work              in place; work:wait() -> t
 * all_gather_async(t) -> work                  work:wait() -> the result, as of the blocking form
 * reduce_scatter_async(t, op) -> work
 * work:wait() -> out      work:is_completed()
 *
 * A work that is collected before it was waited for is given up: its buffers may go, its part of the others' results is
 * still done in later calls. */
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/comm/comm.h"
#include "bind/lua/class.h"

static const struct ah_class work_class;

struct work {
    struct ah_group *group;
    struct ah_work *work;
    struct ah_tensor *out;    /* its handle is kept in the userdata's environment; NULL: no result */
    struct ah_tensor *to;     /* its elements, dense on the CPU or on `device` */
    struct ah_tensor *from;   /* the input's; NULL: nothing is given */
    struct ah_device *device; /* whose communicator moves them; NULL: the host */
};

/* A work's userdata, pushed; the indices are of nil or tensors. */
static struct work *work_begin(lua_State *L, struct ah_group *group, enum ah_collective_kind kind, enum ah_reduce_op op,
                               int out, int in)
{
    struct ah_tensor *result = ah_opt_tensor(L, out), *input = ah_opt_tensor(L, in);
    struct work *work = ah_class_new(L, &work_class, sizeof *work);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, out);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    work->group = ah_group_retain(group);
    ah_check(L, ah_comm_reach(L, group, kind, op, input ? input : result, &work->device));
    if (result) {
        work->out = ah_tensor_retain(result);
        ah_check(L, ah_comm_pack(&work->to, result, work->device));
    }
    if (input && input == result)
        work->from = ah_tensor_retain(work->to);
    else if (input)
        ah_check(L, ah_comm_pack(&work->from, input, work->device));
    return work;
}

/* Copy the result to its destination. */
static int work_settle(struct work *work, int status)
{
    struct ah_tensor *to = work->to;
    work->to = NULL;
    return to ? ah_comm_unpack(work->out, to, status) : status;
}

static int work_start(lua_State *L, struct work *work, struct ah_collective call, const struct ah_tensor *shape)
{
    call.where = ah_call_site(L);
    call.ndim = shape ? shape->ndim : -1;
    call.size = shape ? shape->size : NULL;
    call.device = work->device;
    ah_check(L, ah_group_start(work->group, call, &work->work));
    return 1;
}

/* Into given tensors. */

static enum ah_collective_kind check_kind(lua_State *L, int index)
{
    const char *name = luaL_checkstring(L, index);
    for (int k = 0; k < AH_COLLECTIVE_KINDS; k++)
        if (!strcmp(ah_collective_name((enum ah_collective_kind)k, false), name))
            return (enum ah_collective_kind)k;
    ah_raise_text(L, "unknown collective '%s'", name);
    return AH_BARRIER;
}

/* The counts in the options at `index`, in memory owned by Lua (left on the stack); NULL: there are none. */
static const int64_t *check_counts(lua_State *L, int index, size_t needed)
{
    lua_getfield(L, index, "counts");
    if (lua_isnil(L, -1))
        return NULL;
    int table = lua_gettop(L);
    if (!lua_istable(L, table) || lua_objlen(L, table) != needed)
        ah_raise_text(L, "collective: expected %d counts", (int)needed);
    int64_t *counts = lua_newuserdata(L, (needed + 1) * sizeof *counts);
    for (size_t i = 0; i < needed; i++) {
        lua_rawgeti(L, table, (int)i + 1);
        counts[i] = (int64_t)luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    return counts;
}

static int64_t work_numel(const struct ah_tensor *tensor)
{
    return tensor ? tensor->numel : 0;
}

/* Check that every element to transfer is within its tensor. */
static int check_fit(const struct work *work, const struct ah_collective *call)
{
    const char *name = ah_collective_name(call->kind, false);
    int size = ah_group_size(work->group), rank = ah_group_rank(work->group);
    int64_t taken = 0, given = ah_collective_input(call, size, rank);
    for (int r = 0; r < size; r++) {
        int64_t count = ah_collective_part(call, size, r, rank).count;
        taken = ah_collective_reduces(call) ? count : taken + count;
    }
    if (call->kind == AH_ALL_REDUCE || call->kind == AH_BROADCAST)
        taken = given = call->count;
    if (given && work_numel(work->from) != given)
        return ah_fail(AH_EINVAL, "%s: expected %lld elements to send, got %lld", name, (long long)given,
                       (long long)work_numel(work->from));
    if (taken && work_numel(work->to) != taken)
        return ah_fail(AH_EINVAL, "%s: expected room for %lld elements, got %lld", name, (long long)taken,
                       (long long)work_numel(work->to));
    if (work->from && work->to && work->from->dtype != work->to->dtype)
        return ah_fail(AH_EINVAL, "%s: expected tensors of one dtype, got %s and %s", name,
                       ah_dtype_name(work->from->dtype), ah_dtype_name(work->to->dtype));
    return 0;
}

static struct ah_collective make_call(lua_State *L, enum ah_collective_kind kind, enum ah_reduce_op op,
                                      struct work *work, int options)
{
    const struct ah_tensor *any = work->from ? work->from : work->to;
    int size = ah_group_size(work->group);
    struct ah_collective call = ah_collective_barrier();
    call.kind = kind;
    call.dtype = any ? any->dtype : AH_U8;
    call.out = work->to ? ah_tensor_data(work->to) : NULL;
    call.in = work->from ? ah_tensor_data(work->from) : NULL;
    call.count = work_numel(any);
    if (kind == AH_SCATTER || kind == AH_REDUCE_SCATTER)
        call.count = work_numel(work->to);
    if (kind == AH_ALL_TO_ALL)
        call.count /= size;
    if (kind == AH_ALL_GATHER_V || kind == AH_ALL_TO_ALL_V) {
        call.counts = check_counts(L, options, (size_t)size * (kind == AH_ALL_TO_ALL_V ? (size_t)size : 1));
        if (!call.counts)
            ah_raise_text(L, "%s: expected counts", ah_collective_name(kind, false));
        call.count = 0;
    }
    call.device = work->device;
    call.reduce = op;
    call.root = (int)ah_opt_int(L, options, "root", -1);
    call.timeout_ns = (int64_t)(ah_opt_number(L, options, "timeout", 0) * 1e9);
    call.note = ah_opt_flag(L, options, "all", false);
    return call;
}

static int work_collective(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    int first = entry.first, options = first + 3;
    enum ah_collective_kind kind = check_kind(L, first);
    lua_settop(L, options);
    if (lua_isnil(L, options)) {
        lua_newtable(L);
        lua_replace(L, options);
    }
    bool async = ah_opt_flag(L, options, "async", false);
    lua_getfield(L, options, "op");
    enum ah_reduce_op op = ah_check_reduce_op(L, lua_gettop(L));
    lua_pop(L, 1);
    struct work *work = work_begin(L, entry.group, kind, op, first + 1, first + 2);
    int at = lua_gettop(L);
    struct ah_collective call = make_call(L, kind, op, work, options);
    ah_check(L, check_fit(work, &call));
    const struct ah_tensor *shape = kind == AH_SCATTER ? work->to : work->from ? work->from : work->to;
    if (async) {
        work_start(L, work, call, shape);
        lua_pushvalue(L, at);
        return 1;
    }
    call.where = ah_call_site(L);
    call.ndim = shape ? shape->ndim : -1;
    call.size = shape ? shape->size : NULL;
    ah_check(L, work_settle(work, ah_group_run(entry.group, call)));
    return 0;
}

/* With a new result. */

static int all_reduce_async(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    ah_check_tensor(L, entry.first);
    enum ah_reduce_op op = ah_check_reduce_op(L, entry.first + 1);
    struct work *work = work_begin(L, entry.group, AH_ALL_REDUCE, op, entry.first, entry.first);
    return work_start(L, work, ah_collective_all_reduce(ah_tensor_data(work->to), work->to->numel, work->to->dtype, op),
                      work->to);
}

/* Push a tensor for the result on the input's device; return its stack index. */
static int push_result(lua_State *L, struct ah_group *group, const char *name, const struct ah_tensor *in,
                       enum ah_shape_rule rule)
{
    struct ah_tensor *result;
    ah_check(L, ah_comm_result(&result, name, in, rule, ah_group_size(group), in->storage->device));
    ah_push_tensor(L, result);
    return lua_gettop(L);
}

static int all_gather_async(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    struct ah_tensor *in = ah_check_tensor(L, entry.first);
    int out = push_result(L, entry.group, "all_gather_async", in, AH_SHAPE_GROW);
    struct work *work = work_begin(L, entry.group, AH_ALL_GATHER, AH_REDUCE_SUM, out, entry.first);
    return work_start(
        L, work, ah_collective_all_gather(ah_tensor_data(work->to), ah_tensor_data(work->from), in->numel, in->dtype),
        in);
}

static int reduce_scatter_async(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    struct ah_tensor *in = ah_check_tensor(L, entry.first);
    enum ah_reduce_op op = ah_check_reduce_op(L, entry.first + 1);
    int out = push_result(L, entry.group, "reduce_scatter_async", in, AH_SHAPE_SHRINK);
    struct work *work = work_begin(L, entry.group, AH_REDUCE_SCATTER, op, out, entry.first);
    return work_start(L, work,
                      ah_collective_reduce_scatter(ah_tensor_data(work->to), ah_tensor_data(work->from),
                                                   work->to->numel, in->dtype, op),
                      in);
}

/* Works. */

static int work_wait(lua_State *L)
{
    struct work *work = ah_class_check(L, 1, &work_class);
    if (work->work) {
        struct ah_work *pending = work->work;
        work->work = NULL;
        ah_check(L, work_settle(work, ah_work_wait(pending)));
    }
    lua_getfenv(L, 1);
    lua_rawgeti(L, -1, 1);
    return 1;
}

static int work_is_completed(lua_State *L)
{
    struct work *work = ah_class_check(L, 1, &work_class);
    bool done = true;
    if (work->work)
        ah_check(L, ah_work_test(work->work, &done));
    lua_pushboolean(L, done);
    return 1;
}

/* The buffers of a work on a device that was given up. */
struct held {
    struct ah_tensor *to, *from;
};

static void let_go(void *context)
{
    struct held *held = context;
    ah_tensor_release(held->to);
    ah_tensor_release(held->from);
    free(held);
}

static void give_up(struct work *work)
{
    struct held *held = work->device ? malloc(sizeof *held) : NULL;
    if (!held) {
        ah_work_abandon(work->work);
        return;
    }
    *held = (struct held){work->to, work->from};
    work->to = work->from = NULL;
    ah_work_abandon_held(work->work, let_go, held);
}

static int work_gc(lua_State *L)
{
    struct work *work = ah_class_check(L, 1, &work_class);
    if (work->work)
        give_up(work);
    ah_tensor_release(work->to);
    ah_tensor_release(work->from);
    ah_tensor_release(work->out);
    ah_group_close(work->group);
    memset(work, 0, sizeof *work);
    return 0;
}

const luaL_Reg ah_comm_works[] = {
    {"collective", work_collective},
    {"all_reduce_async", all_reduce_async},
    {"all_gather_async", all_gather_async},
    {"reduce_scatter_async", reduce_scatter_async},
    {NULL, NULL},
};

static const luaL_Reg work_methods[] = {{"wait", work_wait}, {"is_completed", work_is_completed}, {NULL, NULL}};
static const struct ah_class work_class = {"accelhost.comm.work", work_methods, NULL, work_gc};
