/* The option memory_format: the order of a 4-d tensor's elements in memory. "channels_last" is the mark on a storage
 * (tensor/tensor.h); a 5-d tensor is always stored row-major, so "channels_last_3d" is checked and has no effect. */
#pragma once

#include "bind/lua/bind.h"
#include "ops/dispatch/op.h"

enum ah_memory_format {
    AH_FORMAT_PRESERVE,
    AH_FORMAT_CONTIGUOUS,
    AH_FORMAT_CHANNELS_LAST,
    AH_FORMAT_CHANNELS_LAST_3D,
};

/* The format that the value at `index` names; raises, naming `what`, for another value. */
enum ah_memory_format ah_check_memory_format(lua_State *L, int index, const char *what);

/* The option of the table at `index`, AH_FORMAT_PRESERVE without it or without a table. */
enum ah_memory_format ah_opt_memory_format(lua_State *L, int index, const char *what);

/* Are the elements in memory in a format? Raises for AH_FORMAT_PRESERVE, which is not an order. */
bool ah_is_in_format(lua_State *L, const struct ah_tensor *tensor, enum ah_memory_format format);

/* The op to call for `op` with a format: contiguous is a copy where the order changes; NULL where the tensor `input`
 * is the result already. */
const struct ah_op *ah_format_op(lua_State *L, const struct ah_op *op, struct ah_tensor *input,
                                 enum ah_memory_format format);

/* Convert a new tensor, whose storage nothing else refers to, to a memory format: by moving its elements, or, with
 * `unset` (they have no values yet), by changing its strides only. Raises for a tensor of another rank than the
 * format's. */
void ah_set_format(lua_State *L, struct ah_tensor *made, enum ah_memory_format format, bool unset, const char *what);
