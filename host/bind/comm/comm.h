/* Shared by the files of accelhost._C.comm: groups as userdata, and arguments of collectives. */
#pragma once

#include "bind/lua/bind.h"
#include "comm/group/group.h"

/* Every function of the module is also a method of a group: where argument 1 is one, it is used, else the job's. */
struct ah_entry {
    struct ah_group *group; /* borrowed from the userdata or the process */
    int first;              /* index of the first other argument */
};
struct ah_entry ah_comm_enter(lua_State *L);
struct ah_group *ah_comm_option_group(lua_State *L, int options); /* its field `group`, else the job's; borrowed */

/* Push a group's userdata; consumes the reference. NULL pushes nil. */
void ah_push_group(lua_State *L, struct ah_group *group);

int ah_check_whole(lua_State *L, int index, const char *what); /* a whole number */
enum ah_reduce_op ah_check_reduce_op(lua_State *L, int index); /* nil: sum */

/* The device on whose memory a group makes a call by a device communicator (comm/group/device_comm.h); NULL: tensors go
 * by the host. `any` is one of the call's tensors, NULL where it has none on this rank. A collective, the first time.
 */
int ah_comm_reach(lua_State *L, struct ah_group *group, enum ah_collective_kind kind, enum ah_reduce_op op,
                  const struct ah_tensor *any, struct ah_device **out);
/* A tensor's elements dense and where they can be reached, on `device`, or by the host (NULL): the tensor itself,
 * retained, where it is that. */
int ah_comm_pack(struct ah_tensor **out, struct ah_tensor *tensor, struct ah_device *device);
/* After a collective in place: copy the elements back if `status` is 0, release `packed`, return `status`. */
int ah_comm_unpack(struct ah_tensor *tensor, struct ah_tensor *packed, int status);

/* The shape of a collective's result: dim 0 times or over the number of ranks, or as it is. */
enum ah_shape_rule { AH_SHAPE_GROW, AH_SHAPE_SHRINK, AH_SHAPE_KEEP };
int ah_comm_result(struct ah_tensor **out, const char *name, const struct ah_tensor *in, enum ah_shape_rule rule,
                   int ranks, struct ah_device *device);
/* Move a result to the device of `like`; replaces *result. */
int ah_comm_bring_home(struct ah_tensor **result, const struct ah_tensor *like);

/* Functions of the module and methods of groups, methods of reducers; each list ends with a NULL name. */
extern const luaL_Reg ah_comm_calls[], ah_comm_works[], ah_comm_messages[], ah_comm_groups[], ah_comm_shards[];

/* The classes whose methods are in several files, and functions of the module alone. */
void ah_open_group_class(lua_State *L);
void ah_open_reducer_class(lua_State *L);
int ah_comm_new_reducer(lua_State *L);
int ah_comm_share_constants(lua_State *L);
/* The open reducer that is argument 1. */
struct ah_reducer *ah_check_reducer(lua_State *L);
int ah_comm_world(lua_State *L);
int ah_comm_device_backend(lua_State *L);
