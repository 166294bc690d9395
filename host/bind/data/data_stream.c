/* accelhost._C.data: the random numbers of one sample, or of the default generator.
 *
 * A source is a stream (data/stream.h) or nil, the default generator; both convert 32-bit words to numbers as PyTorch
 * does. */
#include <math.h>
#include <string.h>

#include "bind/data/data.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/generator.h"
#include "data/stream.h"

static const struct ah_class stream_class = {.name = "accelhost.stream"};

struct ah_generator *ah_opt_generator(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? ah_default_generator() : ah_check_cpu_generator(L, index);
}

const unsigned char *ah_check_draw(lua_State *L, int index, int64_t *count)
{
    struct ah_tensor *tensor = ah_check_tensor(L, index);
    if (tensor->dtype != AH_U8 || tensor->ndim != 1 || !ah_tensor_is_contiguous(tensor) || !ah_on_cpu(tensor))
        ah_raise_text(L, "expected a draw (a contiguous uint8 tensor on cpu), got %s %s on %s",
                      ah_dtype_name(tensor->dtype), ah_shape(tensor), tensor->storage->device->name);
    *count = tensor->numel;
    return ah_tensor_data(tensor);
}

uint64_t ah_check_seed_bytes(lua_State *L, int index)
{
    int64_t count;
    uint64_t seed;
    const unsigned char *bytes = ah_check_draw(L, index, &count);
    if (count != AH_SEED_BYTES)
        ah_raise_text(L, "expected a seed of %d bytes, got %lld", AH_SEED_BYTES, (long long)count);
    memcpy(&seed, bytes, AH_SEED_BYTES);
    return seed;
}

static uint32_t next_word(lua_State *L)
{
    if (lua_isnoneornil(L, 1))
        return ah_generator_u32(ah_default_generator());
    return ah_stream_u32(ah_class_check(L, 1, &stream_class));
}

/* stream(seed bytes, index, turn) -> a stream */
static int new_stream(lua_State *L)
{
    uint64_t seed = ah_check_seed_bytes(L, 1);
    int64_t index = (int64_t)luaL_checknumber(L, 2);
    uint32_t turn = (uint32_t)luaL_checknumber(L, 3);
    ah_stream_open(ah_class_new(L, &stream_class, sizeof(struct ah_stream)), seed, index, turn);
    return 1;
}

/* uniform(source, low, high): as tensor:uniform_(low, high) of one float32 */
static int stream_uniform(lua_State *L)
{
    double low = luaL_checknumber(L, 2), high = luaL_checknumber(L, 3);
    float x = (float)(next_word(L) & 0xffffff) * 0x1p-24f;
    lua_pushnumber(L, fmaf(x, (float)(high - low), (float)low));
    return 1;
}

/* exp(x) in float32, as the erasing of a gathered batch computes it */
AH_LUA_VALUE(single_exp, lua_pushnumber, expf((float)luaL_checknumber(L, 1)))

/* chance(source, p): draw an event of probability p. One float32 is drawn and compared. */
AH_LUA_VALUE(stream_chance, lua_pushboolean,
             (float)(next_word(L) & 0xffffff) * 0x1p-24f < (float)luaL_checknumber(L, 2))

/* below(source, n): a whole number from 0 to n - 1, as randint draws one */
static int stream_below(lua_State *L)
{
    double n = luaL_checknumber(L, 2);
    if (!(n >= 1 && n <= UINT32_MAX))
        return ah_raise_text(L, "expected 1 to %u choices, got %g", UINT32_MAX, n);
    lua_pushnumber(L, next_word(L) % (uint32_t)n);
    return 1;
}

/* shuffled(source, n) -> table of the numbers 0 .. n - 1 in a random order, as randperm draws it */
static int stream_shuffled(lua_State *L)
{
    int n = (int)luaL_checkinteger(L, 2);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushinteger(L, i);
        lua_rawseti(L, -2, i + 1);
    }
    for (int i = 0; i < n - 1; i++) {
        int other = i + (int)(next_word(L) % (uint32_t)(n - i));
        lua_rawgeti(L, -1, i + 1);
        lua_rawgeti(L, -2, other + 1);
        lua_rawseti(L, -3, i + 1);
        lua_rawseti(L, -2, other + 1);
    }
    return 1;
}

/* fork_seed(seed bytes, number) -> seed bytes of another seed that follows from both */
static int fork_seed(lua_State *L)
{
    struct ah_stream stream;
    uint32_t words[2];
    struct ah_tensor *tensor = NULL;
    ah_stream_open(&stream, ah_check_seed_bytes(L, 1), (int64_t)luaL_checknumber(L, 2), UINT32_MAX);
    words[0] = ah_stream_u32(&stream);
    words[1] = ah_stream_u32(&stream);
    ah_check(L, ah_tensor_empty(&tensor, (int64_t[]){AH_SEED_BYTES}, 1, AH_U8, &ah_cpu));
    memcpy(ah_tensor_data(tensor), words, AH_SEED_BYTES);
    ah_push_tensor(L, tensor);
    return 1;
}

/* stream_seed(stream) -> a seed for a generator of the sample's own: 32 bits */
AH_LUA_VALUE(stream_seed, lua_pushnumber, ah_stream_u32(ah_class_check(L, 1, &stream_class)))

/* seed_generators(stream) -> a seed for math.random, after seeding all generators of the CPU */
static int seed_generators(lua_State *L)
{
    struct ah_stream *stream = ah_class_check(L, 1, &stream_class);
    uint32_t low = ah_stream_u32(stream), high = ah_stream_u32(stream);
    ah_seed_generators(L, (uint64_t)high << 32 | low);
    lua_pushnumber(L, ah_stream_u32(stream));
    return 1;
}

void ah_add_streams(lua_State *L)
{
    static const luaL_Reg list[] = {
        {"stream", new_stream},
        {"uniform", stream_uniform},
        {"exp", single_exp},
        {"chance", stream_chance},
        {"below", stream_below},
        {"shuffled", stream_shuffled},
        {"fork_seed", fork_seed},
        {"stream_seed", stream_seed},
        {"seed_generators", seed_generators},
        {NULL, NULL},
    };
    luaL_register(L, NULL, list);
}
