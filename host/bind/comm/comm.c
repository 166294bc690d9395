/* accelhost._C.comm: collectives on tensors, groups, and the reducer.
 *
 * rank() size() local_rank() local_size()      of this process in the job
 * take_place(rank, size, place)                in a job without a launcher
 * is_terminal(fd)                              of the job's output, and its columns
 * begin_line(n) end_line(n) group_status() renew()  for a prompt in several processes
 * carry()                                      out the collectives that were begun: before and after a capture
 * device_backend(type)                         the backend for data of devices, "nccl" of "cuda"
 * new_reducer(params, buffers, {bucket_cap_mb}) -> reducer (comm_reducer.c)
 * share_constants(tensors) -> shared (comm_reducer.c)
 *
 * and, with the job's group or as methods of a result of split:
 * backend() split(color, key) timeout(seconds) comm_group.c
 * all_reduce(t, op) ... barrier()              comm_call.c
 * collective(...) all_reduce_async(t, op) ...  comm_work.c
 * send(t, peer) recv(t, peer)                  comm_message.c
 *
 * op is "sum" (default), "mean", "max", "min", "product", "and", "or" or "xor"; ranks count from 0. Every call is
 * fingerprinted with its script line. A 0-dim tensor counts as one of shape (1) where dim 0 is needed. */
#include "bind/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>

#include "comm/control/control_block.h"
#include "comm/control/topology.h"
#include "comm/join/rank.h"

static int push_topology(lua_State *L, size_t field)
{
    struct ah_topology topology;
    ah_check(L, ah_topology_from_environment(&topology));
    lua_pushinteger(L, *(const int *)((const char *)&topology + field));
    return 1;
}

static int comm_rank(lua_State *L)
{
    return push_topology(L, offsetof(struct ah_topology, rank));
}

static int comm_size(lua_State *L)
{
    return push_topology(L, offsetof(struct ah_topology, size));
}

/* take_place(rank, size, place): join a job that no launcher started; `place`, which may be nil, identifies the job. */
static int take_place(lua_State *L)
{
    char text[16];
    int rank = ah_check_whole(L, 1, "rank"), ranks = ah_check_whole(L, 2, "world_size");
    if (ah_group_default_is_open())
        return ah_raise_text(L, "this process has begun as one of %s: join a job before anything else",
                             getenv("WORLD_SIZE") ? getenv("WORLD_SIZE") : "1");
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", ranks);
    setenv("WORLD_SIZE", text, 1);
    if (!lua_isnoneornil(L, 3))
        setenv("MASTER_PORT", luaL_checkstring(L, 3), 1);
    return 0;
}

static int local_rank(lua_State *L)
{
    return push_topology(L, offsetof(struct ah_topology, local_rank));
}

static int local_size(lua_State *L)
{
    return push_topology(L, offsetof(struct ah_topology, local_size));
}

/* is_terminal(fd) -> boolean, columns: of the job's output (1) or error (2), also when the launcher writes it. */
static int is_terminal(lua_State *L)
{
    int columns;
    lua_pushboolean(L, ah_rank_terminal((int)luaL_checkinteger(L, 1), &columns));
    lua_pushinteger(L, columns);
    return 2;
}

/* begin_line(n), end_line(n): of a prompt whose lines run in several processes. */
AH_LUA_CALL(begin_line, ah_rank_begin_line(ah_check_whole(L, 1, "line")))
AH_LUA_CALL(end_line, ah_rank_end_line(ah_check_whole(L, 1, "line")))

/* group_status() -> has a group failed?, {calls made, by group}: equal on all idle ranks, except for groups that not
 * all ranks are in. */
static int group_status(lua_State *L)
{
    struct ah_group_status list[AH_MAX_GROUPS];
    int count = ah_groups_status(list, AH_MAX_GROUPS);
    char name[24];
    lua_pushboolean(L, ah_groups_have_failed());
    lua_createtable(L, 0, count);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%llx", (unsigned long long)list[i].identity);
        lua_pushinteger(L, (lua_Integer)list[i].calls);
        lua_setfield(L, -2, name);
    }
    return 2;
}

AH_LUA_CHECKED(comm_renew, ah_groups_renew())
AH_LUA_CHECKED(comm_carry, ah_groups_carry())

int ah_open_comm(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"rank", comm_rank},
        {"size", comm_size},
        {"take_place", take_place},
        {"local_rank", local_rank},
        {"local_size", local_size},
        {"is_terminal", is_terminal},
        {"new_reducer", ah_comm_new_reducer},
        {"share_constants", ah_comm_share_constants},
        {"world", ah_comm_world},
        {"device_backend", ah_comm_device_backend},
        {"begin_line", begin_line},
        {"end_line", end_line},
        {"group_status", group_status},
        {"renew", comm_renew},
        {"carry", comm_carry},
        {NULL, NULL},
    };
    ah_open_group_class(L);
    ah_open_reducer_class(L);
    lua_newtable(L);
    luaL_register(L, NULL, ah_comm_calls);
    luaL_register(L, NULL, ah_comm_works);
    luaL_register(L, NULL, ah_comm_messages);
    luaL_register(L, NULL, ah_comm_groups);
    luaL_register(L, NULL, functions);
    return 1;
}
