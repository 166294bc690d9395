/* Tensor userdata, and the count of native bytes that drives Lua's collector, which sees only a few dozen bytes in a
 * handle that owns megabytes.
 *
 * Circle: handle, error: a bad handle raises, and an error's text distinguishes a freed tensor from a value that is no
 * tensor. */
#pragma once

#include "bind/lua/bind.h"

struct ah_handle {
    struct ah_tensor *tensor; /* NULL after free() */
    size_t counted;           /* bytes of this handle in the account */
    uint32_t interval;        /* between collects at boundaries of steps, in which it was made */
    bool on_device;           /* in a device's account */
};

/* Make the metatable and the method table, which ops and the library fill; both are left in the registry. */
void ah_handle_open(lua_State *L);

/* Push the metatable shared by all tensors. */
void ah_push_metatable(lua_State *L);

/* Push the method table. */
void ah_push_methods(lua_State *L);

/* Register the userdata at `index` as the one handle of its tensor, because C will keep the tensor. */
void ah_share_handle(lua_State *L, int index);

/* Push a result of an op called with `args`, as ah_push_tensor does; its memory counts with the new handle unless it
 * is an argument's. */
void ah_push_result(lua_State *L, struct ah_tensor *tensor, const struct ah_value *args, int count);

/* Collect garbage when the native bytes held by dead handles may have passed `threshold` bytes; 0 means the threshold
 * inside ops: max(40 MiB, 1/16 of the live bytes), or, for a device that reports its free memory, max(64 MiB, a tenth
 * of the free memory), at most half of it. Another threshold means a boundary of a step, where tensors of the step may
 * be dead that lived through a collection inside it. Only from a C function called by Lua.
 *
 * An allocation for which no freed block serves collects too, before the process grows, when 8 MiB of handles, and 1/32
 * of the live bytes, have been made in this step since the last collection; garbage of earlier steps is left to the
 * boundary, which ranks of one step reach together. A rank that waits for one that collects does so too from half of
 * AH_COLLECT_STEP on: out of phase, each of N ranks would hold up all others, N times in a period. */
void ah_collect_if_due(lua_State *L, size_t threshold);
enum { AH_COLLECT_STEP = 16 << 20 }; /* at the start of backward and at a loader's step */

/* Set the Lua state that is inside C, for callbacks into Lua and for a collection that an allocation requests: LuaJIT
 * may be used through the running coroutine's state only. Set around every C call that allocates tensors or calls back;
 * NULL while Lua runs. ah_enter returns the state that ah_leave restores; nothing between the two may raise. */
lua_State *ah_enter(lua_State *L);
void ah_leave(lua_State *outer);
lua_State *ah_entered(void); /* the state of the innermost ah_enter; NULL on a thread without Lua */

/* For tests: collect at every op. */
void ah_set_collect_stress(bool on);
