/* A Generator of another device than the CPU is a state, the seed first: an operation on it runs on the device's own
 * generator, which has that state meanwhile.
 *
 * Methods: manual_seed, seed, initial_seed, get_state, set_state, spawn (a new generator seeded by one draw from this
 * one, as PyTorch's samplers do; the seed passes 2^53, so it never becomes a Lua number); the field `device`. */
#include "bind/lua/generator.h"

#include <math.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/lua/class.h"
#include "bind/lua/function.h"
#include "data/stream.h"

#define LIVE "accelhost.generators" /* in the registry: the Generators of the CPU as weak keys */

/* Its metatable holds the methods (ah_open_generators), as a class in Lua does. */
static const struct ah_class generator_class = {.name = "accelhost.Generator"};

struct ah_generator_object *ah_to_generator(lua_State *L, int index)
{
    return ah_class_to(L, index, &generator_class);
}

static struct ah_generator_object *check_object(lua_State *L, int index)
{
    struct ah_generator_object *object = ah_to_generator(L, index);
    if (!object)
        ah_raise_text(L, "expected a Generator, got %s (call methods with a colon)", luaL_typename(L, index));
    return object;
}

struct ah_generator *ah_check_cpu_generator(lua_State *L, int index)
{
    struct ah_generator_object *object = check_object(L, index);
    if (!object->cpu)
        ah_raise_text(L, "expected a Generator of cpu, got one of %s", object->device->name);
    return object->cpu;
}

int ah_generator_enter(struct ah_generator_object *object, struct ah_device *device)
{
    if (object->cpu) {
        object->before = ah_generator_stand_in(object->cpu);
        return 0;
    }
    AH_TRY(device->type->get_state(device, object->kept));
    return device->type->set_state(device, object->state);
}

void ah_generator_leave(struct ah_generator_object *object, struct ah_device *device)
{
    if (object->cpu) {
        ah_generator_stand_in(object->before);
        return;
    }
    device->type->get_state(device, object->state);
    device->type->set_state(device, object->kept);
}

/* Negative seeds count from the top of 64 bits, as in PyTorch. */
uint64_t ah_check_generator_seed(lua_State *L, int index)
{
    double seed = lua_tonumber(L, index);
    if (lua_type(L, index) != LUA_TNUMBER || seed != floor(seed) || fabs(seed) > 0x1p53)
        ah_raise_text(L, "manual_seed: expected a whole number up to 2^53, got %s",
                      lua_type(L, index) == LUA_TNUMBER ? lua_tostring(L, index) : luaL_typename(L, index));
    return (uint64_t)(int64_t)seed;
}

int ah_push_generator_seed(lua_State *L, uint64_t unsigned_seed)
{
    int64_t seed = (int64_t)unsigned_seed;
    if (seed > 1ll << 53 || seed < -(1ll << 53))
        return ah_raise_text(L, "initial_seed: the seed %llu does not fit a Lua number; keep the state instead",
                             (unsigned long long)unsigned_seed);
    lua_pushnumber(L, (double)seed);
    return 1;
}

uint8_t *ah_push_generator_state(lua_State *L, size_t bytes)
{
    struct ah_tensor *state = NULL;
    ah_check(L, ah_tensor_empty(&state, (int64_t[]){(int64_t)bytes}, 1, AH_U8, &ah_cpu));
    ah_push_tensor(L, state);
    return ah_tensor_data(state);
}

const struct ah_tensor *ah_check_generator_state(lua_State *L, int index, const char *what)
{
    const struct ah_tensor *state = ah_check_tensor(L, index);
    if (state->dtype != AH_U8 || !ah_tensor_is_contiguous(state) || !ah_on_cpu(state))
        ah_raise_text(L, "%s: state: expected a contiguous uint8 tensor on cpu, got %s %s on %s", what,
                      ah_dtype_name(state->dtype), ah_shape(state), state->storage->device->name);
    return state;
}

/* Push an object followed by `room` bytes. */
static struct ah_generator_object *push_object(lua_State *L, struct ah_device *device, size_t room)
{
    struct ah_generator_object *object = ah_class_new(L, &generator_class, sizeof *object + room);
    object->device = device;
    return object;
}

static struct ah_generator_object *push_own(lua_State *L, struct ah_device *device)
{
    size_t bytes = device->type->state_bytes;
    if (device == &ah_cpu) {
        struct ah_generator_object *object = push_object(L, device, sizeof(struct ah_generator));
        object->cpu = (struct ah_generator *)(object + 1);
        lua_getfield(L, LUA_REGISTRYINDEX, LIVE);
        lua_pushvalue(L, -2);
        lua_pushboolean(L, 1);
        lua_rawset(L, -3);
        lua_pop(L, 1);
        return object;
    }
    if (device->draws_on_cpu || bytes < sizeof(uint64_t))
        ah_raise_text(L, "Generator: device: %s %s", device->name,
                      device->draws_on_cpu ? "has its random numbers drawn by the CPU's default generator"
                                           : "draws no random numbers");
    struct ah_generator_object *object = push_object(L, device, 2 * bytes);
    object->state = (uint8_t *)(object + 1);
    object->kept = object->state + bytes;
    ah_check(L, device->type->get_state(device, object->state));
    return object;
}

static int seed_object(struct ah_generator_object *object, uint64_t seed)
{
    if (object->cpu) {
        ah_generator_seed(object->cpu, seed);
        return 0;
    }
    AH_TRY(ah_generator_enter(object, object->device));
    object->device->type->seed(object->device, seed);
    ah_generator_leave(object, object->device);
    return 0;
}

void ah_seed_generators(lua_State *L, uint64_t seed)
{
    ah_generator_seed(ah_default_generator(), (uint32_t)seed);
    lua_getfield(L, LUA_REGISTRYINDEX, LIVE);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        struct ah_generator_object *object = lua_touserdata(L, -2);
        struct ah_stream stream;
        if (!object->derived)
            object->own_seed = object->cpu->seed;
        object->derived = true;
        ah_stream_open(&stream, seed, (int64_t)object->own_seed, 0);
        ah_generator_seed(object->cpu, ah_stream_u32(&stream));
    }
    lua_pop(L, 1);
}

int ah_lua_default_generator(lua_State *L)
{
    push_object(L, &ah_cpu, 0)->cpu = ah_default_generator();
    return 1;
}

/* (seed), (device), (seed, device) or one table of both */
int ah_lua_new_generator(lua_State *L)
{
    static const char *const known[] = {"seed", "device", NULL};
    uint64_t seed = 67280421310721u;
    lua_settop(L, 2);
    if (lua_istable(L, 1)) {
        ah_check_options(L, 1, "Generator", known);
        lua_getfield(L, 1, "device");
        lua_replace(L, 2);
        lua_getfield(L, 1, "seed");
        lua_replace(L, 1);
    } else if (lua_type(L, 1) == LUA_TSTRING && lua_isnil(L, 2)) {
        lua_insert(L, 1);
    }
    if (!lua_isnil(L, 1))
        seed = ah_check_generator_seed(L, 1);
    struct ah_device *device = lua_isnil(L, 2) ? &ah_cpu : ah_check_device(L, 2);
    ah_check(L, seed_object(push_own(L, device), seed));
    return 1;
}

/* Methods. manual_seed and set_state return the generator, so that calls chain. */

static int manual_seed(lua_State *L)
{
    ah_check(L, seed_object(check_object(L, 1), ah_check_generator_seed(L, 2)));
    lua_settop(L, 1);
    return 1;
}

static int seed_any(lua_State *L)
{
    struct ah_generator_object *object = check_object(L, 1);
    struct ah_generator drawn;
    uint64_t seed = ah_generator_seed_any(&drawn);
    ah_check(L, seed_object(object, seed));
    lua_pushnumber(L, (double)seed);
    return 1;
}

static int initial_seed(lua_State *L)
{
    const struct ah_generator_object *object = check_object(L, 1);
    uint64_t seed;
    if (object->cpu)
        seed = object->cpu->seed;
    else
        memcpy(&seed, object->state, sizeof seed);
    return ah_push_generator_seed(L, seed);
}

static int get_state(lua_State *L)
{
    const struct ah_generator_object *object = check_object(L, 1);
    size_t bytes = object->device->type->state_bytes;
    uint8_t *state = ah_push_generator_state(L, bytes);
    if (object->cpu)
        ah_generator_get_state(object->cpu, state);
    else
        memcpy(state, object->state, bytes);
    return 1;
}

/* A device is asked whether that is a state. */
static int take_state(struct ah_generator_object *object, const uint8_t *state)
{
    struct ah_device *device = object->device;
    AH_TRY(ah_generator_enter(object, device));
    int status = device->type->set_state(device, state);
    ah_generator_leave(object, device);
    return status;
}

static int set_state(lua_State *L)
{
    struct ah_generator_object *object = check_object(L, 1);
    const struct ah_tensor *state = ah_check_generator_state(L, 2, "set_state");
    size_t bytes = object->device->type->state_bytes;
    if (object->cpu)
        ah_check(L, ah_generator_set_state(object->cpu, ah_tensor_data(state), state->numel));
    else if (state->numel != (int64_t)bytes)
        ah_raise_text(L, "set_state: a state of %s has %zu bytes, got %lld", object->device->name, bytes,
                      (long long)state->numel);
    else
        ah_check(L, take_state(object, ah_tensor_data(state)));
    lua_settop(L, 1);
    return 1;
}

static int generator_spawn(lua_State *L)
{
    uint64_t seed = ah_generator_draw_seed(ah_check_cpu_generator(L, 1));
    ah_generator_seed(push_own(L, &ah_cpu)->cpu, seed);
    return 1;
}

static int to_string(lua_State *L)
{
    const struct ah_generator_object *object = check_object(L, 1);
    if (object->cpu)
        lua_pushfstring(L, "Generator(%s)", object->cpu == ah_default_generator() ? "default" : "own state");
    else
        lua_pushfstring(L, "Generator(own state, %s)", object->device->name);
    return 1;
}

static const struct ah_function generator_methods[] = {
    /* Restart the stream from a seed; returns the generator.
     * @return Generator */
    {"manual_seed", manual_seed, "generator:G, seed:i"},
    /* Restart the stream from a random seed of the system; returns the seed.
     * @return integer */
    {"seed", seed_any, "generator:G"},
    /* The seed that the stream began with.
     * @return integer */
    {"initial_seed", initial_seed, "generator:G"},
    /* The stream's state as a uint8 tensor, for set_state.
     * @return Tensor */
    {"get_state", get_state, "generator:G"},
    /* Set a state of get_state; returns the generator.
     * @return Generator */
    {"set_state", set_state, "generator:G, state:T"},
    /* A new generator whose stream begins with a number drawn from this one, which is of the CPU.
     * @return Generator */
    {"spawn", generator_spawn, "generator:G"},
    {NULL, NULL, NULL}};

/* Return the field `device`, and methods, which are in the metatable. */
static int get_field(lua_State *L)
{
    const struct ah_generator_object *object = check_object(L, 1);
    const char *name = lua_tostring(L, 2);
    if (name && !strcmp(name, "device")) {
        lua_pushstring(L, object->device->name);
        return 1;
    }
    lua_getmetatable(L, 1);
    lua_pushvalue(L, 2);
    lua_rawget(L, -2);
    return 1;
}

void ah_open_generators(lua_State *L)
{
    lua_newtable(L);
    lua_newtable(L);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_setfield(L, LUA_REGISTRYINDEX, LIVE);
    luaL_newmetatable(L, generator_class.name);
    ah_set_methods(L, lua_gettop(L), generator_methods);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "_class");
    lua_pushcfunction(L, get_field);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, to_string);
    lua_setfield(L, -2, "__tostring");
    lua_pop(L, 1);
}
