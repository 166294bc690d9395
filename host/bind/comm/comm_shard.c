/* A reducer's methods for a rank's shard of a model, implemented in sync/shard.h.
 *
 * piece(parameter)        this rank's shard of it (sync/shard.h) and of its gradient, both [n]; parameters from 1
 * shard(parameter, rank)  the first of its elements that is a rank's (from 0), and their number
 * hold() spread()         before and after a step over the pieces
 * settle() release(unit) make_whole()   on devices: pieces of gradients get the values of the whole ones; whole
 *                         parameters of a unit, or all, are released; all are made whole, a collective
 * weigh() unweigh() are_means() find_sum()   of sharded gradients; find_sum returns nil or a parameter */
#include "bind/comm/comm.h"
#include "sync/shard.h"

static int check_parameter(lua_State *L, struct ah_reducer *r)
{
    int index = ah_check_whole(L, 2, "parameter") - 1;
    if (index < 0 || index >= ah_reducer_count(r))
        ah_raise_text(L, "expected a parameter in 1..%d, got %d", ah_reducer_count(r), index + 1);
    return index;
}

static int reducer_piece(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    int index = check_parameter(L, r);
    for (int gradient = 0; gradient < 2; gradient++) {
        struct ah_tensor *piece;
        ah_check(L, ah_shard_piece(&piece, r, index, gradient));
        ah_push_tensor(L, piece);
    }
    return 2;
}

static int reducer_shard(lua_State *L)
{
    struct ah_reducer *r = ah_check_reducer(L);
    int index = check_parameter(L, r);
    struct ah_run run = ah_shard_of_param(r, index, ah_check_whole(L, 3, "rank"));
    lua_pushnumber(L, (double)run.first);
    lua_pushnumber(L, (double)run.count);
    return 2;
}

AH_LUA_CHECKED(reducer_hold, ah_shard_hold(ah_check_reducer(L), ah_call_site(L)))
AH_LUA_CHECKED(reducer_spread, ah_shard_spread(ah_check_reducer(L), ah_call_site(L)))
AH_LUA_CHECKED(reducer_settle, ah_shard_settle(ah_check_reducer(L)))

static int reducer_release(lua_State *L)
{
    int unit = lua_isnoneornil(L, 2) ? -1 : ah_check_whole(L, 2, "unit");
    ah_check(L, ah_shard_release(ah_check_reducer(L), unit));
    return 0;
}

AH_LUA_CHECKED(reducer_make_whole, ah_shard_make_whole(ah_check_reducer(L), ah_call_site(L)))
AH_LUA_CHECKED(reducer_weigh, ah_shard_weigh(ah_check_reducer(L)))
AH_LUA_CHECKED(reducer_unweigh, ah_shard_unweigh(ah_check_reducer(L)))
AH_LUA_CALL(reducer_are_means, ah_shard_are_means(ah_check_reducer(L)))

static int reducer_find_sum(lua_State *L)
{
    int index = ah_shard_find_sum(ah_check_reducer(L));
    if (index < 0)
        return 0;
    lua_pushinteger(L, index + 1);
    return 1;
}

const luaL_Reg ah_comm_shards[] = {
    {"piece", reducer_piece}, {"shard", reducer_shard}, {"hold", reducer_hold}, {"spread", reducer_spread},
    {"settle", reducer_settle}, {"release", reducer_release}, {"make_whole", reducer_make_whole},
    {"weigh", reducer_weigh}, {"unweigh", reducer_unweigh}, {"are_means", reducer_are_means},
    {"find_sum", reducer_find_sum}, {NULL, NULL},
};
