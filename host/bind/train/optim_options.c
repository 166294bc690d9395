/* The options of an optimizer's group, from its table in Lua: which kind reads which. */
#include <string.h>

#include "bind/train/optim.h"

enum {
    SGD = 1 << AH_OPTIM_SGD,
    ADAM = 1 << AH_OPTIM_ADAM | 1 << AH_OPTIM_ADAMW,
    RMSPROP = 1 << AH_OPTIM_RMSPROP,
    ADAGRAD = 1 << AH_OPTIM_ADAGRAD,
    ADADELTA = 1 << AH_OPTIM_ADADELTA,
    NADAM = 1 << AH_OPTIM_NADAM,
    RADAM = 1 << AH_OPTIM_RADAM,
    ADAMAX = 1 << AH_OPTIM_ADAMAX,
    LION = 1 << AH_OPTIM_LION,
    ASGD = 1 << AH_OPTIM_ASGD,
    RPROP = 1 << AH_OPTIM_RPROP,
    ALL = (1 << AH_OPTIM_KINDS) - 1
};

static const struct {
    const char *name;
    size_t offset;
    unsigned kinds;
} numbers[] = {
    {"lr", offsetof(struct ah_optim_options, lr), ALL},
    {"weight_decay", offsetof(struct ah_optim_options, weight_decay), ALL & ~RPROP},
    {"eps", offsetof(struct ah_optim_options, eps), ALL & ~(SGD | LION | ASGD | RPROP)},
    {"momentum", offsetof(struct ah_optim_options, momentum), SGD | RMSPROP},
    {"dampening", offsetof(struct ah_optim_options, dampening), SGD},
    {"alpha", offsetof(struct ah_optim_options, alpha), RMSPROP | ASGD},
    {"lr_decay", offsetof(struct ah_optim_options, lr_decay), ADAGRAD},
    {"rho", offsetof(struct ah_optim_options, rho), ADADELTA},
    {"momentum_decay", offsetof(struct ah_optim_options, momentum_decay), NADAM},
    {"lambd", offsetof(struct ah_optim_options, lambd), ASGD},
    {"t0", offsetof(struct ah_optim_options, t0), ASGD},
}, flags[] = {
    {"maximize", offsetof(struct ah_optim_options, maximize), ALL},
    {"nesterov", offsetof(struct ah_optim_options, nesterov), SGD},
    {"amsgrad", offsetof(struct ah_optim_options, amsgrad), ADAM},
    {"centered", offsetof(struct ah_optim_options, centered), RMSPROP},
    {"decoupled_weight_decay", offsetof(struct ah_optim_options, decoupled_weight_decay),
     1 << AH_OPTIM_ADAM | NADAM | RADAM},
};

/* Tables of two numbers. */
static const struct {
    const char *name;
    size_t first, second;
    unsigned kinds;
} couples[] = {
    {"betas", offsetof(struct ah_optim_options, beta1), offsetof(struct ah_optim_options, beta2),
     ADAM | NADAM | RADAM | ADAMAX | LION},
    {"etas", offsetof(struct ah_optim_options, eta_minus), offsetof(struct ah_optim_options, eta_plus), RPROP},
    {"step_sizes", offsetof(struct ah_optim_options, step_min), offsetof(struct ah_optim_options, step_max), RPROP},
};

/* The number on top of the stack, or a tensor with one element. */
static double top_number(lua_State *L, enum ah_optim_kind kind, const char *name)
{
    struct ah_tensor *tensor = ah_to_tensor(L, -1), *here;
    double value = 0;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        value = lua_tonumber(L, -1);
    } else if (tensor && tensor->numel == 1) {
        ah_check(L, ah_host_copy(&here, tensor));
        value = ah_tensor_get(here, 0);
        ah_tensor_release(here);
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

void ah_optim_read_options(lua_State *L, int index, enum ah_optim_kind kind, struct ah_optim_options *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!(numbers[i].kinds & 1u << kind))
            continue;
        lua_getfield(L, index, numbers[i].name);
        *(double *)((char *)o + numbers[i].offset) = top_number(L, kind, numbers[i].name);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!(flags[i].kinds & 1u << kind))
            continue;
        lua_getfield(L, index, flags[i].name);
        *(bool *)((char *)o + flags[i].offset) = top_flag(L, kind, flags[i].name);
    }
    for (size_t i = 0; i < sizeof couples / sizeof *couples; i++) {
        if (!(couples[i].kinds & 1u << kind))
            continue;
        lua_getfield(L, index, couples[i].name);
        if (!lua_istable(L, -1))
            ah_raise_text(L, "%s: %s: expected a table of two numbers, got %s", ah_optim_kinds[kind].name,
                          couples[i].name, luaL_typename(L, -1));
        lua_rawgeti(L, -1, 1);
        *(double *)((char *)o + couples[i].first) = top_number(L, kind, couples[i].name);
        lua_rawgeti(L, -1, 2);
        *(double *)((char *)o + couples[i].second) = top_number(L, kind, couples[i].name);
        lua_pop(L, 1);
    }
}
