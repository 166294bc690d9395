/* Added tokens and post-processors of a tokenizer.json. Every post-processor is a template here. */
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/load/load.h"
#include "text/unicode.h"

/* Added tokens. */

static int set_special(struct ah_tokenizer *tokenizer, int32_t id)
{
    if ((size_t)id >= tokenizer->specials) {
        size_t count = (size_t)id + 1;
        bool *wider = realloc(tokenizer->is_special, count);
        AH_TRY_MEMORY(wider, "out of memory");
        memset(wider + tokenizer->specials, 0, count - tokenizer->specials);
        tokenizer->is_special = wider;
        tokenizer->specials = count;
    }
    tokenizer->is_special[id] = true;
    return 0;
}

/* Set the text of the token's id: its characters. */
static int load_tokens_show(struct ah_tokenizer *tokenizer, const struct ah_added *added)
{
    AH_FREED char *text = malloc(4 * added->count + 1);
    size_t bytes = 0;
    AH_TRY_MEMORY(text, "out of memory");
    for (size_t i = 0; i < added->count; i++)
        bytes += (size_t)ah_utf8_put(added->c[i], (unsigned char *)text + bytes);
    return ah_vocabulary_add(&tokenizer->shown, text, bytes, added->id);
}

/* Set the characters by which the token is searched for. */
static int set_characters(struct ah_tokenizer *tokenizer, struct ah_added *added, const char *text)
{
    struct ah_chars chars = {0}, spare = {0};
    int status = ah_chars_read(&chars, text, strlen(text));
    if (status == 0 && added->normalized)
        status = ah_normalize(tokenizer->normalizer, tokenizer->normalizers, &chars, &spare);
    if (status == 0 && chars.count && !(added->c = malloc(chars.count * sizeof *added->c)))
        status = ah_fail(AH_ENOMEM, "out of memory");
    if (status == 0) {
        added->count = chars.count;
        for (size_t i = 0; i < chars.count; i++)
            added->c[i] = chars.at[i].c;
    }
    ah_chars_close(&chars);
    ah_chars_close(&spare);
    if (status == 0)
        status = load_tokens_show(tokenizer, added);
    if (status < 0)
        free(added->c);
    return status;
}

static int load_one(struct ah_tokenizer *tokenizer, const json_t *item)
{
    static const char what[] = "added_tokens";
    struct ah_added added = {0};
    const char *text;
    if (!json_is_object(item))
        return ah_fail(AH_EINVAL, "%s: expected an object", what);
    const json_t *id = json_object_get(item, "id");
    AH_TRY(ah_load_text(item, what, "content", &text));
    if (!text || !json_is_integer(id))
        return ah_fail(AH_EINVAL, "%s: expected an id and a content", what);
    AH_TRY(ah_load_flag(item, what, "special", false, &added.special));
    AH_TRY(ah_load_flag(item, what, "single_word", false, &added.single_word));
    AH_TRY(ah_load_flag(item, what, "lstrip", false, &added.lstrip));
    AH_TRY(ah_load_flag(item, what, "rstrip", false, &added.rstrip));
    AH_TRY(ah_load_flag(item, what, "normalized", !added.special, &added.normalized));
    /* The vocabulary knows better. */
    int32_t known = ah_vocabulary_id(&tokenizer->model.whole, text, strlen(text));
    AH_TRY(ah_vocabulary_add(&tokenizer->added, text, strlen(text), known >= 0 ? known : json_integer_value(id)));
    added.id = ah_vocabulary_id(&tokenizer->added, text, strlen(text));
    if (added.special)
        AH_TRY(set_special(tokenizer, added.id));
    AH_TRY(set_characters(tokenizer, &added, text));
    return ah_added_push(added.normalized ? &tokenizer->normalized : &tokenizer->raw, added);
}

int ah_load_added(struct ah_tokenizer *tokenizer, const json_t *value)
{
    const json_t *item;
    size_t i;
    if (!json_is_array(value))
        return ah_fail(AH_EINVAL, "added_tokens: expected a list");
    json_array_foreach(value, i, item)
        AH_TRY(load_one(tokenizer, item));
    ah_added_sort(&tokenizer->raw);
    ah_added_sort(&tokenizer->normalized);
    return 0;
}

/* Post-processors. */

static const char what_post[] = "post_processor";

static int add_item(struct ah_template *template, int32_t sequence, int64_t id, int64_t type)
{
    if (type < 0 || type > 255)
        return ah_fail(AH_EINVAL, "%s: type_id: expected 0 to 255", what_post);
    if (id < 0 || id >= AH_VOCABULARY_IDS)
        return ah_fail(AH_EINVAL, "%s: an id is out of range", what_post);
    AH_TRY(ah_grow(&template->item, template->count + 1, &template->room, sizeof *template->item));
    template->item[template->count++] = (struct ah_template_item){sequence, (int32_t)id, (int32_t)type};
    return 0;
}

/* Both texts as they are, the second of type `second`. */
static int set_plain(struct ah_tokenizer *tokenizer, int second)
{
    tokenizer->single.count = tokenizer->pair.count = 0;
    AH_TRY(add_item(&tokenizer->single, 0, 0, 0));
    AH_TRY(add_item(&tokenizer->pair, 0, 0, 0));
    return add_item(&tokenizer->pair, 1, 0, second);
}

static int add_specials(struct ah_template *template, const json_t *specials, const char *name, int64_t type)
{
    const json_t *ids = json_object_get(json_object_get(specials, name), "ids"), *id;
    size_t i;
    if (!json_is_array(ids))
        return ah_fail(AH_EINVAL, "%s: special_tokens has no ids for '%.40s'", what_post, name);
    json_array_foreach(ids, i, id) {
        if (!json_is_integer(id))
            return ah_fail(AH_EINVAL, "%s: special_tokens: '%.40s': expected ids", what_post, name);
        AH_TRY(add_item(template, -1, json_integer_value(id), type));
    }
    return 0;
}

static int load_items(struct ah_template *template, const json_t *list, const json_t *specials, bool pair)
{
    const json_t *item;
    size_t i;
    int seen[2] = {0, 0};
    if (!json_is_array(list))
        return ah_fail(AH_EINVAL, "%s: expected lists 'single' and 'pair'", what_post);
    json_array_foreach(list, i, item) {
        const json_t *sequence = json_object_get(item, "Sequence");
        const json_t *inner = sequence ? sequence : json_object_get(item, "SpecialToken");
        const json_t *type = json_object_get(inner, "type_id");
        const char *name = json_string_value(json_object_get(inner, "id"));
        if (!name || (type && !json_is_integer(type)))
            return ah_fail(AH_EINVAL, "%s: expected a Sequence or a SpecialToken with id and type_id", what_post);
        if (!sequence) {
            AH_TRY(add_specials(template, specials, name, json_integer_value(type)));
            continue;
        }
        if (strcmp(name, "A") != 0 && (strcmp(name, "B") != 0 || !pair))
            return ah_fail(AH_EINVAL, "%s: unknown sequence '%.40s'", what_post, name);
        seen[name[0] - 'A']++;
        AH_TRY(add_item(template, name[0] - 'A', 0, json_integer_value(type)));
    }
    return seen[0] == 1 && seen[1] == pair ? 0 : ah_fail(AH_EINVAL, "%s: expected each text once", what_post);
}

static int template_processing(void *out, const json_t *value)
{
    struct ah_tokenizer *tokenizer = out;
    const json_t *specials = json_object_get(value, "special_tokens");
    tokenizer->single.count = tokenizer->pair.count = 0;
    AH_TRY(load_items(&tokenizer->single, json_object_get(value, "single"), specials, false));
    return load_items(&tokenizer->pair, json_object_get(value, "pair"), specials, true);
}

/* ["[SEP]", 102] */
static int read_mark(const json_t *value, const char *name, int64_t *id)
{
    const json_t *number = json_array_get(json_object_get(value, name), 1);
    *id = json_integer_value(number);
    return json_is_integer(number) ? 0 : ah_fail(AH_EINVAL, "%s: %s: expected a text and an id", what_post, name);
}

/* cls A sep, and cls A sep B sep, with one more sep in front of B where `doubled`; B is of type `second`. */
static int set_marks(struct ah_tokenizer *tokenizer, const json_t *value, bool doubled, int second)
{
    int64_t cls, sep;
    AH_TRY(read_mark(value, "cls", &cls));
    AH_TRY(read_mark(value, "sep", &sep));
    tokenizer->single.count = tokenizer->pair.count = 0;
    struct ah_template *both[] = {&tokenizer->single, &tokenizer->pair};
    for (int i = 0; i < 2; i++) {
        AH_TRY(add_item(both[i], -1, cls, 0));
        AH_TRY(add_item(both[i], 0, 0, 0));
        AH_TRY(add_item(both[i], -1, sep, 0));
    }
    if (doubled)
        AH_TRY(add_item(&tokenizer->pair, -1, sep, second));
    AH_TRY(add_item(&tokenizer->pair, 1, 0, second));
    return add_item(&tokenizer->pair, -1, sep, second);
}

static int load_trimming(void *out, const json_t *value)
{
    struct ah_tokenizer *tokenizer = out;
    AH_TRY(ah_load_flag(value, what_post, "trim_offsets", true, &tokenizer->trim_offsets));
    return ah_load_flag(value, what_post, "add_prefix_space", true, &tokenizer->trims_prefix);
}

static int bert_processing(void *tokenizer, const json_t *value)
{
    return set_marks(tokenizer, value, false, 1);
}

static int roberta_processing(void *tokenizer, const json_t *value)
{
    AH_TRY(load_trimming(tokenizer, value));
    return set_marks(tokenizer, value, true, 0);
}

/* The post-processor is a part of the tokenizer. */
static int post_add(struct ah_tokenizer *tokenizer, int kind, void **step)
{
    *step = tokenizer;
    return 0;
}

int ah_load_post_processor(struct ah_tokenizer *tokenizer, const json_t *value)
{
    static const struct ah_load_type types[] = {
        {"TemplateProcessing", 0, template_processing},
        {"BertProcessing", 0, bert_processing},
        {"RobertaProcessing", 0, roberta_processing},
        {"ByteLevel", 0, load_trimming},
        {"Sequence", AH_LOAD_SEQUENCE, NULL},
        {NULL, 0, NULL},
    };
    static const struct ah_load_section section = {what_post, "processors", post_add, types};
    AH_TRY(set_plain(tokenizer, 1));
    return value ? ah_load_steps(tokenizer, value, &section) : 0;
}
