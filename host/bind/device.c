/* accelhost._C.device: the devices as Lua sees them. A device is its name, "cpu" or "cuda:1"; names are looked up at
 * each call (ah_device_find), so nothing here holds one.
 *
 * default(), set_default(name)   where constructors without `device` make tensors
 * count(type)                    how many devices of a type there are; 0 when its plugin is not here
 * is_name(text)                  could this be meant as a device's name (and not as a dtype's)?
 * synchronize(name?)             wait until a device, or all open ones, have done what they were asked to */
#include "bind/bind.h"

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
    lua_pushinteger(L, ah_device_count(luaL_checkstring(L, 1)));
    return 1;
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
    static const luaL_Reg functions[] = {
        {"default", get_default}, {"set_default", set_default}, {"count", count},
        {"is_name", is_name},     {"synchronize", synchronize}, {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
