/* accelhost._C.random: the default generator and Generator objects.
 *
 * manual_seed(n)               seed the generators of all devices; returns nothing. n is any whole number
 * seed(), initial_seed()       seed them from the system and return the seed; the seed in use
 * get_rng_state(device?), set_rng_state(t, device?)   as a uint8 tensor; the CPU's is PyTorch's 5056 bytes
 * Generator(seed?)             a generator of its own, with methods manual_seed, seed, initial_seed, get_state,
 *                              set_state, spawn (a new generator seeded by one draw from this one, as PyTorch's
 *                              samplers do; the seed passes 2^53, so it never becomes a Lua number)
 * default(), is_generator(x)   the default generator as such an object; is x a Generator?
 * randperm(n, generator?)      int64 permutation of 0..n-1 */
#include <math.h>
#include <string.h>

#include "bind/bind.h"
#include "bind/function.h"
#include "tensor/device.h"
#include "tensor/rng.h"

#define GENERATOR "accelhost.Generator"

/* Either its own state or a stand-in for the default generator. */
struct handle {
    struct ah_generator *generator;
    struct ah_generator own;
};

struct ah_generator *ah_to_generator(lua_State *L, int index)
{
    struct handle *handle = lua_touserdata(L, index);
    if (!handle || !lua_getmetatable(L, index))
        return NULL;
    luaL_getmetatable(L, GENERATOR);
    bool ours = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return ours ? handle->generator : NULL;
}

static struct ah_generator *check_generator(lua_State *L, int index)
{
    struct ah_generator *generator = ah_to_generator(L, index);
    if (!generator)
        ah_raise_text(L, "expected a Generator, got %s (call methods with a colon)", luaL_typename(L, index));
    return generator;
}

/* Negative seeds count from the top of 64 bits, as in PyTorch. */
static uint64_t check_seed(lua_State *L, int index)
{
    double seed = lua_tonumber(L, index);
    if (lua_type(L, index) != LUA_TNUMBER || seed != floor(seed) || fabs(seed) > 0x1p53)
        ah_raise_text(L, "manual_seed: expected a whole number up to 2^53, got %s",
                      lua_type(L, index) == LUA_TNUMBER ? lua_tostring(L, index) : luaL_typename(L, index));
    return (uint64_t)(int64_t)seed;
}

static int push_seed(lua_State *L, const struct ah_generator *generator)
{
    int64_t seed = (int64_t)generator->seed;
    if (seed > 1ll << 53 || seed < -(1ll << 53))
        return ah_raise_text(L, "initial_seed: the seed %llu does not fit a Lua number; keep the state instead",
                             (unsigned long long)generator->seed);
    lua_pushnumber(L, (double)seed);
    return 1;
}

/* A uint8 tensor for a state; owned by Lua. */
static uint8_t *push_state_room(lua_State *L, size_t bytes)
{
    struct ah_tensor *state = NULL;
    ah_check(L, ah_tensor_empty(&state, (int64_t[]){(int64_t)bytes}, 1, AH_U8, &ah_cpu));
    ah_push_tensor(L, state);
    return ah_tensor_data(state);
}

static int push_state(lua_State *L, const struct ah_generator *generator)
{
    ah_generator_get_state(generator, push_state_room(L, AH_RNG_STATE_BYTES));
    return 1;
}

static const struct ah_tensor *check_state(lua_State *L, int index, const char *what)
{
    const struct ah_tensor *state = ah_check_tensor(L, index);
    if (state->dtype != AH_U8 || !ah_tensor_is_contiguous(state) || !ah_on_cpu(state))
        ah_raise_text(L, "%s: state: expected a contiguous uint8 tensor on cpu, got %s %s on %s", what,
                      ah_dtype_name(state->dtype), ah_shape(state), state->storage->device->name);
    return state;
}

static void read_state(lua_State *L, struct ah_generator *generator, int index)
{
    const struct ah_tensor *state = check_state(L, index, "set_state");
    ah_check(L, ah_generator_set_state(generator, ah_tensor_data(state), state->numel));
}

static struct handle *push_handle(lua_State *L)
{
    struct handle *handle = lua_newuserdata(L, sizeof *handle);
    handle->generator = &handle->own;
    luaL_getmetatable(L, GENERATOR);
    lua_setmetatable(L, -2);
    return handle;
}

/* The default generator. */

static int manual_seed(lua_State *L)
{
    ah_device_seed_all(check_seed(L, 1));
    return 0;
}

static int seed_default(lua_State *L)
{
    uint64_t seed = ah_generator_seed_any(ah_default_generator());
    ah_device_seed_all(seed);
    lua_pushnumber(L, (double)seed);
    return 1;
}

static int initial_seed(lua_State *L)
{
    return push_seed(L, ah_default_generator());
}

static struct ah_device *opt_device(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? &ah_cpu : ah_check_device(L, index);
}

static int get_rng_state(lua_State *L)
{
    struct ah_device *device = opt_device(L, 1);
    ah_check(L, device->type->get_state(device, push_state_room(L, device->type->state_bytes)));
    return 1;
}

static int set_rng_state(lua_State *L)
{
    const struct ah_tensor *state = check_state(L, 1, "set_rng_state");
    struct ah_device *device = opt_device(L, 2);
    if (state->numel != (int64_t)device->type->state_bytes)
        return ah_raise_text(L, "generator state of %s: expected %zu bytes, got %lld", device->name,
                             device->type->state_bytes, (long long)state->numel);
    ah_check(L, device->type->set_state(device, ah_tensor_data(state)));
    return 0;
}

/* The generator of Lua's math.random: LuaJIT keeps it in a userdata, the first upvalue of math.randomseed. NULL where
 * that is not so. */
static void *find_lua_state(lua_State *L, size_t *bytes)
{
    void *state = NULL;
    lua_getglobal(L, "math");
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "randomseed");
        if (lua_iscfunction(L, -1) && lua_getupvalue(L, -1, 1) && lua_type(L, -1) == LUA_TUSERDATA) {
            state = lua_touserdata(L, -1);
            *bytes = lua_objlen(L, -1);
        }
    }
    lua_settop(L, 1);
    return state;
}

/* lua_state() -> the state of math.random as a string; nil when it is not known */
static int get_lua_state(lua_State *L)
{
    size_t bytes = 0;
    lua_settop(L, 1);
    const char *state = find_lua_state(L, &bytes);
    lua_pushlstring(L, state ? state : "", bytes);
    return state ? 1 : 0;
}

/* set_lua_state(state) -> true; false when it is not one of this program's */
static int set_lua_state(lua_State *L)
{
    size_t bytes = 0, given;
    const char *from = luaL_checklstring(L, 1, &given);
    lua_settop(L, 1);
    void *state = find_lua_state(L, &bytes);
    if (state && bytes == given)
        memcpy(state, from, given);
    lua_pushboolean(L, state && bytes == given);
    return 1;
}

static int is_generator(lua_State *L)
{
    lua_pushboolean(L, ah_to_generator(L, 1) != NULL);
    return 1;
}

static int new_default(lua_State *L)
{
    push_handle(L)->generator = ah_default_generator();
    return 1;
}

static int new_generator(lua_State *L)
{
    uint64_t seed = lua_isnoneornil(L, 1) ? 67280421310721u : check_seed(L, 1);
    ah_generator_seed(&push_handle(L)->own, seed);
    return 1;
}

static int randperm(lua_State *L)
{
    struct ah_generator *generator = lua_isnoneornil(L, 2) ? ah_default_generator() : check_generator(L, 2);
    double n = lua_tonumber(L, 1);
    if (lua_type(L, 1) != LUA_TNUMBER || n < 0 || n != floor(n))
        return ah_raise_text(L, "randperm: expected a whole number of 0 or more, got %s", luaL_typename(L, 1));
    struct ah_tensor *out = NULL;
    ah_check(L, ah_tensor_empty(&out, (int64_t[]){(int64_t)n}, 1, AH_I64, &ah_cpu));
    ah_generator_fill_permutation(generator, ah_tensor_data(out), out->numel);
    ah_push_tensor(L, out);
    return 1;
}

/* Methods. manual_seed and set_state return the generator, so that calls chain. */

static int generator_manual_seed(lua_State *L)
{
    ah_generator_seed(check_generator(L, 1), check_seed(L, 2));
    lua_settop(L, 1);
    return 1;
}

static int generator_seed(lua_State *L)
{
    lua_pushnumber(L, (double)ah_generator_seed_any(check_generator(L, 1)));
    return 1;
}

static int generator_initial_seed(lua_State *L)
{
    return push_seed(L, check_generator(L, 1));
}

static int generator_get_state(lua_State *L)
{
    return push_state(L, check_generator(L, 1));
}

static int generator_set_state(lua_State *L)
{
    read_state(L, check_generator(L, 1), 2);
    lua_settop(L, 1);
    return 1;
}

static int generator_spawn(lua_State *L)
{
    uint64_t seed = ah_generator_draw_seed(check_generator(L, 1));
    ah_generator_seed(&push_handle(L)->own, seed);
    return 1;
}

static int generator_tostring(lua_State *L)
{
    lua_pushfstring(L, "Generator(%s)",
                    check_generator(L, 1) == ah_default_generator() ? "default" : "own state");
    return 1;
}

static const struct ah_function methods[] = {
    /* Start the stream anew from a seed; returns the generator.
     * @return Generator */
    {"manual_seed", generator_manual_seed, "generator:G, seed:i"},
    /* Start the stream anew from a seed that the system gives; returns the seed.
     * @return integer */
    {"seed", generator_seed, "generator:G"},
    /* The seed that the stream began with.
     * @return integer */
    {"initial_seed", generator_initial_seed, "generator:G"},
    /* The stream's state as a uint8 tensor, for set_state.
     * @return Tensor */
    {"get_state", generator_get_state, "generator:G"},
    /* Go on from a state of get_state; returns the generator.
     * @return Generator */
    {"set_state", generator_set_state, "generator:G, state:T"},
    /* A generator of its own whose stream begins with a number drawn from this one.
     * @return Generator */
    {"spawn", generator_spawn, "generator:G"},
    {NULL, NULL, NULL}};

static const struct ah_function functions[] = {
    /* Seed the default generator, from which weights, shuffles, dropout masks and random tensors are drawn;
     * the same seed gives PyTorch's numbers. Returns the generator.
     *     accelhost.manual_seed(0)
     *     accelhost.rand(1)  --> tensor([0.4963])
     * @return Generator */
    {"manual_seed", manual_seed, "seed:i"},
    /* Seed the default generator from the system; returns the seed.
     * @return integer */
    {"seed", seed_default, ""},
    /* The seed with which the default generator began.
     *     accelhost.initial_seed()  --> 0
     * @return integer */
    {"initial_seed", initial_seed, ""},
    /* The state of the default generator as a uint8 tensor, for set_rng_state; of a device's generator with
     * its name.
     *     local state = accelhost.get_rng_state()
     *     local before = accelhost.rand(1)
     *     accelhost.set_rng_state(state)
     *     accelhost.rand(1):equal(before)  --> true
     * @return Tensor */
    {"get_rng_state", get_rng_state, "device:D?"},
    /* Let the default generator (or that of a device) go on from a state of get_rng_state. */
    {"set_rng_state", set_rng_state, "state:T, device:D?"},
    /* A stream of random numbers of its own, for loaders, samplers and splits; seeded from the argument, else
     * as a new PyTorch generator is.
     *     local generator = accelhost.Generator(7)
     *     data.random_split(set, {0.5, 0.5}, {generator = generator})
     * @return Generator */
    {"Generator", new_generator, "seed:i?"},
    {"default", new_default, ""},
    {"randperm", randperm, "n:i, generator:G?"},
    {"is_generator", is_generator, "value:*?"},
    {"lua_state", get_lua_state, ""},
    {"set_lua_state", set_lua_state, "state:s"},
    {NULL, NULL, NULL}};

int ah_open_random(lua_State *L)
{
    luaL_newmetatable(L, GENERATOR);
    lua_newtable(L);
    ah_set_methods(L, lua_gettop(L), methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, generator_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pop(L, 1);
    lua_newtable(L);
    ah_set_functions(L, lua_gettop(L), functions);
    return 1;
}
