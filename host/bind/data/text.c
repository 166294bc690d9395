/* accelhost._C.text: tokenizers (text/tokenizer.h).
 *
 * open(json) -> tokenizer
 * tokenizer:encode(texts, pairs or nil, options) -> a table of columns (below), each an int64 tensor of a row for each
 * text (with overflow for each piece of it), or a table of tables; the trailing dim of offset_mapping has 2. Options:
 * split (texts are lists of words), specials, truncation (a word), most, cut_left, overflow, stride; width ("longest"
 * or a number; without one rows are as long as they are), multiple, pad_left, pad_id, pad_type; tables; and a flag for
 * each column. Second result: words (below); third, with overflow, an int64 tensor of the text that each row is of.
 * tokenizer:decode(ids, skip_special) -> text; token(id) -> text or nil; id(text) -> id or nil; is_special(id);
 * counts() -> texts of the model's vocabulary, texts with the added ones; specials(pair) -> count
 * words:get(row) -> which word of its text each token is part of, -1 for none; words:len()
 * fullmatch(expression, texts) -> a flag for each text: does a regular expression (PCRE2) match the whole of it? */
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/handle.h"
#include "tensor/tensor.h"
#include "text/batch.h"
#include "text/regex.h"

static const struct ah_class tokenizer_class, rows_class, words_class;

static struct ah_tokenizer *check_tokenizer(lua_State *L)
{
    return *(struct ah_tokenizer **)ah_class_check(L, 1, &tokenizer_class);
}

static int open_tokenizer(lua_State *L)
{
    size_t bytes;
    const char *json = luaL_checklstring(L, 1, &bytes);
    struct ah_tokenizer **held = ah_class_new(L, &tokenizer_class, sizeof *held);
    int status = ah_tokenizer_read(held, json, bytes);
    return status < 0 ? ah_raise(L, ah_fail_prefix(status, "Tokenizer")) : 1;
}

AH_CLASS_CLOSER(text_collect, tokenizer_class, struct ah_tokenizer, ah_tokenizer_close)

/* Rows of a batch, owned by Lua. */
struct rows {
    struct ah_rows_made made;
    size_t width; /* of the rows when they are padded, else of the longest */
    bool ragged;
};

static int collect_rows(lua_State *L)
{
    struct rows *rows = ah_class_check(L, 1, &rows_class);
    ah_batch_close(&rows->made);
    return 0;
}

static struct rows *new_rows(lua_State *L)
{
    return ah_class_new(L, &rows_class, sizeof(struct rows));
}

/* Return the texts of the table at `index`, which keeps them alive; the array is in a userdata on the stack. */
static const struct ah_source *read_texts(lua_State *L, int index, size_t count)
{
    struct ah_source *source = lua_newuserdata(L, (count + 1) * sizeof *source);
    memset(source, 0, (count + 1) * sizeof *source);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            ah_raise_text(L, "tokenizer: text %zu is %s, expected a string", i, ah_value_text(L, -1));
        source[i].text = lua_tolstring(L, -1, &source[i].bytes);
        lua_pop(L, 1);
    }
    return source;
}

/* Push item `i` of the list of words on the top: a text. */
static const char *push_word(lua_State *L, size_t text, size_t i, size_t *bytes)
{
    lua_rawgeti(L, -1, (int)i + 1);
    if (lua_type(L, -1) != LUA_TSTRING)
        ah_raise_text(L, "tokenizer: word %zu of text %zu is %s, expected a string", i, text, ah_value_text(L, -1));
    return lua_tolstring(L, -1, bytes);
}

/* Push the text `i` of the table at `index`, which is a list of words; return their number, add the bytes. */
static size_t push_words_of(lua_State *L, int index, size_t i, size_t *bytes)
{
    size_t one;
    lua_rawgeti(L, index, (int)i + 1);
    if (!lua_istable(L, -1))
        ah_raise_text(L, "tokenizer: text %zu is %s, expected a list of words", i, ah_value_text(L, -1));
    size_t words = lua_objlen(L, -1);
    for (size_t k = 0; k < words; k++) {
        push_word(L, i, k, &one);
        lua_pop(L, 1);
        *bytes += one;
    }
    return words;
}

/* The same of texts that are lists of words. The bytes of all, and the ends of the words, follow the array. */
static const struct ah_source *read_split_texts(lua_State *L, int index, size_t count)
{
    size_t bytes = 0, words = 0, one;
    for (size_t i = 0; i < count; i++) {
        words += push_words_of(L, index, i, &bytes);
        lua_pop(L, 1);
    }
    struct ah_source *source = lua_newuserdata(L, (count + 1) * sizeof *source + (words + 1) * sizeof(size_t) + bytes);
    size_t *end = (size_t *)(source + count + 1);
    char *text = (char *)(end + words + 1);
    for (size_t i = 0; i < count; i++) {
        size_t none = 0;
        source[i] = (struct ah_source){.text = text, .end = end, .words = push_words_of(L, index, i, &none)};
        for (size_t k = 0; k < source[i].words; k++) {
            const char *word = push_word(L, i, k, &one);
            memcpy(text + source[i].bytes, word, one);
            source[i].bytes += one;
            *end++ = source[i].bytes;
            lua_pop(L, 1);
        }
        text += source[i].bytes;
        lua_pop(L, 1);
    }
    return source;
}

enum column { IDS, TYPES, MASK, SPECIAL, OFFSETS, COLUMNS };
static const char *const column_names[] = {"input_ids", "token_type_ids", "attention_mask", "special_tokens_mask",
                                           "offset_mapping"};

struct padding {
    int64_t id, type;
    bool left;
};

static int64_t value_of(const struct ah_token *token, enum column column)
{
    switch (column) {
    case IDS: return token->id;
    case TYPES: return token->type;
    case MASK: return 1;
    default: return token->special;
    }
}

static int64_t padding_of(const struct padding *padding, enum column column)
{
    static const int64_t others[COLUMNS] = {[SPECIAL] = 1};
    return column == IDS ? padding->id : column == TYPES ? padding->type : others[column];
}

/* Write a row's values of a column and `width` - count paddings before or after them; an offset has two numbers per
 * token. */
static int64_t *write_row(int64_t *out, const struct ah_row *row, size_t width, enum column column,
                          const struct padding *padding)
{
    size_t ends = column == OFFSETS ? 2 : 1, beside = (width - row->count) * ends;
    int64_t filler = padding_of(padding, column);
    for (size_t i = 0; padding->left && i < beside; i++)
        *out++ = filler;
    if (column == IDS) { /* the loops that the compiler makes short */
        for (size_t i = 0; i < row->count; i++)
            *out++ = row->at[i].id;
    } else if (column == OFFSETS) {
        for (size_t i = 0; i < row->count; i++) {
            *out++ = row->at[i].from;
            *out++ = row->at[i].to;
        }
    } else {
        for (size_t i = 0; i < row->count; i++)
            *out++ = value_of(&row->at[i], column);
    }
    for (size_t i = 0; !padding->left && i < beside; i++)
        *out++ = filler;
    return out;
}

static void push_tensor(lua_State *L, const struct rows *rows, enum column column, const struct padding *padding)
{
    int64_t size[] = {(int64_t)rows->made.count, (int64_t)rows->width, 2};
    struct ah_tensor *tensor;
    ah_check(L, ah_tensor_empty(&tensor, size, column == OFFSETS ? 3 : 2, AH_I64, &ah_cpu));
    int64_t *out = ah_tensor_data(tensor);
    for (size_t r = 0; r < rows->made.count; r++)
        out = write_row(out, &rows->made.row[r], rows->width, column, padding);
    ah_push_tensor(L, tensor);
}

static void push_tables(lua_State *L, const struct rows *rows, enum column column, const struct padding *padding)
{
    size_t ends = column == OFFSETS ? 2 : 1;
    int64_t *values = lua_newuserdata(L, (rows->width + 1) * ends * sizeof *values);
    lua_createtable(L, (int)rows->made.count, 0);
    for (size_t r = 0; r < rows->made.count; r++) {
        size_t width = rows->ragged ? rows->made.row[r].count : rows->width;
        write_row(values, &rows->made.row[r], width, column, padding);
        lua_createtable(L, (int)width, 0);
        for (size_t i = 0; i < width; i++) {
            if (ends == 1) {
                lua_pushnumber(L, (double)values[i]);
            } else {
                lua_createtable(L, 2, 0);
                lua_pushnumber(L, (double)values[2 * i]);
                lua_rawseti(L, -2, 1);
                lua_pushnumber(L, (double)values[2 * i + 1]);
                lua_rawseti(L, -2, 2);
            }
            lua_rawseti(L, -2, (int)i + 1);
        }
        lua_rawseti(L, -2, (int)r + 1);
    }
    lua_remove(L, -2);
}

/* Words of the tokens of all rows, of which few are ever asked for: four bytes a token. */
struct words {
    size_t count, width; /* width 0: rows are as long as they are */
    bool left;
    size_t *end; /* of each row in `word` */
    int32_t *word;
};

static void push_words(lua_State *L, const struct rows *rows, bool left)
{
    size_t tokens = 0;
    for (size_t r = 0; r < rows->made.count; r++)
        tokens += rows->made.row[r].count;
    size_t bytes = sizeof(struct words) + rows->made.count * sizeof(size_t) + tokens * sizeof(int32_t);
    struct words *words = ah_class_new(L, &words_class, bytes);
    *words = (struct words){.count = rows->made.count, .width = rows->ragged ? 0 : rows->width, .left = left};
    words->end = (size_t *)(words + 1);
    words->word = (int32_t *)(words->end + words->count);
    for (size_t r = 0, at = 0; r < words->count; words->end[r++] = at)
        for (size_t i = 0; i < rows->made.row[r].count; i++)
            words->word[at++] = rows->made.row[r].at[i].word;
}

static int give_words(lua_State *L)
{
    const struct words *words = ah_class_check(L, 1, &words_class);
    lua_Number at = luaL_checknumber(L, 2);
    if (!(at >= 0 && at < (lua_Number)words->count))
        return ah_raise_text(L, "row %.14g is out of range for %zu", at, words->count);
    size_t r = (size_t)at, from = r ? words->end[r - 1] : 0, count = words->end[r] - from;
    size_t width = words->width > count ? words->width : count, shift = words->left ? width - count : 0;
    lua_createtable(L, (int)width, 0);
    for (size_t i = 0; i < width; i++) {
        lua_pushinteger(L, i >= shift && i - shift < count ? words->word[from + i - shift] : -1);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

static int count_words(lua_State *L)
{
    const struct words *words = ah_class_check(L, 1, &words_class);
    lua_pushnumber(L, (lua_Number)words->count);
    return 1;
}

/* Set the width of the rows, and whether they are all of that width. */
static void set_width(lua_State *L, struct rows *rows, int options)
{
    size_t shortest = SIZE_MAX, multiple = (size_t)ah_opt_int(L, options, "multiple", 1);
    for (size_t i = 0; i < rows->made.count; i++) {
        size_t count = rows->made.row[i].count;
        rows->width = count > rows->width ? count : rows->width;
        shortest = count < shortest ? count : shortest;
    }
    lua_getfield(L, options, "width");
    rows->ragged = lua_isnil(L, -1);
    if (lua_type(L, -1) == LUA_TNUMBER && rows->width < (size_t)lua_tonumber(L, -1))
        rows->width = (size_t)lua_tonumber(L, -1);
    /* A number is a least width: a row that is longer, and was not cut, keeps its length, and the batch is not even. */
    if (!rows->ragged && multiple > 1)
        rows->width = (rows->width + multiple - 1) / multiple * multiple;
    lua_pop(L, 1);
    if (rows->ragged && rows->made.count && shortest != rows->width && !ah_opt_flag(L, options, "tables", false))
        ah_raise_text(L, "tokenizer: the texts have %zu to %zu tokens, which is no tensor: set padding = true (and "
                      "truncation), or return_tensors = false for tables", shortest, rows->width);
}

static void push_samples(lua_State *L, const struct rows *rows)
{
    int64_t count = (int64_t)rows->made.count;
    struct ah_tensor *tensor;
    ah_check(L, ah_tensor_empty(&tensor, &count, 1, AH_I64, &ah_cpu));
    int64_t *out = ah_tensor_data(tensor);
    for (int64_t i = 0; i < count; i++)
        out[i] = (int64_t)rows->made.row[i].text;
    ah_push_tensor(L, tensor);
}

/* Read the options of a batch at `index`. */
static struct ah_batch read_batch(lua_State *L, int index)
{
    static const char *const ways[] = {"do_not_truncate", "longest_first", "only_first", "only_second", NULL};
    struct ah_batch batch = {.specials = ah_opt_flag(L, index, "specials", true),
                             .most = ah_opt_int(L, index, "most", 0),
                             .cut_left = ah_opt_flag(L, index, "cut_left", false),
                             .overflow = ah_opt_flag(L, index, "overflow", false),
                             .stride = ah_opt_int(L, index, "stride", 0)};
    const char *way = ah_opt_string(L, index, "truncation", ways[0]);
    for (int i = 0; ways[i]; i++) {
        if (strcmp(way, ways[i]) == 0)
            batch.truncation = (enum ah_truncation)i;
    }
    return batch;
}

static int text_encode(lua_State *L)
{
    struct ah_tokenizer *tokenizer = check_tokenizer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 4, LUA_TTABLE);
    lua_settop(L, 4);
    ah_collect_if_due(L, AH_COLLECT_STEP); /* else nothing might, where batch after batch is encoded */
    struct ah_batch batch = read_batch(L, 4);
    batch.count = lua_objlen(L, 2);
    const struct ah_source *(*read)(lua_State *, int, size_t) =
        ah_opt_flag(L, 4, "split", false) ? read_split_texts : read_texts;
    batch.first = read(L, 2, batch.count);
    if (lua_istable(L, 3))
        batch.second = read(L, 3, batch.count);
    struct rows *rows = new_rows(L);
    int status = ah_batch_encode(tokenizer, &batch, &rows->made);
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
    push_words(L, rows, padding.left);
    if (batch.overflow)
        push_samples(L, rows);
    ah_batch_close(&rows->made);
    return batch.overflow ? 3 : 2;
}

static int text_decode(lua_State *L)
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

static int text_token(lua_State *L)
{
    size_t length;
    const char *text = ah_tokenizer_token(check_tokenizer(L), (int64_t)luaL_checknumber(L, 2), &length);
    if (text)
        lua_pushlstring(L, text, length);
    return text != NULL;
}

static int text_id(lua_State *L)
{
    size_t length;
    struct ah_tokenizer *tokenizer = check_tokenizer(L);
    const char *text = luaL_checklstring(L, 2, &length);
    int32_t found = ah_tokenizer_id(tokenizer, text, length);
    if (found >= 0)
        lua_pushinteger(L, found);
    return found >= 0;
}

AH_LUA_VALUE(is_special, lua_pushboolean, ah_tokenizer_is_special(check_tokenizer(L), (int64_t)luaL_checknumber(L, 2)))

static int text_counts(lua_State *L)
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

static int text_specials(lua_State *L)
{
    const struct ah_tokenizer *tokenizer = check_tokenizer(L);
    lua_pushnumber(L, (double)ah_template_specials(lua_toboolean(L, 2) ? &tokenizer->pair : &tokenizer->single));
    return 1;
}

static const luaL_Reg words_methods[] = {{"get", give_words}, {"len", count_words}, {NULL, NULL}};
static const luaL_Reg tokenizer_methods[] = {
    {"encode", text_encode},    {"decode", text_decode}, {"token", text_token},       {"id", text_id},
    {"is_special", is_special}, {"counts", text_counts}, {"specials", text_specials}, {NULL, NULL},
};
static const struct ah_class rows_class = {"accelhost.tokenizer.rows", NULL, NULL, collect_rows},
                             words_class = {"accelhost.tokenizer.words", words_methods, NULL, NULL},
                             tokenizer_class = {"accelhost.tokenizer", tokenizer_methods, NULL, text_collect};

/* Does the expression match characters at all? It is anchored at both ends. */
static int regex_matches_text(const struct ah_regex *regex, const char *text, size_t bytes, bool *matches)
{
    struct ah_chars chars = {0};
    struct ah_spans spans = {0};
    AH_TRY(ah_chars_read(&chars, text, bytes));
    int status = ah_regex_matches(regex, chars.at, (struct ah_span){0, chars.count}, &spans);
    *matches = spans.count > 0;
    ah_spans_close(&spans);
    ah_chars_close(&chars);
    return status;
}

static int text_fullmatch(lua_State *L)
{
    struct ah_regex *regex;
    lua_pushfstring(L, "\\A(?:%s)\\z", luaL_checkstring(L, 1));
    int status = ah_regex_open(&regex, lua_tostring(L, -1));
    if (status < 0)
        return ah_raise(L, status);
    int count = (int)lua_objlen(L, 2);
    lua_createtable(L, count, 0);
    for (int i = 1; i <= count && status >= 0; i++) {
        size_t bytes;
        bool matches = false;
        lua_rawgeti(L, 2, i);
        const char *text = lua_tolstring(L, -1, &bytes);
        status = text ? regex_matches_text(regex, text, bytes, &matches) : ah_fail(AH_EINVAL, "expected strings");
        lua_pop(L, 1);
        lua_pushboolean(L, matches);
        lua_rawseti(L, -2, i);
    }
    ah_regex_close(regex);
    return status < 0 ? ah_raise(L, status) : 1;
}

int ah_open_text(lua_State *L)
{
    lua_newtable(L);
    lua_pushcfunction(L, text_fullmatch);
    lua_setfield(L, -2, "fullmatch");
    lua_pushcfunction(L, open_tokenizer);
    lua_setfield(L, -2, "open");
    return 1;
}
