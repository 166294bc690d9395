/* tokenizer.json: the sections of the file, one function each, and common functions. */
#include "text/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "text/unicode.h"

/* Normalizers. */

static int add_normalizer(struct ah_tokenizer *tokenizer, struct ah_normalizer step)
{
    if (tokenizer->normalizers == AH_TOKENIZER_STEPS)
        return ah_fail(AH_EINVAL, "normalizer: more than %d steps", AH_TOKENIZER_STEPS);
    tokenizer->normalizer[tokenizer->normalizers++] = step;
    return 0;
}

static int bert_normalizer(struct ah_tokenizer *tokenizer, const json_t *value)
{
    static const char what[] = "normalizer";
    struct ah_normalizer step = {.kind = AH_NORMALIZE_BERT};
    AH_TRY(ah_load_flag(value, what, "clean_text", true, &step.clean_text));
    AH_TRY(ah_load_flag(value, what, "handle_chinese_chars", true, &step.ideographs));
    AH_TRY(ah_load_flag(value, what, "lowercase", true, &step.lowercase));
    AH_TRY(ah_load_flag(value, what, "strip_accents", step.lowercase, &step.strip_accents));
    return add_normalizer(tokenizer, step);
}

static int load_lowercase(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_normalizer(tokenizer, (struct ah_normalizer){.kind = AH_NORMALIZE_LOWERCASE});
}

/* The four normal forms of Unicode, by their names. */
static int normal_form(struct ah_tokenizer *tokenizer, const json_t *value)
{
    const char *name = json_string_value(json_object_get(value, "type"));
    bool compatible = name[2] == 'K', composed = name[strlen(name) - 1] == 'C';
    enum ah_normalizer_kind kind = compatible ? composed ? AH_NORMALIZE_NFKC : AH_NORMALIZE_NFKD
                                   : composed ? AH_NORMALIZE_NFC : AH_NORMALIZE_NFD;
    return add_normalizer(tokenizer, (struct ah_normalizer){.kind = kind});
}

static int strip_accents(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_normalizer(tokenizer, (struct ah_normalizer){.kind = AH_NORMALIZE_STRIP_ACCENTS});
}

static int normalizer_sequence(struct ah_tokenizer *tokenizer, const json_t *value);

static const struct ah_load_type normalizers[] = {
    {"BertNormalizer", bert_normalizer}, {"Lowercase", load_lowercase}, {"NFC", normal_form}, {"NFD", normal_form},
    {"NFKC", normal_form}, {"NFKD", normal_form}, {"StripAccents", strip_accents}, {"Sequence", normalizer_sequence},
    {NULL, NULL},
};

static int normalizer_sequence(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_each(tokenizer, value, "normalizer", "normalizers", normalizers);
}

int ah_load_normalizer(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_by_type(tokenizer, value, "normalizer", normalizers);
}

/* Pre-tokenizers. */

static int add_splitter(struct ah_tokenizer *tokenizer, struct ah_splitter step)
{
    if (tokenizer->splitters == AH_TOKENIZER_STEPS)
        return ah_fail(AH_EINVAL, "pre_tokenizer: more than %d steps", AH_TOKENIZER_STEPS);
    if (tokenizer->model.byte_level)
        return ah_fail(AH_EINVAL, "pre_tokenizer: nothing may follow ByteLevel");
    tokenizer->splitter[tokenizer->splitters++] = step;
    tokenizer->model.byte_level = step.kind == AH_SPLIT_BYTE_LEVEL;
    return 0;
}

static int bert_splitter(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_splitter(tokenizer, (struct ah_splitter){.kind = AH_SPLIT_BERT});
}

static int load_whitespace(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_splitter(tokenizer, (struct ah_splitter){.kind = AH_SPLIT_WHITESPACE});
}

static int whitespace_split(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return add_splitter(tokenizer, (struct ah_splitter){.kind = AH_SPLIT_SPACES});
}

static int byte_level(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_splitter step = {.kind = AH_SPLIT_BYTE_LEVEL};
    AH_TRY(ah_load_flag(value, "pre_tokenizer", "add_prefix_space", true, &step.add_prefix_space));
    AH_TRY(ah_load_flag(value, "pre_tokenizer", "use_regex", true, &step.use_regex));
    return add_splitter(tokenizer, step);
}

static int splitter_sequence(struct ah_tokenizer *tokenizer, const json_t *value);

static const struct ah_load_type splitters[] = {
    {"BertPreTokenizer", bert_splitter}, {"Whitespace", load_whitespace}, {"WhitespaceSplit", whitespace_split},
    {"ByteLevel", byte_level}, {"Sequence", splitter_sequence}, {NULL, NULL},
};

static int splitter_sequence(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_each(tokenizer, value, "pre_tokenizer", "pretokenizers", splitters);
}

int ah_load_splitter(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_by_type(tokenizer, value, "pre_tokenizer", splitters);
}

/* Decoders. */

static int wordpiece_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    const char *prefix;
    AH_TRY(ah_load_text(value, "decoder", "prefix", &prefix));
    AH_TRY(ah_load_flag(value, "decoder", "cleanup", true, &tokenizer->decoder_cleans));
    tokenizer->decoder = AH_DECODE_WORDPIECE;
    tokenizer->decoder_prefix = strdup(prefix ? prefix : "##");
    return tokenizer->decoder_prefix ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

static int bytes_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    tokenizer->decoder = AH_DECODE_BYTES;
    return 0;
}

int ah_load_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    static const struct ah_load_type decoders[] = {
        {"WordPiece", wordpiece_decoder}, {"ByteLevel", bytes_decoder}, {NULL, NULL},
    };
    return ah_load_by_type(tokenizer, value, "decoder", decoders);
}

/* The file. */

static int load_sections(struct ah_tokenizer *tokenizer, const json_t *root)
{
    static const struct {
        const char *name;
        int (*load)(struct ah_tokenizer *tokenizer, const json_t *value);
    } section[] = {
        {"normalizer", ah_load_normalizer}, {"pre_tokenizer", ah_load_splitter}, {NULL, NULL},
        {"added_tokens", ah_load_added}, {"post_processor", ah_load_post_processor}, {"decoder", ah_load_decoder},
    };
    for (size_t i = 0; i < sizeof section / sizeof *section; i++) {
        if (!section[i].name) {
            AH_TRY(ah_load_model(&tokenizer->model, json_object_get(root, "model")));
            continue;
        }
        const json_t *value = json_object_get(root, section[i].name);
        if (value && !json_is_null(value))
            AH_TRY(section[i].load(tokenizer, value));
        else if (strcmp(section[i].name, "post_processor") == 0)
            AH_TRY(ah_load_post_processor(tokenizer, NULL));
    }
    return 0;
}

int ah_tokenizer_read(struct ah_tokenizer **out, const char *json, size_t bytes)
{
    json_error_t error;
    *out = NULL;
    json_t *root = json_loadb(json, bytes, 0, &error);
    if (!root && error.line < 0) /* nothing was read wrongly */
        return ah_fail(AH_ENOMEM, "out of memory");
    if (!root)
        return ah_fail(AH_EINVAL, "line %d: no JSON: %s", error.line, error.text);
    ah_unicode_open();
    struct ah_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    int status = tokenizer ? pthread_mutex_init(&tokenizer->lock, NULL) : -1;
    if (status != 0) {
        free(tokenizer);
        json_decref(root);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    status = json_is_object(root) ? load_sections(tokenizer, root) : ah_fail(AH_EINVAL, "expected an object");
    json_decref(root);
    if (status < 0) {
        ah_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return 0;
}
