/* Normalizers of a tokenizer.json. */
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"

static const char what_normalizer[] = "normalizer";

static int normalizer_add(struct ah_tokenizer *tokenizer, int kind, void **out)
{
    if (tokenizer->normalizers == AH_TOKENIZER_STEPS)
        return ah_fail(AH_EINVAL, "%s: more than %d steps", what_normalizer, AH_TOKENIZER_STEPS);
    tokenizer->normalizer[tokenizer->normalizers].kind = (enum ah_normalizer_kind)kind;
    *out = &tokenizer->normalizer[tokenizer->normalizers++];
    return 0;
}

static int bert_normalizer(void *out, const json_t *value)
{
    struct ah_normalizer *step = out;
    AH_TRY(ah_load_flag(value, what_normalizer, "clean_text", true, &step->clean_text));
    AH_TRY(ah_load_flag(value, what_normalizer, "handle_chinese_chars", true, &step->ideographs));
    AH_TRY(ah_load_flag(value, what_normalizer, "lowercase", true, &step->lowercase));
    return ah_load_flag(value, what_normalizer, "strip_accents", step->lowercase, &step->strip_accents);
}

static int load_strip(void *out, const json_t *value)
{
    struct ah_normalizer *step = out;
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

static int load_prepend(void *out, const json_t *value)
{
    struct ah_normalizer *step = out;
    return load_content(value, "prepend", &step->content);
}

static int load_replace(void *out, const json_t *value)
{
    struct ah_normalizer *step = out;
    AH_TRY(load_content(value, "content", &step->content));
    return ah_load_pattern(value, what_normalizer, &step->pattern);
}

static int load_charsmap(void *out, const json_t *value)
{
    struct ah_normalizer *step = out;
    const char *text;
    AH_TRY(ah_load_text(value, what_normalizer, "precompiled_charsmap", &text));
    if (!text)
        return ah_fail(AH_EINVAL, "%s: precompiled_charsmap: expected a text", what_normalizer);
    int status = ah_charsmap_read(&step->charsmap, text);
    return status < 0 ? ah_fail_prefix(status, "%s: precompiled_charsmap", what_normalizer) : 0;
}

int ah_load_normalizer(struct ah_tokenizer *tokenizer, const json_t *value)
{
    static const struct ah_load_type types[] = {
        {"BertNormalizer", AH_NORMALIZE_BERT, bert_normalizer},
        {"Lowercase", AH_NORMALIZE_LOWERCASE, NULL},
        {"NFC", AH_NORMALIZE_NFC, NULL},
        {"NFD", AH_NORMALIZE_NFD, NULL},
        {"NFKC", AH_NORMALIZE_NFKC, NULL},
        {"NFKD", AH_NORMALIZE_NFKD, NULL},
        {"StripAccents", AH_NORMALIZE_STRIP_ACCENTS, NULL},
        {"Strip", AH_NORMALIZE_STRIP, load_strip},
        {"Nmt", AH_NORMALIZE_NMT, NULL},
        {"Prepend", AH_NORMALIZE_PREPEND, load_prepend},
        {"Replace", AH_NORMALIZE_REPLACE, load_replace},
        {"Precompiled", AH_NORMALIZE_CHARSMAP, load_charsmap},
        {"Sequence", AH_LOAD_SEQUENCE, NULL},
        {NULL, 0, NULL},
    };
    static const struct ah_load_section section = {what_normalizer, "normalizers", normalizer_add, types};
    return ah_load_steps(tokenizer, value, &section);
}
