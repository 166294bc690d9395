/* From ids back to text. */
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

/* Replace in text->at[begin, ...) each `from` by `to`, which is shorter. */
static void decode_replace(struct ah_text *text, size_t begin, const char *from, const char *to)
{
    size_t length = strlen(from), shorter = strlen(to), kept = begin;
    for (size_t i = begin; i < text->bytes;) {
        if (text->bytes - i >= length && memcmp(text->at + i, from, length) == 0) {
            memcpy(text->at + kept, to, shorter);
            kept += shorter;
            i += length;
        } else {
            text->at[kept++] = text->at[i++];
        }
    }
    text->bytes = kept;
}

/* Blanks in front of marks and short forms go, one token at a time. */
static void decode_clean(struct ah_text *text, size_t begin)
{
    static const char *const rule[][2] = {
        {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
        {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
        decode_replace(text, begin, rule[i][0], rule[i][1]);
}

static int add_wordpiece(const struct ah_tokenizer *tokenizer, struct ah_text *text, const char *token, size_t length,
                         bool first)
{
    const char *prefix = tokenizer->decoder_prefix;
    size_t begin = text->bytes, more = strlen(prefix);
    bool inside = !first && length >= more && memcmp(token, prefix, more) == 0;
    if (!first && !inside)
        AH_TRY(ah_text_append(text, " ", 1));
    AH_TRY(ah_text_append(text, token + (inside ? more : 0), length - (inside ? more : 0)));
    if (tokenizer->decoder_cleans)
        decode_clean(text, begin);
    return 0;
}

/* Append a token's bytes if all its characters encode bytes (byte level), else its text. */
static int add_bytes(struct ah_text *text, const char *token, size_t length)
{
    size_t begin = text->bytes;
    AH_TRY(ah_text_append(text, token, length));
    size_t kept = begin;
    for (size_t i = 0; i < length;) {
        int taken, byte = ah_character_byte(ah_utf8_next((const unsigned char *)token + i, length - i, &taken));
        if (byte < 0) {
            memcpy(text->at + begin, token, length);
            return 0;
        }
        text->at[kept++] = (char)byte;
        i += (size_t)taken;
    }
    text->bytes = kept;
    return 0;
}

/* Replace bytes that are no UTF-8 by U+FFFD. */
static int decode_mend(struct ah_text *text)
{
    struct ah_text whole = {0};
    for (size_t i = 0; i < text->bytes;) {
        int taken;
        unsigned char bytes[4];
        uint32_t c = ah_utf8_next((const unsigned char *)text->at + i, text->bytes - i, &taken);
        int status = ah_text_append(&whole, (const char *)bytes, (size_t)ah_utf8_put(c, bytes));
        if (status < 0) {
            free(whole.at);
            return status;
        }
        i += (size_t)taken;
    }
    free(text->at);
    *text = whole;
    return 0;
}

static int decode_add(const struct ah_tokenizer *tokenizer, struct ah_text *text, const char *token, size_t length,
                      bool first)
{
    if (tokenizer->decoder == AH_DECODE_WORDPIECE)
        return add_wordpiece(tokenizer, text, token, length, first);
    if (tokenizer->decoder == AH_DECODE_BYTES)
        return add_bytes(text, token, length);
    if (!first)
        AH_TRY(ah_text_append(text, " ", 1));
    return ah_text_append(text, token, length);
}

int ah_tokenizer_decode(const struct ah_tokenizer *tokenizer, const int64_t *ids, size_t count, bool skip_special,
                        char **out, size_t *bytes)
{
    struct ah_text text = {0};
    bool first = true;
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        size_t length;
        const char *token = ah_tokenizer_token(tokenizer, ids[i], &length);
        if (!token || (skip_special && ah_tokenizer_is_special(tokenizer, ids[i])))
            continue;
        status = decode_add(tokenizer, &text, token, length, first);
        first = false;
    }
    if (status == 0 && tokenizer->decoder == AH_DECODE_BYTES)
        status = decode_mend(&text);
    if (status < 0)
        free(text.at);
    *out = status < 0 ? NULL : text.at;
    *bytes = text.bytes;
    return status;
}
