/* accelhost._C.data: files, generated sets, batch gathering, and the draws of samplers.
 *
 * A sampler's draw is the random part of one pass as bytes (a uint8 tensor): a seed of 8 bytes, a generator's state, or
 * the indices themselves. It can be broadcast to other ranks and kept in a checkpoint; a seed never becomes a Lua
 * number, because it passes 2^53. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bind/data/data.h"
#include "bind/lua/bind.h"
#include "bind/lua/handle.h"
#include "data/digits.h"
#include "data/idx.h"
#include "tensor/rng.h"

static const char *const split_kinds[] = {"any", "labels", "images", NULL};

/* idx(path, "images"|"labels"|"any") -> uint8 tensor */
static int read_idx(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int kind = luaL_checkoption(L, 2, "any", split_kinds);
    struct ah_tensor *tensor = NULL;
    ah_check(L, ah_idx_read(&tensor, path, (enum ah_idx_kind)kind));
    ah_push_tensor(L, tensor);
    return 1;
}

/* look(path) -> "file" or "folder"; nil when nothing is there; nil and the reason when it cannot be read or is neither.
 * Opening does not wait, so a pipe in the place of a file does not block. */
static int data_look(lua_State *L)
{
    struct stat info;
    int file = open(luaL_checkstring(L, 1), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool absent = file < 0 && (errno == ENOENT || errno == ENOTDIR);
    bool failed = file < 0 || fstat(file, &info);
    const char *reason = failed ? strerror(errno) : "it is neither a file nor a folder";
    if (file >= 0)
        close(file);
    lua_pushnil(L);
    if (absent)
        return 1;
    if (!failed && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) {
        lua_pushstring(L, S_ISREG(info.st_mode) ? "file" : "folder");
        return 1;
    }
    lua_pushstring(L, reason);
    return 2;
}

/* digits(images, labels, seed, split, first, count): draw `count` digits from the first on into uint8 [n, 28, 28] and
 * int64 [n], which are made by SyntheticDigits */
static int draw_digits(lua_State *L)
{
    struct ah_tensor *images = ah_check_tensor(L, 1), *labels = ah_check_tensor(L, 2);
    uint64_t seed = (uint64_t)(int64_t)luaL_checknumber(L, 3);
    uint32_t split = (uint32_t)luaL_checkinteger(L, 4);
    int64_t first = (int64_t)luaL_checknumber(L, 5), count = (int64_t)luaL_checknumber(L, 6);
    ah_digits_draw((uint8_t *)ah_tensor_data(images) + first * AH_DIGITS_PIXELS,
                   (int64_t *)ah_tensor_data(labels) + first, seed, split, first, count);
    return 0;
}

/* step(): the collector's part of `take`, for loaders that do not gather */
AH_LUA_CALL(data_step, ah_collect_if_due(L, AH_COLLECT_STEP))

/* Draws. */

static unsigned char *push_bytes(lua_State *L, int64_t count)
{
    struct ah_tensor *tensor = NULL;
    ah_check(L, ah_tensor_empty(&tensor, &count, 1, AH_U8, &ah_cpu));
    ah_push_tensor(L, tensor);
    return ah_tensor_data(tensor);
}

/* draw_seed(generator?) -> 8 bytes; advances the generator (default: the global one) by one draw */
static int draw_seed(lua_State *L)
{
    uint64_t seed = ah_generator_draw_seed(ah_opt_generator(L, 1));
    memcpy(push_bytes(L, AH_SEED_BYTES), &seed, AH_SEED_BYTES);
    return 1;
}

/* seed_bytes(number) -> 8 bytes */
static int seed_bytes(lua_State *L)
{
    uint64_t seed = (uint64_t)(int64_t)luaL_checknumber(L, 1);
    memcpy(push_bytes(L, AH_SEED_BYTES), &seed, AH_SEED_BYTES);
    return 1;
}

/* The generator of a permutation or of whole numbers: argument 1 is a draw's seed (a fresh generator in *fresh), a
 * Generator, or nil. */
static struct ah_generator *generator_of(lua_State *L, struct ah_generator *fresh)
{
    if (!ah_to_tensor(L, 1))
        return ah_opt_generator(L, 1);
    ah_generator_seed(fresh, ah_check_seed_bytes(L, 1));
    return fresh;
}

static int64_t *push_indices(lua_State *L, int64_t count)
{
    struct ah_tensor *tensor = NULL;
    ah_check(L, ah_tensor_empty(&tensor, &count, 1, AH_I64, &ah_cpu));
    ah_push_tensor(L, tensor);
    return ah_tensor_data(tensor);
}

/* permutation(seed|generator|nil, n, times?) -> int64 [n * times]: as many permutations one after the other */
static int data_permutation(lua_State *L)
{
    struct ah_generator fresh, *generator = generator_of(L, &fresh);
    int64_t n = (int64_t)luaL_checknumber(L, 2), times = (int64_t)luaL_optnumber(L, 3, 1);
    int64_t *out = push_indices(L, n * times);
    for (int64_t i = 0; i < times; i++)
        ah_generator_fill_permutation(generator, out + i * n, n);
    return 1;
}

/* whole_numbers(seed|generator|nil, below, count) -> int64 [count] */
static int whole_numbers(lua_State *L)
{
    struct ah_generator fresh, *generator = generator_of(L, &fresh);
    int64_t below = (int64_t)luaL_checknumber(L, 2), count = (int64_t)luaL_checknumber(L, 3);
    if (below < 1)
        return ah_raise_text(L, "expected at least one sample to draw from, got %lld", (long long)below);
    ah_generator_fill_range(generator, push_indices(L, count), count, 0, below);
    return 1;
}

/* slice(int64 tensor, first, count) -> Lua table of the numbers */
static int data_slice(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    int64_t first = (int64_t)luaL_checknumber(L, 2), count = (int64_t)luaL_checknumber(L, 3);
    if (tensor->dtype != AH_I64 || tensor->ndim != 1 || !ah_tensor_is_contiguous(tensor) || !ah_on_cpu(tensor))
        return ah_raise_text(L, "expected a contiguous int64 tensor of one dimension on cpu, got %s %s on %s",
                             ah_dtype_name(tensor->dtype), ah_shape(tensor), tensor->storage->device->name);
    if (first < 0 || count < 0 || count > tensor->numel - first)
        return ah_raise_text(L, "slice %lld + %lld of %lld", (long long)first, (long long)count,
                             (long long)tensor->numel);
    const int64_t *from = (const int64_t *)ah_tensor_data(tensor) + first;
    lua_createtable(L, (int)count, 0);
    for (int64_t i = 0; i < count; i++) {
        lua_pushnumber(L, (double)from[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* to_bytes(contiguous tensor) -> its memory as a uint8 tensor */
static int to_bytes(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    ah_check(L, ah_tensor_row_major(tensor));
    if (!ah_tensor_is_contiguous(tensor) || !ah_on_cpu(tensor))
        return ah_raise_text(L, "expected a contiguous tensor on cpu");
    size_t count = ah_tensor_bytes(tensor);
    unsigned char *to = push_bytes(L, (int64_t)count);
    memcpy(to, ah_tensor_data(tensor), count);
    return 1;
}

/* to_indices(bytes) -> int64 tensor */
static int to_indices(lua_State *L)
{
    int64_t count;
    const unsigned char *bytes = ah_check_draw(L, 1, &count);
    if (count % 8)
        return ah_raise_text(L, "expected the bytes of int64 numbers, got %lld bytes", (long long)count);
    memcpy(push_indices(L, count / 8), bytes, (size_t)count);
    return 1;
}

/* to_hex(bytes) -> string, from_hex(string) -> bytes: draws in a checkpoint's JSON */
static int to_hex(lua_State *L)
{
    static const char digit[] = "0123456789abcdef";
    int64_t count;
    const unsigned char *bytes = ah_check_draw(L, 1, &count);
    char *text = lua_newuserdata(L, 2 * (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) {
        text[2 * i] = digit[bytes[i] >> 4];
        text[2 * i + 1] = digit[bytes[i] & 15];
    }
    lua_pushlstring(L, text, 2 * (size_t)count);
    return 1;
}

static int data_nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int from_hex(lua_State *L)
{
    size_t length;
    const char *text = luaL_checklstring(L, 1, &length);
    for (size_t i = 0; i < length; i++) {
        if (length % 2 || data_nibble(text[i]) < 0)
            return ah_raise_text(L, "expected bytes as hexadecimal digits in a loader's state, got '%.20s'", text);
    }
    unsigned char *bytes = push_bytes(L, (int64_t)(length / 2));
    for (size_t i = 0; i < length / 2; i++)
        bytes[i] = (unsigned char)(data_nibble(text[2 * i]) << 4 | data_nibble(text[2 * i + 1]));
    return 1;
}

int ah_open_data(lua_State *L)
{
    static const luaL_Reg list[] = {
        {"idx", read_idx},
        {"look", data_look},
        {"digits", draw_digits},
        {"step", data_step},
        {"draw_seed", draw_seed},
        {"seed_bytes", seed_bytes},
        {"permutation", data_permutation},
        {"slice", data_slice},
        {"whole_numbers", whole_numbers},
        {"to_bytes", to_bytes},
        {"to_hex", to_hex},
        {"from_hex", from_hex},
        {"to_indices", to_indices},
        {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, list);
    ah_add_gather(L);
    ah_add_streams(L);
    ah_add_images(L);
    ah_add_tables(L);
    ah_add_tokens(L);
    return 1;
}
