/* accelhost._C.text: tokenizers (text/tokenizer.h).
 *
 * open(json) -> tokenizer
 * tokenizer:encode(texts, pairs or nil, options) -> a table of columns (below), each an int64 tensor of a row for each
 * text, or a table of tables; the trailing dim of offset_mapping has 2. Options: specials, truncation (a word), most,
 * cut_left; width ("longest" or a number; without one rows are as long as they are), multiple, pad_left, pad_id,
 * pad_type; tables; and a flag for each column.
 * tokenizer:decode(ids, skip_special) -> text; token(id) -> text or nil; id(text) -> id or nil; is_special(id);
 * counts() -> texts of the model's vocabulary, texts with the added ones; specials(pair) -> count */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "bind/bind.h"
#include "bind/function.h"
#include "tensor/tensor.h"
#include "text/batch.h"

#define TOKENIZER "accelhost.tokenizer"
#define ROWS "accelhost.tokenizer.rows"

static struct ah_tokenizer *check_tokenizer(lua_State *L)
{
    return *(struct ah_tokenizer **)luaL_checkudata(L, 1, TOKENIZER);
}

static int open_tokenizer(lua_State *L)
{
    size_t bytes;
    const char *json = luaL_checklstring(L, 1, &bytes);
    struct ah_tokenizer **held = lua_newuserdata(L, sizeof *held);
    *held = NULL;
    luaL_getmetatable(L, TOKENIZER);
    lua_setmetatable(L, -2);
    int status = ah_tokenizer_read(held, json, bytes);
    return status < 0 ? ah_raise(L, ah_fail_prefix(status, "Tokenizer")) : 1;
}

static int collect(lua_State *L)
{
    struct ah_tokenizer **held = luaL_checkudata(L, 1, TOKENIZER);
    ah_tokenizer_close(*held);
    *held = NULL;
    return 0;
}

/* Encodings of a batch, owned by Lua. */
struct rows {
    size_t count, width; /* width: of the rows when they are padded, else of the longest */
    bool ragged;
    struct ah_encoding row[];
};

static int collect_rows(lua_State *L)
{
    struct rows *rows = luaL_checkudata(L, 1, ROWS);
    for (size_t i = 0; i < rows->count; i++)
        ah_encoding_close(&rows->row[i]);
    rows->count = 0;
    return 0;
}

static struct rows *new_rows(lua_State *L, size_t count)
{
    size_t bytes = sizeof(struct rows) + count * sizeof(struct ah_encoding);
    struct rows *rows = lua_newuserdata(L, bytes);
    memset(rows, 0, bytes);
    rows->count = count;
    luaL_getmetatable(L, ROWS);
    lua_setmetatable(L, -2);
    return rows;
}

/* The texts of the table at `index`, which keeps them; the array lies in a userdata on the stack. */
static const struct ah_source *read_texts(lua_State *L, int index, size_t count)
{
    struct ah_source *source = lua_newuserdata(L, (count + 1) * sizeof *source);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            ah_raise_text(L, "tokenizer: text %zu is %s, expected a string", i, ah_value_text(L, -1));
        source[i].text = lua_tolstring(L, -1, &source[i].bytes);
        lua_pop(L, 1);
    }
    return source;
}

enum column { IDS, TYPES, MASK, SPECIAL, OFFSETS, WORDS, COLUMNS };
static const char *const column_names[] = {"input_ids", "token_type_ids", "attention_mask", "special_tokens_mask",
                                           "offset_mapping", "words"};

struct padding {
    int64_t id, type;
    bool left;
};

/* What stands at place i of a row of `width`: a token's value, or the padding's. */
static int64_t value_at(const struct ah_encoding *row, size_t width, size_t i, enum column column, int end,
                        const struct padding *padding)
{
    size_t shift = padding->left ? width - row->count : 0;
    const struct ah_token *token = i >= shift && i - shift < row->count ? &row->at[i - shift] : NULL;
    switch (column) {
    case IDS: return token ? token->id : padding->id;
    case TYPES: return token ? token->type : padding->type;
    case MASK: return token != NULL;
    case SPECIAL: return token ? token->special : 1;
    case OFFSETS: return token ? end ? token->to : token->from : 0;
    default: return token ? token->word : -1;
    }
}

static void push_tensor(lua_State *L, const struct rows *rows, enum column column, const struct padding *padding)
{
    int ends = column == OFFSETS ? 2 : 1;
    int64_t size[] = {(int64_t)rows->count, (int64_t)rows->width, 2};
    struct ah_tensor *tensor;
    ah_check(L, ah_tensor_empty(&tensor, size, column == OFFSETS ? 3 : 2, AH_I64, &ah_cpu));
    int64_t *out = ah_tensor_data(tensor);
    for (size_t r = 0; r < rows->count; r++) {
        for (size_t i = 0; i < rows->width; i++) {
            for (int end = 0; end < ends; end++)
                *out++ = value_at(&rows->row[r], rows->width, i, column, end, padding);
        }
    }
    ah_push_tensor(L, tensor);
}

static void push_tables(lua_State *L, const struct rows *rows, enum column column, const struct padding *padding)
{
    lua_createtable(L, (int)rows->count, 0);
    for (size_t r = 0; r < rows->count; r++) {
        size_t width = rows->ragged ? rows->row[r].count : rows->width;
        lua_createtable(L, (int)width, 0);
        for (size_t i = 0; i < width; i++) {
            if (column == OFFSETS)
                lua_createtable(L, 2, 0);
            for (int end = 0; end < (column == OFFSETS ? 2 : 1); end++) {
                lua_pushnumber(L, (double)value_at(&rows->row[r], width, i, column, end, padding));
                if (column == OFFSETS)
                    lua_rawseti(L, -2, end + 1);
            }
            lua_rawseti(L, -2, (int)i + 1);
        }
        lua_rawseti(L, -2, (int)r + 1);
    }
}

/* How wide the rows become, and whether they are all as wide. */
static void set_width(lua_State *L, struct rows *rows, int options)
{
    size_t shortest = SIZE_MAX, multiple = (size_t)ah_opt_int(L, options, "multiple", 1);
    for (size_t i = 0; i < rows->count; i++) {
        rows->width = rows->row[i].count > rows->width ? rows->row[i].count : rows->width;
        shortest = rows->row[i].count < shortest ? rows->row[i].count : shortest;
    }
    lua_getfield(L, options, "width");
    rows->ragged = lua_isnil(L, -1);
    if (lua_type(L, -1) == LUA_TNUMBER && rows->width < (size_t)lua_tonumber(L, -1))
        rows->width = (size_t)lua_tonumber(L, -1);
    /* A number is a least width: what is longer, and was not cut, keeps its length, and the batch is not even. */
    if (!rows->ragged && multiple > 1)
        rows->width = (rows->width + multiple - 1) / multiple * multiple;
    lua_pop(L, 1);
    if (rows->ragged && rows->count && shortest != rows->width && !ah_opt_flag(L, options, "tables", false))
        ah_raise_text(L, "tokenizer: the texts have %zu to %zu tokens, which is no tensor: give padding = true (and "
                      "truncation), or return_tensors = false for tables", shortest, rows->width);
}

static int encode(lua_State *L)
{
    static const char *const ways[] = {"do_not_truncate", "longest_first", "only_first", "only_second", NULL};
    struct ah_tokenizer *tokenizer = check_tokenizer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 4, LUA_TTABLE);
    lua_settop(L, 4);
    struct ah_batch batch = {.count = lua_objlen(L, 2)};
    batch.specials = ah_opt_flag(L, 4, "specials", true);
    batch.most = ah_opt_int(L, 4, "most", 0);
    batch.cut_left = ah_opt_flag(L, 4, "cut_left", false);
    const char *way = ah_opt_string(L, 4, "truncation", ways[0]);
    for (int i = 0; ways[i]; i++) {
        if (strcmp(way, ways[i]) == 0)
            batch.truncation = (enum ah_truncation)i;
    }
    batch.first = read_texts(L, 2, batch.count);
    if (lua_istable(L, 3))
        batch.second = read_texts(L, 3, batch.count);
    struct rows *rows = new_rows(L, batch.count);
    int status = ah_batch_encode(tokenizer, &batch, rows->row);
    if (status < 0)
        return ah_raise(L, ah_fail_prefix(status, "tokenizer"));
    set_width(L, rows, 4);
    struct padding padding = {ah_opt_int(L, 4, "pad_id", 0), ah_opt_int(L, 4, "pad_type", 0),
                              ah_opt_flag(L, 4, "pad_left", false)};
    bool tables = ah_opt_flag(L, 4, "tables", false);
    lua_newtable(L);
    for (int column = 0; column < COLUMNS; column++) {
        if (!ah_opt_flag(L, 4, column_names[column], false))
            continue;
        (tables ? push_tables : push_tensor)(L, rows, (enum column)column, &padding);
        lua_setfield(L, -2, column_names[column]);
    }
    return 1;
}

static int decode(lua_State *L)
{
    struct ah_tokenizer *tokenizer = check_tokenizer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    size_t count = lua_objlen(L, 2), bytes;
    int64_t *ids = lua_newuserdata(L, (count + 1) * sizeof *ids);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 2, (int)i + 1);
        ids[i] = (int64_t)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    char *text;
    ah_check(L, ah_tokenizer_decode(tokenizer, ids, count, lua_toboolean(L, 3), &text, &bytes));
    lua_pushlstring(L, text ? text : "", bytes);
    free(text);
    return 1;
}

static int token(lua_State *L)
{
    size_t length;
    const char *text = ah_tokenizer_token(check_tokenizer(L), (int64_t)luaL_checknumber(L, 2), &length);
    if (text)
        lua_pushlstring(L, text, length);
    return text != NULL;
}

static int id(lua_State *L)
{
    size_t length;
    struct ah_tokenizer *tokenizer = check_tokenizer(L);
    const char *text = luaL_checklstring(L, 2, &length);
    int32_t found = ah_tokenizer_id(tokenizer, text, length);
    if (found >= 0)
        lua_pushinteger(L, found);
    return found >= 0;
}

static int is_special(lua_State *L)
{
    lua_pushboolean(L, ah_tokenizer_is_special(check_tokenizer(L), (int64_t)luaL_checknumber(L, 2)));
    return 1;
}

static int counts(lua_State *L)
{
    const struct ah_tokenizer *tokenizer = check_tokenizer(L);
    size_t all = tokenizer->model.whole.count;
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const struct ah_vocabulary_entry *entry = &tokenizer->added.entry[i];
        all += ah_vocabulary_id(&tokenizer->model.whole, tokenizer->added.text + entry->at, entry->length) < 0;
    }
    lua_pushnumber(L, (double)tokenizer->model.whole.count);
    lua_pushnumber(L, (double)all);
    return 2;
}

static int specials(lua_State *L)
{
    const struct ah_tokenizer *tokenizer = check_tokenizer(L);
    lua_pushnumber(L, (double)ah_template_specials(lua_toboolean(L, 2) ? &tokenizer->pair : &tokenizer->single));
    return 1;
}

int ah_open_text(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"encode", encode}, {"decode", decode}, {"token", token}, {"id", id}, {"is_special", is_special},
        {"counts", counts}, {"specials", specials}, {NULL, NULL},
    };
    luaL_newmetatable(L, ROWS);
    lua_pushcfunction(L, collect_rows);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, TOKENIZER);
    lua_pushcfunction(L, collect);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 2);
    lua_newtable(L);
    lua_pushcfunction(L, open_tokenizer);
    lua_setfield(L, -2, "open");
    return 1;
}
