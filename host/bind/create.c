/* accelhost.tensor: a tensor from nested Lua tables, numbers and booleans. */
#include <math.h>

#include "autograd/graph.h"
#include "bind/tensor.h"

struct shape {
    int64_t size[AH_MAX_DIMS];
    int ndim;
};

static void measure(lua_State *L, int index, struct shape *shape)
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

/* dtype of the leaves, from the first one: bool stays bool, numbers are float32 (design: Lua details). */
static enum ah_dtype infer(lua_State *L, int index)
{
    enum ah_dtype dtype = AH_F32;
    lua_pushvalue(L, index);
    while (lua_istable(L, -1) && lua_objlen(L, -1) > 0) {
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
    if (lua_isboolean(L, -1))
        dtype = AH_BOOL;
    struct ah_tensor *inner = ah_to_tensor(L, -1);
    if (inner)
        dtype = inner->dtype;
    lua_pop(L, 1);
    return dtype;
}

static int64_t fill(lua_State *L, int dim, const struct shape *shape, struct ah_tensor *tensor, int64_t flat)
{
    if (dim == shape->ndim) {
        struct ah_tensor *inner = ah_to_tensor(L, -1);
        if (lua_isboolean(L, -1)) {
            ah_tensor_set_int(tensor, flat, lua_toboolean(L, -1));
        } else if (inner && inner->numel == 1) {
            struct ah_tensor *here;
            ah_check(L, ah_host_copy(&here, inner));
            ah_tensor_set(tensor, flat, ah_tensor_get(here, 0));
            ah_tensor_release(here);
        } else if (lua_type(L, -1) == LUA_TNUMBER) {
            double value = lua_tonumber(L, -1);
            if (!ah_dtype_is_float(tensor->dtype) && tensor->dtype != AH_BOOL && value != floor(value))
                ah_raise_text(L, "tensor: %.14g is not integral, but the dtype is %s", value,
                              ah_dtype_name(tensor->dtype));
            if (!ah_number_fits(value, tensor->dtype))
                ah_raise_text(L, "tensor: %.14g is outside the range of %s", value, ah_dtype_name(tensor->dtype));
            ah_tensor_set(tensor, flat, value);
        } else {
            ah_raise_text(L, "tensor: expected a number at element %lld, got %s", (long long)flat,
                          luaL_typename(L, -1));
        }
        return flat + 1;
    }
    if (!lua_istable(L, -1) || (int64_t)lua_objlen(L, -1) != shape->size[dim]) {
        ah_raise_text(L, "tensor: ragged table: expected %lld items at depth %d, got %lld",
                      (long long)shape->size[dim], dim + 1,
                      (long long)(lua_istable(L, -1) ? (int64_t)lua_objlen(L, -1) : 0));
    }
    for (int64_t i = 0; i < shape->size[dim]; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        flat = fill(L, dim + 1, shape, tensor, flat);
        lua_pop(L, 1);
    }
    return flat;
}

/* tensor(data, {dtype =, requires_grad =, device =}); tensor{1, 2, 3, dtype = "int64"} also takes options inline. */
int ah_tensor_from_lua(lua_State *L)
{
    static const char *const known[] = {"dtype", "requires_grad", "device", NULL};
    struct ah_tensor *given = ah_to_tensor(L, 1);
    int options = lua_istable(L, 2) ? 2 : lua_istable(L, 1) ? 1 : 0;
    if (options == 2)
        ah_check_options(L, 2, "tensor", known);
    luaL_checkstack(L, 2 * AH_MAX_DIMS + 8, "tensor");
    struct shape shape = {.ndim = 0};
    struct ah_tensor *tensor;
    enum ah_dtype dtype = given ? given->dtype : infer(L, 1);
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
        struct ah_tensor *copy, *cast;
        bool enabled = ah_grad_enabled;
        ah_grad_enabled = false;
        int status = ah_op1(AH_OP_clone, &copy, AH_T(given));
        if (status == 0) {
            status = ah_op1(AH_OP_to, &cast, AH_T(copy), AH_D(dtype));
            ah_tensor_release(copy);
        }
        ah_grad_enabled = enabled;
        ah_check(L, status);
        ah_push_tensor(L, cast);
        tensor = cast;
    } else {
        measure(L, 1, &shape);
        ah_check(L, ah_tensor_empty(&tensor, shape.size, shape.ndim, dtype, &ah_cpu));
        ah_push_tensor(L, tensor); /* owned by Lua before anything below can raise */
        lua_pushvalue(L, 1);
        if (tensor->numel > 0 || shape.ndim == 0)
            fill(L, 0, &shape, tensor, 0);
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
