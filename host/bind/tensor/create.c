/* accelhost.tensor: a tensor from nested Lua tables, numbers and booleans. */
#include <math.h>

#include "autograd/graph/graph.h"
#include "base/status/status.h"
#include "bind/tensor/op.h"
#include "bind/tensor/tensor.h"

struct shape {
    int64_t size[AH_MAX_DIMS];
    int ndim;
};

/* The sizes along the first items; checks at the depth limit, so that a table that holds itself ends here too. */
static void create_measure(lua_State *L, int index, struct shape *shape)
{
    lua_pushvalue(L, index);
    while (lua_istable(L, -1)) {
        if (shape->ndim == AH_MAX_DIMS)
            ah_raise_text(L, "tensor: tables are nested deeper than %d", AH_MAX_DIMS);
        shape->size[shape->ndim++] = (int64_t)lua_objlen(L, -1);
        if (lua_objlen(L, -1) == 0)
            break;
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
    lua_pop(L, 1);
}

/* Is any leaf below the value on top of the stack a number? */
static bool holds_number(lua_State *L, int depth)
{
    bool found = lua_type(L, -1) == LUA_TNUMBER;
    int count = depth > 0 && lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    for (int i = 1; i <= count && !found; i++) {
        lua_rawgeti(L, -1, i);
        found = holds_number(L, depth - 1);
        lua_pop(L, 1);
    }
    return found;
}

/* dtype of the leaves: that of the first when it is a tensor, bool when all are, else the default dtype. */
static enum ah_dtype create_infer(lua_State *L, int index, const struct shape *shape)
{
    enum ah_dtype dtype = ah_default_dtype;
    lua_pushvalue(L, index);
    for (int d = 0; d < shape->ndim && shape->size[d] > 0; d++) {
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
    struct ah_tensor *inner = ah_to_tensor(L, -1);
    bool flag = lua_isboolean(L, -1);
    lua_pop(L, 1);
    if (inner)
        return inner->dtype;
    lua_pushvalue(L, index);
    if (flag && !holds_number(L, shape->ndim))
        dtype = AH_BOOL;
    lua_pop(L, 1);
    return dtype;
}

static void set_leaf(lua_State *L, struct ah_tensor *tensor, int64_t flat)
{
    struct ah_tensor *inner = ah_to_tensor(L, -1);
    if (lua_isboolean(L, -1)) {
        ah_tensor_set_int(tensor, flat, lua_toboolean(L, -1));
    } else if (inner && inner->numel == 1) {
        struct ah_tensor *here;
        ah_check(L, ah_host_copy(&here, inner));
        double value = ah_tensor_get(here, 0);
        ah_tensor_release(here);
        ah_tensor_set(tensor, flat, value);
    } else if (lua_type(L, -1) == LUA_TNUMBER) {
        double value = lua_tonumber(L, -1);
        if (!ah_dtype_is_float(tensor->dtype) && tensor->dtype != AH_BOOL && !isinf(value) && value != floor(value))
            ah_raise_text(L, "tensor: %.14g is not integral, but the dtype is %s", value, ah_dtype_name(tensor->dtype));
        if (!ah_number_fits(value, tensor->dtype))
            ah_raise_text(L, "tensor: %.14g is outside the range of %s", value, ah_dtype_name(tensor->dtype));
        ah_tensor_set(tensor, flat, value);
    } else {
        ah_raise_text(L, "tensor: expected a number at element %lld, got %s", (long long)flat, ah_value_text(L, -1));
    }
}

static int64_t create_fill(lua_State *L, int dim, const struct shape *shape, struct ah_tensor *tensor, int64_t flat)
{
    if (dim == shape->ndim) {
        set_leaf(L, tensor, flat);
        return flat + 1;
    }
    if (!lua_istable(L, -1) || (int64_t)lua_objlen(L, -1) != shape->size[dim]) {
        ah_raise_text(L, "tensor: ragged table: expected %lld items at depth %d, got %lld",
                      (long long)shape->size[dim], dim + 1,
                      (long long)(lua_istable(L, -1) ? (int64_t)lua_objlen(L, -1) : 0));
    }
    ah_check_array(L, lua_gettop(L), "tensor", dim == 0);
    for (int64_t i = 0; i < shape->size[dim]; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        flat = create_fill(L, dim + 1, shape, tensor, flat);
        lua_pop(L, 1);
    }
    return flat;
}

/* The string keys of a table that also holds the values must be options. */
static void check_inline(lua_State *L, int index, const char *const *known)
{
    lua_newtable(L);
    int named = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, index);) {
        if (lua_type(L, -2) == LUA_TSTRING) {
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_rawset(L, named);
        } else {
            lua_pop(L, 1);
        }
    }
    ah_check_options(L, named, "tensor", known);
    lua_pop(L, 1);
}

static int copy_as(struct ah_tensor **out, struct ah_tensor *given, enum ah_dtype dtype)
{
    struct ah_tensor *copy;
    AH_GRAD_SCOPE(false);
    AH_TRY(ah_op1(AH_OP_clone, &copy, AH_T(given)));
    int status = ah_op1(AH_OP_to, out, AH_T(copy), AH_D(dtype));
    ah_tensor_release(copy);
    return status;
}

/* tensor(data, {dtype =, requires_grad =, device =}); tensor{1, 2, 3, dtype = "int64"} also accepts options inline. */
int ah_tensor_from_lua(lua_State *L)
{
    static const char *const known[] = {"dtype", "requires_grad", "device", NULL};
    struct ah_tensor *given = ah_to_tensor(L, 1);
    int options = lua_istable(L, 2) ? 2 : lua_istable(L, 1) ? 1 : 0;
    if (options == 2)
        ah_check_options(L, 2, "tensor", known);
    else if (!lua_isnoneornil(L, 2) && lua_type(L, 2) != LUA_TSTRING)
        ah_raise_text(L, "tensor: options: expected a table or a dtype name, got %s", ah_value_text(L, 2));
    else if (options == 1)
        check_inline(L, 1, known);
    luaL_checkstack(L, 2 * AH_MAX_DIMS + 8, "tensor");
    struct shape shape = {.ndim = 0};
    struct ah_tensor *tensor;
    if (!given)
        create_measure(L, 1, &shape);
    enum ah_dtype dtype = given ? given->dtype : create_infer(L, 1, &shape);
    const char *name = options ? ah_opt_string(L, options, "dtype", NULL) : NULL;
    const char *place = options ? ah_opt_string(L, options, "device", NULL) : NULL;
    struct ah_device *device = given ? given->storage->device : ah_default_device;
    if (lua_type(L, 2) == LUA_TSTRING)
        name = lua_tostring(L, 2);
    if (name)
        ah_check(L, ah_dtype_parse(name, &dtype));
    if (place)
        ah_check(L, ah_device_find(place, &device));
    if (given) {
        ah_check(L, copy_as(&tensor, given, dtype));
        ah_push_tensor(L, tensor);
    } else {
        ah_check(L, ah_tensor_empty(&tensor, shape.size, shape.ndim, dtype, &ah_cpu));
        ah_push_tensor(L, tensor); /* owned by Lua before anything below can raise */
        lua_pushvalue(L, 1);
        if (tensor->numel > 0 || shape.ndim == 0)
            create_fill(L, 0, &shape, tensor, 0);
        lua_pop(L, 1);
    }
    if (tensor->storage->device != device) {
        ah_push_op(L, AH_OP_to_device, (const struct ah_value[]){AH_T(tensor), AH_DEV(device)}, 2);
        tensor = ah_check_tensor(L, -1);
    }
    if (options && ah_opt_flag(L, options, "requires_grad", false))
        ah_check(L, ah_set_requires_grad(tensor, true));
    return 1;
}
