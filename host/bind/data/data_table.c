/* accelhost._C.data.row_file(path, options): a file of rows (data/row_file.h). Options: kind, "csv", "json", "line",
 * "paragraph" or "document"; delimiter, quote (absent: none), header, named of a CSV. file:place() -> offset, line,
 * state; file:seek(offset, line, state); file:close().
 *
 * data.table(): an empty table. table:name(column); table:add(file, number, most or nil) -> rows added, of the file of
 * this number, until its end without `most`; table:names(); table:len(); table:guess(column) -> "string", "int64",
 * "float64", "bool" or "mixed", by the column's number from 0; table:column(column, kind) -> tensor or texts, which the
 * table then no longer has; table:rows(kinds, first, step) -> rows first, first + step, ... from 0, as tables by name;
 * table:met(column) -> line and file of the first row with a value there; table:clear(). A bad file is nil and a text;
 * for a value that does not fit, column and rows return nil, a text, the line, the file's number and the column's.
 *
 * data.texts(list) -> texts of strings. texts:get(i) -> text and whether it is JSON, nil for nothing; texts:len();
 * texts:nbytes(). */
#include <string.h>

#include "base/status/status.h"
#include "bind/data/data.h"
#include "bind/format/json_value.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "data/csv.h"
#include "data/row_file.h"

static const struct ah_class file_class, table_class, texts_class;

static struct ah_table *check_table(lua_State *L) { return ah_class_check(L, 1, &table_class); }

static struct ah_packed *check_texts(lua_State *L) { return ah_class_check(L, 1, &texts_class); }

static struct ah_row_file *check_file(lua_State *L, int index)
{
    struct ah_row_file **held = ah_class_check(L, index, &file_class);
    if (!*held)
        ah_raise_text(L, "the file is closed");
    return *held;
}

static int open_file(lua_State *L)
{
    static const char *const kinds[] = {"csv", "json", "line", "paragraph", "document"};
    const char *path = luaL_checkstring(L, 1), *kind, *mark;
    luaL_checktype(L, 2, LUA_TTABLE);
    struct ah_row_file **held = ah_class_new(L, &file_class, sizeof *held);
    struct ah_rows_format format = {.delimiter = ',', .quote = -1, .header = ah_opt_flag(L, 2, "header", false),
                                    .named = ah_opt_flag(L, 2, "named", false)};
    kind = ah_opt_string(L, 2, "kind", kinds[0]);
    for (int i = 0; i < 5; i++)
        if (!strcmp(kind, kinds[i]))
            format.kind = (enum ah_rows_kind)i;
    mark = ah_opt_string(L, 2, "delimiter", ",");
    format.delimiter = *mark;
    mark = ah_opt_string(L, 2, "quote", "");
    format.quote = *mark ? (unsigned char)*mark : -1;
    int status = ah_row_file_open(held, path, &format);
    return status < 0 ? ah_push_error(L) : 1;
}

static int get_place(lua_State *L)
{
    struct ah_rows_place place = ah_row_file_place(check_file(L, 1));
    lua_pushnumber(L, (lua_Number)place.offset);
    lua_pushnumber(L, (lua_Number)place.line);
    lua_pushinteger(L, place.state);
    return 3;
}

static int seek_place(lua_State *L)
{
    struct ah_rows_place place = {(int64_t)luaL_checknumber(L, 2), (int64_t)luaL_checknumber(L, 3),
                                  (int)luaL_checkinteger(L, 4)};
    if (ah_row_file_seek(check_file(L, 1), place) < 0)
        return ah_push_error(L);
    lua_pushboolean(L, true);
    return 1;
}

AH_CLASS_CLOSER(close_file, file_class, struct ah_row_file, ah_row_file_close)

static int make_table(lua_State *L)
{
    ah_class_new(L, &table_class, sizeof(struct ah_table));
    return 1;
}

static int add_name(lua_State *L)
{
    size_t length;
    const char *name = luaL_checklstring(L, 2, &length);
    ah_check(L, ah_table_add_column(check_table(L), name, length));
    return 0;
}

static int add_rows(lua_State *L)
{
    struct ah_table *table = check_table(L);
    struct ah_row_file *file = check_file(L, 2);
    int64_t before = table->rows, most = lua_isnumber(L, 4) ? (int64_t)lua_tonumber(L, 4) : INT64_MAX / 2, had;
    table->file = (int)luaL_checkinteger(L, 3);
    do {
        had = table->rows;
        if (ah_row_file_read(file, table, most) < 0)
            return ah_push_error(L);
    } while (!lua_isnumber(L, 4) && table->rows > had);
    lua_pushnumber(L, (lua_Number)(table->rows - before));
    return 1;
}

static int get_names(lua_State *L)
{
    struct ah_table *table = check_table(L);
    lua_createtable(L, table->columns, 0);
    for (int k = 0; k < table->columns; k++) {
        lua_pushstring(L, table->name[k]);
        lua_rawseti(L, -2, k + 1);
    }
    return 1;
}

AH_LUA_VALUE(count_rows, lua_pushnumber, (lua_Number)check_table(L)->rows)

static int check_column(lua_State *L, struct ah_table *table)
{
    lua_Integer at = luaL_checkinteger(L, 2);
    if (at < 0 || at >= table->columns)
        ah_raise_text(L, "column %d is out of range for %d", (int)at, table->columns);
    ah_check(L, ah_table_fill(table, (int)at));
    return (int)at;
}

static int guess_type(lua_State *L)
{
    static const char *const names[] = {"string", "int64", "float64", "bool", "mixed"};
    struct ah_table *table = check_table(L);
    lua_pushstring(L, names[ah_packed_guess(&table->column[check_column(L, table)])]);
    return 1;
}

/* nil, the error's text, and where it is. */
static int push_misfit(lua_State *L, const struct ah_table *table, int column, int64_t row)
{
    int file;
    lua_Number line = (lua_Number)ah_table_line(table, row, &file);
    lua_pushnil(L);
    lua_pushstring(L, ah_error_text());
    lua_pushnumber(L, line);
    lua_pushinteger(L, file);
    lua_pushinteger(L, column);
    return 5;
}

static bool is_text(const char *kind) { return !strcmp(kind, "string") || !strcmp(kind, "mixed"); }

static int take_column(lua_State *L)
{
    struct ah_table *table = check_table(L);
    int at = check_column(L, table);
    struct ah_packed *column = &table->column[at];
    if (is_text(luaL_checkstring(L, 3))) {
        struct ah_packed *texts = ah_class_new(L, &texts_class, sizeof *texts);
        ah_packed_trim(column);
        *texts = *column;
        *column = (struct ah_packed){0};
        return 1;
    }
    struct ah_tensor *tensor;
    int64_t wrong = 0;
    int status = ah_packed_tensor(&tensor, column, ah_check_dtype(L, 3), &wrong);
    if (status == AH_EINVAL)
        return push_misfit(L, table, at, wrong);
    ah_check(L, status);
    ah_push_tensor(L, tensor);
    return 1;
}

/* Push a value of a column of mixed kinds: a string as it is, another value by the JSON reader. */
static void push_mixed(lua_State *L, const struct ah_packed *column, int64_t i, int arrays)
{
    size_t length;
    const char *text = ah_packed_cell(column, i, &length);
    enum ah_cell kind = ah_packed_kind(column, i);
    if (kind == AH_CELL_NONE)
        lua_pushnil(L);
    else if (kind <= AH_CELL_STRING)
        lua_pushlstring(L, text, length);
    else
        ah_check(L, ah_json_read(L, text, length, arrays));
}

static int push_number(lua_State *L, const struct ah_packed *column, int64_t i, enum ah_dtype dtype)
{
    union { bool flag; float single; double real; int32_t small; int64_t whole; } value;
    int there = ah_packed_value(column, i, dtype, &value);
    if (there == 0) {
        lua_pushnil(L);
    } else if (there > 0 && dtype == AH_BOOL) {
        lua_pushboolean(L, value.flag);
    } else if (there > 0 && dtype == AH_I64 && (value.whole > (1LL << 53) || value.whole < -(1LL << 53))) {
        struct ah_tensor *tensor; /* a number of Lua's would be another one */
        ah_check(L, ah_tensor_empty(&tensor, NULL, 0, AH_I64, &ah_cpu));
        *(int64_t *)ah_tensor_data(tensor) = value.whole;
        ah_push_tensor(L, tensor);
    } else if (there > 0) {
        lua_pushnumber(L, dtype == AH_F32 ? value.single : dtype == AH_F64 ? value.real
                       : dtype == AH_I32 ? value.small : (lua_Number)value.whole);
    }
    return there;
}

enum { MIXED = -2, STRING = -1 };

/* Return the kinds of columns: dtypes, or MIXED and STRING; their names are on the stack from *names on. */
static int *read_kinds(lua_State *L, const struct ah_table *table, int *names)
{
    int *kind = lua_newuserdata(L, ((size_t)table->columns + 1) * sizeof *kind);
    luaL_checkstack(L, table->columns + 16, "too many columns");
    for (int k = 0; k < table->columns; k++) {
        lua_rawgeti(L, 2, k + 1);
        const char *word = lua_tostring(L, -1);
        if (!word)
            ah_raise_text(L, "column %d has no kind", k);
        kind[k] = !strcmp(word, "mixed") ? MIXED : !strcmp(word, "string") ? STRING : (int)ah_check_dtype(L, -1);
        lua_pop(L, 1);
    }
    *names = lua_gettop(L) + 1;
    for (int k = 0; k < table->columns; k++)
        lua_pushstring(L, table->name[k]);
    return kind;
}

/* Store the value on top of the stack in the table below; a nil would use a slot there. */
static void set_field(lua_State *L, int name)
{
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return;
    }
    lua_pushvalue(L, name);
    lua_insert(L, -2);
    lua_rawset(L, -3);
}

/* Rows of a wide table are mostly sparse. */
enum { FEW_COLUMNS = 64 };

static int give_rows(lua_State *L)
{
    const struct ah_table *table = check_table(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    int64_t first = (int64_t)luaL_checknumber(L, 3), step = (int64_t)luaL_checknumber(L, 4);
    int names, place = 0;
    if (first < 0 || step < 1)
        return ah_raise_text(L, "rows: expected first >= 0 and step >= 1");
    luaL_getmetatable(L, "accelhost.json.array");
    int arrays = lua_gettop(L);
    const int *kind = read_kinds(L, table, &names);
    lua_createtable(L, first < table->rows ? (int)((table->rows - first - 1) / step + 1) : 0, 0);
    for (int64_t i = first; i < table->rows; i += step) {
        lua_createtable(L, 0, table->columns < FEW_COLUMNS ? table->columns : FEW_COLUMNS);
        for (int k = 0; k < table->columns; k++) {
            const struct ah_packed *column = &table->column[k];
            size_t length;
            if (kind[k] >= 0) {
                if (push_number(L, column, i, (enum ah_dtype)kind[k]) < 0)
                    return push_misfit(L, table, k, i);
            } else if (kind[k] == MIXED) {
                push_mixed(L, column, i, arrays);
            } else if (ah_packed_kind(column, i) == AH_CELL_NONE) {
                lua_pushnil(L);
            } else {
                const char *text = ah_packed_cell(column, i, &length);
                lua_pushlstring(L, text, length);
            }
            set_field(L, names + k);
        }
        lua_rawseti(L, -2, ++place);
    }
    return 1;
}

static int get_first(lua_State *L)
{
    struct ah_table *table = check_table(L);
    int64_t row = ah_packed_first(&table->column[check_column(L, table)]);
    int file;
    if (row > 0 && row >= table->rows)
        row = table->rows - 1;
    lua_pushnumber(L, (lua_Number)ah_table_line(table, row, &file));
    lua_pushinteger(L, file);
    return 2;
}

AH_LUA_CALL(clear_table, ah_table_clear(check_table(L)))
AH_LUA_CALL(collect_table, ah_table_free(check_table(L)))

static int make_texts(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    int count = (int)lua_objlen(L, 1);
    struct ah_packed *texts = ah_class_new(L, &texts_class, sizeof *texts);
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
    enum ah_cell kind = ah_packed_kind(texts, i);
    if (kind == AH_CELL_NONE)
        return 0;
    lua_pushlstring(L, text, length);
    lua_pushboolean(L, kind > AH_CELL_STRING);
    return 2;
}

AH_LUA_VALUE(count_texts, lua_pushnumber, (lua_Number)check_texts(L)->count)
AH_LUA_VALUE(count_bytes, lua_pushnumber, (lua_Number)ah_packed_bytes(check_texts(L)))
AH_LUA_CALL(collect_texts, ah_packed_free(check_texts(L)))

static const luaL_Reg file_methods[] = {
    {"place", get_place}, {"seek", seek_place}, {"close", close_file}, {NULL, NULL},
};
static const luaL_Reg table_methods[] = {
    {"name", add_name}, {"add", add_rows}, {"names", get_names}, {"len", count_rows}, {"guess", guess_type},
    {"column", take_column}, {"rows", give_rows}, {"met", get_first}, {"clear", clear_table}, {NULL, NULL},
};
static const luaL_Reg texts_methods[] = {
    {"get", get_text}, {"len", count_texts}, {"nbytes", count_bytes}, {NULL, NULL},
};
static const struct ah_class file_class = {"accelhost.row_file", file_methods, NULL, close_file},
                             table_class = {"accelhost.table", table_methods, NULL, collect_table},
                             texts_class = {"accelhost.texts", texts_methods, NULL, collect_texts};

AH_LUA_CALL(close_csv, ah_csv_close(lua_touserdata(L, 1)))

static const struct ah_class csv_class = {.name = "accelhost.csv", .collect = close_csv};

/* csv_rows(text) -> {{cell, ...}, ...}, whether all of the text is rows: one that does not end, or is damaged, is the
 * last that is read, and is left out. */
static int csv_rows(lua_State *L)
{
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    struct ah_csv *csv = ah_class_new(L, &csv_class, sizeof *csv);
    int status = ah_check(L, ah_csv_open(csv, text, bytes, ',', '"'));
    csv->more = true;
    lua_newtable(L);
    for (int row = 1; (status = ah_csv_next(csv)) > 0; row++) {
        lua_createtable(L, csv->fields, 0);
        for (int i = 0; i < csv->fields; i++) {
            lua_pushlstring(L, csv->field[i].text, csv->field[i].length);
            lua_rawseti(L, -2, i + 1);
        }
        lua_rawseti(L, -2, row);
    }
    if (csv->fields >= AH_CSV_FIELDS)
        ah_check(L, status);
    lua_pushboolean(L, status == 0 && csv->at == csv->count);
    return 2;
}

void ah_add_tables(lua_State *L)
{
    lua_pushcfunction(L, csv_rows);
    lua_setfield(L, -2, "csv_rows");
    lua_pushcfunction(L, open_file);
    lua_setfield(L, -2, "row_file");
    lua_pushcfunction(L, make_table);
    lua_setfield(L, -2, "table");
    lua_pushcfunction(L, make_texts);
    lua_setfield(L, -2, "texts");
}
