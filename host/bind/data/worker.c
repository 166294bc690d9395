/* accelhost._C.worker: processes that make batches (data/worker.h), and the values that they send.
 *
 * start(slots) -> worker, true in this process; worker, false in the forked one, which has one thread
 * wait({workers}, seconds) -> place of the worker that has answered, from 1, and its answer
 * close({workers})   end them and wait; also when they are collected
 * traceback(message) -> message and traceback, for xpcall
 * worker:send(value)           a request, to the worker
 * worker:receive() -> value    in the worker: the next request; nothing at the end
 * worker:answer(slot, value)   in the worker; AH_EINVAL's text as a second result when the value cannot be sent
 * worker:pid() */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process/threads.h"
#include "base/status/status.h"
#include "bind/format/pack.h"
#include "bind/library.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "data/worker.h"

static const struct ah_class worker_class;

static struct ah_worker **to_worker(lua_State *L, int index)
{
    return ah_class_check(L, index, &worker_class);
}

static struct ah_worker *check_worker(lua_State *L, int index)
{
    struct ah_worker *worker = *to_worker(L, index);
    if (!worker)
        ah_raise_text(L, "the workers of this pass have ended");
    return worker;
}

/* os.exit in a worker: the handlers and destructors of the process it was forked from are for that one, with threads
 * that are not here. */
static int worker_leave(lua_State *L)
{
    int code = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : (int)luaL_optinteger(L, 1, 0);
    fflush(NULL);
    quick_exit(code);
}

static int worker_start(lua_State *L)
{
    int slots = (int)luaL_checkinteger(L, 1);
    struct ah_worker **box = ah_class_new(L, &worker_class, sizeof *box);
    int parent = ah_check(L, ah_worker_start(box, slots));
    /* The threads of the parent are not here, and to make a team of more than one would wait for them. */
    if (!parent) {
        ah_check(L, ah_set_num_threads(1));
        lua_getglobal(L, "os");
        lua_pushcfunction(L, worker_leave);
        lua_setfield(L, -2, "exit");
        lua_pop(L, 1);
    }
    lua_pushboolean(L, parent);
    return 2;
}

AH_CLASS_CLOSER(close_one, worker_class, struct ah_worker, ah_worker_free)

/* All workers are asked to end before the first is waited for. */
static int close_all(lua_State *L)
{
    int count = (int)lua_objlen(L, 1);
    for (int round = 0; round < 2; round++) {
        for (int w = 0; w < count; w++) {
            lua_rawgeti(L, 1, w + 1);
            struct ah_worker **box = to_worker(L, lua_gettop(L));
            if (round == 0 && *box) {
                ah_worker_leave(*box);
            } else if (*box) {
                ah_worker_free(*box);
                *box = NULL;
            }
            lua_pop(L, 1);
        }
    }
    return 0;
}

/* Memory of Lua's, which an error frees: the block of each size stays on the stack. */
static int grow_userdata(void *context, size_t room, unsigned char **bytes)
{
    struct {
        lua_State *L;
        size_t count;
    } *state = context;
    unsigned char *larger = lua_newuserdata(state->L, room);
    if (state->count)
        memcpy(larger, *bytes, state->count);
    lua_replace(state->L, 3);
    *bytes = larger;
    state->count = room;
    return 0;
}

static int worker_pack(lua_State *L, int index, struct ah_packer *packer)
{
    int status = ah_pack(L, index, packer);
    return status < 0 ? ah_fail_prefix(status, "a worker sends tensors, numbers, texts, booleans and tables of them")
                      : 0;
}

static int send_value(lua_State *L)
{
    struct {
        lua_State *L;
        size_t count;
    } state = {L, 0};
    struct ah_packer packer = {.grow = grow_userdata, .context = &state};
    struct ah_worker *worker = check_worker(L, 1);
    lua_settop(L, 3);
    ah_check(L, worker_pack(L, 2, &packer));
    ah_check(L, ah_worker_send(worker, packer.bytes, packer.count));
    return 0;
}

static int push_message(lua_State *L, struct ah_worker *worker)
{
    const unsigned char *bytes;
    size_t count, at = 0;
    ah_check(L, ah_worker_receive(worker, &bytes, &count));
    if (!bytes)
        return 0;
    ah_check(L, ah_unpack(L, bytes, count, &at));
    return 1;
}

static int worker_receive(lua_State *L)
{
    return push_message(L, check_worker(L, 1));
}

struct answer_slot {
    struct ah_worker *worker;
    int slot;
};

static int grow_slot(void *context, size_t room, unsigned char **bytes)
{
    struct answer_slot *answer = context;
    return ah_worker_room(answer->worker, answer->slot, room, bytes);
}

static int worker_answer(lua_State *L)
{
    struct answer_slot slot = {check_worker(L, 1), (int)luaL_checkinteger(L, 2)};
    struct ah_packer packer = {.grow = grow_slot, .context = &slot};
    int status = worker_pack(L, 3, &packer);
    if (status < 0)
        return ah_push_error(L);
    ah_check(L, ah_worker_answer(slot.worker, slot.slot, packer.count));
    lua_pushboolean(L, 1);
    return 1;
}

static int wait_for(lua_State *L)
{
    struct ah_worker *workers[AH_WORKERS];
    int count = (int)lua_objlen(L, 1), which;
    if (count > AH_WORKERS)
        return ah_raise_text(L, "at most %d workers", AH_WORKERS);
    for (int w = 0; w < count; w++) {
        lua_rawgeti(L, 1, w + 1);
        workers[w] = check_worker(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    int status = ah_worker_wait(workers, count, luaL_optnumber(L, 2, 0), &which);
    if (status < 0)
        return ah_push_error(L);
    lua_pushinteger(L, which + 1);
    return 1 + push_message(L, workers[which]);
}

AH_LUA_VALUE(worker_pid, lua_pushinteger, ah_worker_pid(check_worker(L, 1)))

static const luaL_Reg worker_methods[] = {
    {"send", send_value}, {"receive", worker_receive}, {"answer", worker_answer}, {"pid", worker_pid}, {NULL, NULL},
};
static const struct ah_class worker_class = {"accelhost.worker", worker_methods, NULL, close_one};

int ah_open_worker(lua_State *L)
{
    static const luaL_Reg list[] = {
        {"start", worker_start}, {"wait", wait_for}, {"close", close_all}, {"traceback", ah_traceback}, {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, list);
    return 1;
}
