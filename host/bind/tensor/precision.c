/* accelhost._C.precision: ops that may compute in less than the dtype's precision (ops/dispatch/precision.h).
 *
 * get_float32_matmul_precision(), set_float32_matmul_precision(name)
 * allows(switch), allow(switch, boolean)   "matmul", "conv": TF32 for float32; "cudnn": that library at all
 * state()                                  all of it as one number, to compare */
#include <string.h>

#include "bind/lua/bind.h"
#include "bind/lua/function.h"
#include "ops/dispatch/precision.h"

AH_LUA_VALUE(get_matmul, lua_pushstring, ah_matmul_precision_name(ah_precision()->matmul))
AH_LUA_CHECKED(set_matmul, ah_matmul_precision_parse(lua_tostring(L, 1), &ah_precision()->matmul))

static int precision_allows(lua_State *L)
{
    static const char *const switches[] = {"matmul", "conv", "cudnn", NULL};
    const struct ah_precision *state = ah_precision();
    const bool on[] = {state->matmul != AH_MATMUL_HIGHEST, state->conv_tf32, state->dnn};
    lua_pushboolean(L, on[luaL_checkoption(L, 1, NULL, switches)]);
    return 1;
}

static int precision_allow(lua_State *L)
{
    const char *name = lua_tostring(L, 1);
    bool on = lua_toboolean(L, 2);
    if (!strcmp(name, "matmul"))
        ah_precision()->matmul = on ? AH_MATMUL_HIGH : AH_MATMUL_HIGHEST;
    else if (!strcmp(name, "conv"))
        ah_precision()->conv_tf32 = on;
    else
        ah_precision()->dnn = on;
    return 0;
}

static int precision_state(lua_State *L)
{
    const struct ah_precision *now = ah_precision();
    lua_pushinteger(L, (now->matmul != AH_MATMUL_HIGHEST) + 2 * now->conv_tf32 + 4 * now->dnn);
    return 1;
}

static const struct ah_function precision_functions[] = {
    /* The precision of products of float32 matrices on CUDA devices: "highest", "high" or "medium".
     *     accelhost.get_float32_matmul_precision()  --> highest
     * @return string */
    {"get_float32_matmul_precision", get_matmul, ""},
    /* Set the precision of products of float32 matrices (matmul, linear and ops made of them) on CUDA devices:
     * "highest", the default, computes in float32; "high" and "medium" let tensor cores round the factors to TF32's 10
     * bits, and add up in float32, which is several times faster. On the CPU float32 is float32 with
     * each. It is the same switch as backends.cuda.matmul.allow_tf32.
     *     accelhost.set_float32_matmul_precision("high")
     *     accelhost.backends.cuda.matmul.allow_tf32  --> true */
    {"set_float32_matmul_precision", set_matmul, "precision:s"},
    {"allows", precision_allows, "switch:s"},
    {"allow", precision_allow, "switch:s, on:b"},
    {"state", precision_state, ""},
    {NULL, NULL, NULL}};

int ah_open_precision(lua_State *L)
{
    return ah_new_library(L, precision_functions);
}
