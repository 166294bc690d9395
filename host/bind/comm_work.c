/* Asynchronous collectives.
 *
 * all_reduce_async(t, op) -> work              in place; work:wait() -> t
 * all_gather_async(t) -> work                  work:wait() -> the result, as of the blocking form
 * reduce_scatter_async(t, op) -> work
 * work:is_completed()
 *
 * A work that is collected before it was waited for is given up: its buffers may go, its part of the others' results is
 * still done in later calls. */
#include <string.h>

#include "bind/comm.h"

#define WORK "accelhost.comm.work"

struct work {
    struct ah_group *group;
    struct ah_work *work;
    struct ah_tensor *tensor; /* the argument; its handle is kept in the userdata's environment */
    struct ah_tensor *buffer; /* its elements, dense on the CPU */
    struct ah_tensor *result; /* NULL: in place */
};

/* What every asynchronous collective begins with; op is NULL for those without a reduction. */
static struct work *begin(lua_State *L, enum ah_reduce_op *op)
{
    struct ah_entry entry = ah_comm_enter(L);
    ah_check_tensor(L, entry.first);
    if (op)
        *op = ah_check_reduce_op(L, entry.first + 1);
    struct work *work = lua_newuserdata(L, sizeof *work);
    memset(work, 0, sizeof *work);
    luaL_getmetatable(L, WORK);
    lua_setmetatable(L, -2);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, entry.first);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    work->group = ah_group_retain(entry.group);
    work->tensor = ah_tensor_retain(ah_check_tensor(L, entry.first));
    ah_check(L, ah_comm_pack(&work->buffer, work->tensor));
    return work;
}

static int start(lua_State *L, struct work *work, struct ah_collective call)
{
    call.where = ah_call_site(L);
    call.ndim = work->tensor->ndim;
    call.size = work->tensor->size;
    ah_check(L, ah_group_start(work->group, call, &work->work));
    return 1;
}

static int all_reduce_async(lua_State *L)
{
    enum ah_reduce_op op;
    struct work *work = begin(L, &op);
    struct ah_tensor *buffer = work->buffer;
    return start(L, work, ah_collective_all_reduce(ah_tensor_data(buffer), buffer->numel, buffer->dtype, op));
}

static int all_gather_async(lua_State *L)
{
    struct work *work = begin(L, NULL);
    struct ah_tensor *in = work->buffer;
    ah_check(L, ah_comm_result(&work->result, "all_gather_async", work->tensor, AH_SHAPE_GROW,
                               ah_group_size(work->group)));
    return start(L, work, ah_collective_all_gather(ah_tensor_data(work->result), ah_tensor_data(in), in->numel,
                                                   in->dtype));
}

static int reduce_scatter_async(lua_State *L)
{
    enum ah_reduce_op op;
    struct work *work = begin(L, &op);
    struct ah_tensor *in = work->buffer;
    ah_check(L, ah_comm_result(&work->result, "reduce_scatter_async", work->tensor, AH_SHAPE_SHRINK,
                               ah_group_size(work->group)));
    return start(L, work, ah_collective_reduce_scatter(ah_tensor_data(work->result), ah_tensor_data(in),
                                                       work->result->numel, in->dtype, op));
}

static int finish(struct work *work)
{
    if (!work->work)
        return 0;
    struct ah_work *pending = work->work;
    work->work = NULL;
    int status = ah_work_wait(pending);
    if (work->result)
        return status < 0 ? status : ah_comm_bring_home(&work->result, work->tensor);
    status = ah_comm_unpack(work->tensor, work->buffer, status);
    work->buffer = NULL;
    return status;
}

static int work_wait(lua_State *L)
{
    struct work *work = luaL_checkudata(L, 1, WORK);
    ah_check(L, finish(work));
    lua_getfenv(L, 1);
    if (work->result) {
        ah_push_tensor(L, work->result);
        work->result = NULL;
        lua_rawseti(L, -2, 1);
    }
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
    ah_tensor_release(work->buffer);
    ah_tensor_release(work->tensor);
    ah_tensor_release(work->result);
    ah_group_close(work->group);
    memset(work, 0, sizeof *work);
    return 0;
}

const luaL_Reg ah_comm_works[] = {
    {"all_reduce_async", all_reduce_async},
    {"all_gather_async", all_gather_async},
    {"reduce_scatter_async", reduce_scatter_async},
    {NULL, NULL},
};

void ah_open_work_class(lua_State *L)
{
    static const luaL_Reg methods[] = {{"wait", work_wait}, {"is_completed", work_is_completed}, {NULL, NULL}};
    ah_new_class(L, WORK, methods, work_gc);
}
