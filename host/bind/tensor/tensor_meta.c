/* The metamethods of tensors: operators, printing, length. Fields and indexing have their own files. */
#include <stdlib.h>

#include "autograd/engine/engine.h"
#include "autograd/graph/graph.h"
#include "bind/lua/handle.h"
#include "bind/tensor/op.h"
#include "bind/tensor/tensor.h"
#include "tensor/format.h"

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

/* tensor(..., device='meta', size=(2, 3)) */
static int push_valueless(lua_State *L, const struct ah_tensor *tensor, const char *suffix)
{
    luaL_Buffer text;
    char number[32];
    luaL_buffinit(L, &text);
    luaL_addstring(&text, "tensor(..., device='meta', size=(");
    for (int i = 0; i < tensor->ndim; i++) {
        snprintf(number, sizeof number, i ? ", %lld" : "%lld", (long long)tensor->size[i]);
        luaL_addstring(&text, number);
    }
    luaL_addstring(&text, tensor->ndim == 1 ? ",)" : ")");
    if (tensor->dtype != ah_default_dtype) {
        luaL_addstring(&text, ", dtype=");
        luaL_addstring(&text, ah_dtype_name(tensor->dtype));
    }
    luaL_addstring(&text, *suffix ? ", " : "");
    luaL_addstring(&text, suffix);
    luaL_addstring(&text, ")");
    luaL_pushresult(&text);
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
    if (!ah_device_has_values(tensor->storage->device))
        return push_valueless(L, tensor, suffix);
    ah_check(L, ah_tensor_format(ah_host_values(L, tensor), device, suffix, &text));
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

static int tensor_binary(lua_State *L, enum ah_opid id, const char *name)
{
    struct ah_value args[2] = {ah_check_operand(L, 1, name), ah_check_operand(L, 2, name)};
    return ah_push_op(L, id, args, 2);
}

static int meta_add(lua_State *L) { return tensor_binary(L, AH_OP_add, "add"); }
static int meta_sub(lua_State *L) { return tensor_binary(L, AH_OP_sub, "sub"); }
static int meta_mul(lua_State *L) { return tensor_binary(L, AH_OP_mul, "mul"); }
static int meta_div(lua_State *L) { return tensor_binary(L, AH_OP_div, "div"); }
static int meta_pow(lua_State *L) { return tensor_binary(L, AH_OP_pow, "pow"); }
static int meta_mod(lua_State *L) { return tensor_binary(L, AH_OP_remainder, "remainder"); }

static int meta_unm(lua_State *L)
{
    return ah_push_op(L, AH_OP_neg, (const struct ah_value[]){AH_T(ah_check_tensor(L, 1))}, 1);
}

const luaL_Reg ah_tensor_metamethods[] = {
    {"__newindex", ah_field_set}, {"__tostring", meta_tostring}, {"__len", meta_len}, {"__add", meta_add},
    {"__sub", meta_sub},          {"__mul", meta_mul},           {"__div", meta_div}, {"__pow", meta_pow},
    {"__mod", meta_mod},          {"__unm", meta_unm},           {"__lt", meta_compare},
    {"__le", meta_compare},       {"__concat", meta_concat},     {NULL, NULL},
};
