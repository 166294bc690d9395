/* accelhost._C.data.csv(path, delimiter, quote or nil): a reader of rows.
 *
 * reader:next() -> table of texts, row, line; nothing at the end. */
#include <string.h>

#include "bind/bind.h"
#include "bind/data.h"
#include "data/csv.h"
#include "io/mapping.h"

#define READER "accelhost.csv"

struct reader {
    struct ah_mapping *file;
    struct ah_csv csv;
};

static struct reader *check_reader(lua_State *L)
{
    return luaL_checkudata(L, 1, READER);
}

static int open_reader(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *delimiter = luaL_checkstring(L, 2), *quote = lua_tostring(L, 3);
    struct reader *reader = lua_newuserdata(L, sizeof *reader);
    memset(reader, 0, sizeof *reader);
    luaL_getmetatable(L, READER);
    lua_setmetatable(L, -2);
    int status = ah_mapping_open(&reader->file, path);
    if (status == 0)
        status = ah_csv_open(&reader->csv, reader->file->bytes, reader->file->count, delimiter[0],
                             quote && *quote ? (unsigned char)*quote : -1);
    if (status < 0)
        return ah_raise(L, ah_fail_prefix(status, "'%s'", path));
    return 1;
}

static int next_row(lua_State *L)
{
    struct ah_csv *csv = &check_reader(L)->csv;
    int status = ah_csv_next(csv);
    if (status <= 0)
        return status < 0 ? ah_raise(L, ah_fail_prefix(status, "row %lld", (long long)csv->row)) : 0;
    lua_createtable(L, csv->fields, 0);
    for (int i = 0; i < csv->fields; i++) {
        lua_pushlstring(L, csv->field[i].text, csv->field[i].length);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushnumber(L, (double)csv->row);
    lua_pushnumber(L, (double)csv->line);
    return 3;
}

static int collect(lua_State *L)
{
    struct reader *reader = check_reader(L);
    ah_csv_close(&reader->csv);
    ah_mapping_release(reader->file);
    reader->file = NULL;
    return 0;
}

void ah_add_csv(lua_State *L)
{
    luaL_newmetatable(L, READER);
    lua_newtable(L);
    lua_pushcfunction(L, next_row);
    lua_setfield(L, -2, "next");
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, collect);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    lua_pushcfunction(L, open_reader);
    lua_setfield(L, -2, "csv");
}
