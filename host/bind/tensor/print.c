/* accelhost._C.print: how tensors are printed (tensor/format.h).
 *
 * options()                                              precision, threshold, edge items, line width, scientific
 * set_options(precision, threshold, edge, width, mode)   mode: true, false, or nil for as the range demands */
#include "bind/lua/bind.h"
#include "bind/lua/function.h"
#include "tensor/format.h"

static int print_options(lua_State *L)
{
    const struct ah_print_options *now = &ah_print_options;
    lua_pushinteger(L, now->precision);
    lua_pushnumber(L, now->threshold);
    lua_pushinteger(L, (lua_Integer)now->edge_items);
    lua_pushinteger(L, now->line_width);
    if (now->scientific == AH_SCIENTIFIC_AUTO)
        lua_pushnil(L);
    else
        lua_pushboolean(L, now->scientific == AH_SCIENTIFIC_ON);
    return 5;
}

static int print_set_options(lua_State *L)
{
    ah_print_options = (struct ah_print_options){
        .precision = (int)lua_tointeger(L, 1),
        .threshold = lua_tonumber(L, 2),
        .edge_items = lua_tointeger(L, 3),
        .line_width = (int)lua_tointeger(L, 4),
        .scientific = lua_isnoneornil(L, 5) ? AH_SCIENTIFIC_AUTO
                      : lua_toboolean(L, 5) ? AH_SCIENTIFIC_ON
                                            : AH_SCIENTIFIC_OFF,
    };
    return 0;
}

static const struct ah_function print_functions[] = {
    {"options", print_options, ""},
    {"set_options", print_set_options, "precision:i, threshold:n, edge_items:i, line_width:i, scientific:b?"},
    {NULL, NULL, NULL}};

int ah_open_print(lua_State *L)
{
    return ah_new_library(L, print_functions);
}
