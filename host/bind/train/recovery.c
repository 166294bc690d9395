/* accelhost._C.recovery: the state from which the replacement of a killed rank resumes (comm/recover/recover.h).
 *
 * is_on(), is_due()                 are killed ranks replaced, and is this process one that has not loaded its state?
 * publish(alike, own, fixed, note)  this rank is at the next boundary
 * find() -> boundary or nil         where this process resumes; nil: at the script's place
 * note() -> fixed, note, generator, lua   published there by the process before it
 * restore(alike, own)               fill tensors with the published values
 * take()                            resume from there
 *
 * `alike` are contiguous tensors on the CPU with the same values on all ranks, of which each publishes its share;
 * `own` are those of this rank, which it publishes whole. A slice is the share, and behind it, at a multiple of 64,
 * the own. `note` is a value, `fixed` one that codec.pack has made bytes, which is the same at many boundaries; with
 * them go the states of the CPU's generator, a uint8 tensor, and of math.random, a string. They are written where they
 * are read from: a struct head, the two states, `fixed`, the note. */
#include <string.h>

#include "base/status/status.h"
#include "bind/format/pack.h"
#include "bind/lua/bind.h"
#include "bind/lua/generator.h"
#include "comm/recover/recover.h"

enum { ALIGN = 64 };

static struct ah_tensor *recovery_item(lua_State *L, int list, int i)
{
    lua_rawgeti(L, list, i);
    struct ah_tensor *tensor = ah_check_tensor(L, -1);
    lua_pop(L, 1);
    ah_check(L, ah_tensor_row_major(tensor));
    if (!ah_on_cpu(tensor) || !ah_tensor_is_contiguous(tensor))
        ah_raise_text(L, "live recovery: expected contiguous tensors on the CPU");
    return tensor;
}

static size_t recovery_total(lua_State *L, int list)
{
    size_t bytes = 0;
    luaL_checktype(L, list, LUA_TTABLE);
    int count = (int)lua_objlen(L, list);
    for (int i = 1; i <= count; i++)
        bytes += ah_tensor_bytes(recovery_item(L, list, i));
    return bytes;
}

/* Return the begin of a rank's share of `bytes` bytes. */
static size_t recovery_cut(size_t bytes, int rank, int ranks)
{
    return rank == ranks ? bytes : bytes / ALIGN * (size_t)rank / (size_t)ranks * ALIGN;
}

static size_t recovery_aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Copy the bytes first..last of concatenated tensors from `memory`, or, with `out`, to it. */
static void recovery_move(lua_State *L, int list, size_t first, size_t last, char *memory, bool out)
{
    size_t at = 0;
    int count = (int)lua_objlen(L, list);
    for (int i = 1; i <= count && at < last; i++) {
        struct ah_tensor *tensor = recovery_item(L, list, i);
        size_t end = at + ah_tensor_bytes(tensor), from = at > first ? at : first, to = end < last ? end : last;
        if (from < to) {
            char *theirs = (char *)ah_tensor_data(tensor) + (from - at), *ours = memory + (from - first);
            memcpy(out ? ours : theirs, out ? theirs : ours, to - from);
        }
        at = end;
    }
}

AH_LUA_VALUE(is_on, lua_pushboolean, ah_recovery_is_on())
AH_LUA_VALUE(is_due, lua_pushboolean, ah_recovery_is_due())

struct head {
    uint64_t generator, lua, fixed; /* bytes */
};

static int refuse_growth(void *context, size_t room, unsigned char **bytes)
{
    (void)context, (void)bytes;
    return ah_fail(AH_ENOMEM, "it has more than %zu bytes", room);
}

static void recovery_write(struct ah_packer *packer, const void *bytes, size_t count)
{
    if (count)
        memcpy(packer->bytes + packer->count, bytes, count);
    packer->count += count;
}

/* Write this rank's note at a step boundary to `place`; returns its size in bytes. */
static size_t write_note(lua_State *L, const struct ah_tensor *fixed, int index, void *place, size_t room)
{
    struct ah_packer packer = {.bytes = place, .room = room, .grow = refuse_growth, .takes_far = true,
                               .names_path = true};
    struct head head = {.generator = ah_cpu.type->state_bytes, .fixed = ah_tensor_bytes(fixed)};
    size_t lua_bytes;
    const void *lua = ah_lua_random_state(L, &lua_bytes);
    head.lua = lua_bytes;
    if (sizeof head + head.generator + head.lua + head.fixed > room)
        ah_check(L, refuse_growth(NULL, room, NULL));
    recovery_write(&packer, &head, sizeof head);
    ah_check(L, ah_cpu.type->get_state(&ah_cpu, packer.bytes + packer.count));
    packer.count += head.generator;
    recovery_write(&packer, lua, lua_bytes);
    recovery_write(&packer, ah_tensor_data(fixed), head.fixed);
    int status = ah_pack(L, index, &packer);
    if (status < 0)
        ah_check(L, ah_fail_prefix(status, "live recovery: a run's state is tensors, numbers, texts, booleans and "
                                   "tables of them"));
    return packer.count;
}

static int recovery_publish(lua_State *L)
{
    struct ah_tensor *fixed = ah_check_tensor(L, 3);
    size_t alike = recovery_total(L, 1), own = recovery_total(L, 2), room;
    int size, rank = ah_recovery_rank(&size);
    size_t first = recovery_cut(alike, rank, size), last = recovery_cut(alike, rank + 1, size);
    void *slice, *note;
    ah_check(L, ah_recovery_slice(recovery_aligned(last - first) + own, &slice));
    if (!slice)
        return 0;
    recovery_move(L, 1, first, last, slice, true);
    recovery_move(L, 2, 0, own, (char *)slice + recovery_aligned(last - first), true);
    ah_check(L, ah_recovery_note(&note, &room));
    ah_check(L, ah_recovery_mark(note, write_note(L, fixed, 4, note, room)));
    return 0;
}

static int recovery_find(lua_State *L)
{
    int64_t boundary;
    ah_check(L, ah_recovery_find(&boundary));
    if (boundary < 0)
        lua_pushnil(L);
    else
        lua_pushnumber(L, (lua_Number)boundary);
    return 1;
}

static void push_bytes(lua_State *L, const void *bytes, size_t count)
{
    struct ah_tensor *tensor;
    int64_t size = (int64_t)count;
    ah_check(L, ah_tensor_empty(&tensor, &size, 1, AH_U8, &ah_cpu));
    ah_push_tensor(L, tensor);
    if (count)
        memcpy(ah_tensor_data(tensor), bytes, count);
}

static int recovery_note(lua_State *L)
{
    const void *place;
    struct head head;
    size_t count;
    ah_check(L, ah_recovery_note_of(ah_recovery_rank(&(int){0}), &place, &count));
    const unsigned char *bytes = place;
    if (count >= sizeof head)
        memcpy(&head, bytes, sizeof head);
    if (count < sizeof head || head.generator > count || head.lua > count || head.fixed > count ||
        sizeof head + head.generator + head.lua + head.fixed > count)
        return ah_raise_text(L, "live recovery: the note of the process before is damaged");
    size_t generator = sizeof head, lua = generator + head.generator, fixed = lua + head.lua, at = fixed + head.fixed;
    push_bytes(L, bytes + fixed, head.fixed);
    ah_check(L, ah_unpack(L, bytes, count, &at));
    push_bytes(L, bytes + generator, head.generator);
    lua_pushlstring(L, (const char *)bytes + lua, head.lua);
    return 4;
}

/* Return a rank's slice, which must have `expected` bytes. */
static char *slice_of(lua_State *L, int rank, size_t expected)
{
    const void *slice;
    size_t bytes;
    ah_check(L, ah_recovery_slice_of(rank, &slice, &bytes));
    if (bytes != expected && rank == ah_recovery_rank(&(int){0}))
        ah_raise_text(L, "live recovery: rank %d's state has %zu bytes, expected %zu", rank, bytes, expected);
    if (bytes < expected)
        ah_raise_text(L, "live recovery: rank %d's share of the state has %zu bytes, expected %zu at least", rank,
                      bytes, expected);
    return (char *)slice;
}

static int recovery_restore(lua_State *L)
{
    size_t alike = recovery_total(L, 1), own = recovery_total(L, 2);
    int size, rank = ah_recovery_rank(&size);
    for (int r = 0; r < size; r++) {
        size_t first = recovery_cut(alike, r, size), last = recovery_cut(alike, r + 1, size),
               share = recovery_aligned(last - first);
        char *slice = slice_of(L, r, r == rank ? share + own : share);
        recovery_move(L, 1, first, last, slice, false);
        if (r == rank)
            recovery_move(L, 2, 0, own, slice + share, false);
    }
    return 0;
}

AH_LUA_CHECKED(recovery_read, ah_recovery_take())

int ah_open_recovery(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"is_on", is_on},
        {"is_due", is_due},
        {"publish", recovery_publish},
        {"find", recovery_find},
        {"note", recovery_note},
        {"restore", recovery_restore},
        {"take", recovery_read},
        {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
