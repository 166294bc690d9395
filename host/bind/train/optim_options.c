/* The options of an optimizer's group, from its table in Lua. */
#include <string.h>

#include "bind/train/optim.h"

enum type { NUMBER, FLAG, PAIR };

#define AT(field) offsetof(struct ah_optim_options, field)

static const struct {
    const char *name;
    enum type type;
    size_t at, second; /* second: of a table of two numbers */
} option[] = {
    {"lr", NUMBER, AT(lr), 0},
    {"weight_decay", NUMBER, AT(weight_decay), 0},
    {"eps", NUMBER, AT(eps), 0},
    {"momentum", NUMBER, AT(momentum), 0},
    {"dampening", NUMBER, AT(dampening), 0},
    {"alpha", NUMBER, AT(alpha), 0},
    {"lr_decay", NUMBER, AT(lr_decay), 0},
    {"rho", NUMBER, AT(rho), 0},
    {"momentum_decay", NUMBER, AT(momentum_decay), 0},
    {"lambd", NUMBER, AT(lambd), 0},
    {"t0", NUMBER, AT(t0), 0},
    {"maximize", FLAG, AT(maximize), 0},
    {"nesterov", FLAG, AT(nesterov), 0},
    {"amsgrad", FLAG, AT(amsgrad), 0},
    {"centered", FLAG, AT(centered), 0},
    {"decoupled_weight_decay", FLAG, AT(decoupled_weight_decay), 0},
    {"betas", PAIR, AT(beta1), AT(beta2)},
    {"etas", PAIR, AT(eta_minus), AT(eta_plus)},
    {"step_sizes", PAIR, AT(step_min), AT(step_max)},
};

enum { OPTIONS = sizeof option / sizeof *option };

/* Bits of the options that each kind reads, set when its class is defined. */
static uint32_t options_of[AH_OPTIM_KINDS];

void ah_optim_set_options(lua_State *L, int index, enum ah_optim_kind kind)
{
    options_of[kind] = 0;
    for (int i = 0; i < OPTIONS; i++) {
        lua_getfield(L, index, option[i].name);
        if (!lua_isnil(L, -1))
            options_of[kind] |= 1u << i;
        lua_pop(L, 1);
    }
}

/* The number on top of the stack, or a tensor with one element. */
static double top_number(lua_State *L, enum ah_optim_kind kind, const char *name)
{
    struct ah_tensor *tensor = ah_to_tensor(L, -1), *here;
    double value = 0;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        value = lua_tonumber(L, -1);
    } else if (tensor && tensor->numel == 1) {
        if (ah_on_cpu(tensor)) { /* read again before each replay of a captured step */
            value = ah_tensor_get(tensor, 0);
        } else {
            ah_check(L, ah_host_copy(&here, tensor));
            value = ah_tensor_get(here, 0);
            ah_tensor_release(here);
        }
    } else {
        ah_raise_text(L, "%s: %s: expected a number, got %s", ah_optim_kinds[kind].name, name, luaL_typename(L, -1));
    }
    lua_pop(L, 1);
    return value;
}

static bool top_flag(lua_State *L, enum ah_optim_kind kind, const char *name)
{
    if (!lua_isboolean(L, -1))
        ah_raise_text(L, "%s: %s: expected true or false, got %s", ah_optim_kinds[kind].name, name,
                      luaL_typename(L, -1));
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

static void read_pair(lua_State *L, enum ah_optim_kind kind, const char *name, double *first, double *second)
{
    if (!lua_istable(L, -1))
        ah_raise_text(L, "%s: %s: expected a table of two numbers, got %s", ah_optim_kinds[kind].name, name,
                      luaL_typename(L, -1));
    lua_rawgeti(L, -1, 1);
    *first = top_number(L, kind, name);
    lua_rawgeti(L, -1, 2);
    *second = top_number(L, kind, name);
    lua_pop(L, 1);
}

void ah_optim_read_options(lua_State *L, int index, enum ah_optim_kind kind, struct ah_optim_options *o)
{
    memset(o, 0, sizeof *o);
    for (int i = 0; i < OPTIONS; i++) {
        if (!(options_of[kind] & 1u << i))
            continue;
        void *at = (char *)o + option[i].at;
        lua_getfield(L, index, option[i].name);
        if (option[i].type == NUMBER)
            *(double *)at = top_number(L, kind, option[i].name);
        else if (option[i].type == FLAG)
            *(bool *)at = top_flag(L, kind, option[i].name);
        else
            read_pair(L, kind, option[i].name, at, (double *)((char *)o + option[i].second));
    }
}
