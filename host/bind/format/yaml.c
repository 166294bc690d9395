/* accelhost._C.yaml: YAML that is data (config/tree.h), as Lua values.
 *
 * decode(text) -> value, reals. Maps and lists are tables, null is the null of accelhost._C.json. Unquoted words are
 * read by YAML 1.2: 1e-4, 3, 0x10 and .inf are numbers, true and false booleans; yes, no, on and off are texts. `reals`
 * marks whole numbers that were written as 1.0 or 1e3: reals[table][key] is true. */
#include <stdlib.h>
#include <string.h>

#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/function.h"
#include "config/tree.h"

AH_LUA_CALL(close_tree, ah_tree_close(lua_touserdata(L, 1)))

static const struct ah_class tree_class = {.name = "accelhost.yaml.tree", .collect = close_tree};

static bool is_among(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(*words, text))
            return true;
    return false;
}

/* Is a plain scalar a number? strtod also accepts words. */
static bool read_number(const char *text, double *out)
{
    static const char *const infinite[] = {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", NULL};
    static const char *const below[] = {"-.inf", "-.Inf", "-.INF", NULL};
    static const char *const none[] = {".nan", ".NaN", ".NAN", NULL};
    const char *at = text + (*text == '-' || *text == '+');
    char *end;
    if (is_among(text, infinite) || is_among(text, below) || is_among(text, none)) {
        *out = is_among(text, none) ? strtod("nan", NULL) : *text == '-' ? -strtod("inf", NULL) : strtod("inf", NULL);
        return true;
    }
    at += *at == '.';
    if (*at < '0' || *at > '9')
        return false;
    *out = strtod(text, &end);
    return *end == '\0';
}

static void push_scalar(lua_State *L, const struct ah_tree_node *node)
{
    static const char *const yes[] = {"true", "True", "TRUE", NULL}, *const no[] = {"false", "False", "FALSE", NULL};
    double number;
    if (node->quoted)
        lua_pushstring(L, node->text);
    else if (is_among(node->text, yes) || is_among(node->text, no))
        lua_pushboolean(L, is_among(node->text, yes));
    else if (read_number(node->text, &number))
        lua_pushnumber(L, number);
    else
        lua_pushstring(L, node->text);
}

/* Note in the table at index `reals` that the item `at` of the table on top of the stack is written as a real. */
static void note_real(lua_State *L, int reals, const struct ah_tree_node *node, int at)
{
    double number;
    bool is_number = node->kind == AH_TREE_TEXT && !node->quoted && read_number(node->text, &number);
    if (!is_number || !strpbrk(node->text, ".eE") || node->text[1] == 'x')
        return;
    lua_pushvalue(L, -1);
    lua_rawget(L, reals);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, reals);
    }
    if (at)
        lua_pushinteger(L, at);
    else
        lua_pushstring(L, node->key);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

/* At most AH_TREE_DEPTH deep. */
static void push_node(lua_State *L, int reals, const struct ah_tree *tree, const struct ah_tree_node *node)
{
    luaL_checkstack(L, 8, "yaml");
    if (node->kind == AH_TREE_NULL) {
        lua_pushlightuserdata(L, NULL);
        return;
    }
    if (node->kind == AH_TREE_TEXT) {
        push_scalar(L, node);
        return;
    }
    lua_newtable(L);
    int count = 0;
    for (int at = node->first; at; at = tree->node[at].next) {
        push_node(L, reals, tree, &tree->node[at]);
        if (node->kind == AH_TREE_LIST)
            lua_rawseti(L, -2, ++count);
        else
            lua_setfield(L, -2, tree->node[at].key);
        note_real(L, reals, &tree->node[at], count);
    }
}

static int yaml_decode(lua_State *L)
{
    size_t bytes;
    const char *text = lua_tolstring(L, 1, &bytes);
    struct ah_tree *tree = ah_class_new(L, &tree_class, sizeof *tree);
    ah_check(L, ah_tree_read_yaml(tree, text, bytes));
    lua_newtable(L);
    push_node(L, lua_gettop(L), tree, &tree->node[0]);
    lua_insert(L, -2);
    return 2;
}

int ah_open_yaml(lua_State *L)
{
    static const struct ah_function list[] = {{"decode", yaml_decode, "text:s"}, {NULL, NULL, NULL}};
    return ah_new_library(L, list);
}
