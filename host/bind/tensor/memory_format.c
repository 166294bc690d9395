/* Parsing and applying the option memory_format. */
#include "bind/tensor/memory_format.h"

#include <string.h>


static const char *const memory_format_names[] = {
    [AH_FORMAT_PRESERVE] = "preserve_format",
    [AH_FORMAT_CONTIGUOUS] = "contiguous_format",
    [AH_FORMAT_CHANNELS_LAST] = "channels_last",
    [AH_FORMAT_CHANNELS_LAST_3D] = "channels_last_3d",
};

enum ah_memory_format ah_check_memory_format(lua_State *L, int index, const char *what)
{
    const char *text = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : "";
    for (size_t k = 0; k < sizeof memory_format_names / sizeof memory_format_names[0]; k++)
        if (!strcmp(memory_format_names[k], text))
            return (enum ah_memory_format)k;
    ah_raise_text(L, "%s: memory_format: expected \"channels_last\", \"channels_last_3d\", \"contiguous_format\" or "
                  "\"preserve_format\", got %s", what, ah_value_text(L, index));
    return AH_FORMAT_PRESERVE;
}

enum ah_memory_format ah_opt_memory_format(lua_State *L, int index, const char *what)
{
    enum ah_memory_format format = AH_FORMAT_PRESERVE;
    if (!lua_istable(L, index))
        return format;
    lua_getfield(L, index, "memory_format");
    if (!lua_isnil(L, -1))
        format = ah_check_memory_format(L, lua_gettop(L), what);
    lua_pop(L, 1);
    return format;
}

/* Do the strides describe the order N, sizes..., C? Dims of size 1 have any stride. */
static bool has_channels_last_strides(const struct ah_tensor *t, int rank)
{
    int64_t expected = 1;
    if (t->ndim != rank)
        return false;
    for (int k = 0; k < rank; k++) {
        int dim = k == 0 ? 1 : k == rank - 1 ? 0 : rank - k;
        if (t->size[dim] != 1 && t->stride[dim] != expected)
            return false;
        expected *= t->size[dim];
    }
    return true;
}

static bool is_channels_last(const struct ah_tensor *t, enum ah_memory_format format)
{
    if (format == AH_FORMAT_CHANNELS_LAST && t->storage->channels_last)
        return true;
    return has_channels_last_strides(t, format == AH_FORMAT_CHANNELS_LAST ? 4 : 5);
}

bool ah_is_in_format(lua_State *L, const struct ah_tensor *tensor, enum ah_memory_format format)
{
    if (format == AH_FORMAT_PRESERVE)
        ah_raise_text(L, "is_contiguous: memory_format: expected an order of memory, got \"preserve_format\"");
    return format == AH_FORMAT_CONTIGUOUS ? ah_tensor_is_contiguous(tensor) : is_channels_last(tensor, format);
}

static void check_rank(lua_State *L, const struct ah_tensor *tensor, enum ah_memory_format format, const char *what)
{
    int rank = format == AH_FORMAT_CHANNELS_LAST ? 4 : 5;
    if (format >= AH_FORMAT_CHANNELS_LAST && tensor->ndim != rank)
        ah_raise_text(L, "%s: memory_format \"%s\": expected a tensor of %d dims, got shape %s", what,
                      memory_format_names[format], rank, ah_shape(tensor));
}

const struct ah_op *ah_format_op(lua_State *L, const struct ah_op *op, struct ah_tensor *input,
                                 enum ah_memory_format format)
{
    if (op->id != AH_OP_contiguous || format == AH_FORMAT_CONTIGUOUS)
        return op;
    if (format == AH_FORMAT_PRESERVE)
        ah_raise_text(L, "contiguous: memory_format: expected an order of memory, got \"preserve_format\"");
    check_rank(L, input, format, op->name);
    if (is_channels_last(input, format))
        return NULL;
    return format == AH_FORMAT_CHANNELS_LAST ? ah_op_get(AH_OP_clone) : op;
}

void ah_set_format(lua_State *L, struct ah_tensor *made, enum ah_memory_format format, bool unset, const char *what)
{
    check_rank(L, made, format, what);
    if (format == AH_FORMAT_CONTIGUOUS)
        ah_check(L, ah_tensor_row_major(made));
    else if (format == AH_FORMAT_CHANNELS_LAST)
        ah_check(L, ah_tensor_channels_last(made, unset));
}
