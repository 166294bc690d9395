/* Fuzz target: the input up to a zero byte as a tokenizer.json, the rest as a text. Whatever the bytes are, reading
 * ends in a tokenizer or an error text, offsets are inside the text, and ids can be decoded.
 * sources: host/text/added.c host/text/bpe.c host/text/chars.c host/text/charsmap.c host/text/decode.c
 * sources: host/text/decoder.c host/text/encoding.c host/text/load/load.c host/text/load/decoder.c
 * sources: host/text/load/model.c host/text/load/normalizer.c host/text/load/splitter.c host/text/load/tokens.c
 * sources: host/text/load/unigram.c host/text/load/value.c host/text/model.c host/text/normalizer.c
 * sources: host/text/pattern.c host/text/places.c host/text/regex.c host/text/splitter.c host/text/tokenizer.c
 * sources: host/text/unicode.c host/text/generated/unicode_tables.c host/text/unigram.c host/text/vocabulary.c
 * sources: host/text/wordpiece.c host/base/memory/array.c host/base/process/plugin.c host/base/process/program.c
 * sources: host/base/status/status.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void use(struct ah_tokenizer *tokenizer, const uint8_t *bytes, size_t count)
{
    struct ah_encoder *encoder;
    struct ah_encoding row = {0}, whole = {0};
    if (ah_encoder_take(tokenizer, &encoder) < 0)
        return;
    if (ah_tokenizer_encode(tokenizer, encoder, (const char *)bytes, count, &row) < 0 && !*ah_error_text())
        abort();
    ah_encoder_give(tokenizer, encoder);
    int64_t *ids = malloc((row.count + 1) * sizeof *ids);
    for (size_t i = 0; i < row.count; i++) {
        if (row.at[i].from < 0 || row.at[i].to < row.at[i].from || row.at[i].to > (int64_t)count)
            abort();
        ids[i] = row.at[i].id;
    }
    ah_tokenizer_trim(tokenizer, &row);
    char *text;
    size_t length;
    if (ah_tokenizer_decode(tokenizer, ids, row.count, true, &text, &length) == 0)
        free(text);
    if (ah_template_apply(&tokenizer->single, &row, NULL, true, &whole) < 0 && !*ah_error_text())
        abort();
    ah_encoding_close(&row);
    ah_encoding_close(&whole);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_tokenizer *tokenizer;
    const uint8_t *zero = count ? memchr(bytes, 0, count) : NULL;
    size_t json = zero ? (size_t)(zero - bytes) : count;
    if (ah_tokenizer_read(&tokenizer, (const char *)bytes, json) < 0) {
        if (!*ah_error_text())
            abort();
        return 0;
    }
    use(tokenizer, bytes + json, count - json);
    ah_tokenizer_close(tokenizer);
    return 0;
}
