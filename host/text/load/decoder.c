/* Decoders of a tokenizer.json. */
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"

static const char what_decoder[] = "decoder";

/* Add a step, which the tokenizer owns. */
static int new_decoder(struct ah_tokenizer *tokenizer, enum ah_decoder_kind kind, struct ah_decoder **out)
{
    if (tokenizer->decoders == AH_TOKENIZER_STEPS)
        return ah_fail(AH_EINVAL, "%s: more than %d steps", what_decoder, AH_TOKENIZER_STEPS);
    *out = &tokenizer->decoder[tokenizer->decoders++];
    (*out)->kind = kind;
    return 0;
}

static int load_text(const json_t *value, const char *name, const char *fallback, char **out)
{
    const char *text;
    AH_TRY(ah_load_text(value, what_decoder, name, &text));
    text = text ? text : fallback;
    if (!text)
        return ah_fail(AH_EINVAL, "%s: %s: expected a text", what_decoder, name);
    *out = strdup(text);
    return *out ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

static int wordpiece_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_decoder *step = NULL;
    AH_TRY(new_decoder(tokenizer, AH_DECODE_WORDPIECE, &step));
    AH_TRY(load_text(value, "prefix", "##", &step->content));
    return ah_load_flag(value, what_decoder, "cleanup", true, &step->cleans);
}

static int byte_level_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_decoder *step = NULL;
    return new_decoder(tokenizer, AH_DECODE_BYTE_LEVEL, &step);
}

static int metaspace_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_decoder *step = NULL;
    enum ah_split_prepend prepend;
    AH_TRY(new_decoder(tokenizer, AH_DECODE_METASPACE, &step));
    AH_TRY(ah_load_character(value, what_decoder, "replacement", AH_METASPACE, &step->mark));
    AH_TRY(ah_load_prepend(value, what_decoder, &prepend));
    step->left = prepend != AH_PREPEND_NEVER;
    return 0;
}

static int replace_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_decoder *step = NULL;
    AH_TRY(new_decoder(tokenizer, AH_DECODE_REPLACE, &step));
    AH_TRY(load_text(value, "content", NULL, &step->content));
    return ah_load_pattern(value, what_decoder, &step->pattern);
}

static int fallback_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_decoder *step = NULL;
    return new_decoder(tokenizer, AH_DECODE_BYTE_FALLBACK, &step);
}

static int fuse_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_decoder *step = NULL;
    return new_decoder(tokenizer, AH_DECODE_FUSE, &step);
}

static int load_count(const json_t *value, const char *name, int64_t *out)
{
    const json_t *count = json_object_get(value, name);
    *out = json_integer_value(count);
    return json_is_integer(count) && *out >= 0
               ? 0
               : ah_fail(AH_EINVAL, "%s: %s: expected a whole number", what_decoder, name);
}

static int strip_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    struct ah_decoder *step = NULL;
    AH_TRY(new_decoder(tokenizer, AH_DECODE_STRIP, &step));
    AH_TRY(ah_load_character(value, what_decoder, "content", " ", &step->mark));
    AH_TRY(load_count(value, "start", &step->start));
    return load_count(value, "stop", &step->stop);
}

static int decoder_sequence(struct ah_tokenizer *tokenizer, const json_t *value);

static const struct ah_load_type decoders[] = {
    {"WordPiece", wordpiece_decoder}, {"ByteLevel", byte_level_decoder}, {"Metaspace", metaspace_decoder},
    {"Replace", replace_decoder}, {"ByteFallback", fallback_decoder}, {"Fuse", fuse_decoder}, {"Strip", strip_decoder},
    {"Sequence", decoder_sequence}, {NULL, NULL},
};

static int decoder_sequence(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_each(tokenizer, value, what_decoder, "decoders", decoders);
}

int ah_load_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    return ah_load_by_type(tokenizer, value, what_decoder, decoders);
}
