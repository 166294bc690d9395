/* accelhost._C.data.gather: batches of in-memory columns, as objects with post, take, pending, is_threaded, is_filled,
 * is_random, pin and close.
 *
 * A column is {source, table or false, {row shape}, grid or nil, erase or nil}; a grid is {channels =, rows =,
 * columns =, and steps {kind = "pad"|"crop"|"random_crop"|"flip", ...}}, erase is {p =, channels =, rows =, columns =,
 * scale = {2}, log_ratio = {2}, value = {a number per channel}}, as the transforms plan them. */
#include <math.h>
#include <string.h>

#include "bind/data/data.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/handle.h"
#include "data/gather.h"

static const struct ah_class gather_class;

static struct ah_gather **to_gather(lua_State *L)
{
    struct ah_gather **box = ah_class_to(L, 1, &gather_class);
    if (!box)
        ah_raise_text(L, "expected a gather, got %s", luaL_typename(L, 1));
    return box;
}

static struct ah_gather *check_gather(lua_State *L)
{
    struct ah_gather *gather = *to_gather(L);
    if (!gather)
        ah_raise_text(L, "this pass over the loader has ended");
    return gather;
}

/* Field `at` of the column table on top of the stack. */
static struct ah_tensor *column_tensor(lua_State *L, int at)
{
    lua_rawgeti(L, -1, at);
    struct ah_tensor *tensor = lua_toboolean(L, -1) ? ah_check_tensor(L, lua_gettop(L)) : NULL;
    lua_pop(L, 1);
    return tensor;
}

/* The bytes that a step fills with: a number per channel in field `fill`. */
static void read_fill(lua_State *L, int index, struct ah_grid_step *step)
{
    lua_getfield(L, index, "fill");
    int count = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    for (int c = 0; c < count && c < AH_GRID_CHANNELS; c++) {
        lua_rawgeti(L, -1, c + 1);
        step->fill[c] = (uint8_t)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static int word_of(lua_State *L, int index, const char *field, const char *const *words)
{
    const char *word = ah_opt_string(L, index, field, words[0]);
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], word))
            return i;
    return ah_raise_text(L, "a step has the %s '%s'", field, word);
}

static void read_step(lua_State *L, int index, struct ah_grid_step *step)
{
    static const char *const step_kinds[] = {"pad", "crop", "random_crop", "flip", NULL};
    static const char *const edges[] = {"constant", "edge", "reflect", "symmetric", NULL};
    step->kind = (enum ah_grid_kind)word_of(L, index, "kind", step_kinds);
    step->edge = (enum ah_grid_edge)word_of(L, index, "mode", edges);
    step->before[0] = ah_opt_int(L, index, "top", 0);
    step->before[1] = ah_opt_int(L, index, "left", 0);
    step->after[0] = ah_opt_int(L, index, "bottom", 0);
    step->after[1] = ah_opt_int(L, index, "right", 0);
    memcpy(step->at, step->before, sizeof step->at);
    step->size[0] = ah_opt_int(L, index, "height", 0);
    step->size[1] = ah_opt_int(L, index, "width", 0);
    step->axis = (int)ah_opt_int(L, index, "axis", 1);
    step->p = (float)ah_opt_number(L, index, "p", 1);
    read_fill(L, index, step);
}

/* Field 4 of the column table on top of the stack into *grid; NULL when it has none. */
static struct ah_grid *read_grid(lua_State *L, struct ah_grid *grid)
{
    lua_rawgeti(L, -1, 4);
    int index = lua_gettop(L);
    bool present = lua_istable(L, index);
    if (present) {
        *grid = (struct ah_grid){
            .channels = ah_opt_int(L, index, "channels", 1),
            .size = {ah_opt_int(L, index, "rows", 0), ah_opt_int(L, index, "columns", 0)},
            .count = (int)lua_objlen(L, index),
        };
        if (grid->count > AH_GRID_STEPS)
            ah_raise_text(L, "expected at most %d steps, got %d", AH_GRID_STEPS, grid->count);
        for (int s = 0; s < grid->count; s++) {
            lua_rawgeti(L, index, s + 1);
            luaL_checktype(L, -1, LUA_TTABLE);
            read_step(L, lua_gettop(L), &grid->step[s]);
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
    return present ? grid : NULL;
}

/* Read the numbers of the array in a field of the table at `index`; return their number. */
static int numbers_of(lua_State *L, int index, const char *field, double *out, int most)
{
    lua_getfield(L, index, field);
    int count = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    for (int i = 0; i < count && i < most; i++) {
        lua_rawgeti(L, -1, i + 1);
        out[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return count;
}

/* Field 5 of the column table on top of the stack into *erase; NULL when it has none. */
static struct ah_erase *read_erase(lua_State *L, struct ah_erase *erase)
{
    double value[AH_ERASE_CHANNELS] = {0};
    lua_rawgeti(L, -1, 5);
    int index = lua_gettop(L);
    bool present = lua_istable(L, index);
    if (present) {
        *erase = (struct ah_erase){
            .p = ah_opt_number(L, index, "p", 1),
            .channels = ah_opt_int(L, index, "channels", 1),
            .size = {ah_opt_int(L, index, "rows", 0), ah_opt_int(L, index, "columns", 0)},
        };
        if (numbers_of(L, index, "scale", erase->scale, 2) != 2 ||
            numbers_of(L, index, "log_ratio", erase->log_ratio, 2) != 2 ||
            numbers_of(L, index, "value", value, AH_ERASE_CHANNELS) != erase->channels)
            ah_raise_text(L, "erasing needs two numbers for scale and for log_ratio, and one value per channel");
        for (int c = 0; c < AH_ERASE_CHANNELS; c++)
            erase->value[c] = (float)value[c];
    }
    lua_pop(L, 1);
    return present ? erase : NULL;
}

/* gather({column, ...}, inline_bytes?) */
static int new_gather(lua_State *L)
{
    struct ah_gather_column columns[AH_GATHER_COLUMNS] = {{0}};
    luaL_checktype(L, 1, LUA_TTABLE);
    size_t inline_bytes = (size_t)luaL_optnumber(L, 2, AH_GATHER_INLINE);
    int count = (int)lua_objlen(L, 1);
    if (count > AH_GATHER_COLUMNS)
        return ah_raise_text(L, "a data set has 1 to %d columns, got %d", AH_GATHER_COLUMNS, count);
    struct ah_grid *grids = lua_newuserdata(L, AH_GATHER_COLUMNS * sizeof *grids);
    struct ah_erase *erases = lua_newuserdata(L, AH_GATHER_COLUMNS * sizeof *erases);
    for (int c = 0; c < count; c++) {
        lua_rawgeti(L, 1, c + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        columns[c].source = column_tensor(L, 1);
        columns[c].table = column_tensor(L, 2);
        if (!columns[c].source)
            return ah_raise_text(L, "column %d of the data set: expected a tensor", c + 1);
        ah_check(L, ah_tensor_row_major(columns[c].source));
        lua_rawgeti(L, -1, 3);
        columns[c].ndim = ah_check_ints(L, lua_gettop(L), columns[c].size, AH_MAX_DIMS - 1, "row shape");
        lua_pop(L, 1);
        columns[c].grid = read_grid(L, &grids[c]);
        columns[c].erase = read_erase(L, &erases[c]);
        lua_pop(L, 1);
    }
    struct ah_gather **box = ah_class_new(L, &gather_class, sizeof *box);
    ah_check(L, ah_gather_new(box, columns, count, inline_bytes));
    return 1;
}

static int close_gather(lua_State *L)
{
    struct ah_gather **box = to_gather(L);
    ah_gather_free(*box);
    *box = NULL;
    return 0;
}

/* The whole numbers of the array at `index`, in memory of Lua's; left on the stack. */
static int64_t *whole_numbers(lua_State *L, int index, size_t count)
{
    int64_t *numbers = lua_newuserdata(L, (count + 1) * sizeof *numbers);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        double value = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || value != floor(value) || fabs(value) > 0x1p53)
            ah_raise_text(L, "a sampler returned %s as an index (expected an integer)",
                          lua_type(L, -1) == LUA_TNUMBER ? lua_tostring(L, -1) : luaL_typename(L, -1));
        numbers[i] = (int64_t)value;
        lua_pop(L, 1);
    }
    return numbers;
}

/* gather:post({rows}, seed bytes?, {samples}?, {turns}?) */
static int gather_post(lua_State *L)
{
    struct ah_gather *gather = check_gather(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 5);
    size_t count = lua_objlen(L, 2);
    struct ah_gather_order order = {.count = (int64_t)count, .row = whole_numbers(L, 2, count)};
    if (!lua_isnil(L, 3))
        order.seed = ah_check_seed_bytes(L, 3);
    else if (ah_gather_is_random(gather))
        return ah_raise_text(L, "steps that draw random numbers need a seed");
    if (lua_istable(L, 4) && lua_objlen(L, 4) >= count)
        order.sample = whole_numbers(L, 4, count);
    if (lua_istable(L, 5)) {
        uint32_t *turn = lua_newuserdata(L, (count + 1) * sizeof *turn);
        for (size_t i = 0; i < count; i++) {
            lua_rawgeti(L, 5, (int)i + 1);
            turn[i] = (uint32_t)lua_tonumber(L, -1);
            lua_pop(L, 1);
        }
        order.turn = turn;
    }
    ah_check(L, ah_gather_post(gather, &order));
    return 0;
}

/* gather:take() -> one tensor per column. A loader's step: the collector may run. */
static int gather_take(lua_State *L)
{
    struct ah_gather *gather = check_gather(L);
    struct ah_tensor *out[AH_GATHER_COLUMNS];
    int count = ah_gather_columns(gather);
    ah_collect_if_due(L, AH_COLLECT_STEP);
    luaL_checkstack(L, count + 4, "too many columns");
    ah_check(L, ah_gather_take(gather, out));
    for (int c = 0; c < count; c++)
        ah_push_tensor(L, out[c]);
    return count;
}

/* gather:pin(device) */
AH_LUA_CHECKED(gather_pin, ah_gather_pin(check_gather(L), ah_check_device(L, 2)))
AH_LUA_VALUE(is_filled, lua_pushboolean, ah_gather_is_filled(check_gather(L)))
AH_LUA_VALUE(is_threaded, lua_pushboolean, ah_gather_is_threaded(check_gather(L), (int64_t)luaL_checknumber(L, 2)))
AH_LUA_VALUE(gather_pending, lua_pushinteger, ah_gather_pending(check_gather(L)))
AH_LUA_VALUE(is_random, lua_pushboolean, ah_gather_is_random(check_gather(L)))

static const luaL_Reg gather_methods[] = {
    {"post", gather_post},    {"take", gather_take},       {"is_threaded", is_threaded},
    {"is_random", is_random}, {"pending", gather_pending}, {"close", close_gather},
    {"is_filled", is_filled}, {"pin", gather_pin},         {NULL, NULL},
};
static const struct ah_class gather_class = {"accelhost.gather", gather_methods, NULL, close_gather};

void ah_add_gather(lua_State *L)
{
    lua_pushcfunction(L, new_gather);
    lua_setfield(L, -2, "gather");
}
