/* accelhost._C.device: the devices as Lua sees them. A device is its name, "cpu" or "cuda:1"; names are looked up at
 * each call (ah_device_find), so nothing here holds one.
 *
 * get_default_device(), set_default_device(name)   where constructors without `device` make tensors
 * device_count(type)   the number of devices of a type; 0 when its plugin is not here
 * missing(type)        the reason why a type has no device, in one line; nil when there is one
 * describe(type, index) the description of the type (index -1) or of a device; nil when there is none
 * facts(type, index)   properties of a device by name, as a table; nil when there are none
 * sensors(type, card)  readings of a card of the host by name, as a table; nil when there is no such card
 * memory_info(name)    free bytes, all bytes, pinned bytes of the host; nil when unknown
 * reset_peak(name)     set the peak of live bytes to the current value
 * trim(name)           free its cached memory
 * seed(name, seed)     seed its generator; seed_type(type, seed) those of all devices of a type, open or not
 * current(type)        the index that the bare name means
 * set_current(name)    let the bare name of its type mean this device
 * start_times(name)    begin to time the device's work; earlier times are dropped
 * stop_times(name)     wait for the device -> an array of {op, kernel, count, microseconds, bytes, operations,
 *                      least_microseconds}
 * report_ranges(type, on) report ops, backward, steps and the script's ranges to the type's profiler, or no longer
 * computes(name, op)   has a device a kernel of an op? Others are composed of ops that it has
 * is_name(text)        could this be meant as a device's name (and not as a dtype's)?
 * synchronize(name?)   wait until a device, or all open ones, have completed their queued work */
#include <string.h>

#include "bind/lua/bind.h"
#include "bind/lua/function.h"

AH_LUA_VALUE(get_default, lua_pushstring, ah_default_device->name)

static int set_default(lua_State *L)
{
    ah_default_device = ah_check_device(L, 1);
    return 0;
}

AH_LUA_VALUE(device_count, lua_pushinteger, ah_device_count(lua_tostring(L, 1)))
AH_LUA_VALUE(device_missing, lua_pushstring, ah_device_missing(lua_tostring(L, 1)))

static int device_describe(lua_State *L)
{
    char text[512];
    bool found = ah_device_describe(lua_tostring(L, 1), (int)lua_tointeger(L, 2), text, sizeof text) == 0;
    lua_pushstring(L, found ? text : NULL);
    return 1;
}

/* Set a field of the table on top. */
static void set_property(lua_State *L, const struct ah_device_property *property)
{
    bool flag = !strcmp(property->text, "true") || !strcmp(property->text, "false");
    if (flag)
        lua_pushboolean(L, property->text[0] == 't');
    else if (property->text[0])
        lua_pushstring(L, property->text);
    else
        lua_pushnumber(L, property->number);
    lua_setfield(L, -2, property->name);
}

static int device_properties(lua_State *L)
{
    const char *type = lua_tostring(L, 1);
    int index = (int)lua_tointeger(L, 2);
    struct ah_device_property property;
    lua_newtable(L);
    for (int i = 0; ah_device_property(type, index, i, &property); i++)
        set_property(L, &property);
    return 1;
}

static int device_sensors(lua_State *L)
{
    struct ah_device_property reading[AH_DEVICE_SENSORS];
    int count = ah_device_sensors(lua_tostring(L, 1), (int)lua_tointeger(L, 2), reading);
    if (count == 0)
        return 0;
    lua_createtable(L, 0, count);
    for (int i = 0; i < count; i++)
        set_property(L, &reading[i]);
    return 1;
}

static int memory_info(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    size_t bytes[3];
    if (!device->type->memory_info)
        return 0;
    ah_check(L, device->type->memory_info(device, &bytes[0], &bytes[1], &bytes[2]));
    for (int i = 0; i < 3; i++)
        lua_pushnumber(L, (double)bytes[i]);
    return 3;
}

static int reset_peak(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    if (device->type->reset_peak)
        device->type->reset_peak(device);
    return 0;
}

static int device_trim(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    device->type->trim(device);
    return 0;
}

static int device_seed(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    device->type->seed(device, (uint64_t)(int64_t)lua_tonumber(L, 2));
    return 0;
}

AH_LUA_CALL(seed_type, ah_device_seed_type(lua_tostring(L, 1), (uint64_t)(int64_t)lua_tonumber(L, 2)))
AH_LUA_VALUE(device_current, lua_pushinteger, ah_device_current(lua_tostring(L, 1)))
AH_LUA_CALL(set_current, ah_device_make_current(ah_check_device(L, 1)))

/* The open devices that have a generator, the CPU first. */
static int device_opened(lua_State *L)
{
    struct ah_device *device;
    lua_newtable(L);
    for (int i = 0, n = 0; (device = ah_device_open_at(i)); i++) {
        if (device->type->state_bytes == 0)
            continue;
        lua_pushstring(L, device->name);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

static int device_computes(lua_State *L)
{
    const struct ah_device *device = ah_check_device(L, 1);
    const struct ah_op *op = ah_op_find(luaL_checkstring(L, 2));
    lua_pushboolean(L, op && device->kernels[op->id]);
    return 1;
}

AH_LUA_VALUE(is_name, lua_pushboolean, lua_type(L, 1) == LUA_TSTRING && ah_device_is_name(lua_tostring(L, 1)))

static const struct ah_time_functions *check_times(lua_State *L, struct ah_device **device)
{
    *device = ah_check_device(L, 1);
    if (!(*device)->type->times)
        luaL_error(L, "%s: its kernels cannot be timed; only those of CUDA devices can", (*device)->name);
    return (*device)->type->times;
}

static int start_times(lua_State *L)
{
    struct ah_device *device;
    const struct ah_time_functions *times = check_times(L, &device);
    ah_check(L, times->start(device));
    return 0;
}

static int stop_times(lua_State *L)
{
    struct ah_device *device;
    const struct ah_time_functions *times = check_times(L, &device);
    struct ah_device_time row;
    ah_check(L, times->stop(device));
    lua_newtable(L);
    for (size_t i = 0; times->read(device, i, &row); i++) {
        lua_createtable(L, 0, 7);
        lua_pushstring(L, row.op);
        lua_setfield(L, -2, "op");
        lua_pushstring(L, row.kernel);
        lua_setfield(L, -2, "kernel");
        const struct {
            const char *name;
            double value;
        } numbers[] = {{"count", (double)row.count}, {"microseconds", row.microseconds}, {"bytes", row.bytes},
                       {"operations", row.operations}, {"least_microseconds", row.least_microseconds}};
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            lua_pushnumber(L, numbers[k].value);
            lua_setfield(L, -2, numbers[k].name);
        }
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

AH_LUA_CHECKED(report_ranges, ah_device_report_ranges(lua_tostring(L, 1), lua_toboolean(L, 2)))

static int device_synchronize(lua_State *L)
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
        /* The number of devices of a type; 0 when its plugin is not here.
         *     accelhost.device_count "cpu"  --> 1
         * @return integer */
        {"device_count", device_count, "type:s"},
        {"missing", device_missing, "type:s"},
        {"describe", device_describe, "type:s, index:i"},
        {"properties", device_properties, "type:s, index:i"},
        {"sensors", device_sensors, "type:s, card:i"},
        {"memory_info", memory_info, "device:D"},
        {"reset_peak", reset_peak, "device:D"},
        {"trim", device_trim, "device:D"},
        {"seed", device_seed, "device:D, seed:n"},
        {"seed_type", seed_type, "type:s, seed:n"},
        {"current", device_current, "type:s"},
        {"set_current", set_current, "device:D"},
        {"opened", device_opened, ""},
        {"start_times", start_times, "device:D"},
        {"stop_times", stop_times, "device:D"},
        {"report_ranges", report_ranges, "type:s, on:b"},
        {"computes", device_computes, "device:D, op:s"},
        {"is_name", is_name, "text:*?"},
        /* Wait until a device, or all that are open, have completed their queued work.
         *     accelhost.synchronize() */
        {"synchronize", device_synchronize, "device:D?"},
        {NULL, NULL, NULL},
    };
    return ah_new_library(L, functions);
}
