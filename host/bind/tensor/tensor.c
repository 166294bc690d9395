/* The tensor class in Lua: methods that are no ops. */
#include "bind/tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/engine/engine.h"
#include "autograd/graph/graph.h"
#include "base/memory/alloc.h"
#include "bind/lua/function.h"
#include "bind/lua/handle.h"
#include "bind/tensor/memory_format.h"
#include "tensor/capture.h"
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

AH_LUA_VALUE(method_dim, lua_pushinteger, ah_check_tensor(L, 1)->ndim)
AH_LUA_VALUE(method_numel, lua_pushnumber, (lua_Number)ah_check_tensor(L, 1)->numel)

static int method_is_contiguous(lua_State *L)
{
    const struct ah_tensor *tensor = ah_check_tensor(L, 1);
    enum ah_memory_format format = AH_FORMAT_CONTIGUOUS;
    if (lua_istable(L, 2)) {
        ah_check_options(L, 2, "is_contiguous", (const char *const[]){"memory_format", NULL});
        format = ah_opt_memory_format(L, 2, "is_contiguous");
    } else if (!lua_isnoneornil(L, 2)) {
        format = ah_check_memory_format(L, 2, "is_contiguous");
    }
    lua_pushboolean(L, ah_is_in_format(L, tensor, format));
    return 1;
}

AH_LUA_VALUE(method_element_size, lua_pushinteger, (lua_Integer)ah_dtype_size(ah_check_tensor(L, 1)->dtype))
AH_LUA_VALUE(method_storage_offset, lua_pushnumber, (lua_Number)ah_check_tensor(L, 1)->offset)
AH_LUA_VALUE(method_is_floating_point, lua_pushboolean, ah_dtype_is_float(ah_check_tensor(L, 1)->dtype))

static void push_element(lua_State *L, const struct ah_tensor *tensor, int64_t flat)
{
    if (tensor->dtype == AH_BOOL) {
        lua_pushboolean(L, ah_tensor_get_int(tensor, flat) != 0);
    } else if (tensor->dtype == AH_I64) {
        int64_t value = ah_tensor_get_int(tensor, flat);
        if (value > (INT64_C(1) << 53) || value < -(INT64_C(1) << 53))
            ah_raise_text(L, "item: %lld is beyond 2^53 and no exact Lua number", (long long)value);
        lua_pushnumber(L, (lua_Number)value);
    } else if (tensor->dtype == AH_U64) {
        uint64_t value = (uint64_t)ah_tensor_get_int(tensor, flat);
        if (value > UINT64_C(1) << 53)
            ah_raise_text(L, "item: %llu is beyond 2^53 and no exact Lua number", (unsigned long long)value);
        lua_pushnumber(L, (lua_Number)value);
    } else {
        lua_pushnumber(L, ah_tensor_get(tensor, flat));
    }
}

struct ah_tensor *ah_host_values(lua_State *L, struct ah_tensor *tensor)
{
    struct ah_tensor *here;
    lua_Debug call;
    if (ah_cpu_captured && lua_getstack(L, 0, &call) && lua_getinfo(L, "n", &call))
        ah_check(L, ah_capture_refuse(call.name, "reading values",
                                      "return the tensor from the step and read it afterwards"));
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
    push_element(L, ah_host_values(L, tensor), 0);
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
    struct ah_tensor *tensor = ah_host_values(L, ah_check_tensor(L, 1));
    luaL_checkstack(L, tensor->ndim + 4, "tolist");
    push_nested(L, tensor, 0, 0);
    return 1;
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

/* C.is_dtype("float32") */
static int is_dtype(lua_State *L)
{
    enum ah_dtype dtype;
    lua_pushboolean(L, lua_type(L, 1) == LUA_TSTRING && ah_dtype_parse(lua_tostring(L, 1), &dtype) == 0);
    return 1;
}

AH_LUA_VALUE(is_tensor, lua_pushboolean, ah_to_tensor(L, 1) != NULL)

/* C.same_shape(a, b) */
AH_LUA_VALUE(same_shape, lua_pushboolean, ah_same_shape(ah_check_tensor(L, 1), ah_check_tensor(L, 2)))

/* C.same_storage(a, b) */
AH_LUA_VALUE(same_storage, lua_pushboolean, ah_check_tensor(L, 1)->storage == ah_check_tensor(L, 2)->storage)

/* C.storage_key(t): the same value for tensors that share memory. */
AH_LUA_VALUE(storage_key, lua_pushlightuserdata, ah_check_tensor(L, 1)->storage)

/* C.pointer(t): address of the first element for FFI loops; bumps the version, since the loop may write. */
static int tensor_pointer(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1);
    ah_check(L, ah_capture_refuse("with_data", "a loop of the script", "call it outside of the step"));
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
    struct ah_tensor *tensor = ah_host_values(L, ah_check_tensor(L, 1)), *dense;
    bool before = ah_grad_switch(false);
    int status = ah_op1(AH_OP_contiguous, &dense, AH_T(tensor));
    ah_grad_switch(before);
    ah_check(L, status);
    lua_pushlstring(L, ah_tensor_data(dense), ah_tensor_bytes(dense));
    ah_tensor_release(dense);
    return 1;
}

static const struct ah_function methods_list[] = {
    /* The sizes of all dims as a table, counted from 1: t:shape()[1] is the size of dim 0.
     *     t:shape()[2]  --> 3
     * @return integer[] */
    {"shape", method_shape, "input:T"},
    /* The size of a dim (from 0, negative from the end); without one the table of all sizes.
     *     t:size(-1)  --> 3
     * @return integer|integer[] */
    {"size", method_size, "input:T, dim:i?"},
    /* The distance in memory, in elements, between neighbours along each dim, as a table.
     *     t:stride()[1]  --> 3
     * @return integer[] */
    {"stride", method_stride, "input:T"},
    /* The number of dims; the field `ndim` is the same.
     *     t:dim()  --> 2
     * @return integer */
    {"dim", method_dim, "input:T"},
    /* The same as dim.
     * @return integer */
    {"ndimension", method_dim, "input:T"},
    /* The number of elements.
     *     t:numel()  --> 6
     * @return integer */
    {"numel", method_numel, "input:T"},
    /* The same as numel.
     * @return integer */
    {"nelement", method_numel, "input:T"},
    /* Are the elements in row-major order without gaps? With {memory_format = "channels_last"}: in that order? Of a
     * tensor of channels-last order both are true (accelhost.channels_last).
     *     t:t():is_contiguous()  --> false
     * @return boolean */
    {"is_contiguous", method_is_contiguous, "input:T, options:*?"},
    /* The bytes of one element.
     *     t:element_size()  --> 4
     * @return integer */
    {"element_size", method_element_size, "input:T"},
    /* Offset of the first element in the storage, in elements.
     *     t[1]:storage_offset()  --> 3
     * @return integer */
    {"storage_offset", method_storage_offset, "input:T"},
    /* Is the dtype float32, float64, float16 or bfloat16?
     *     t:is_floating_point()  --> true
     * @return boolean */
    {"is_floating_point", method_is_floating_point, "input:T"},
    /* The number (or boolean) of a tensor with one element. An int64 beyond 2^53, which no Lua number holds, is an
     * error.
     *     accelhost.tensor{3.5}:item()  --> 3.5
     * @return number|boolean */
    {"item", method_item, "input:T"},
    /* The elements as nested Lua tables, a 0-dim tensor as a number.
     *     t:tolist()[2][3]  --> 6
     * @return table|number|boolean */
    {"tolist", method_tolist, "input:T"},
    /* Let gradients be computed for this tensor (or, with false, not); returns the tensor. For float leaves only.
     *     a:requires_grad_().requires_grad  --> true
     * @return Tensor */
    {"requires_grad_", method_requires_grad_, "input:T, requires_grad:b?"},
    /* The address of the first element as a number: the same for two tensors that begin at the same place.
     *     t:data_ptr() == t[0]:data_ptr()  --> true
     * @return integer */
    {"data_ptr", method_data_ptr, "input:T"},
    {NULL, NULL, NULL},
};

static const luaL_Reg module_list[] = {
    /* Is a value a tensor?
     *     accelhost.is_tensor(3)  --> false
     * @param value any
     * @return boolean */
    {"is_tensor", is_tensor},
    {"is_dtype", is_dtype},
    {"set_data", ah_set_data},
    {"same_storage", same_storage},
    {"storage_key", storage_key},
    {"same_shape", same_shape},
    {"pointer", tensor_pointer},
    {NULL, NULL},
};

static const struct ah_function function_list[] = {
    {"from_string", from_string, "bytes:s, size:I, dtype:d"},
    /* The elements' bytes as a string, row-major and little-endian; `from_string` reads them.
     *     #accelhost.to_string(a)  --> 12
     * @return string */
    {"to_string", to_string, "input:T"},
    /* A tensor with the values of nested Lua tables, a number, a boolean, or a copy of a tensor. Numbers become
     * float32 and booleans bool, unless options = {dtype =, device =, requires_grad =} set otherwise. Rows must be
     * equally long.
     *     accelhost.tensor({{1, 2}, {3, 4}}, {dtype = "int64"})  --> tensor([[1, 2],
     *     -->         [3, 4]])
     * @return Tensor */
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
    ah_set_methods(L, methods, ah_tensor_move_methods);
    set_all(L, metatable, ah_tensor_metamethods);
    set_all(L, module, module_list);
    ah_set_functions(L, module, function_list);
    ah_push_newaxis(L);
    lua_setfield(L, module, "newaxis");
    lua_pushvalue(L, methods);
    lua_pushcclosure(L, ah_field_get, 1);
    lua_setfield(L, metatable, "__index");
}
