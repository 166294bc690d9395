/* The tensor class in Lua: methods that are no ops, metamethods. */
#include "bind/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "autograd/graph.h"
#include "base/alloc.h"
#include "bind/function.h"
#include "bind/handle.h"
#include "bind/op.h"
#include "tensor/format.h"

static void push_ints(lua_State *L, const int64_t *at, int count)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushnumber(L, (lua_Number)at[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static int method_shape(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    push_ints(L, tensor->size, tensor->ndim);
    return 1;
}

static int method_size(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    if (lua_isnoneornil(L, 2))
        return method_shape(L);
    int dim;
    ah_check(L, ah_wrap_dim("size", (int64_t)luaL_checkinteger(L, 2), tensor->ndim, &dim));
    if (tensor->ndim == 0)
        return ah_raise_text(L, "size: a 0-dim tensor has no dim %d", dim);
    lua_pushnumber(L, (lua_Number)tensor->size[dim]);
    return 1;
}

static int method_stride(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    ah_check(L, ah_tensor_row_major(tensor));
    push_ints(L, tensor->stride, tensor->ndim);
    return 1;
}

static int method_dim(lua_State *L)
{
    lua_pushinteger(L, ah_check_tensor(L, 1)->ndim);
    return 1;
}

static int method_numel(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)ah_check_tensor(L, 1)->numel);
    return 1;
}

static int method_is_contiguous(lua_State *L)
{
    lua_pushboolean(L, ah_tensor_is_contiguous(ah_check_tensor(L, 1)));
    return 1;
}

static int method_element_size(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)ah_dtype_size(ah_check_tensor(L, 1)->dtype));
    return 1;
}

static int method_storage_offset(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)ah_check_tensor(L, 1)->offset);
    return 1;
}

static int method_is_floating_point(lua_State *L)
{
    lua_pushboolean(L, ah_dtype_is_float(ah_check_tensor(L, 1)->dtype));
    return 1;
}

static void push_element(lua_State *L, const struct ah_tensor *tensor, int64_t flat)
{
    if (tensor->dtype == AH_BOOL) {
        lua_pushboolean(L, ah_tensor_get_int(tensor, flat) != 0);
    } else if (tensor->dtype == AH_I64) {
        int64_t value = ah_tensor_get_int(tensor, flat);
        if (value > (INT64_C(1) << 53) || value < -(INT64_C(1) << 53))
            ah_raise_text(L, "item: %lld is beyond 2^53 and no exact Lua number", (long long)value);
        lua_pushnumber(L, (lua_Number)value);
    } else {
        lua_pushnumber(L, ah_tensor_get(tensor, flat));
    }
}

/* The tensor where its values can be read; a copy that had to be made is left on the stack. */
static struct ah_tensor *host_copy(lua_State *L, struct ah_tensor *tensor)
{
    struct ah_tensor *here;
    ah_check(L, ah_host_copy(&here, tensor));
    if (here == tensor)
        ah_tensor_release(here); /* the caller holds it */
    else
        ah_push_tensor(L, here);
    return here;
}

static int method_item(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    if (tensor->numel != 1)
        return ah_raise_text(L, "item: expected a tensor with one element, got shape %s", ah_shape(tensor));
    push_element(L, host_copy(L, tensor), 0);
    return 1;
}

static int64_t push_nested(lua_State *L, const struct ah_tensor *tensor, int dim, int64_t flat)
{
    if (dim == tensor->ndim) {
        push_element(L, tensor, flat);
        return flat + 1;
    }
    lua_createtable(L, (int)tensor->size[dim], 0);
    for (int64_t i = 0; i < tensor->size[dim]; i++) {
        flat = push_nested(L, tensor, dim + 1, flat);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return flat;
}

static int method_tolist(lua_State *L)
{
    struct ah_tensor *tensor = host_copy(L, ah_check_tensor(L, 1));
    luaL_checkstack(L, tensor->ndim + 4, "tolist");
    push_nested(L, tensor, 0, 0);
    return 1;
}

/* Push the tensor at 1 with this dtype on this device: itself when it is so already. */
static int convert(lua_State *L, enum ah_dtype dtype, struct ah_device *device)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    lua_settop(L, 1);
    if (tensor->dtype != dtype) {
        ah_push_op(L, AH_OP_to, (const struct ah_value[]){AH_T(tensor), AH_D(dtype)}, 2);
        tensor = ah_check_tensor(L, 2);
    }
    if (tensor->storage->device != device)
        ah_push_op(L, AH_OP_to_device, (const struct ah_value[]){AH_T(tensor), AH_DEV(device)}, 2);
    return 1;
}

static int cast(lua_State *L, enum ah_dtype dtype)
{
    return convert(L, dtype, ah_check_tensor(L, 1)->storage->device);
}

/* t:to("float64"), t:to("cuda:0"), t:to("cuda:0", "float64"), t:to(other), t:to{dtype = ..., device = ...} */
static int method_to(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *other = ah_to_tensor(L, 2);
    static const char *const known[] = {"dtype", "device", NULL};
    enum ah_dtype dtype = tensor->dtype;
    struct ah_device *device = tensor->storage->device;
    const char *dtype_name = NULL, *device_name = NULL;
    if (lua_istable(L, 2)) {
        ah_check_options(L, 2, "to", known);
        dtype_name = ah_opt_string(L, 2, "dtype", NULL);
        device_name = ah_opt_string(L, 2, "device", NULL);
    } else if (lua_type(L, 2) == LUA_TSTRING && ah_device_is_name(lua_tostring(L, 2))) {
        device_name = lua_tostring(L, 2);
        dtype_name = lua_isnoneornil(L, 3) ? NULL : luaL_checkstring(L, 3);
    } else if (lua_type(L, 2) == LUA_TSTRING) {
        dtype_name = lua_tostring(L, 2);
    } else if (other) {
        dtype = other->dtype;
        device = other->storage->device;
    } else {
        return ah_raise_text(L, "to: expected a dtype, a device, a tensor or {dtype=, device=}, got %s",
                             luaL_typename(L, 2));
    }
    int status = dtype_name ? ah_dtype_parse(dtype_name, &dtype) : 0;
    if (status < 0 && lua_type(L, 2) == LUA_TSTRING && !device_name)
        return ah_raise_text(L, "to: %s, and there is no such device", ah_error_text());
    ah_check(L, status);
    if (device_name)
        ah_check(L, ah_device_find(device_name, &device));
    return convert(L, dtype, device);
}

#define CAST(name, dtype)                   \
    static int method_##name(lua_State *L)  \
    {                                       \
        return cast(L, dtype);              \
    }
CAST(float, AH_F32)
CAST(double, AH_F64)
CAST(half, AH_F16)
CAST(bfloat16, AH_BF16)
CAST(long, AH_I64)
CAST(int, AH_I32)
CAST(byte, AH_U8)
CAST(bool, AH_BOOL)

static int method_type_as(lua_State *L)
{
    const struct ah_tensor *other = ah_check_tensor(L, 2);
    return convert(L, other->dtype, other->storage->device);
}

static int method_cpu(lua_State *L)
{
    return convert(L, ah_check_tensor(L, 1)->dtype, &ah_cpu);
}

static int method_requires_grad_(lua_State *L)
{
    bool on = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
    ah_check(L, ah_set_requires_grad(ah_check_tensor(L, 1), on));
    lua_settop(L, 1);
    return 1;
}

/* A tensor's own storage? Two tensors with the same answer share memory. */
static int method_data_ptr(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    lua_pushlightuserdata(L, ah_tensor_data(tensor));
    return 1;
}

/* Lua would turn the result into one boolean, so there is none. */
static int meta_compare(lua_State *L)
{
    return ah_raise_text(L, "tensors are compared by methods: a:lt(b), a:le(b), a:gt(b), a:ge(b), or as numbers by "
                            "a:item() < b:item()");
}

/* "loss " .. loss */
static int meta_concat(lua_State *L)
{
    for (int i = 1; i <= 2; i++) {
        lua_getglobal(L, "tostring");
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
    }
    lua_concat(L, 2);
    return 1;
}

static int meta_tostring(lua_State *L)
{
    struct ah_tensor *tensor = ah_to_tensor(L, 1);
    if (!tensor) {
        lua_pushliteral(L, "tensor(freed)");
        return 1;
    }
    char device[64] = "", suffix[160] = "", label[96], *text;
    if (!ah_on_cpu(tensor))
        snprintf(device, sizeof device, "device='%s'", tensor->storage->device->name);
    if (tensor->grad && tensor->grad->fn) {
        ah_node_label(tensor->grad->fn, label, sizeof label);
        snprintf(suffix, sizeof suffix, "grad_fn=<%s>", label);
    } else if (ah_requires_grad(tensor)) {
        snprintf(suffix, sizeof suffix, "requires_grad=true");
    }
    ah_check(L, ah_tensor_format(host_copy(L, tensor), device, suffix, &text));
    lua_pushstring(L, text);
    free(text);
    return 1;
}

static int meta_len(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    if (tensor->ndim == 0)
        return ah_raise_text(L, "#t: a 0-dim tensor has no length");
    lua_pushnumber(L, (lua_Number)tensor->size[0]);
    return 1;
}

static int binary(lua_State *L, enum ah_opid id, const char *name)
{
    struct ah_value args[2] = {ah_check_operand(L, 1, name), ah_check_operand(L, 2, name)};
    return ah_push_op(L, id, args, 2);
}

static int meta_add(lua_State *L) { return binary(L, AH_OP_add, "add"); }
static int meta_sub(lua_State *L) { return binary(L, AH_OP_sub, "sub"); }
static int meta_mul(lua_State *L) { return binary(L, AH_OP_mul, "mul"); }
static int meta_div(lua_State *L) { return binary(L, AH_OP_div, "div"); }
static int meta_pow(lua_State *L) { return binary(L, AH_OP_pow, "pow"); }
static int meta_mod(lua_State *L) { return binary(L, AH_OP_remainder, "remainder"); }

static int meta_unm(lua_State *L)
{
    return ah_push_op(L, AH_OP_neg, (const struct ah_value[]){AH_T(ah_check_tensor(L, 1))}, 1);
}

/* C.is_dtype("float32") */
static int is_dtype(lua_State *L)
{
    enum ah_dtype dtype;
    lua_pushboolean(L, lua_type(L, 1) == LUA_TSTRING && ah_dtype_parse(lua_tostring(L, 1), &dtype) == 0);
    return 1;
}

static int is_tensor(lua_State *L)
{
    lua_pushboolean(L, ah_to_tensor(L, 1) != NULL);
    return 1;
}

/* C.same_shape(a, b) */
static int same_shape(lua_State *L)
{
    lua_pushboolean(L, ah_same_shape(ah_check_tensor(L, 1), ah_check_tensor(L, 2)));
    return 1;
}

/* C.same_storage(a, b) */
static int same_storage(lua_State *L)
{
    lua_pushboolean(L, ah_check_tensor(L, 1)->storage == ah_check_tensor(L, 2)->storage);
    return 1;
}

/* C.pointer(t): address of the first element for FFI loops; bumps the version, since the loop may write. */
static int pointer(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    ah_check(L, ah_tensor_row_major(tensor));
    if (!ah_tensor_is_contiguous(tensor))
        return ah_raise_text(L, "with_data: expected a contiguous tensor, got strides of a view of shape %s",
                             ah_shape(tensor));
    if (!ah_on_cpu(tensor))
        return ah_raise_text(L, "with_data: expected a tensor on cpu, got one on %s", tensor->storage->device->name);
    ah_tensor_touch(tensor);
    lua_pushlightuserdata(L, ah_tensor_data(tensor));
    return 1;
}

/* C.from_string(bytes, shape, dtype): a tensor with these row-major little-endian bytes. */
static int from_string(lua_State *L)
{
    size_t length;
    const char *bytes = luaL_checklstring(L, 1, &length);
    int64_t size[AH_MAX_DIMS];
    int ndim = ah_check_ints(L, 2, size, AH_MAX_DIMS, "from_string: size");
    enum ah_dtype dtype = ah_check_dtype(L, 3);
    struct ah_tensor *tensor;
    ah_check(L, ah_tensor_empty(&tensor, size, ndim, dtype, &ah_cpu));
    size_t wanted = (size_t)tensor->numel * ah_dtype_size(dtype);
    if (wanted != length) {
        ah_tensor_release(tensor);
        return ah_raise_text(L, "from_string: shape needs %zu bytes, got %zu", wanted, length);
    }
    memcpy(ah_tensor_data(tensor), bytes, length);
    ah_push_tensor(L, tensor);
    return 1;
}

/* C.to_string(t): its row-major bytes. */
static int to_string(lua_State *L)
{
    struct ah_tensor *tensor = host_copy(L, ah_check_tensor(L, 1)), *dense;
    bool before = ah_grad_switch(false);
    int status = ah_op1(AH_OP_contiguous, &dense, AH_T(tensor));
    ah_grad_switch(before);
    ah_check(L, status);
    lua_pushlstring(L, ah_tensor_data(dense), (size_t)dense->numel * ah_dtype_size(dense->dtype));
    ah_tensor_release(dense);
    return 1;
}

static const struct ah_function methods_list[] = {
    {"shape", method_shape, "input:T"},
    {"size", method_size, "input:T, dim:i?"},
    {"stride", method_stride, "input:T"},
    {"dim", method_dim, "input:T"},
    {"numel", method_numel, "input:T"},
    {"nelement", method_numel, "input:T"},
    {"is_contiguous", method_is_contiguous, "input:T"},
    {"element_size", method_element_size, "input:T"},
    {"storage_offset", method_storage_offset, "input:T"},
    {"is_floating_point", method_is_floating_point, "input:T"},
    {"item", method_item, "input:T"},
    {"tolist", method_tolist, "input:T"},
    {"to", method_to, "input:T, target:*, dtype:d?"},
    {"type_as", method_type_as, "input:T, other:T"},
    {"float", method_float, "input:T"},
    {"double", method_double, "input:T"},
    {"half", method_half, "input:T"},
    {"bfloat16", method_bfloat16, "input:T"},
    {"long", method_long, "input:T"},
    {"int", method_int, "input:T"},
    {"byte", method_byte, "input:T"},
    {"bool", method_bool, "input:T"},
    {"cpu", method_cpu, "input:T"},
    {"requires_grad_", method_requires_grad_, "input:T, requires_grad:b?"},
    {"data_ptr", method_data_ptr, "input:T"},
    {NULL, NULL, NULL},
};

static const luaL_Reg meta_list[] = {
    {"__newindex", ah_field_set}, {"__tostring", meta_tostring}, {"__len", meta_len}, {"__add", meta_add},
    {"__sub", meta_sub},          {"__mul", meta_mul},           {"__div", meta_div}, {"__pow", meta_pow},
    {"__mod", meta_mod},          {"__unm", meta_unm},           {"__lt", meta_compare},
    {"__le", meta_compare},       {"__concat", meta_concat},     {NULL, NULL},
};

static const luaL_Reg module_list[] = {
    {"is_tensor", is_tensor},   {"is_dtype", is_dtype}, {"set_data", ah_set_data}, {"same_storage", same_storage},
    {"same_shape", same_shape}, {"pointer", pointer},   {NULL, NULL},
};

static const struct ah_function function_list[] = {
    {"from_string", from_string, "bytes:s, size:I, dtype:d"},
    {"to_string", to_string, "input:T"},
    {"tensor", ah_tensor_from_lua, "data:*, options:*?"},
    {NULL, NULL, NULL},
};

static void set_all(lua_State *L, int table, const luaL_Reg *list)
{
    for (; list->name; list++) {
        lua_pushcfunction(L, list->func);
        lua_setfield(L, table, list->name);
    }
}

void ah_tensor_open(lua_State *L, int metatable, int methods, int module)
{
    ah_set_methods(L, methods, methods_list);
    set_all(L, metatable, meta_list);
    set_all(L, module, module_list);
    ah_set_functions(L, module, function_list);
    lua_pushvalue(L, methods);
    lua_pushcclosure(L, ah_field_get, 1);
    lua_setfield(L, metatable, "__index");
}
