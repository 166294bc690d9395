/* t[...] and t[...] = v: numbers select, tables slice, tensors index. All positions count from 0.
 *
 *   t[2]                 row 2                          t[{ {0, 3}, 2 }]   rows 0..2, column 2
 *   t[{ {}, {1} }]       whole dim 0, dim 1 from 1      t[{ {0, 10, 2} }]  every second of the first ten
 *   t[{ {0, nil, 2} }]   every second row               t[newaxis]         a new dim of size 1
 *   t[mask]              elements where a bool tensor is true
 *   t[index]             rows by an integer tensor      t[{ {}, index }]   columns by an integer tensor
 *   t[{ i, j }]          elements (i[k], j[k])          t[{ "...", 0 }]    the first of the last dim */
#include <math.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "bind/lua/handle.h"
#include "bind/tensor/op.h"
#include "bind/tensor/tensor.h"

/* accelhost.newaxis: the address alone matters. */
static char newaxis;

void ah_push_newaxis(lua_State *L)
{
    lua_pushlightuserdata(L, &newaxis);
}

static bool is_newaxis(lua_State *L, int item)
{
    return lua_islightuserdata(L, item) && lua_touserdata(L, item) == &newaxis;
}

static int64_t check_position(lua_State *L, int index)
{
    double number = lua_tonumber(L, index);
    if (lua_type(L, index) != LUA_TNUMBER || number != floor(number) || fabs(number) > 0x1p53)
        ah_raise_text(L, "index: expected an integer, got %s",
                      lua_type(L, index) == LUA_TNUMBER ? "a fraction" : luaL_typename(L, index));
    return (int64_t)number;
}

/* Replace the tensor at stack place `slot` by the op's result, so that everything stays owned by Lua. */
static void index_step(lua_State *L, int slot, enum ah_opid id, const struct ah_value *args, int count)
{
    ah_push_op(L, id, args, count);
    lua_replace(L, slot);
}

/* Copy the key's tensor at stack index `key` to `device` if it is on the CPU, as PyTorch does. */
static void copy_key(lua_State *L, int key, struct ah_device *device)
{
    struct ah_tensor *by = ah_to_tensor(L, key);
    if (by && ah_on_cpu(by) && device != &ah_cpu)
        index_step(L, key, AH_OP_to_device, (const struct ah_value[]){AH_T(by), AH_DEV(device)}, 2);
}

/* The tensors of a key, with the dims of the view they index; at[k].slot is the tensor's stack index. */
struct picks {
    struct pick {
        int slot, dim;
    } at[AH_MAX_DIMS];
    int count;
    int ndim, positions; /* of the whole tensor and key, for messages */
};

static void fail_positions(lua_State *L, const struct picks *picks)
{
    ah_raise_text(L, "index: too many positions for a tensor of %d dim%s (%d given)", picks->ndim,
                  picks->ndim == 1 ? "" : "s", picks->positions);
}

/* A 0-dim integer tensor is used as its value: it selects, and yields a view, as in PyTorch. */
static bool is_position(const struct ah_tensor *by)
{
    return by && by->ndim == 0 && (by->dtype == AH_I64 || by->dtype == AH_I32);
}

static int64_t position_of(lua_State *L, struct ah_tensor *by)
{
    struct ah_tensor *here;
    ah_check(L, ah_host_copy(&here, by));
    int64_t position = ah_tensor_get_int(here, 0);
    ah_tensor_release(here);
    return position;
}

/* Return the number of dims that an item of a key indexes. */
static int dims_of_item(lua_State *L, int item)
{
    struct ah_tensor *by = ah_to_tensor(L, item);
    return is_newaxis(L, item) ? 0 : by && by->dtype == AH_BOOL ? by->ndim : 1;
}

/* The bounds that a slice leaves open (nil) stay as they are. */
static void read_slice(lua_State *L, int item, int64_t bounds[3])
{
    int known = 0;
    for (int k = 0; k < 3; k++) {
        lua_rawgeti(L, item, k + 1);
        if (!lua_isnil(L, -1)) {
            bounds[k] = check_position(L, lua_gettop(L));
            known++;
        }
        lua_pop(L, 1);
    }
    for (lua_pushnil(L); lua_next(L, item); lua_pop(L, 1))
        known--;
    if (known)
        ah_raise_text(L, "index: a slice is {}, {from}, {from, to} or {from, to, step}, where nil leaves an end open");
}

static void apply_slice(lua_State *L, int slot, int item, int dim)
{
    struct ah_tensor *tensor = ah_check_tensor(L, slot);
    int64_t bounds[3] = {0, tensor->size[dim], 1};
    read_slice(L, item, bounds);
    index_step(L, slot, AH_OP_slice,
               (const struct ah_value[]){AH_T(tensor), AH_I(dim), AH_I(bounds[0]), AH_I(bounds[1]), AH_I(bounds[2])},
               5);
}

/* Narrow the view at `slot` by one item of a key, or note the item when it is a tensor. */
static void apply_item(lua_State *L, int slot, int item, int *dim, struct picks *picks)
{
    struct ah_tensor *tensor = ah_check_tensor(L, slot);
    if (*dim + dims_of_item(L, item) > tensor->ndim)
        fail_positions(L, picks);
    struct ah_tensor *by = ah_to_tensor(L, item);
    if (is_newaxis(L, item)) {
        index_step(L, slot, AH_OP_unsqueeze, (const struct ah_value[]){AH_T(tensor), AH_I(*dim)}, 2);
        ++*dim;
    } else if (by && !is_position(by)) {
        if (by->dtype != AH_BOOL && by->dtype != AH_I64 && by->dtype != AH_I32)
            ah_raise_text(L, "index: an index must be int64, int32 or bool, got %s", ah_dtype_name(by->dtype));
        if (dims_of_item(L, item) == 0)
            ah_raise_text(L, "index: a mask of 0 dims cannot index a tensor");
        picks->at[picks->count++] = (struct pick){item, *dim};
        *dim += dims_of_item(L, item);
    } else if (lua_istable(L, item)) {
        apply_slice(L, slot, item, *dim);
        ++*dim;
    } else {
        int64_t position = by ? position_of(L, by) : check_position(L, item);
        if (position < -tensor->size[*dim] || position >= tensor->size[*dim]) {
            ah_raise_text(L, "index: %lld is out of range for dim %d of size %lld (positions count from 0)",
                          (long long)position, *dim, (long long)tensor->size[*dim]);
        }
        index_step(L, slot, AH_OP_select, (const struct ah_value[]){AH_T(tensor), AH_I(*dim), AH_I(position)}, 3);
    }
}

/* "..." covers all dims not indexed by the other items. */
static int skip_dims(lua_State *L, int slot, int first, int count, int dim, const struct picks *picks)
{
    int rest = 0;
    for (int i = 0; i < count; i++) {
        if (lua_type(L, first + i) == LUA_TSTRING)
            ah_raise_text(L, "index: expected at most one '...' in a key");
        rest += dims_of_item(L, first + i);
    }
    int ndim = ah_check_tensor(L, slot)->ndim;
    if (ndim - rest < dim)
        fail_positions(L, picks);
    return ndim - rest;
}

/* Several tensors index together, element by element: their dims become one, and they one index into it. */
static void apply_picks(lua_State *L, int slot, const struct picks *picks)
{
    int dim = picks->at[0].dim, count = picks->count;
    bool adjacent = true;
    for (int k = 0; k < count; k++) {
        struct ah_tensor *by = ah_check_tensor(L, picks->at[k].slot);
        if (by->dtype == AH_BOOL && by->ndim != 1)
            ah_raise_text(L, "index: a mask of %d dims cannot be combined with other tensors", by->ndim);
        adjacent = adjacent && picks->at[k].dim == dim + k;
    }
    struct ah_value from = {.kind = AH_INTS}, to = {.kind = AH_INTS};
    lua_pushnil(L); /* the index so far */
    int index = lua_gettop(L);
    for (int k = 0; k < count; k++) {
        struct ah_tensor *view = ah_check_tensor(L, slot), *by = ah_check_tensor(L, picks->at[k].slot);
        ah_push_op(L, AH_OP_index_positions, (const struct ah_value[]){AH_T(view), AH_I(picks->at[k].dim), AH_T(by)},
                   3);
        if (by->dtype != AH_BOOL) {
            struct ah_value shape = {.kind = AH_INTS, .ints = {.count = by->ndim}};
            for (int d = 0; d < by->ndim; d++)
                shape.ints.at[d] = by->size[d];
            index_step(L, index + 1, AH_OP_reshape,
                       (const struct ah_value[]){AH_T(ah_check_tensor(L, index + 1)), shape}, 2);
        }
        if (k > 0) {
            index_step(L, index, AH_OP_mul,
                       (const struct ah_value[]){AH_T(ah_check_tensor(L, index)), AH_I(view->size[picks->at[k].dim])},
                       2);
            index_step(L, index + 1, AH_OP_add,
                       (const struct ah_value[]){AH_T(ah_check_tensor(L, index)), AH_T(ah_check_tensor(L, index + 1))},
                       2);
        }
        lua_replace(L, index);
        from.ints.at[from.ints.count++] = picks->at[k].dim;
        to.ints.at[to.ints.count++] = k;
    }
    if (!adjacent) { /* as in PyTorch, the result's dims are then the first */
        index_step(L, slot, AH_OP_movedim, (const struct ah_value[]){AH_T(ah_check_tensor(L, slot)), from, to}, 3);
        dim = 0;
    }
    struct ah_tensor *view = ah_check_tensor(L, slot);
    struct ah_value merged = {.kind = AH_INTS, .ints = {.count = view->ndim - count + 1}};
    for (int d = 0; d < merged.ints.count; d++)
        merged.ints.at[d] = d <= dim ? view->size[d] : view->size[d + count - 1];
    for (int k = 1; k < count; k++)
        merged.ints.at[dim] *= view->size[dim + k];
    index_step(L, slot, AH_OP_reshape, (const struct ah_value[]){AH_T(view), merged}, 2);
    index_step(L, slot, AH_OP_index,
               (const struct ah_value[]){AH_T(ah_check_tensor(L, slot)), AH_T(ah_check_tensor(L, index)), AH_I(dim)},
               3);
}

/* Is `by` a mask of all dims? Here it does not broadcast, as it does in the ops of masks. */
static bool is_full_mask(lua_State *L, const struct ah_tensor *tensor, const struct ah_tensor *by)
{
    if (!by || by->dtype != AH_BOOL || by->ndim != tensor->ndim)
        return false;
    if (!ah_same_shape(by, tensor))
        ah_raise_text(L, "index: mask %s does not match the tensor %s", ah_shape(by), ah_shape(tensor));
    return true;
}

/* Apply the key at `key` to the tensor at `slot`; true when the result is a view of the original. */
static bool apply_key(lua_State *L, int slot, int key)
{
    struct ah_tensor *tensor = ah_check_tensor(L, slot);
    struct picks picks = {.ndim = tensor->ndim, .positions = 1};
    int dim = 0;
    copy_key(L, key, tensor->storage->device);
    struct ah_tensor *by = ah_to_tensor(L, key);
    if (is_full_mask(L, tensor, by)) {
        index_step(L, slot, AH_OP_masked_select, (const struct ah_value[]){AH_T(tensor), AH_T(by)}, 2);
        return false;
    }
    if (by || !lua_istable(L, key)) {
        apply_item(L, slot, key, &dim, &picks);
    } else {
        int count = ah_check_array(L, key, "index", false), first = lua_gettop(L) + 1;
        picks.positions = count;
        if (count > 2 * AH_MAX_DIMS)
            fail_positions(L, &picks);
        luaL_checkstack(L, count + 8, "index");
        for (int i = 1; i <= count; i++) {
            lua_rawgeti(L, key, i);
            copy_key(L, lua_gettop(L), tensor->storage->device);
        }
        for (int i = 0; i < count; i++) {
            if (lua_type(L, first + i) == LUA_TSTRING && !strcmp(lua_tostring(L, first + i), "..."))
                dim = skip_dims(L, slot, first + i + 1, count - i - 1, dim, &picks);
            else
                apply_item(L, slot, first + i, &dim, &picks);
        }
    }
    if (picks.count == 1) {
        index_step(L, slot, AH_OP_index,
                   (const struct ah_value[]){AH_T(ah_check_tensor(L, slot)), AH_T(ah_check_tensor(L, picks.at[0].slot)),
                                             AH_I(picks.at[0].dim)},
                   3);
    } else if (picks.count > 1) {
        apply_picks(L, slot, &picks);
    }
    return picks.count == 0;
}

int ah_index_get(lua_State *L)
{
    ah_check_tensor(L, 1);
    if (lua_isnoneornil(L, 2))
        return ah_raise_text(L, "index: expected a position, got nil (a new dim is t[accelhost.newaxis])");
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

static bool has_tensor(lua_State *L, int key)
{
    bool found = false;
    for (int i = 1; lua_istable(L, key) && !found && i <= (int)lua_objlen(L, key); i++) {
        lua_rawgeti(L, key, i);
        struct ah_tensor *by = ah_to_tensor(L, -1);
        found = by && !is_position(by);
        lua_pop(L, 1);
    }
    return found;
}

/* t[key] = value for a key with tensors: the same key applied to a tensor of positions yields the indices to write. */
static void put_positions(lua_State *L, struct ah_value value)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    struct ah_value shape = {.kind = AH_INTS, .ints = {.count = tensor->ndim}};
    for (int d = 0; d < tensor->ndim; d++)
        shape.ints.at[d] = tensor->size[d];
    struct ah_value flat = {.kind = AH_INTS, .ints = {.count = 1, .at = {-1}}};
    if (tensor->numel == 0)
        flat.ints.at[0] = 0;
    ah_push_op(L, AH_OP_arange, (const struct ah_value[]){AH_I(tensor->numel), AH_NIL, AH_I(1), AH_D(AH_I64),
                                                            AH_DEV(tensor->storage->device)}, 5);
    index_step(L, 4, AH_OP_view, (const struct ah_value[]){AH_T(ah_check_tensor(L, 4)), shape}, 2);
    apply_key(L, 4, 2);
    lua_settop(L, 4);
    bool contiguous = ah_tensor_is_contiguous(tensor);
    if (contiguous)
        lua_pushvalue(L, 1);
    else
        ah_push_op(L, AH_OP_contiguous, (const struct ah_value[]){AH_T(tensor)}, 1);
    ah_push_op(L, AH_OP_view, (const struct ah_value[]){AH_T(ah_check_tensor(L, 5)), flat}, 2);
    run_inplace(L, AH_OP_index_put,
                (const struct ah_value[]){AH_T(ah_check_tensor(L, 6)), AH_T(ah_check_tensor(L, 4)), value}, 3);
    if (!contiguous)
        run_inplace(L, AH_OP_copy_, (const struct ah_value[]){AH_T(tensor), AH_T(ah_check_tensor(L, 5))}, 2);
}

int ah_index_set(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    copy_key(L, 2, tensor->storage->device);
    struct ah_tensor *by = ah_to_tensor(L, 2);
    struct ah_value value = ah_check_operand(L, 3, "index assignment");
    lua_settop(L, 3);
    if (value.kind == AH_TENSOR && value.tensor->numel == 1 && value.tensor->dtype != tensor->dtype) {
        index_step(L, 3, AH_OP_to, (const struct ah_value[]){value, AH_D(tensor->dtype)}, 2); /* as a number would */
        value = AH_T(ah_check_tensor(L, 3));
    }
    if (is_full_mask(L, tensor, by) && value.kind != AH_TENSOR) {
        run_inplace(L, AH_OP_masked_fill, (const struct ah_value[]){AH_T(tensor), AH_T(by), value}, 3);
        return 0;
    }
    if (by && !is_position(by)) {
        run_inplace(L, AH_OP_index_put, (const struct ah_value[]){AH_T(tensor), AH_T(by), value}, 3);
        return 0;
    }
    if (has_tensor(L, 2)) {
        put_positions(L, value);
        return 0;
    }
    lua_pushvalue(L, 1);
    apply_key(L, 4, 2);
    struct ah_tensor *window = ah_check_tensor(L, 4);
    while (value.kind == AH_TENSOR && value.tensor->ndim > window->ndim && value.tensor->size[0] == 1) {
        index_step(L, 3, AH_OP_select, (const struct ah_value[]){value, AH_I(0), AH_I(0)},
                   3); /* leading dims of 1 fit */
        value = AH_T(ah_check_tensor(L, 3));
    }
    if (value.kind == AH_TENSOR)
        run_inplace(L, AH_OP_copy_, (const struct ah_value[]){AH_T(window), value}, 2);
    else
        run_inplace(L, AH_OP_fill_, (const struct ah_value[]){AH_T(window), value}, 2);
    return 0;
}
