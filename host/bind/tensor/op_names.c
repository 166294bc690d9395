/* The names of ops in accelhost._C and among the methods of tensors: a function is made when its name is first read,
 * since a script uses few of the many, and every collection has to walk live objects. `pairs` makes them all.
 * Invariant: a name that Lua code has assigned itself is not overwritten. */
#include <string.h>

#include "bind/tensor/op.h"

enum { NAME = 64 };

/* The row that a name means in a table, and whether in place: the functions have all rows, the methods those that are
 * marked so, both have the in-place forms. */
static const struct ah_op *find_row(const char *name, bool methods, bool *inplace)
{
    char plain[NAME];
    size_t length = strlen(name);
    const struct ah_op *op = ah_op_find(name);
    *inplace = false;
    if (op)
        return !methods || (op->flags & AH_METHOD) ? op : NULL;
    if (length < 2 || length >= NAME || name[length - 1] != '_')
        return NULL;
    memcpy(plain, name, length - 1);
    plain[length - 1] = 0;
    *inplace = true;
    op = ah_op_find(plain);
    return op && (op->flags & AH_INPLACE) ? op : NULL;
}

/* __index(table, name); upvalue 1: is it the table of methods? */
static int find_function(lua_State *L)
{
    bool inplace, methods = lua_toboolean(L, lua_upvalueindex(1));
    const struct ah_op *op = lua_type(L, 2) == LUA_TSTRING ? find_row(lua_tostring(L, 2), methods, &inplace) : NULL;
    if (!op)
        return 0;
    ah_push_op_function(L, op, methods, inplace);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

/* Call `use` with each name of the ops in a table. */
static void each_name(lua_State *L, bool methods, void (*use)(lua_State *L, const char *name))
{
    for (int i = 0, aliases = 0;; i++) {
        const struct ah_alias *alias = i < AH_OP_COUNT ? NULL : &ah_aliases[aliases++];
        if (alias && !alias->name)
            return;
        const struct ah_op *op = ah_op_get(alias ? alias->id : (enum ah_opid)i);
        const char *name = alias ? alias->name : op->name;
        if (!methods || (op->flags & AH_METHOD))
            use(L, name);
        if (op->flags & AH_INPLACE)
            use(L, lua_pushfstring(L, "%s_", name)), lua_pop(L, 1);
    }
}

/* The table at index 1 has it afterwards. */
static void op_names_make(lua_State *L, const char *name)
{
    lua_getfield(L, 1, name);
    lua_pop(L, 1);
}

/* __pairs(table) */
static int op_names_pairs(lua_State *L)
{
    each_name(L, lua_toboolean(L, lua_upvalueindex(1)), op_names_make);
    lua_getglobal(L, "next");
    lua_pushvalue(L, 1);
    return 2;
}

/* The list at index 2 gets it. */
static void op_names_append(lua_State *L, const char *name)
{
    lua_pushstring(L, name);
    lua_rawseti(L, 2, (int)lua_objlen(L, 2) + 1);
}

/* names(table): the names present and those made on demand, as an array; some occur twice. */
static int list_names(lua_State *L)
{
    lua_settop(L, 1);
    lua_newtable(L);
    each_name(L, lua_toboolean(L, lua_upvalueindex(1)), op_names_append);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING)
            op_names_append(L, lua_tostring(L, -2));
    lua_settop(L, 2);
    return 1;
}

static void set_metatable(lua_State *L, int table, bool methods)
{
    static const luaL_Reg list[] = {
        {"__index", find_function}, {"__pairs", op_names_pairs}, {"names", list_names}, {NULL, NULL},
    };
    lua_newtable(L);
    for (const luaL_Reg *at = list; at->name; at++) {
        lua_pushboolean(L, methods);
        lua_pushcclosure(L, at->func, 1);
        lua_setfield(L, -2, at->name);
    }
    lua_setmetatable(L, table);
}

/* C.op_info(name) -> {name = of the row, function = bool, functional = bool, method = bool, ...} or nil: which public
 * tables list the op. */
static int op_info(lua_State *L)
{
    const struct ah_op *op = ah_op_find(luaL_checkstring(L, 1));
    if (!op) {
        lua_pushnil(L);
        return 1;
    }
    lua_newtable(L);
    lua_pushstring(L, op->name);
    lua_setfield(L, -2, "name");
    lua_pushboolean(L, (op->flags & AH_FUNCTION) != 0);
    lua_setfield(L, -2, "function");
    lua_pushboolean(L, (op->flags & AH_FUNCTIONAL) != 0);
    lua_setfield(L, -2, "functional");
    lua_pushboolean(L, (op->flags & AH_METHOD) != 0);
    lua_setfield(L, -2, "method");
    lua_pushstring(L, op->signature);
    lua_setfield(L, -2, "signature");
    return 1;
}

void ah_ops_open(lua_State *L, int module, int methods)
{
    set_metatable(L, module, false);
    set_metatable(L, methods, true);
    lua_pushcfunction(L, op_info);
    lua_setfield(L, module, "op_info");
}
