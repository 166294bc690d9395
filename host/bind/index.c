/* t[...] and t[...] = v: numbers select, tables slice, tensors index. All positions count from 0.
 *
 *   t[2]                 row 2                          t[{ {0, 3}, 2 }]   rows 0..2, column 2
 *   t[{ {}, {1} }]       whole dim 0, dim 1 from 1      t[{ {0, 10, 2} }]  every second of the first ten
 *   t[mask]              elements where a bool tensor is true
 *   t[index]             rows by an integer tensor      t[{ {}, index }]   columns by an integer tensor */
#include <math.h>

#include "autograd/graph.h"
#include "bind/handle.h"
#include "bind/op.h"
#include "bind/tensor.h"

static int64_t check_position(lua_State *L, int index)
{
    double number = lua_tonumber(L, index);
    if (lua_type(L, index) != LUA_TNUMBER || number != floor(number) || fabs(number) > 0x1p53)
        ah_raise_text(L, "index: expected an integer, got %s",
                      lua_type(L, index) == LUA_TNUMBER ? "a fraction" : luaL_typename(L, index));
    return (int64_t)number;
}

/* Replace the tensor at stack place `slot` by the op's result, so that everything stays owned by Lua. */
static void step(lua_State *L, int slot, enum ah_opid id, const struct ah_value *args, int count)
{
    ah_push_op(L, id, args, count);
    lua_replace(L, slot);
}

/* Is the tensor under a table key a plain view (numbers and slices only)? Then writing goes through the view. */
static bool apply_item(lua_State *L, int slot, int item, int *dim)
{
    struct ah_tensor *tensor = ah_check_tensor(L, slot), *by = ah_to_tensor(L, item);
    if (by) {
        step(L, slot, AH_OP_index, (const struct ah_value[]){AH_T(tensor), AH_T(by), AH_I(*dim)}, 3);
        *dim += by->dtype == AH_BOOL ? 1 : by->ndim; /* a mask leaves one dim of those it covers */
        return false;
    }
    if (*dim >= tensor->ndim)
        ah_raise_text(L, "index: too many positions for a tensor of %d dims", tensor->ndim);
    if (lua_istable(L, item)) {
        int64_t bounds[3] = {0, tensor->size[*dim], 1};
        int count = ah_check_ints(L, item, bounds, 3, "index: a slice is {}, {from}, {from, to} or {from, to, step}");
        if (count > 0) {
            step(L, slot, AH_OP_slice,
                 (const struct ah_value[]){AH_T(tensor), AH_I(*dim), AH_I(bounds[0]), AH_I(bounds[1]),
                                           AH_I(bounds[2])}, 5);
        }
        ++*dim;
    } else {
        int64_t position = check_position(L, item);
        if (position < -tensor->size[*dim] || position >= tensor->size[*dim]) {
            ah_raise_text(L, "index: %lld is out of range for dim %d of size %lld (positions count from 0)",
                          (long long)position, *dim, (long long)tensor->size[*dim]);
        }
        step(L, slot, AH_OP_select,
             (const struct ah_value[]){AH_T(tensor), AH_I(*dim), AH_I(position)}, 3);
    }
    return true;
}

/* Apply the key at `key` to the tensor at `slot`; true when the result is a view of the original. */
static bool apply_key(lua_State *L, int slot, int key)
{
    struct ah_tensor *tensor = ah_check_tensor(L, slot), *by = ah_to_tensor(L, key);
    int dim = 0;
    if (by && by->dtype == AH_BOOL && by->ndim == tensor->ndim) {
        step(L, slot, AH_OP_masked_select, (const struct ah_value[]){AH_T(tensor), AH_T(by)}, 2);
        return false;
    }
    if (by || !lua_istable(L, key))
        return apply_item(L, slot, key, &dim);
    int count = (int)lua_objlen(L, key);
    bool view = true;
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, key, i);
        view = apply_item(L, slot, lua_gettop(L), &dim) && view;
        lua_pop(L, 1);
    }
    return view;
}

int ah_index_get(lua_State *L)
{
    ah_check_tensor(L, 1);
    if (lua_isnoneornil(L, 2))
        return ah_raise_text(L, "index: expected a position, got nil");
    lua_settop(L, 2);
    lua_pushvalue(L, 1);
    apply_key(L, 3, 2);
    lua_settop(L, 3);
    return 1;
}

static void run_inplace(lua_State *L, enum ah_opid id, const struct ah_value *args, int count)
{
    struct ah_tensor *out[AH_MAX_OUTS];
    int out_count;
    ah_check(L, ah_op_call(id, args, count, true, out, &out_count));
    for (int i = 0; i < out_count; i++)
        ah_tensor_release(out[i]);
}

int ah_index_set(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *by = ah_to_tensor(L, 2);
    struct ah_value value = ah_check_operand(L, 3, "index assignment");
    if (by && by->dtype == AH_BOOL && by->ndim == tensor->ndim && value.kind != AH_TENSOR) {
        run_inplace(L, AH_OP_masked_fill, (const struct ah_value[]){AH_T(tensor), AH_T(by), value}, 3);
        return 0;
    }
    if (by) {
        run_inplace(L, AH_OP_index_put, (const struct ah_value[]){AH_T(tensor), AH_T(by), value}, 3);
        return 0;
    }
    lua_settop(L, 3);
    lua_pushvalue(L, 1);
    if (!apply_key(L, 4, 2))
        return ah_raise_text(L, "index assignment: tensors inside a table key cannot be assigned through");
    struct ah_tensor *window = ah_check_tensor(L, 4);
    if (value.kind == AH_TENSOR)
        run_inplace(L, AH_OP_copy_, (const struct ah_value[]){AH_T(window), value}, 2);
    else
        run_inplace(L, AH_OP_fill_, (const struct ah_value[]){AH_T(window), value}, 2);
    return 0;
}
