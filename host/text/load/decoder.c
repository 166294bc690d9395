/* Decoders of a tokenizer.json. */
#include <string.h>

#include "base/status/status.h"
#include "text/load/load.h"

static const char what_decoder[] = "decoder";

static int decoder_add(struct ah_tokenizer *tokenizer, int kind, void **out)
{
    if (tokenizer->decoders == AH_TOKENIZER_STEPS)
        return ah_fail(AH_EINVAL, "%s: more than %d steps", what_decoder, AH_TOKENIZER_STEPS);
    tokenizer->decoder[tokenizer->decoders].kind = (enum ah_decoder_kind)kind;
    *out = &tokenizer->decoder[tokenizer->decoders++];
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

static int wordpiece_decoder(void *out, const json_t *value)
{
    struct ah_decoder *step = out;
    AH_TRY(load_text(value, "prefix", "##", &step->content));
    return ah_load_flag(value, what_decoder, "cleanup", true, &step->cleans);
}

static int metaspace_decoder(void *out, const json_t *value)
{
    struct ah_decoder *step = out;
    enum ah_split_prepend prepend;
    AH_TRY(ah_load_character(value, what_decoder, "replacement", AH_METASPACE, &step->mark));
    AH_TRY(ah_load_prepend(value, what_decoder, &prepend));
    step->left = prepend != AH_PREPEND_NEVER;
    return 0;
}

static int replace_decoder(void *out, const json_t *value)
{
    struct ah_decoder *step = out;
    AH_TRY(load_text(value, "content", NULL, &step->content));
    return ah_load_pattern(value, what_decoder, &step->pattern);
}

static int load_count(const json_t *value, const char *name, int64_t *out)
{
    const json_t *count = json_object_get(value, name);
    *out = json_integer_value(count);
    return json_is_integer(count) && *out >= 0
               ? 0
               : ah_fail(AH_EINVAL, "%s: %s: expected a whole number", what_decoder, name);
}

static int strip_decoder(void *out, const json_t *value)
{
    struct ah_decoder *step = out;
    AH_TRY(ah_load_character(value, what_decoder, "content", " ", &step->mark));
    AH_TRY(load_count(value, "start", &step->start));
    return load_count(value, "stop", &step->stop);
}

int ah_load_decoder(struct ah_tokenizer *tokenizer, const json_t *value)
{
    static const struct ah_load_type types[] = {
        {"WordPiece", AH_DECODE_WORDPIECE, wordpiece_decoder},
        {"ByteLevel", AH_DECODE_BYTE_LEVEL, NULL},
        {"Metaspace", AH_DECODE_METASPACE, metaspace_decoder},
        {"Replace", AH_DECODE_REPLACE, replace_decoder},
        {"ByteFallback", AH_DECODE_BYTE_FALLBACK, NULL},
        {"Fuse", AH_DECODE_FUSE, NULL},
        {"Strip", AH_DECODE_STRIP, strip_decoder},
        {"Sequence", AH_LOAD_SEQUENCE, NULL},
        {NULL, 0, NULL},
    };
    static const struct ah_load_section section = {what_decoder, "decoders", decoder_add, types};
    return ah_load_steps(tokenizer, value, &section);
}
