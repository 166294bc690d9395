/* accelhost._C.recovery: what the replacement of a killed rank goes on with (comm/recover.h).
 *
 * is_on(), is_due()                 are killed ranks replaced, and is this process one that has not taken its state?
 * publish(alike, own, note)         this rank is at the next boundary
 * find() -> boundary or nil         where this process goes on; nil: at the script's place
 * note() -> uint8 tensor            what the process before it published there
 * restore(alike, own)               fill tensors with what was published
 * take()                            go on from there
 *
 * `alike` are contiguous tensors on the CPU with the same values on all ranks, of which each publishes its share;
 * `own` are those of this rank, which it publishes whole. A slice is the share, and behind it, at a multiple of 64,
 * the own. */
#include <string.h>

#include "bind/bind.h"
#include "comm/recover.h"
#include "comm/topology.h"

enum { ALIGN = 64 };

static struct ah_tensor *item(lua_State *L, int list, int i)
{
    lua_rawgeti(L, list, i);
    struct ah_tensor *tensor = ah_check_tensor(L, -1);
    lua_pop(L, 1);
    ah_check(L, ah_tensor_row_major(tensor));
    if (!ah_on_cpu(tensor) || !ah_tensor_is_contiguous(tensor))
        ah_raise_text(L, "live recovery: expected contiguous tensors on the CPU");
    return tensor;
}

static size_t bytes_of(const struct ah_tensor *tensor)
{
    return (size_t)tensor->numel * ah_dtype_size(tensor->dtype);
}

static size_t total(lua_State *L, int list)
{
    size_t bytes = 0;
    luaL_checktype(L, list, LUA_TTABLE);
    int count = (int)lua_objlen(L, list);
    for (int i = 1; i <= count; i++)
        bytes += bytes_of(item(L, list, i));
    return bytes;
}

/* Where a rank's share of so many bytes begins. */
static size_t cut(size_t bytes, int rank, int ranks)
{
    return rank == ranks ? bytes : bytes / ALIGN * (size_t)rank / (size_t)ranks * ALIGN;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The bytes first..last of tensors that lie behind each other are those of `memory`; `out`: they go there. */
static void move(lua_State *L, int list, size_t first, size_t last, char *memory, bool out)
{
    size_t at = 0;
    int count = (int)lua_objlen(L, list);
    for (int i = 1; i <= count && at < last; i++) {
        struct ah_tensor *tensor = item(L, list, i);
        size_t end = at + bytes_of(tensor), from = at > first ? at : first, to = end < last ? end : last;
        if (from < to) {
            char *theirs = (char *)ah_tensor_data(tensor) + (from - at), *ours = memory + (from - first);
            memcpy(out ? ours : theirs, out ? theirs : ours, to - from);
        }
        at = end;
    }
}

static struct ah_topology place(lua_State *L)
{
    struct ah_topology who;
    ah_check(L, ah_topology_from_environment(&who));
    return who;
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

static int publish(lua_State *L)
{
    struct ah_topology who = place(L);
    struct ah_tensor *note = ah_check_tensor(L, 3);
    size_t alike = total(L, 1), own = total(L, 2);
    size_t first = cut(alike, who.rank, who.size), last = cut(alike, who.rank + 1, who.size);
    void *slice;
    ah_check(L, ah_recovery_slice(aligned(last - first) + own, &slice));
    if (slice) {
        move(L, 1, first, last, slice, true);
        move(L, 2, 0, own, (char *)slice + aligned(last - first), true);
    }
    ah_check(L, ah_recovery_mark(ah_tensor_data(note), bytes_of(note)));
    return 0;
}

static int find(lua_State *L)
{
    int64_t boundary;
    ah_check(L, ah_recovery_find(&boundary));
    if (boundary < 0)
        lua_pushnil(L);
    else
        lua_pushnumber(L, (lua_Number)boundary);
    return 1;
}

static int note(lua_State *L)
{
    const void *bytes;
    size_t count;
    struct ah_tensor *tensor;
    ah_check(L, ah_recovery_note_of(place(L).rank, &bytes, &count));
    int64_t size = (int64_t)count;
    ah_check(L, ah_tensor_empty(&tensor, &size, 1, AH_U8, &ah_cpu));
    memcpy(ah_tensor_data(tensor), bytes, count);
    ah_push_tensor(L, tensor);
    return 1;
}

/* A rank's slice, which is to have so many bytes. */
static char *slice_of(lua_State *L, int rank, size_t expected)
{
    const void *slice;
    size_t bytes;
    ah_check(L, ah_recovery_slice_of(rank, &slice, &bytes));
    if (bytes != expected && rank == place(L).rank)
        ah_raise_text(L, "live recovery: rank %d's state has %zu bytes, expected %zu", rank, bytes, expected);
    if (bytes < expected)
        ah_raise_text(L, "live recovery: rank %d's share of the state has %zu bytes, expected %zu at least", rank,
                      bytes, expected);
    return (char *)slice;
}

static int restore(lua_State *L)
{
    struct ah_topology who = place(L);
    size_t alike = total(L, 1), own = total(L, 2);
    for (int r = 0; r < who.size; r++) {
        size_t first = cut(alike, r, who.size), last = cut(alike, r + 1, who.size), share = aligned(last - first);
        char *slice = slice_of(L, r, r == who.rank ? share + own : share);
        move(L, 1, first, last, slice, false);
        if (r == who.rank)
            move(L, 2, 0, own, slice + share, false);
    }
    return 0;
}

static int take(lua_State *L)
{
    ah_check(L, ah_recovery_take());
    return 0;
}

int ah_open_recovery(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"is_on", is_on}, {"is_due", is_due},   {"publish", publish}, {"find", find},
        {"note", note},   {"restore", restore}, {"take", take},       {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
