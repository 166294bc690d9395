/* Normalizers of a tokenizer.json. */
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"

static const char what_normalizer[] = "normalizer";

/* Add a step, which the tokenizer owns; its memory is set there, so that it is closed after a failure too. */
static int new_normalizer(struct ah_tokenizer *tokenizer, enum ah_normalizer_kind kind, struct ah_normalizer **out)
{
    if (tokenizer->normalizers == AH_TOKENIZER_STEPS)
        return ah_fail(AH_EINVAL, "%s: more than %d steps", what_normalizer, AH_TOKENIZER_STEPS);
    *out = &tokenizer->normalizer[tokenizer->normalizers++];
    (*out)->kind = kind;
    return 0;
}

static int add_normalizer(struct ah_tokenizer *tokenizer, enum ah_normalizer_kind kind)
{
    struct ah_normalizer *step = NULL;
    return new_normalizer(tokenizer, kind, &step);
}

static int bert_normalizer(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_normalizer *step = NULL;
    AH_TRY(new_normalizer(tokenizer, AH_NORMALIZE_BERT, &step));
    AH_TRY(ah_load_flag(value, what_normalizer, "clean_text", true, &step->clean_text));
    AH_TRY(ah_load_flag(value, what_normalizer, "handle_chinese_chars", true, &step->ideographs));
    AH_TRY(ah_load_flag(value, what_normalizer, "lowercase", true, &step->lowercase));
    return ah_load_flag(value, what_normalizer, "strip_accents", step->lowercase, &step->strip_accents);
}

static int load_lowercase(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_normalizer(tokenizer, AH_NORMALIZE_LOWERCASE);
}

/* The four normal forms of Unicode, by their names. */
static int normal_form(struct ah_tokenizer *tokenizer, const json_t *value)
{
    const char *name = json_string_value(json_object_get(value, "type"));
    bool compatible = name[2] == 'K', composed = name[strlen(name) - 1] == 'C';
    enum ah_normalizer_kind kind = compatible ? composed ? AH_NORMALIZE_NFKC : AH_NORMALIZE_NFKD
                                   : composed ? AH_NORMALIZE_NFC : AH_NORMALIZE_NFD;
    return add_normalizer(tokenizer, kind);
}

static int strip_accents(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_normalizer(tokenizer, AH_NORMALIZE_STRIP_ACCENTS);
}

static int load_nmt(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_normalizer(tokenizer, AH_NORMALIZE_NMT);
}

static int load_strip(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_normalizer *step = NULL;
    AH_TRY(new_normalizer(tokenizer, AH_NORMALIZE_STRIP, &step));
    AH_TRY(ah_load_flag(value, what_normalizer, "strip_left", true, &step->left));
    return ah_load_flag(value, what_normalizer, "strip_right", true, &step->right);
}

static int load_content(const json_t *value, const char *name, struct ah_chars *out)
{
    const char *text;
    AH_TRY(ah_load_text(value, what_normalizer, name, &text));
    return text ? ah_chars_read(out, text, strlen(text))
                : ah_fail(AH_EINVAL, "%s: %s: expected a text", what_normalizer, name);
}

static int load_prepend(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_normalizer *step = NULL;
    AH_TRY(new_normalizer(tokenizer, AH_NORMALIZE_PREPEND, &step));
    return load_content(value, "prepend", &step->content);
}

static int load_replace(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_normalizer *step = NULL;
    AH_TRY(new_normalizer(tokenizer, AH_NORMALIZE_REPLACE, &step));
    AH_TRY(load_content(value, "content", &step->content));
    return ah_load_pattern(value, what_normalizer, &step->pattern);
}

static int load_charsmap(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_normalizer *step = NULL;
    const char *text;
    AH_TRY(new_normalizer(tokenizer, AH_NORMALIZE_CHARSMAP, &step));
    AH_TRY(ah_load_text(value, what_normalizer, "precompiled_charsmap", &text));
    if (!text)
        return ah_fail(AH_EINVAL, "%s: precompiled_charsmap: expected a text", what_normalizer);
    int status = ah_charsmap_read(&step->charsmap, text);
    return status < 0 ? ah_fail_prefix(status, "%s: precompiled_charsmap", what_normalizer) : 0;
}

static int normalizer_sequence(struct ah_tokenizer *tokenizer, const json_t *value);

static const struct ah_load_type normalizers[] = {
    {"BertNormalizer", bert_normalizer}, {"Lowercase", load_lowercase}, {"NFC", normal_form}, {"NFD", normal_form},
    {"NFKC", normal_form}, {"NFKD", normal_form}, {"StripAccents", strip_accents}, {"Strip", load_strip},
    {"Nmt", load_nmt}, {"Prepend", load_prepend}, {"Replace", load_replace}, {"Precompiled", load_charsmap},
    {"Sequence", normalizer_sequence}, {NULL, NULL},
};

static int normalizer_sequence(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_each(tokenizer, value, what_normalizer, "normalizers", normalizers);
}

int ah_load_normalizer(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_by_type(tokenizer, value, what_normalizer, normalizers);
}
