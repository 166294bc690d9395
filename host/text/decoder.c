/* Each step writes its tokens into a new list. */
#include "text/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "text/model.h"
#include "text/unicode.h"

int ah_decoded_append(struct ah_decoded *to, const void *bytes, size_t count)
{
    return count ? ah_text_append(&to->text, bytes, count) : 0;
}

int ah_decoded_end(struct ah_decoded *to)
{
    AH_TRY(ah_grow(&to->end, to->count + 1, &to->room, sizeof *to->end));
    to->end[to->count++] = to->text.bytes;
    return 0;
}

void ah_decoded_close(struct ah_decoded *decoded)
{
    free(decoded->text.at);
    free(decoded->end);
    *decoded = (struct ah_decoded){0};
}

void ah_decoder_close(struct ah_decoder *step)
{
    free(step->content);
    ah_pattern_close(&step->pattern);
}

static const char *decoded_token(const struct ah_decoded *from, size_t i, size_t *length)
{
    size_t begin = i ? from->end[i - 1] : 0;
    *length = from->end[i] - begin;
    return from->text.at ? from->text.at + begin : "";
}

static int append_character(struct ah_decoded *to, uint32_t c)
{
    unsigned char bytes[4];
    return ah_decoded_append(to, bytes, (size_t)ah_utf8_put(c, bytes));
}

/* Replace in text->at[begin, ...) each `from` by `to`, which is shorter. */
static void decode_shorten(struct ah_text *text, size_t begin, const char *from, const char *to)
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
        decode_shorten(text, begin, rule[i][0], rule[i][1]);
}

static int decode_wordpiece(const struct ah_decoder *step, const struct ah_decoded *from, struct ah_decoded *to)
{
    size_t more = strlen(step->content), length;
    for (size_t i = 0; i < from->count; i++) {
        const char *token = decoded_token(from, i, &length);
        size_t begin = to->text.bytes;
        bool inside = i > 0 && length >= more && memcmp(token, step->content, more) == 0;
        if (i > 0 && !inside)
            AH_TRY(ah_decoded_append(to, " ", 1));
        AH_TRY(ah_decoded_append(to, token + (inside ? more : 0), length - (inside ? more : 0)));
        if (step->cleans)
            decode_clean(&to->text, begin);
        AH_TRY(ah_decoded_end(to));
    }
    return 0;
}

/* Append a token's bytes if all its characters encode bytes (byte level), else its text. */
static int append_bytes(struct ah_text *text, const char *token, size_t length)
{
    size_t begin = text->bytes, kept = begin;
    if (length == 0)
        return 0;
    AH_TRY(ah_text_append(text, token, length));
    for (size_t i = 0; i < length;) {
        int taken, byte = ah_character_byte(ah_utf8_next((const unsigned char *)token + i, length - i, &taken));
        if (byte < 0) {
            memcpy(text->at + begin, token, length);
            text->bytes = begin + length;
            return 0;
        }
        text->at[kept++] = (char)byte;
        i += (size_t)taken;
    }
    text->bytes = kept;
    return 0;
}

static int decode_byte_level(const struct ah_decoder *step, const struct ah_decoded *from, struct ah_decoded *to)
{
    struct ah_text bytes = {0};
    int status = 0;
    size_t length;
    (void)step;
    for (size_t i = 0; i < from->count && status == 0; i++) {
        const char *token = decoded_token(from, i, &length);
        status = append_bytes(&bytes, token, length);
    }
    for (size_t i = 0; i < bytes.bytes && status == 0;) {
        int taken;
        status = append_character(to, ah_utf8_next((const unsigned char *)bytes.at + i, bytes.bytes - i, &taken));
        i += (size_t)taken;
    }
    free(bytes.at);
    return status < 0 ? status : ah_decoded_end(to);
}

static int decode_metaspace(const struct ah_decoder *step, const struct ah_decoded *from, struct ah_decoded *to)
{
    size_t length;
    for (size_t i = 0; i < from->count; i++) {
        const char *token = decoded_token(from, i, &length);
        for (size_t k = 0; k < length;) {
            int taken;
            uint32_t c = ah_utf8_next((const unsigned char *)token + k, length - k, &taken);
            k += (size_t)taken;
            if (c != step->mark || i > 0 || !step->left)
                AH_TRY(append_character(to, c == step->mark ? ' ' : c));
        }
        AH_TRY(ah_decoded_end(to));
    }
    return 0;
}

/* Append one token with the matches replaced. */
static int replace_in_token(const struct ah_decoder *step, const char *token, size_t length, struct ah_chars *chars,
                            struct ah_spans *matches, struct ah_decoded *to)
{
    size_t next = 0;
    matches->count = 0;
    AH_TRY(ah_chars_read(chars, token, length));
    AH_TRY(ah_pattern_matches(&step->pattern, chars->at, (struct ah_span){0, chars->count}, matches));
    for (size_t i = 0; i < matches->count; i++) {
        for (; next < matches->at[i].begin; next++)
            AH_TRY(append_character(to, chars->at[next].c));
        AH_TRY(ah_decoded_append(to, step->content, strlen(step->content)));
        next = matches->at[i].end;
    }
    for (; next < chars->count; next++)
        AH_TRY(append_character(to, chars->at[next].c));
    return ah_decoded_end(to);
}

static int decode_replace(const struct ah_decoder *step, const struct ah_decoded *from, struct ah_decoded *to)
{
    AH_CLEANUP(ah_chars_close) struct ah_chars chars = {0};
    AH_CLEANUP(ah_spans_close) struct ah_spans matches = {0};
    size_t length;
    for (size_t i = 0; i < from->count; i++) {
        const char *token = decoded_token(from, i, &length);
        AH_TRY(replace_in_token(step, token, length, &chars, &matches, to));
    }
    return 0;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) % 16 : -1;
}

/* The byte of a token as <0x0A>, -1 for others. */
static int fallback_byte(const char *token, size_t length)
{
    if (length != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>')
        return -1;
    int high = hex_digit(token[3]), low = hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* Append bytes as one token, or, where they are no UTF-8, as a token U+FFFD for each. */
static int end_bytes(struct ah_decoded *to, const struct ah_text *bytes)
{
    bool valid = true;
    for (size_t i = 0; i < bytes->bytes && valid;) {
        int taken;
        unsigned char own[4];
        uint32_t c = ah_utf8_next((const unsigned char *)bytes->at + i, bytes->bytes - i, &taken);
        valid = ah_utf8_put(c, own) == taken && memcmp(own, bytes->at + i, (size_t)taken) == 0;
        i += (size_t)taken;
    }
    for (size_t i = 0; !valid && i < bytes->bytes; i++) {
        AH_TRY(append_character(to, AH_UNICODE_REPLACEMENT));
        AH_TRY(ah_decoded_end(to));
    }
    if (!valid || bytes->bytes == 0)
        return 0;
    AH_TRY(ah_decoded_append(to, bytes->at, bytes->bytes));
    return ah_decoded_end(to);
}

static int fall_back(const struct ah_decoded *from, struct ah_text *bytes, struct ah_decoded *to)
{
    size_t length;
    for (size_t i = 0; i < from->count; i++) {
        const char *token = decoded_token(from, i, &length);
        int byte = fallback_byte(token, length);
        char one = (char)byte;
        if (byte >= 0) {
            AH_TRY(ah_text_append(bytes, &one, 1));
            continue;
        }
        AH_TRY(end_bytes(to, bytes));
        bytes->bytes = 0;
        AH_TRY(ah_decoded_append(to, token, length));
        AH_TRY(ah_decoded_end(to));
    }
    return end_bytes(to, bytes);
}

static int decode_byte_fallback(const struct ah_decoder *step, const struct ah_decoded *from, struct ah_decoded *to)
{
    struct ah_text bytes = {0};
    (void)step;
    int status = fall_back(from, &bytes, to);
    free(bytes.at);
    return status;
}

static int decode_fuse(const struct ah_decoder *step, const struct ah_decoded *from, struct ah_decoded *to)
{
    (void)step;
    AH_TRY(ah_decoded_append(to, from->text.at, from->text.bytes));
    return ah_decoded_end(to);
}

static int decode_strip(const struct ah_decoder *step, const struct ah_decoded *from, struct ah_decoded *to)
{
    unsigned char mark[4];
    size_t size = (size_t)ah_utf8_put(step->mark, mark), length;
    for (size_t i = 0; i < from->count; i++) {
        const char *token = decoded_token(from, i, &length);
        size_t begin = 0, end = length;
        for (int64_t k = 0; k < step->start && end - begin >= size && memcmp(token + begin, mark, size) == 0; k++)
            begin += size;
        for (int64_t k = 0; k < step->stop && end - begin >= size && memcmp(token + end - size, mark, size) == 0; k++)
            end -= size;
        AH_TRY(ah_decoded_append(to, token + begin, end - begin));
        AH_TRY(ah_decoded_end(to));
    }
    return 0;
}

int ah_decoder_apply(const struct ah_decoder *step, int steps, struct ah_decoded *tokens)
{
    static int (*const apply[])(const struct ah_decoder *, const struct ah_decoded *, struct ah_decoded *) = {
        [AH_DECODE_WORDPIECE] = decode_wordpiece, [AH_DECODE_BYTE_LEVEL] = decode_byte_level,
        [AH_DECODE_METASPACE] = decode_metaspace, [AH_DECODE_REPLACE] = decode_replace,
        [AH_DECODE_BYTE_FALLBACK] = decode_byte_fallback, [AH_DECODE_FUSE] = decode_fuse,
        [AH_DECODE_STRIP] = decode_strip,
    };
    for (int i = 0; i < steps; i++) {
        struct ah_decoded next = {0};
        int status = apply[step[i].kind](&step[i], tokens, &next);
        ah_decoded_close(tokens);
        *tokens = next;
        AH_TRY(status);
    }
    return 0;
}
