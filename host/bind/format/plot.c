/* accelhost._C.plot: pictures of lines, texts and boxes (data/scene.h).
 *
 * png{width, height, items} -> the bytes of the file; an item is {kind = "line", "text" or "box", red, green, blue,
 * alpha, x, y, width, height, points = {x, y, ...}, text, size, align, bold} */
#include <stdlib.h>
#include <string.h>

#include "bind/lua/bind.h"
#include "bind/lua/function.h"
#include "data/scene.h"

static double number_of(lua_State *L, const char *name)
{
    lua_getfield(L, -1, name);
    double value = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

/* The points of the item on top of the stack, in a userdata that the table at stack index `keep` holds. */
static const double *points_of(lua_State *L, int keep, size_t *count)
{
    lua_getfield(L, -1, "points");
    luaL_checktype(L, -1, LUA_TTABLE);
    *count = lua_objlen(L, -1) / 2;
    double *points = lua_newuserdata(L, (2 * *count + 1) * sizeof *points);
    for (size_t i = 0; i < 2 * *count; i++) {
        lua_rawgeti(L, -2, (int)i + 1);
        points[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_rawseti(L, keep, (int)lua_objlen(L, keep) + 1);
    lua_pop(L, 1);
    return points;
}

/* The item on top of the stack. Its text stays the table's. */
static struct ah_scene_item read_item(lua_State *L, int keep)
{
    static const char *const kinds[] = {"line", "text", "box", NULL};
    struct ah_scene_item item = {
        .red = number_of(L, "red"), .green = number_of(L, "green"), .blue = number_of(L, "blue"),
        .alpha = number_of(L, "alpha"), .x = number_of(L, "x"), .y = number_of(L, "y"),
        .width = number_of(L, "width"), .height = number_of(L, "height"), .size = number_of(L, "size"),
        .align = number_of(L, "align"),
    };
    lua_getfield(L, -1, "kind");
    item.kind = (enum ah_scene_kind)luaL_checkoption(L, -1, NULL, kinds);
    lua_pop(L, 1);
    lua_getfield(L, -1, "bold");
    item.bold = lua_toboolean(L, -1);
    lua_pop(L, 1);
    if (item.kind == AH_SCENE_LINE)
        item.points = points_of(L, keep, &item.point_count);
    lua_getfield(L, -1, "text");
    if (item.kind == AH_SCENE_TEXT)
        item.text = luaL_checkstring(L, -1);
    lua_pop(L, 1);
    return item;
}

static int plot_png(lua_State *L)
{
    struct ah_scene scene = {0};
    unsigned char *bytes = NULL;
    size_t count = 0;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    scene.width = number_of(L, "width");
    scene.height = number_of(L, "height");
    lua_newtable(L);
    lua_getfield(L, 1, "items");
    luaL_checktype(L, 3, LUA_TTABLE);
    scene.count = lua_objlen(L, 3);
    struct ah_scene_item *items = lua_newuserdata(L, (scene.count + 1) * sizeof *items);
    for (size_t i = 0; i < scene.count; i++) {
        lua_rawgeti(L, 3, (int)i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        items[i] = read_item(L, 2);
        lua_pop(L, 1);
    }
    scene.item = items;
    ah_check(L, ah_scene_png(&bytes, &count, &scene));
    lua_pushlstring(L, (const char *)bytes, count);
    free(bytes);
    return 1;
}

int ah_open_plot(lua_State *L)
{
    static const struct ah_function list[] = {{"png", plot_png, "scene:*"}, {NULL, NULL, NULL}};
    return ah_new_library(L, list);
}
