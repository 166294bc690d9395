/* accelhost._C.device: the devices as Lua sees them. A device is its name, "cpu" or "cuda:1"; names are looked up at
 * each call (ah_device_find), so nothing here holds one.
 *
 * get_default_device(), set_default_device(name)   where constructors without `device` make tensors
 * device_count(type)   how many devices of a type there are; 0 when its plugin is not here
 * missing(type)        why there is none of a type, in one line; nil when there is one
 * describe(type, index) what the type tells of itself (index -1) or of a device; nil when it tells nothing
 * set_current(name)    have the bare name of its type mean this device
 * is_name(text)        could this be meant as a device's name (and not as a dtype's)?
 * synchronize(name?)   wait until a device, or all open ones, have done what they were asked to */
#include "bind/bind.h"
#include "bind/function.h"

static int get_default(lua_State *L)
{
    lua_pushstring(L, ah_default_device->name);
    return 1;
}

static int set_default(lua_State *L)
{
    ah_default_device = ah_check_device(L, 1);
    return 0;
}

static int count(lua_State *L)
{
    lua_pushinteger(L, ah_device_count(lua_tostring(L, 1)));
    return 1;
}

static int missing(lua_State *L)
{
    lua_pushstring(L, ah_device_missing(lua_tostring(L, 1)));
    return 1;
}

static int describe(lua_State *L)
{
    char text[512];
    bool told = ah_device_describe(lua_tostring(L, 1), (int)lua_tointeger(L, 2), text, sizeof text) == 0;
    lua_pushstring(L, told ? text : NULL);
    return 1;
}

static int set_current(lua_State *L)
{
    ah_device_make_current(ah_check_device(L, 1));
    return 0;
}

static int is_name(lua_State *L)
{
    lua_pushboolean(L, lua_type(L, 1) == LUA_TSTRING && ah_device_is_name(lua_tostring(L, 1)));
    return 1;
}

static int synchronize(lua_State *L)
{
    struct ah_device *only = lua_isnoneornil(L, 1) ? NULL : ah_check_device(L, 1), *device;
    for (int i = 0; (device = ah_device_open_at(i)); i++)
        if (!only || device == only)
            ah_check(L, device->type->synchronise(device, NULL));
    return 0;
}

int ah_open_device(lua_State *L)
{
    static const struct ah_function functions[] = {
        /* The device on which tensors are made unless one is named.
         *     accelhost.get_default_device()  --> cpu
         * @return string */
        {"get_default_device", get_default, ""},
        /* Make tensors on this device from now on, unless one is named.
         *     accelhost.set_default_device "cpu" */
        {"set_default_device", set_default, "device:D"},
        /* How many devices of a type there are; 0 when its plugin is not here.
         *     accelhost.device_count "cpu"  --> 1
         * @return integer */
        {"device_count", count, "type:s"},
        {"missing", missing, "type:s"},
        {"describe", describe, "type:s, index:i"},
        {"set_current", set_current, "device:D"},
        {"is_name", is_name, "text:*?"},
        /* Wait until a device, or all that are open, have done what they were asked to.
         *     accelhost.synchronize() */
        {"synchronize", synchronize, "device:D?"},
        {NULL, NULL, NULL},
    };
    lua_newtable(L);
    ah_set_functions(L, lua_gettop(L), functions);
    return 1;
}
