/* accelhost._C.data.table(): an empty table, filled by files and then taken apart into columns of texts.
 *
 * table:name(column), table:add_csv(path, delimiter, quote or nil, header, named), table:add_json(path),
 * table:add_text(path, unit); table:columns() -> names, texts, and the table is empty again. data.texts(list) -> texts
 * of strings. texts:get(i) -> text and whether it is JSON, nil for nothing; texts:len(); texts:guess() -> "string",
 * "int64", "float64", "bool" or "mixed"; texts:tensor(dtype); texts:nbytes(). */
#include <string.h>

#include "bind/bind.h"
#include "bind/data.h"
#include "data/table.h"
#include "io/mapping.h"

#define TABLE "accelhost.table"
#define TEXTS "accelhost.texts"

static void *new_object(lua_State *L, size_t bytes, const char *kind)
{
    void *object = lua_newuserdata(L, bytes);
    memset(object, 0, bytes);
    luaL_getmetatable(L, kind);
    lua_setmetatable(L, -2);
    return object;
}

static struct ah_table *check_table(lua_State *L) { return luaL_checkudata(L, 1, TABLE); }

static struct ah_packed *check_texts(lua_State *L) { return luaL_checkudata(L, 1, TEXTS); }

static int make_table(lua_State *L)
{
    new_object(L, sizeof(struct ah_table), TABLE);
    return 1;
}

static int add_name(lua_State *L)
{
    size_t length;
    const char *name = luaL_checklstring(L, 2, &length);
    ah_check(L, ah_table_add_column(check_table(L), name, length));
    return 0;
}

/* Add a file by `add(table, file, L)`. */
static int add_file(lua_State *L, int (*add)(struct ah_table *, struct ah_mapping *, lua_State *))
{
    struct ah_table *table = check_table(L);
    const char *path = luaL_checkstring(L, 2);
    struct ah_mapping *file = NULL;
    int status = ah_mapping_open(&file, path);
    if (status == 0 && file->count >= 2 && file->bytes[0] == 0x1f && file->bytes[1] == 0x8b)
        status = ah_fail(AH_EIO, "it is compressed (gzip): unpack it first");
    if (status == 0)
        status = add(table, file, L);
    ah_mapping_release(file);
    return status < 0 ? ah_raise(L, ah_fail_prefix(status, "'%s'", path)) : 0;
}

static int read_csv(struct ah_table *table, struct ah_mapping *file, lua_State *L)
{
    const char *delimiter = lua_tostring(L, 3), *quote = lua_tostring(L, 4);
    return ah_table_add_csv(table, file->bytes, file->count, delimiter ? *delimiter : ',',
                            quote && *quote ? (unsigned char)*quote : -1, lua_toboolean(L, 5), lua_toboolean(L, 6));
}

static int read_json(struct ah_table *table, struct ah_mapping *file, lua_State *L)
{
    (void)L;
    return ah_table_add_json(table, file->bytes, file->count);
}

static int read_text(struct ah_table *table, struct ah_mapping *file, lua_State *L)
{
    const char *unit = lua_tostring(L, 3);
    return ah_table_add_text(table, file->bytes, file->count,
                             unit && *unit == 'p' ? AH_TEXT_PARAGRAPH
                             : unit && *unit == 'd' ? AH_TEXT_DOCUMENT : AH_TEXT_LINE);
}

static int add_csv(lua_State *L) { return add_file(L, read_csv); }

static int add_json(lua_State *L) { return add_file(L, read_json); }

static int add_text(lua_State *L) { return add_file(L, read_text); }

static int take_columns(lua_State *L)
{
    struct ah_table *table = check_table(L);
    lua_createtable(L, table->columns, 0);
    lua_createtable(L, table->columns, 0);
    for (int k = 0; k < table->columns; k++) {
        lua_pushstring(L, table->name[k]);
        lua_rawseti(L, -3, k + 1);
        struct ah_packed *texts = new_object(L, sizeof *texts, TEXTS);
        ah_packed_trim(&table->column[k]);
        *texts = table->column[k];
        table->column[k] = (struct ah_packed){0};
        lua_rawseti(L, -2, k + 1);
    }
    ah_table_free(table);
    return 2;
}

static int collect_table(lua_State *L)
{
    ah_table_free(check_table(L));
    return 0;
}

static int make_texts(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    int count = (int)lua_objlen(L, 1);
    struct ah_packed *texts = new_object(L, sizeof *texts, TEXTS);
    for (int i = 1; i <= count; i++) {
        size_t length;
        lua_rawgeti(L, 1, i);
        const char *text = luaL_checklstring(L, -1, &length);
        ah_check(L, ah_packed_add(texts, AH_CELL_STRING, text, length));
        lua_pop(L, 1);
    }
    ah_packed_trim(texts);
    return 1;
}

static int get_text(lua_State *L)
{
    struct ah_packed *texts = check_texts(L);
    lua_Number at = luaL_checknumber(L, 2);
    if (!(at >= 0 && at < (lua_Number)texts->count))
        return ah_raise_text(L, "index %.14g is out of range for %lld texts", at, (long long)texts->count);
    int64_t i = (int64_t)at;
    size_t length;
    const char *text = ah_packed_cell(texts, i, &length);
    if (texts->kind[i] == AH_CELL_NONE)
        return 0;
    lua_pushlstring(L, text, length);
    lua_pushboolean(L, texts->kind[i] > AH_CELL_STRING);
    return 2;
}

static int count_texts(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)check_texts(L)->count);
    return 1;
}

static int guess_type(lua_State *L)
{
    static const char *const names[] = {"string", "int64", "float64", "bool", "mixed"};
    lua_pushstring(L, names[ah_packed_guess(check_texts(L))]);
    return 1;
}

static int make_tensor(lua_State *L)
{
    struct ah_tensor *tensor;
    ah_check(L, ah_packed_tensor(&tensor, check_texts(L), ah_check_dtype(L, 2)));
    ah_push_tensor(L, tensor);
    return 1;
}

static int count_bytes(lua_State *L)
{
    struct ah_packed *texts = check_texts(L);
    lua_pushnumber(L, (lua_Number)texts->room + (lua_Number)texts->space * (sizeof *texts->end + 1));
    return 1;
}

static int collect_texts(lua_State *L)
{
    ah_packed_free(check_texts(L));
    return 0;
}

static void add_kind(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction collect)
{
    luaL_newmetatable(L, name);
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, collect);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

void ah_add_tables(lua_State *L)
{
    static const luaL_Reg of_table[] = {
        {"name", add_name}, {"add_csv", add_csv}, {"add_json", add_json}, {"add_text", add_text},
        {"columns", take_columns}, {NULL, NULL},
    };
    static const luaL_Reg of_texts[] = {
        {"get", get_text}, {"len", count_texts}, {"guess", guess_type}, {"tensor", make_tensor},
        {"nbytes", count_bytes}, {NULL, NULL},
    };
    add_kind(L, TABLE, of_table, collect_table);
    add_kind(L, TEXTS, of_texts, collect_texts);
    lua_pushcfunction(L, make_table);
    lua_setfield(L, -2, "table");
    lua_pushcfunction(L, make_texts);
    lua_setfield(L, -2, "texts");
}
