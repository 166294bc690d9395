/* accelhost._C.recovery: what a rank keeps of each step, so that a new process can take its place (comm/recover.h).
 *
 * is_on() is_due()
 * boundary()            the step that was marked last, -1: none
 * mark(note, tensors, rank, size)   this rank is at the next step: `note` (bytes, uint8) is its own, `tensors` are what
 *                       all ranks have alike (dense, on cpu), of which it keeps its part of the bytes
 * find()                of a replacement: the step at which it goes on; nil: there is none, and nothing is due any more
 * note(rank)            after that: the bytes that a rank told there
 * take(tensors, size)   fill tensors like those of `mark` with what the ranks have kept, and be there */
#include <string.h>

#include "bind/bind.h"
#include "bind/handle.h"
#include "comm/recover.h"

/* Dense tensors on the CPU, as one run of bytes. */
struct run {
    lua_State *L;
    int list, count;
};

static struct run check_run(lua_State *L, int index)
{
    luaL_checktype(L, index, LUA_TTABLE);
    return (struct run){L, index, (int)lua_objlen(L, index)};
}

static struct ah_tensor *item(const struct run *run, int i)
{
    lua_rawgeti(run->L, run->list, i + 1);
    struct ah_tensor *tensor = ah_check_tensor(run->L, lua_gettop(run->L));
    lua_pop(run->L, 1);
    if (!ah_on_cpu(tensor) || !ah_tensor_is_contiguous(tensor))
        ah_raise_text(run->L, "recovery: tensor %d is not dense on the cpu", i + 1);
    return tensor;
}

static size_t bytes_of(const struct ah_tensor *tensor)
{
    return (size_t)tensor->numel * ah_dtype_size(tensor->dtype);
}

static size_t run_bytes(const struct run *run)
{
    size_t bytes = 0;
    for (int i = 0; i < run->count; i++)
        bytes += bytes_of(item(run, i));
    return bytes;
}

/* Of `bytes` the part of a rank: [*first, *end). */
static void part_of(size_t bytes, int rank, int size, size_t *first, size_t *end)
{
    size_t share = (bytes / (size_t)size + 64) / 64 * 64;
    *first = share * (size_t)rank < bytes ? share * (size_t)rank : bytes;
    *end = *first + share < bytes ? *first + share : bytes;
}

/* Copy bytes [first, end) of the run to `memory`, or from it. */
static void move(const struct run *run, size_t first, size_t end, char *memory, bool out)
{
    size_t at = 0;
    for (int i = 0; i < run->count && at < end; i++) {
        struct ah_tensor *tensor = item(run, i);
        size_t bytes = bytes_of(tensor), from = first > at ? first - at : 0, to = end - at < bytes ? end - at : bytes;
        if (from < to) {
            char *own = (char *)ah_tensor_data(tensor) + from, *other = memory + (at + from - first);
            memcpy(out ? other : own, out ? own : other, to - from);
        }
        at += bytes;
    }
}

static int is_on(lua_State *L)
{
    lua_pushboolean(L, ah_recovery_is_on());
    return 1;
}

static int is_due(lua_State *L)
{
    lua_pushboolean(L, ah_recovery_is_due());
    return 1;
}

static int boundary(lua_State *L)
{
    lua_pushnumber(L, (double)ah_recovery_boundary());
    return 1;
}

static int mark(lua_State *L)
{
    struct ah_tensor *note = ah_check_tensor(L, 1);
    struct run run = check_run(L, 2);
    int rank = luaL_checkint(L, 3), size = luaL_checkint(L, 4);
    size_t first, end;
    void *slice;
    if (note->dtype != AH_U8 || !ah_on_cpu(note) || !ah_tensor_is_contiguous(note))
        ah_raise_text(L, "recovery: expected a note of bytes");
    part_of(run_bytes(&run), rank, size, &first, &end);
    ah_check(L, ah_recovery_slice(end - first, &slice));
    if (slice)
        move(&run, first, end, slice, true);
    ah_check(L, ah_recovery_mark(ah_tensor_data(note), (size_t)note->numel));
    return 0;
}

static int find(lua_State *L)
{
    int64_t found;
    ah_check(L, ah_recovery_find(&found));
    if (found < 0)
        return 0;
    lua_pushnumber(L, (double)found);
    return 1;
}

static int note(lua_State *L)
{
    const void *bytes;
    size_t count;
    struct ah_tensor *tensor;
    ah_check(L, ah_recovery_note_of(luaL_checkint(L, 1), &bytes, &count));
    int64_t size = (int64_t)count;
    ah_check(L, ah_tensor_empty(&tensor, &size, 1, AH_U8, &ah_cpu));
    if (count)
        memcpy(ah_tensor_data(tensor), bytes, count);
    ah_push_tensor(L, tensor);
    return 1;
}

static int take(lua_State *L)
{
    struct run run = check_run(L, 1);
    int size = luaL_checkint(L, 2);
    size_t bytes = run_bytes(&run);
    for (int rank = 0; rank < size; rank++) {
        size_t first, end, count;
        const void *slice;
        part_of(bytes, rank, size, &first, &end);
        ah_check(L, ah_recovery_slice_of(rank, &slice, &count));
        if (count != end - first)
            ah_raise_text(L, "live recovery: rank %d has kept %.0f bytes of the models and optimizers, and this "
                          "script's have %.0f there: it made other ones than the process before it", rank,
                          (double)count, (double)(end - first));
        move(&run, first, end, (char *)slice, false);
    }
    ah_check(L, ah_recovery_take());
    ah_check(L, ah_recovery_mark(NULL, 0));
    return 0;
}

int ah_open_recovery(lua_State *L)
{
    static const luaL_Reg functions[] = {{"is_on", is_on}, {"is_due", is_due}, {"boundary", boundary},
                                         {"mark", mark},   {"find", find},     {"note", note},
                                         {"take", take},   {NULL, NULL}};
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
