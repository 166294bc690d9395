/* One Lua function per op, all the same C function: it reads arguments by the schema's signature, by position and from
 * a trailing table of names, calls the dispatcher, and pushes the results. Invariant: nothing is owned while an
 * argument may still be refused. */
#include "bind/tensor/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "base/status/nearest.h"
#include "base/status/status.h"
#include "bind/lua/function.h"
#include "bind/lua/generator.h"
#include "bind/lua/handle.h"
#include "bind/tensor/memory_format.h"

static bool is_integral(double value)
{
    return value == floor(value) && fabs(value) <= 0x1p53;
}

/* -0 is whole, but only a float can hold its sign: promotion sees to that (ah_call_promote). */
static bool is_whole_operand(double value)
{
    return is_integral(value) && !(value == 0 && signbit(value));
}

static int bad_argument(lua_State *L, const struct ah_op *op, int i, int index, const char *wanted)
{
    return ah_raise_text(L, "%s: argument %d (%s): expected %s, got %s", op->name, i + 1, op->param[i].name, wanted,
                         ah_value_text(L, index));
}

struct ah_value ah_check_operand(lua_State *L, int index, const char *op)
{
    struct ah_tensor *tensor = ah_to_tensor(L, index);
    if (tensor)
        return AH_T(tensor);
    if (lua_type(L, index) == LUA_TNUMBER) {
        double number = lua_tonumber(L, index);
        return is_whole_operand(number) ? AH_I((int64_t)number) : AH_N(number);
    }
    if (lua_isboolean(L, index))
        return AH_B(lua_toboolean(L, index));
    ah_raise_text(L, "%s: expected a tensor or a number, got %s", op, ah_value_text(L, index));
    return AH_NIL;
}

/* Read the number in a 0-dim tensor, which is accepted for a number as in PyTorch: no gradient goes through it. */
static bool read_number_tensor(lua_State *L, const struct ah_op *op, int i, int index, struct ah_value *out)
{
    struct ah_tensor *tensor = ah_to_tensor(L, index), *here = NULL;
    bool whole = op->param[i].kind == AH_INT;
    if (!tensor || tensor->ndim > 0 || (whole && ah_dtype_is_float(tensor->dtype)))
        return false;
    if (ah_requires_grad(tensor))
        ah_raise_text(L, "%s: argument %d (%s): expected a number, got a tensor that requires gradients, which do not "
                      "pass through here: use :item()", op->name, i + 1, op->param[i].name);
    ah_check(L, ah_host_copy(&here, tensor));
    *out = whole ? AH_I(ah_tensor_get_int(here, 0)) : AH_N(ah_tensor_get(here, 0));
    ah_tensor_release(here);
    return true;
}

/* {false, 3}: false as AH_SAME_SIZE. */
static struct ah_value read_open_sizes(lua_State *L, const struct ah_op *op, int i, int index)
{
    struct ah_value value = {.kind = AH_INTS};
    int count = (int)lua_objlen(L, index);
    for (int k = 0; k < count && k < AH_MAX_DIMS; k++) {
        lua_rawgeti(L, index, k + 1);
        double number = lua_tonumber(L, -1);
        bool same = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
        if (!same && (lua_type(L, -1) != LUA_TNUMBER || !is_integral(number)))
            ah_raise_text(L, "%s: %s: expected integers, or false to keep the input's size, item %d is %s", op->name,
                          op->param[i].name, k + 1, ah_value_text(L, -1));
        value.ints.at[value.ints.count++] = same ? AH_SAME_SIZE : (int64_t)number;
        lua_pop(L, 1);
    }
    return value;
}

/* Integers from a table, or from consecutive numbers when `variadic`; *used is set to the number of stack slots
 * read. */
static struct ah_value read_ints(lua_State *L, const struct ah_op *op, int i, int index, bool variadic, int *used)
{
    struct ah_value value = {.kind = AH_INTS};
    if (lua_istable(L, index) && (op->flags & AH_OPEN_SIZE) && lua_objlen(L, index) == 2)
        return read_open_sizes(L, op, i, index);
    if (lua_istable(L, index)) {
        char what[96];
        snprintf(what, sizeof what, "%s: %s", op->name, op->param[i].name);
        value.ints.count = ah_check_ints(L, index, value.ints.at, AH_MAX_DIMS, what);
        return value;
    }
    int count = 0;
    while (lua_type(L, index + count) == LUA_TNUMBER && (count == 0 || variadic)) {
        double number = lua_tonumber(L, index + count);
        if (!is_integral(number) || count == AH_MAX_DIMS)
            bad_argument(L, op, i, index + count, "integers (at most 8)");
        value.ints.at[count++] = (int64_t)number;
    }
    if (!count)
        bad_argument(L, op, i, index, "integers");
    value.ints.count = count;
    *used = count;
    return value;
}

static struct ah_value read_list(lua_State *L, const struct ah_op *op, int i, int index)
{
    if (!lua_istable(L, index))
        bad_argument(L, op, i, index, "a table of tensors");
    char what[96];
    snprintf(what, sizeof what, "%s: %s", op->name, op->param[i].name);
    int count = ah_check_array(L, index, what, false);
    struct ah_tensor **items = lua_newuserdata(L, (size_t)(count ? count : 1) * sizeof *items);
    for (int k = 0; k < count; k++) {
        lua_rawgeti(L, index, k + 1);
        items[k] = ah_to_tensor(L, -1);
        if (!items[k]) {
            ah_raise_text(L, "%s: argument %d (%s): item %d is %s, not a tensor", op->name, i + 1, op->param[i].name,
                          k + 1, ah_value_text(L, -1));
        }
        lua_pop(L, 1);
    }
    return AH_L(items, count);
}

static bool is_filling(const struct ah_op *op)
{
    return op->id == AH_OP_full || op->id == AH_OP_full_like;
}

/* A fill value of true or false as 1 or 0; without a dtype it makes a tensor of bool. */
static void settle_filling(const struct ah_op *op, struct ah_value *args)
{
    enum { VALUE = 1, DTYPE = 2 };
    if (!is_filling(op) || args[VALUE].kind != AH_FLAG)
        return;
    args[VALUE] = AH_N(args[VALUE].flag);
    if (op->id == AH_OP_full && args[DTYPE].kind == AH_NONE)
        args[DTYPE] = AH_D(AH_BOOL);
}

/* var(false), var(dim, false): the flag is whether the result is unbiased, in the place of the correction. */
static void settle_unbiased(lua_State *L)
{
    if (lua_isboolean(L, 2)) {
        lua_pushnil(L);
        lua_insert(L, 2);
    }
    if (lua_isboolean(L, 3)) {
        lua_pushinteger(L, lua_toboolean(L, 3));
        lua_replace(L, 3);
    }
}

static struct ah_value read_value(lua_State *L, const struct ah_op *op, int i, int index, bool variadic, int *used)
{
    const struct ah_param *param = &op->param[i];
    *used = 1;
    if (lua_isnoneornil(L, index)) {
        if (!param->optional && !param->has_default)
            bad_argument(L, op, i, index, param->kind == AH_TENSOR ? "a tensor" : "a value");
        return AH_NIL;
    }
    switch (param->kind) {
    case AH_TENSOR: {
        struct ah_tensor *tensor = ah_to_tensor(L, index);
        if (!tensor)
            bad_argument(L, op, i, index, "a tensor");
        return AH_T(tensor);
    }
    case AH_OPERAND: {
        if (!ah_to_tensor(L, index) && lua_type(L, index) != LUA_TNUMBER && !lua_isboolean(L, index))
            bad_argument(L, op, i, index, "a tensor or a number");
        return ah_check_operand(L, index, op->name);
    }
    case AH_LIST:
        return read_list(L, op, i, index);
    case AH_INT: {
        struct ah_value value;
        double number = lua_tonumber(L, index);
        if (lua_type(L, index) != LUA_TNUMBER && read_number_tensor(L, op, i, index, &value))
            return value;
        if (lua_type(L, index) != LUA_TNUMBER || !is_integral(number))
            bad_argument(L, op, i, index, "an integer");
        return AH_I((int64_t)number);
    }
    case AH_INTS:
        return read_ints(L, op, i, index, variadic, used);
    case AH_NUMBER: {
        struct ah_value value;
        if (is_filling(op) && lua_isboolean(L, index))
            return AH_B(lua_toboolean(L, index));
        if (lua_type(L, index) != LUA_TNUMBER && read_number_tensor(L, op, i, index, &value))
            return value;
        if (lua_type(L, index) != LUA_TNUMBER)
            bad_argument(L, op, i, index, "a number");
        return AH_N(lua_tonumber(L, index));
    }
    case AH_FLAG:
        if (!lua_isboolean(L, index))
            bad_argument(L, op, i, index, "true or false");
        return AH_B(lua_toboolean(L, index));
    case AH_DTYPE: {
        enum ah_dtype dtype = AH_F32;
        if (lua_type(L, index) != LUA_TSTRING)
            bad_argument(L, op, i, index, "a dtype name such as \"float32\"");
        if (ah_dtype_parse(lua_tostring(L, index), &dtype))
            ah_raise(L, ah_fail_prefix(AH_EINVAL, "%s", op->name));
        return AH_D(dtype);
    }
    case AH_DEVICE: {
        struct ah_device *device = NULL;
        if (lua_type(L, index) != LUA_TSTRING)
            bad_argument(L, op, i, index, "the name of a device");
        int status = ah_device_find(lua_tostring(L, index), &device);
        if (status < 0)
            ah_raise(L, ah_fail_prefix(status, "%s", op->name));
        return AH_DEV(device);
    }
    default:
        if (lua_type(L, index) != LUA_TSTRING)
            bad_argument(L, op, i, index, "a string");
        return AH_S(lua_tostring(L, index));
    }
}

/* Is this I parameter allowed to swallow trailing integers? Not when a later parameter could want them. */
static bool is_variadic(const struct ah_op *op, int i)
{
    if (op->param[i].kind != AH_INTS || op->param[i].optional || op->param[i].has_default)
        return false;
    for (int k = i + 1; k < op->param_count; k++) {
        enum ah_kind kind = op->param[k].kind;
        if (kind == AH_INT || kind == AH_INTS || kind == AH_NUMBER || kind == AH_OPERAND)
            return false;
    }
    return true;
}

/* Is the last argument a table of named arguments? An empty one is, unless a list is wanted in its place. */
static bool is_options(lua_State *L, int index, enum ah_kind kind)
{
    return ah_is_named(L, index, kind != AH_INTS && kind != AH_LIST);
}

static const char *nearest_parameter(const struct ah_op *op, const char *word)
{
    const char *known[AH_MAX_ARGS + 1] = {NULL};
    for (int k = 0; k < op->param_count; k++)
        known[k] = op->param[k].name;
    return ah_nearest(word, known);
}

/* Options that are no parameters of the row. */
struct extras {
    bool requires_grad;
    struct ah_generator_object *generator;
    bool formatted;
    enum ah_memory_format format;
};

static bool read_extra(lua_State *L, const struct ah_op *op, const char *key, struct extras *extras)
{
    if ((op->flags & AH_MAKES) && !strcmp(key, "requires_grad")) {
        if (!lua_isboolean(L, -1))
            ah_raise_text(L, "%s: requires_grad: expected true or false, got %s", op->name, ah_value_text(L, -1));
        extras->requires_grad = lua_toboolean(L, -1);
        return true;
    }
    if ((op->flags & AH_FORMATS) && !strcmp(key, "memory_format")) {
        extras->formatted = true;
        extras->format = ah_check_memory_format(L, lua_gettop(L), op->name);
        return true;
    }
    if ((op->flags & AH_RANDOM) && !strcmp(key, "generator")) {
        extras->generator = ah_to_generator(L, lua_gettop(L));
        if (!extras->generator)
            ah_raise_text(L, "%s: generator: expected a Generator, got %s", op->name, ah_value_text(L, -1));
        return true;
    }
    return false;
}

/* Return the device on which an op draws: it has to be of the generator's type. */
static struct ah_device *where_drawn(lua_State *L, const struct ah_op *op, const struct ah_value *args,
                                     const struct ah_generator_object *generator)
{
    struct ah_device *device = NULL;
    bool tensors = false;
    for (int i = 0; i < op->param_count; i++) {
        if (args[i].kind == AH_DEVICE)
            device = args[i].device;
        else if (args[i].kind == AH_TENSOR && !device)
            tensors = true, device = args[i].tensor->storage->device;
    }
    device = device || tensors ? device : ah_default_device;
    if (device->type != generator->device->type)
        ah_raise_text(L, "%s: generator: expected a Generator of %s, where the result is to be, got one of %s",
                      op->name, device->name, generator->device->name);
    return device;
}

static void raise_unknown(lua_State *L, const struct ah_op *op, const char *key)
{
    char list[256] = "";
    for (int k = 0; k < op->param_count; k++) {
        strncat(list, k ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, op->param[k].name, sizeof list - strlen(list) - 1);
    }
    const char *near = nearest_parameter(op, key);
    ah_raise_text(L, "%s: unknown option '%s' (known: %s)%s%s%s", op->name, key, list,
                  near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* The trailing table of named arguments. A table has no order: of several wrong ones the message is about the unknown
 * name that is first by its bytes, else about the first of the signature. */
static void read_options(lua_State *L, const struct ah_op *op, int index, struct ah_value *args, struct extras *extras)
{
    int place[AH_MAX_ARGS] = {0}, used; /* on the stack, of the value of each parameter */
    const char *unknown = NULL;
    luaL_checkstack(L, 2 * AH_MAX_ARGS + 4, op->name);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        int i = 0;
        while (i < op->param_count && strcmp(op->param[i].name, key))
            i++;
        if (i < op->param_count) {
            place[i] = lua_gettop(L) - 1;
            lua_insert(L, -2); /* the value stays, below the key from which the iteration continues */
            continue;
        }
        if (!read_extra(L, op, key, extras) && (!unknown || strcmp(key, unknown) < 0))
            unknown = key;
        lua_pop(L, 1);
    }
    if (unknown)
        raise_unknown(L, op, unknown);
    for (int i = 0; i < op->param_count; i++) {
        if (!place[i])
            continue;
        if (args[i].kind != AH_NONE)
            ah_raise_text(L, "%s: '%s' is given twice, by position and by name", op->name, op->param[i].name);
        args[i] = read_value(L, op, i, place[i], false, &used);
    }
}

/* The row that a call means: t:view("int32") reads other elements in the same bytes. */
static const struct ah_op *op_meant(lua_State *L, const struct ah_op *op)
{
    enum ah_dtype dtype;
    bool is_dtype = lua_type(L, 2) == LUA_TSTRING && ah_dtype_parse(lua_tostring(L, 2), &dtype) == 0;
    return op->id == AH_OP_view && is_dtype ? ah_op_get(AH_OP_view_dtype) : op;
}

/* Push a result: the Lua object of the first two arguments where it is one of them. */
static void push_out(lua_State *L, const struct ah_op *op, struct ah_tensor *out, const struct ah_value *args, int top)
{
    for (int a = 1; a <= top && a <= 2; a++) {
        if (lua_type(L, a) == LUA_TUSERDATA && ah_to_tensor(L, a) == out) {
            lua_pushvalue(L, a);
            ah_tensor_release(out);
            return;
        }
    }
    ah_push_result(L, out, args, op->param_count);
}

static int call_op(lua_State *L, const struct ah_op *op, bool inplace)
{
    struct ah_value args[AH_MAX_ARGS];
    struct extras extras = {0};
    if ((op->flags & AH_FROM_ZERO) && lua_istable(L, 2)) {
        lua_pushinteger(L, 0);
        lua_insert(L, 1);
    }
    if (op->flags & AH_UNBIASED)
        settle_unbiased(L);
    int top = lua_gettop(L), index = 1, i = 0;
    for (; i < op->param_count && index <= top; i++) {
        if (index == top && is_options(L, index, op->param[i].kind))
            break;
        int used;
        args[i] = read_value(L, op, i, index, is_variadic(op, i), &used);
        index += used;
    }
    for (int k = i; k < op->param_count; k++)
        args[k].kind = AH_NONE;
    if (index == top && lua_istable(L, index))
        read_options(L, op, index, args, &extras);
    else if (index <= top)
        return ah_raise_text(L, "%s: expected at most %d arguments, got %d", op->name, op->param_count, top);
    for (int k = i; k < op->param_count; k++) {
        if (args[k].kind == AH_NONE && !op->param[k].optional && !op->param[k].has_default) {
            return ah_raise_text(L, "%s: argument %d (%s) is missing", op->name, k + 1, op->param[k].name);
        }
    }
    settle_filling(op, args);
    if (extras.formatted && args[0].kind == AH_TENSOR) {
        op = ah_format_op(L, op, args[0].tensor, extras.format);
        if (!op) {
            lua_pushvalue(L, 1);
            return 1;
        }
    }
    struct ah_tensor *out[AH_MAX_OUTS];
    int out_count = 0;
    struct ah_device *drawn = extras.generator ? where_drawn(L, op, args, extras.generator) : NULL;
    lua_State *outer = ah_enter(L);
    int status = drawn ? ah_generator_enter(extras.generator, drawn) : 0;
    if (status == 0) {
        status = ah_op_call(op->id, args, op->param_count, inplace, out, &out_count);
        if (drawn)
            ah_generator_leave(extras.generator, drawn);
    }
    ah_leave(outer);
    ah_check(L, status);
    for (int k = 0; k < out_count; k++)
        push_out(L, op, out[k], args, top);
    if (extras.formatted && out[0] != args[0].tensor)
        ah_set_format(L, out[0], extras.format, op->flags & AH_MAKES, op->name);
    if (extras.requires_grad)
        ah_check(L, ah_set_requires_grad(out[0], true));
    ah_collect_if_due(L, 0);
    return out_count;
}

static int op_plain(lua_State *L)
{
    return call_op(L, lua_touserdata(L, lua_upvalueindex(1)), false);
}

static int op_inplace(lua_State *L)
{
    return call_op(L, lua_touserdata(L, lua_upvalueindex(1)), true);
}

/* The method of an op: the first argument is the tensor before the colon. */
static int op_method(lua_State *L)
{
    const struct ah_op *op = lua_touserdata(L, lua_upvalueindex(1));
    if (!ah_to_tensor(L, 1))
        return ah_raise_not_method(L, op->name, "a tensor");
    return call_op(L, op_meant(L, op), false);
}

static int op_inplace_method(lua_State *L)
{
    const struct ah_op *op = lua_touserdata(L, lua_upvalueindex(1));
    if (!ah_to_tensor(L, 1)) {
        char name[64];
        snprintf(name, sizeof name, "%s_", op->name);
        return ah_raise_not_method(L, name, "a tensor");
    }
    return call_op(L, op, true);
}

const struct ah_op *ah_to_op(lua_State *L, int index)
{
    lua_CFunction function = lua_tocfunction(L, index);
    if (function != op_plain && function != op_inplace && function != op_method && function != op_inplace_method)
        return NULL;
    lua_getupvalue(L, index, 1);
    const struct ah_op *op = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return op;
}

void ah_push_op_function(lua_State *L, const struct ah_op *op, bool method, bool inplace)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)op);
    if (inplace)
        lua_pushcclosure(L, method ? op_inplace_method : op_inplace, 1);
    else
        lua_pushcclosure(L, method ? op_method : op_plain, 1);
}

int ah_push_op(lua_State *L, enum ah_opid id, const struct ah_value *args, int count)
{
    struct ah_tensor *out;
    lua_State *outer = ah_enter(L);
    int status = ah_op_call1(id, &out, args, count);
    ah_leave(outer);
    ah_check(L, status);
    ah_push_result(L, out, args, count);
    ah_collect_if_due(L, 0);
    return 1;
}
