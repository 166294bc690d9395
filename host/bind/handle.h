/* Tensor userdata and the collector's account of native bytes (design: "Lua's collector is driven by native bytes"). */
#ifndef AH_BIND_HANDLE_H
#define AH_BIND_HANDLE_H

#include "bind/bind.h"

struct ah_handle {
    struct ah_tensor *tensor; /* NULL after free() */
    size_t counted;           /* bytes this handle stands for in the account */
};

/* Make the metatable (left in the registry); pushes the method table that ops and the library fill. */
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

/* Collect garbage when the native bytes held by dead handles may have passed `threshold` bytes; 0 means the
 * threshold inside ops, max(64 MiB, half of what lives). Only from a C function called by Lua. */
void ah_collect_if_due(lua_State *L, size_t threshold);
enum { AH_COLLECT_STEP = 16 << 20 }; /* at the start of backward and at a loader's step */

/* For tests: collect at every op. */
void ah_set_collect_stress(bool on);

#endif
