/* Generator objects: streams of random numbers created by a script, each of one device. One of the CPU replaces the
 * default generator while an op draws from it; one of another device is a state that is copied into the device
 * meanwhile. */
#pragma once

#include "bind/lua/bind.h"
#include "tensor/device.h"
#include "tensor/rng.h"

struct ah_generator_object {
    struct ah_device *device;
    struct ah_generator *cpu;    /* of the CPU: its own, or the default one; else NULL */
    struct ah_generator *before; /* the previous replacement */
    uint8_t *state, *kept;       /* of another device: its own, and the device's while it is in place */
    uint64_t own_seed;           /* of the CPU: the seed it had before ah_seed_generators, where `derived` */
    bool derived;
};

/* Draw numbers on `device`, which must be of the generator's type, from it until ah_generator_leave. */
int ah_generator_enter(struct ah_generator_object *object, struct ah_device *device);
void ah_generator_leave(struct ah_generator_object *object, struct ah_device *device);

/* The stream of a Generator of the CPU; raises for anything else. */
struct ah_generator *ah_check_cpu_generator(lua_State *L, int index);

/* A state as an argument: a contiguous uint8 tensor on the CPU. */
const struct ah_tensor *ah_check_generator_state(lua_State *L, int index, const char *what);
/* A uint8 tensor for a state; owned by Lua. */
uint8_t *ah_push_generator_state(lua_State *L, size_t bytes);

/* A seed as an argument: any whole number that Lua holds exactly. */
uint64_t ah_check_generator_seed(lua_State *L, int index);
/* One as a result; raises when Lua cannot hold it. */
int ah_push_generator_seed(lua_State *L, uint64_t seed);

/* The constructor, and the default generator as such an object. */
int ah_lua_new_generator(lua_State *L);
int ah_lua_default_generator(lua_State *L);

/* Seed the CPU's default generator and every Generator of the CPU, each by a function of `seed` and its own seed. */
void ah_seed_generators(lua_State *L, uint64_t seed);

/* The state of Lua's math.random, which LuaJIT keeps in a userdata, the first upvalue of math.randomseed. NULL where
 * that is not so. */
void *ah_lua_random_state(lua_State *L, size_t *bytes);

/* Make the objects' methods known, once. */
void ah_open_generators(lua_State *L);
