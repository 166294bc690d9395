/* Pre-tokenizers of a tokenizer.json, and patterns. */
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"
#include "text/unicode.h"

static const char what_splitter[] = "pre_tokenizer";

int ah_load_pattern(const json_t *object, const char *what, struct ah_pattern *pattern)
{
    const json_t *value = json_object_get(object, "pattern");
    const char *text = json_string_value(json_object_get(value, "String"));
    const char *expression = json_string_value(json_object_get(value, "Regex"));
    if (!text && !expression)
        return ah_fail(AH_EINVAL, "%s: pattern: expected a String or a Regex", what);
    int status = text ? ah_pattern_text(pattern, text) : ah_pattern_regex(pattern, expression);
    return status < 0 ? ah_fail_prefix(status, "%s", what) : 0;
}

int ah_load_character(const json_t *object, const char *what, const char *name, const char *fallback, uint32_t *out)
{
    const char *text;
    int taken;
    AH_TRY(ah_load_text(object, what, name, &text));
    text = text ? text : fallback;
    size_t length = strlen(text);
    *out = length ? ah_utf8_next((const unsigned char *)text, length, &taken) : 0;
    return length && (size_t)taken == length ? 0 : ah_fail(AH_EINVAL, "%s: %s: expected one character", what, name);
}

/* The index of a text in a list, whose last is NULL. */
static int load_choice(const json_t *object, const char *name, const char *const *choices, int fallback, int *out)
{
    const char *text;
    AH_TRY(ah_load_text(object, what_splitter, name, &text));
    *out = fallback;
    for (int i = 0; text && choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return 0;
        }
    }
    return text ? ah_fail(AH_EINVAL, "%s: %s: '%.40s' is not supported", what_splitter, name, text) : 0;
}

static int splitter_add(struct ah_tokenizer *tokenizer, int kind, void **out)
{
    if (tokenizer->splitters == AH_TOKENIZER_STEPS)
        return ah_fail(AH_EINVAL, "%s: more than %d steps", what_splitter, AH_TOKENIZER_STEPS);
    if (tokenizer->model.byte_level)
        return ah_fail(AH_EINVAL, "%s: nothing may follow ByteLevel", what_splitter);
    tokenizer->splitter[tokenizer->splitters].kind = (enum ah_splitter_kind)kind;
    *out = &tokenizer->splitter[tokenizer->splitters++];
    tokenizer->model.byte_level = kind == AH_SPLIT_BYTE_LEVEL;
    return 0;
}

static int byte_level(void *out, const json_t *value)
{
    struct ah_splitter *step = out;
    AH_TRY(ah_load_flag(value, what_splitter, "add_prefix_space", true, &step->add_prefix_space));
    return ah_load_flag(value, what_splitter, "use_regex", true, &step->use_regex);
}

int ah_load_prepend(const json_t *value, const char *what, enum ah_split_prepend *out)
{
    static const char *const schemes[] = {"never", "always", "first", NULL};
    bool adds;
    int scheme;
    AH_TRY(ah_load_flag(value, what, "add_prefix_space", true, &adds)); /* of old files */
    AH_TRY(load_choice(value, "prepend_scheme", schemes, adds ? AH_PREPEND_ALWAYS : AH_PREPEND_NEVER, &scheme));
    *out = (enum ah_split_prepend)scheme;
    return 0;
}

static int load_metaspace(void *out, const json_t *value)
{
    struct ah_splitter *step = out;
    AH_TRY(ah_load_character(value, what_splitter, "replacement", AH_METASPACE, &step->mark));
    AH_TRY(ah_load_flag(value, what_splitter, "split", true, &step->split));
    return ah_load_prepend(value, what_splitter, &step->prepend);
}

static int load_behavior(void *out, const json_t *value)
{
    struct ah_splitter *step = out;
    static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous",
                                            NULL};
    int behavior;
    AH_TRY(load_choice(value, "behavior", behaviors, AH_SPLIT_ISOLATED, &behavior));
    step->behavior = (enum ah_split_behavior)behavior;
    return 0;
}

static int load_split(void *out, const json_t *value)
{
    struct ah_splitter *step = out;
    AH_TRY(ah_load_flag(value, what_splitter, "invert", false, &step->invert));
    AH_TRY(load_behavior(step, value));
    return ah_load_pattern(value, what_splitter, &step->pattern);
}

static int load_digits(void *out, const json_t *value)
{
    struct ah_splitter *step = out;
    bool each;
    AH_TRY(ah_load_flag(value, what_splitter, "individual_digits", false, &each));
    step->behavior = each ? AH_SPLIT_ISOLATED : AH_SPLIT_CONTIGUOUS;
    return 0;
}

int ah_load_splitter(struct ah_tokenizer *tokenizer, const json_t *value)
{
    static const struct ah_load_type types[] = {
        {"BertPreTokenizer", AH_SPLIT_BERT, NULL},
        {"Whitespace", AH_SPLIT_WHITESPACE, NULL},
        {"WhitespaceSplit", AH_SPLIT_SPACES, NULL},
        {"ByteLevel", AH_SPLIT_BYTE_LEVEL, byte_level},
        {"Metaspace", AH_SPLIT_METASPACE, load_metaspace},
        {"Split", AH_SPLIT_PATTERN, load_split},
        {"Digits", AH_SPLIT_DIGITS, load_digits},
        {"Punctuation", AH_SPLIT_PUNCTUATION, load_behavior},
        {"Sequence", AH_LOAD_SEQUENCE, NULL},
        {NULL, 0, NULL},
    };
    static const struct ah_load_section section = {what_splitter, "pretokenizers", splitter_add, types};
    return ah_load_steps(tokenizer, value, &section);
}
