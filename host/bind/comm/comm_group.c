/* Groups in Lua: the job's, and subgroups as userdata, closed when collected.
 *
 * split(color, key = 0) -> group or nil     the ranks of one color as a group, ordered by key; nil for a color below 0
 * backend(type) the transport of its data: "self", "shm"; of devices of a type ("cuda"): "nccl",
 *                                           or "shm" where they are copied through the host
 * device_comm(choice)                       may it have a device communicator: "any", "none", "only"; -> the choice
 *                                           before
 * world()                                   the job's as userdata
 * timeout(seconds)                          the longest time that a call waits; sets it if `seconds` is passed
 * group:rank() group:size()                 in the group */
#include <string.h>

#include "bind/comm/comm.h"
#include "bind/lua/class.h"
#include "comm/group/device_comm.h"

static const struct ah_class group_class;

static struct ah_group **to_group(lua_State *L, int index)
{
    return ah_class_to(L, index, &group_class);
}

struct ah_entry ah_comm_enter(lua_State *L)
{
    struct ah_entry entry = {.first = 1};
    struct ah_group **group = to_group(L, 1);
    if (group) {
        entry.group = *group;
        entry.first = 2;
        if (!*group)
            ah_raise_text(L, "the group was closed");
    } else {
        ah_check(L, ah_group_default(&entry.group));
    }
    return entry;
}

struct ah_group *ah_comm_option_group(lua_State *L, int options)
{
    struct ah_group *group;
    if (lua_istable(L, options)) {
        lua_getfield(L, options, "group");
        struct ah_group **given = to_group(L, lua_gettop(L));
        bool closed = given && !*given;
        lua_pop(L, 1);
        if (closed)
            ah_raise_text(L, "the group was closed");
        if (given)
            return *given;
    }
    ah_check(L, ah_group_default(&group));
    return group;
}

void ah_push_group(lua_State *L, struct ah_group *group)
{
    if (!group) {
        lua_pushnil(L);
        return;
    }
    struct ah_group **at = ah_class_new(L, &group_class, sizeof *at);
    *at = group;
}

static int group_split(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    int color = ah_check_whole(L, entry.first, "color");
    int key = lua_isnoneornil(L, entry.first + 1) ? 0 : ah_check_whole(L, entry.first + 1, "key");
    struct ah_group *part;
    ah_check(L, ah_group_split(&part, entry.group, color, key, ah_call_site(L)));
    ah_push_group(L, part);
    return 1;
}

/* Return the name of the device communicator of a type of devices where it is usable, else NULL and set the error. */
static const char *device_backend_name(const char *device)
{
    const struct ah_device_comm_type *type;
    if (ah_device_comm_type_of(device, &type) < 0)
        return NULL;
    if (!type)
        ah_fail(AH_EINVAL, "devices of this type have no collectives");
    return type && type->available() == 0 ? type->moves.name : NULL;
}

/* device_backend(type) -> name; or nil and the reason. */
int ah_comm_device_backend(lua_State *L)
{
    const char *name = device_backend_name(luaL_checkstring(L, 1));
    if (name) {
        lua_pushstring(L, name);
        return 1;
    }
    return ah_push_error(L);
}

static int group_backend(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    const char *type = luaL_optstring(L, entry.first, "cpu"), *name = NULL;
    if (strcmp(type, "cpu") && ah_group_communicates(entry.group)) {
        name = ah_group_device_comm(entry.group);
        if (!name && !ah_group_has_asked(entry.group) && ah_group_may_have_device_comm(entry.group))
            name = device_backend_name(type);
    }
    lua_pushstring(L, name ? name : ah_group_backend(entry.group));
    return 1;
}

static int device_comm(lua_State *L)
{
    static const char *const names[] = {"any", "none", "only", NULL};
    struct ah_entry entry = ah_comm_enter(L);
    int choice = luaL_checkoption(L, entry.first, "any", names);
    lua_pushstring(L, names[ah_group_choose_device_comm(entry.group, (enum ah_device_comm_choice)choice)]);
    return 1;
}

int ah_comm_world(lua_State *L)
{
    struct ah_group *group;
    ah_check(L, ah_group_default(&group));
    ah_push_group(L, ah_group_retain(group));
    return 1;
}

static int group_timeout(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    double seconds = luaL_optnumber(L, entry.first, 0);
    if (!lua_isnoneornil(L, entry.first) && !(seconds > 0 && seconds < 1e9))
        return ah_raise_text(L, "timeout: expected seconds above 0, got %g", seconds);
    lua_pushnumber(L, (double)ah_group_timeout(entry.group, (int64_t)(seconds * 1e9)) / 1e9);
    return 1;
}

AH_LUA_VALUE(group_rank, lua_pushinteger, ah_group_rank(ah_comm_enter(L).group))
AH_LUA_VALUE(group_size, lua_pushinteger, ah_group_size(ah_comm_enter(L).group))

AH_CLASS_CLOSER(group_close, group_class, struct ah_group, ah_group_close)

const luaL_Reg ah_comm_groups[] = {{"split", group_split},
                                   {"backend", group_backend},
                                   {"device_comm", device_comm},
                                   {"timeout", group_timeout},
                                   {NULL, NULL}};

static const luaL_Reg group_methods[] = {
    {"rank", group_rank}, {"size", group_size}, {"close", group_close}, {NULL, NULL}};
static const struct ah_class group_class = {"accelhost.comm.group", group_methods, NULL, group_close};

void ah_open_group_class(lua_State *L)
{
    ah_class_add(L, &group_class, ah_comm_calls);
    ah_class_add(L, &group_class, ah_comm_works);
    ah_class_add(L, &group_class, ah_comm_messages);
    ah_class_add(L, &group_class, ah_comm_groups);
}
