/* Fuzz target: the input up to a zero byte as a tokenizer.json, what follows as texts. Whatever the
 * bytes are, reading ends in a tokenizer or an error text, places lie in the text and rise, and ids can be decoded. The
 * texts go through three tokenizers of every step as well.
 * sources: host/text/added.c host/text/bpe.c host/text/chars.c host/text/decode.c host/text/encoding.c
 * sources: host/text/load.c host/text/load_model.c host/text/load_tokens.c host/text/load_value.c host/text/model.c
 * sources: host/text/normalizer.c host/text/splitter.c host/text/tokenizer.c host/text/unicode.c
 * sources: host/text/unicode_tables.c host/text/vocabulary.c host/text/wordpiece.c host/base/array.c
 * sources: host/base/status.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define PART(name, type) "\"" name "\": {\"type\": \"" type "\"}"
#define STEP(type) "{\"type\": \"" type "\"}"
#define BERT "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0, \"a\": 1, \"##b\": 2, \"e\": 3}}, "
static const char *const fixed[] = {
    BERT PART("normalizer", "BertNormalizer") ", " PART("pre_tokenizer", "BertPreTokenizer") ", "
    PART("decoder", "WordPiece") ", \"added_tokens\": [{\"id\": 9, \"content\": \"A\", \"single_word\": true}, "
    "{\"id\": 8, \"content\": \"<s>\", \"special\": true, \"lstrip\": true, \"rstrip\": true}]}",
    BERT "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [" STEP("NFC") ", " STEP("Lowercase") ", "
    STEP("NFD") ", " STEP("StripAccents") "]}, " PART("pre_tokenizer", "Whitespace") "}",
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"abab\": 3, \"\\u0120\": 4, "
    "\"\\u0120a\": 5}, \"merges\": [\"a b\", \"ab ab\", \"\\u0120 a\"], \"ignore_merges\": true}, "
    PART("decoder", "ByteLevel") ", " PART("pre_tokenizer", "ByteLevel") ", " PART("post_processor", "ByteLevel") "}",
};

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
    static struct ah_tokenizer *known[3];
    struct ah_tokenizer *tokenizer;
    for (int i = 0; i < 3; i++) {
        if (!known[i] && ah_tokenizer_read(&known[i], fixed[i], strlen(fixed[i])) < 0)
            abort();
        use(known[i], bytes, count);
    }
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
