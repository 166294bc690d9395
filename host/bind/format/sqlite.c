/* accelhost._C.sqlite: databases of one file (io/database.h).
 *
 * open(path, mode = "create") -> database; mode: "read", "write" (the file has to be there) or "create"
 * database:execute(sql, values) -> rows, each a table by column. Values are bound to the statement's parameters, by
 * position for ? and by name for :name; an absent one is NULL. A row has no field for NULL. Booleans are 1 and 0, whole
 * numbers integers, NaN is NULL.
 * database:close() */
#include <math.h>

#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/function.h"
#include "io/database.h"

static const struct ah_class database_class;

static struct ah_database *check_database(lua_State *L)
{
    struct ah_database **held = ah_class_check(L, 1, &database_class);
    if (!*held)
        ah_raise_text(L, "execute: the database is closed");
    return *held;
}

static int open_database(lua_State *L)
{
    static const char *const modes[] = {"read", "write", "create", NULL};
    const char *path = luaL_checkstring(L, 1);
    enum ah_database_mode mode = (enum ah_database_mode)luaL_checkoption(L, 2, "create", modes);
    struct ah_database **held = ah_class_new(L, &database_class, sizeof *held);
    ah_check(L, ah_database_open(held, path, mode));
    return 1;
}

AH_CLASS_CLOSER(close_database, database_class, struct ah_database, ah_database_close)

/* The value on top of the stack, which keeps a text. */
static struct ah_database_value read_value(lua_State *L, int at)
{
    struct ah_database_value value = {.kind = AH_DATABASE_NULL};
    double number = lua_tonumber(L, -1);
    switch (lua_type(L, -1)) {
    case LUA_TNIL: break;
    case LUA_TBOOLEAN:
        value.kind = AH_DATABASE_INTEGER;
        value.integer = lua_toboolean(L, -1);
        break;
    case LUA_TNUMBER:
        value.kind = isnan(number) ? AH_DATABASE_NULL :
                     number == floor(number) && fabs(number) <= 9007199254740992.0 ? AH_DATABASE_INTEGER :
                     AH_DATABASE_REAL;
        value.real = number;
        if (value.kind == AH_DATABASE_INTEGER)
            value.integer = (int64_t)number;
        break;
    case LUA_TSTRING:
        value.kind = AH_DATABASE_TEXT;
        value.text = lua_tolstring(L, -1, &value.bytes);
        break;
    default: ah_raise_text(L, "execute: parameter %d is %s, which no column holds", at + 1, ah_value_text(L, -1));
    }
    return value;
}

static void bind_all(lua_State *L, struct ah_database *database, int count)
{
    if (lua_istable(L, 3) && (int)lua_objlen(L, 3) > count)
        ah_raise_text(L, "execute: %d values for %d parameters", (int)lua_objlen(L, 3), count);
    for (int i = 0; i < count && lua_istable(L, 3); i++) {
        const char *name = database->driver->parameter(database, i);
        if (name)
            lua_getfield(L, 3, name);
        else
            lua_rawgeti(L, 3, i + 1);
        struct ah_database_value value = read_value(L, i);
        ah_check(L, database->driver->bind(database, i, &value));
        lua_pop(L, 1);
    }
}

static void push_value(lua_State *L, const struct ah_database_value *value)
{
    if (value->kind == AH_DATABASE_INTEGER)
        lua_pushnumber(L, (double)value->integer);
    else if (value->kind == AH_DATABASE_REAL)
        lua_pushnumber(L, value->real);
    else if (value->kind == AH_DATABASE_TEXT)
        lua_pushlstring(L, value->text ? value->text : "", value->bytes);
    else
        lua_pushnil(L);
}

static int sqlite_execute(lua_State *L)
{
    struct ah_database *database = check_database(L);
    const struct ah_database_driver *driver = database->driver;
    const char *sql = luaL_checkstring(L, 2);
    lua_settop(L, 3);
    if (!lua_isnil(L, 3))
        luaL_checktype(L, 3, LUA_TTABLE);
    bind_all(L, database, ah_check(L, driver->prepare(database, sql)));
    lua_newtable(L);
    for (int row = 1; ah_check(L, driver->step(database)); row++) {
        int columns = driver->columns(database);
        lua_createtable(L, 0, columns);
        for (int i = 0; i < columns; i++) {
            struct ah_database_value value;
            driver->value(database, i, &value);
            push_value(L, &value);
            lua_setfield(L, -2, driver->name(database, i));
        }
        lua_rawseti(L, 4, row);
    }
    return 1;
}

static const luaL_Reg database_methods[] = {{"execute", sqlite_execute}, {"close", close_database}, {NULL, NULL}};
static const struct ah_class database_class = {"accelhost.database", database_methods, NULL, close_database};

int ah_open_sqlite(lua_State *L)
{
    static const struct ah_function functions[] = {{"open", open_database, "path:s, mode:s?"}, {NULL, NULL, NULL}};
    return ah_new_library(L, functions);
}
