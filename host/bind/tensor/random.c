/* accelhost._C.random: the default generator and Generator objects.
 *
 * manual_seed(n)               seed the generators of all devices; returns nothing. n is any whole number
 * seed(), initial_seed()       seed them from the system and return the seed; the seed in use
 * get_rng_state(device?), set_rng_state(t, device?)   as a uint8 tensor; the CPU's is PyTorch's 5056 bytes
 * Generator(seed?, device?)    a separate generator (bind/lua/generator.c)
 * default(), is_generator(x)   the default generator as such an object; is x a Generator?
 * randperm(n, generator?)      int64 permutation of 0..n-1 */
#include <math.h>
#include <string.h>

#include "bind/lua/bind.h"
#include "bind/lua/function.h"
#include "bind/lua/generator.h"

/* The default generator. */

AH_LUA_CALL(manual_seed, ah_device_seed_all(ah_check_generator_seed(L, 1)))

static int seed_default(lua_State *L)
{
    uint64_t seed = ah_generator_seed_any(ah_default_generator());
    ah_device_seed_all(seed);
    lua_pushnumber(L, (double)seed);
    return 1;
}

static int initial_seed(lua_State *L)
{
    return ah_push_generator_seed(L, ah_default_generator()->seed);
}

static struct ah_device *opt_device(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? &ah_cpu : ah_check_device(L, index);
}

static int get_rng_state(lua_State *L)
{
    struct ah_device *device = opt_device(L, 1);
    ah_check(L, device->type->get_state(device, ah_push_generator_state(L, device->type->state_bytes)));
    return 1;
}

static int set_rng_state(lua_State *L)
{
    const struct ah_tensor *state = ah_check_generator_state(L, 1, "set_rng_state");
    struct ah_device *device = opt_device(L, 2);
    if (state->numel != (int64_t)device->type->state_bytes)
        return ah_raise_text(L, "generator state of %s: expected %zu bytes, got %lld", device->name,
                             device->type->state_bytes, (long long)state->numel);
    ah_check(L, device->type->set_state(device, ah_tensor_data(state)));
    return 0;
}

void *ah_lua_random_state(lua_State *L, size_t *bytes)
{
    int top = lua_gettop(L);
    void *state = NULL;
    *bytes = 0;
    lua_getglobal(L, "math");
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "randomseed");
        if (lua_iscfunction(L, -1) && lua_getupvalue(L, -1, 1) && lua_type(L, -1) == LUA_TUSERDATA) {
            state = lua_touserdata(L, -1);
            *bytes = lua_objlen(L, -1);
        }
    }
    lua_settop(L, top);
    return state;
}

/* lua_state() -> the state of math.random as a string; nil when it is not known */
static int get_lua_state(lua_State *L)
{
    size_t bytes;
    const char *state = ah_lua_random_state(L, &bytes);
    lua_pushlstring(L, state ? state : "", bytes);
    return state ? 1 : 0;
}

/* set_lua_state(state) -> true; false when it is not one of this program's */
static int set_lua_state(lua_State *L)
{
    size_t bytes, given;
    const char *from = luaL_checklstring(L, 1, &given);
    void *state = ah_lua_random_state(L, &bytes);
    if (state && bytes == given)
        memcpy(state, from, given);
    lua_pushboolean(L, state && bytes == given);
    return 1;
}

AH_LUA_VALUE(is_generator, lua_pushboolean, ah_to_generator(L, 1) != NULL)

static int tensor_randperm(lua_State *L)
{
    struct ah_generator *generator = lua_isnoneornil(L, 2) ? ah_default_generator() : ah_check_cpu_generator(L, 2);
    double n = lua_tonumber(L, 1);
    if (lua_type(L, 1) != LUA_TNUMBER || n < 0 || n != floor(n))
        return ah_raise_text(L, "randperm: expected a whole number of 0 or more, got %s", luaL_typename(L, 1));
    struct ah_tensor *out = NULL;
    ah_check(L, ah_tensor_empty(&out, (int64_t[]){(int64_t)n}, 1, AH_I64, &ah_cpu));
    ah_generator_fill_permutation(generator, ah_tensor_data(out), out->numel);
    ah_push_tensor(L, out);
    return 1;
}

static const struct ah_function random_functions[] = {
    /* Seed the default generator, from which weights, shuffles, dropout masks and random tensors are drawn; the same
     * seed draws PyTorch's numbers. Returns the generator.
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
    /* Set the default generator (or that of a device) to a state of get_rng_state. */
    {"set_rng_state", set_rng_state, "state:T, device:D?"},
    /* A separate stream of random numbers, for loaders, samplers and splits, and as the option `generator` of functions
     * that draw; of a device, whose tensors alone it fills, default "cpu". Seeded from the argument, else as a new
     * PyTorch generator is. Its field `device` is the device's name.
     *     local generator = accelhost.Generator(7)
     *     data.random_split(set, {0.5, 0.5}, {generator = generator})
     *     local noise = accelhost.Generator{device = "cpu", seed = 3}
     *     accelhost.rand(2, {generator = noise}):shape()[1]  --> 2
     * @param seed? integer|string|table a seed, the name of a device, or a table of both
     * @param device? string
     * @return Generator */
    {"Generator", ah_lua_new_generator, "seed:*?, device:D?"},
    {"default", ah_lua_default_generator, ""},
    {"randperm", tensor_randperm, "n:i, generator:G?"},
    {"is_generator", is_generator, "value:*?"},
    {"lua_state", get_lua_state, ""},
    {"set_lua_state", set_lua_state, "state:s"},
    {NULL, NULL, NULL}};

int ah_open_random(lua_State *L)
{
    ah_open_generators(L);
    return ah_new_library(L, random_functions);
}
