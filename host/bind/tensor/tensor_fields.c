/* The fields of a tensor: a table of getters, asked between the methods that exist and those that are made or loaded
 * on first use; three can be set. */
#include <string.h>

#include "autograd/engine/engine.h"
#include "base/status/nearest.h"
#include "bind/lua/handle.h"
#include "bind/tensor/op.h"
#include "bind/tensor/tensor.h"

static int get_grad(lua_State *L, struct ah_tensor *tensor)
{
    ah_push_shared_tensor(L, ah_grad(tensor));
    return 1;
}

static int get_dtype(lua_State *L, struct ah_tensor *tensor)
{
    ah_push_dtype(L, tensor->dtype);
    return 1;
}

static int get_device(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushstring(L, tensor->storage->device->name);
    return 1;
}

static int get_requires_grad(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushboolean(L, ah_requires_grad(tensor));
    return 1;
}

static int get_is_leaf(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushboolean(L, ah_is_leaf(tensor));
    return 1;
}

static int get_ndim(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushinteger(L, tensor->ndim);
    return 1;
}

/* Return the memory, apart from all history: writes through it are not detected by tensors saved for backward. */
static int get_data(lua_State *L, struct ah_tensor *tensor)
{
    ah_push_op(L, AH_OP_detach, (const struct ah_value[]){AH_T(tensor)}, 1);
    ah_check(L, ah_tensor_own_version(ah_to_tensor(L, -1)));
    return 1;
}

void ah_node_label(const struct ah_node *node, char *text, size_t size)
{
    size_t used = 0;
    bool upper = true;
    for (const char *at = ah_node_name(node); *at && used + 10 < size; at++) {
        if (*at == '_') {
            upper = true;
            continue;
        }
        text[used++] = upper && *at >= 'a' && *at <= 'z' ? (char)(*at - 32) : *at;
        upper = false;
    }
    memcpy(text + used, "Backward", 9);
}

static int get_grad_fn(lua_State *L, struct ah_tensor *tensor)
{
    char text[96];
    if (!tensor->grad || !tensor->grad->fn) {
        lua_pushnil(L);
        return 1;
    }
    ah_node_label(tensor->grad->fn, text, sizeof text);
    lua_pushstring(L, text);
    return 1;
}

static int get_transposed(lua_State *L, struct ah_tensor *tensor)
{
    int64_t dims[AH_MAX_DIMS];
    for (int d = 0; d < tensor->ndim; d++)
        dims[d] = tensor->ndim - 1 - d;
    return ah_push_op(L, AH_OP_permute, (const struct ah_value[]){AH_T(tensor), AH_INTS_OF(dims, tensor->ndim)}, 2);
}

static int get_version(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushinteger(L, (lua_Integer)ah_tensor_version(tensor));
    return 1;
}

static int get_itemsize(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushinteger(L, (lua_Integer)ah_dtype_size(tensor->dtype));
    return 1;
}

static int get_nbytes(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushnumber(L, (lua_Number)tensor->numel * (lua_Number)ah_dtype_size(tensor->dtype));
    return 1;
}

static int get_is_cpu(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushboolean(L, ah_on_cpu(tensor));
    return 1;
}

static int get_is_cuda(lua_State *L, struct ah_tensor *tensor)
{
    lua_pushboolean(L, !strcmp(tensor->storage->device->type->name, "cuda"));
    return 1;
}

/* The last two dims swapped, of a batch of matrices. */
static int get_matrix_transposed(lua_State *L, struct ah_tensor *tensor)
{
    if (tensor->ndim < 2)
        return ah_raise_text(L, "mT: expected at least 2 dims, got shape %s", ah_shape(tensor));
    return ah_push_op(L, AH_OP_transpose, (const struct ah_value[]){AH_T(tensor), AH_I(-2), AH_I(-1)}, 3);
}

static int get_adjoint(lua_State *L, struct ah_tensor *tensor)
{
    if (tensor->ndim != 2 && tensor->ndim != 0)
        return ah_raise_text(L, "H: expected 0 or 2 dims, got shape %s", ah_shape(tensor));
    return ah_push_op(L, AH_OP_t, (const struct ah_value[]){AH_T(tensor)}, 1);
}

static const struct {
    const char *name;
    int (*get)(lua_State *L, struct ah_tensor *tensor);
} fields[] = {
    /* The gradient that backward has added up, nil before; may be set.
     * @return Tensor? */
    {"grad", get_grad},
    /* The name of the dtype: "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool".
     * @return string */
    {"dtype", get_dtype},
    /* Are gradients computed for this tensor, or through it? May be set on leaves.
     * @return boolean */
    {"requires_grad", get_requires_grad},
    /* The same memory outside of all history: backward does not detect writes through it. May be set to another tensor.
     * @return Tensor */
    {"data", get_data},
    /* The name of the device of the elements, such as "cpu".
     * @return string */
    {"device", get_device},
    /* Was the tensor made by the script, not by an op that records gradients?
     * @return boolean */
    {"is_leaf", get_is_leaf},
    /* The name of the node that computes the gradient, such as "MulBackward"; nil for a leaf.
     * @return string? */
    {"grad_fn", get_grad_fn},
    /* The number of dims.
     * @return integer */
    {"ndim", get_ndim},
    /* A view with all dims in reverse order.
     * @return Tensor */
    {"T", get_transposed},
    /* The number of in-place writes of the memory.
     * @return integer */
    {"_version", get_version},
    {"itemsize", get_itemsize},
    {"nbytes", get_nbytes},
    {"is_cpu", get_is_cpu},
    {"is_cuda", get_is_cuda},
    {"mT", get_matrix_transposed},
    {"mH", get_matrix_transposed},
    {"H", get_adjoint},
    {NULL, NULL},
};

static int unknown_field(lua_State *L, const char *name)
{
    ah_push_methods(L);
    luaL_getmetafield(L, -1, "names");
    lua_insert(L, -2);
    lua_call(L, 1, 1);
    int names = lua_gettop(L), count = (int)lua_objlen(L, names), at = 0;
    const char **known = lua_newuserdata(L, (size_t)count * sizeof *known + sizeof fields);
    for (; at < count; at++, lua_pop(L, 1)) {
        lua_rawgeti(L, names, at + 1);
        known[at] = lua_tostring(L, -1); /* the list keeps it */
    }
    for (int i = 0; fields[i].name; i++)
        known[at++] = fields[i].name;
    known[at] = NULL;
    const char *near = ah_nearest(name, known);
    if (near && !strcmp(near, "repeat"))
        near = "tile"; /* Lua's own word cannot be a method's name in a script */
    if (near)
        return ah_raise_text(L, "a tensor has no field or method '%s' (did you mean '%s'?)", name, near);
    return ah_raise_text(L, "a tensor has no field or method '%s'", name);
}

int ah_field_get(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        return ah_index_get(L);
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    if (!lua_isnil(L, -1))
        return 1;
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    const char *name = lua_tostring(L, 2);
    for (int i = 0; fields[i].name; i++)
        if (!strcmp(fields[i].name, name))
            return fields[i].get(L, tensor);
    lua_getfield(L, lua_upvalueindex(1), name);
    return lua_isnil(L, -1) ? unknown_field(L, name) : 1;
}

int ah_set_data(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *other = ah_check_tensor(L, 2);
    ah_check(L, ah_tensor_row_major(other));
    struct ah_storage *old = tensor->storage;
    tensor->storage = ah_storage_retain(other->storage);
    tensor->dtype = other->dtype;
    tensor->ndim = other->ndim;
    tensor->numel = other->numel;
    tensor->offset = other->offset;
    memcpy(tensor->size, other->size, sizeof tensor->size);
    memcpy(tensor->stride, other->stride, sizeof tensor->stride);
    ah_storage_release(old);
    return 0;
}

int ah_field_set(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        return ah_index_set(L);
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    const char *name = lua_tostring(L, 2);
    if (!strcmp(name, "grad")) {
        if (!lua_isnil(L, 3) && !ah_to_tensor(L, 3))
            return ah_raise_text(L, "grad: expected a tensor or nil, got %s", ah_value_text(L, 3));
        struct ah_tensor *grad = ah_opt_tensor(L, 3);
        ah_check(L, ah_set_grad(tensor, grad));
        if (grad)
            ah_share_handle(L, 3);
    } else if (!strcmp(name, "requires_grad")) {
        if (!lua_isboolean(L, 3))
            return ah_raise_text(L, "requires_grad: expected true or false, got %s", ah_value_text(L, 3));
        ah_check(L, ah_set_requires_grad(tensor, lua_toboolean(L, 3)));
    } else if (!strcmp(name, "data")) {
        if (!ah_to_tensor(L, 3))
            return ah_raise_text(L, "data: expected a tensor, got %s", ah_value_text(L, 3));
        lua_remove(L, 2);
        return ah_set_data(L);
    } else {
        return ah_raise_text(L, "a tensor's field '%s' cannot be set (known: grad, requires_grad, data)", name);
    }
    return 0;
}
