/* Fuzz target: texts and pairs through tokenizers of every step, cut in every way. Four bytes select the cut, the
 * others are texts with a byte 255 between them, or lists of words, which end at blanks. For all texts their tokens are
 * in them, or in their words, no row has more tokens than it may, all tokens of a text are in its rows, ids have texts,
 * or there is an error text.
 * sources: host/text/added.c host/text/batch.c host/text/bpe.c host/text/chars.c host/text/charsmap.c
 * sources: host/text/decode.c host/text/decoder.c host/text/encoding.c host/text/load/load.c host/text/load/decoder.c
 * sources: host/text/load/model.c host/text/load/normalizer.c host/text/load/splitter.c host/text/load/tokens.c
 * sources: host/text/load/unigram.c host/text/load/value.c host/text/model.c host/text/normalizer.c
 * sources: host/text/pattern.c host/text/places.c host/text/regex.c host/text/splitter.c host/text/tokenizer.c
 * sources: host/text/unicode.c host/text/generated/unicode_tables.c host/text/unigram.c host/text/vocabulary.c
 * sources: host/text/wordpiece.c host/base/memory/array.c host/base/process/plugin.c host/base/process/program.c
 * sources: host/base/status/status.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "text/batch.h"

/* Let a text be a list of words; `end` has room for them. Return their number. */
static size_t split(struct ah_source *source, size_t *end)
{
    size_t words = 0;
    for (size_t i = 0; i < source->bytes; i++)
        if (i + 1 == source->bytes || source->text[i] == ' ')
            end[words++] = i + 1;
    source->end = end;
    return source->words = words;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* One thread is enough here, and needs no OpenMP. */
void ah_parallel_for(int64_t n, int64_t grain, ah_range_fn body, void *context)
{
    (void)grain;
    int64_t half = n / 2;
    if (half > 0)
        body(context, half, n); /* the later part first, which is allowed */
    body(context, 0, half > 0 ? half : n);
}

#define STEP(type) "{\"type\": \"" type "\"}"
#define BERT \
    "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0, \"a\": 1, \"##b\": 2, \"e\": 3, \"##e\": 4, " \
    "\"the\": 5, \"fi\": 6, \"##fi\": 7, \".\": 8, \"1\": 9, \"##\\u0301\": 10}}, \"post_processor\": {\"type\": " \
    "\"BertProcessing\", \"sep\": [\"[SEP]\", 0], \"cls\": [\"[CLS]\", 0]}, "
static const char *const fixed[] = {
    BERT "\"normalizer\": " STEP("BertNormalizer") ", \"pre_tokenizer\": " STEP("BertPreTokenizer")
    ", \"added_tokens\": [{\"id\": 11, \"content\": \"A\", \"single_word\": true}, {\"id\": 12, \"content\": \"<s>\", "
    "\"special\": true, \"lstrip\": true, \"rstrip\": true}]}",
    BERT "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [" STEP("NFKC") ", " STEP("Lowercase") ", "
    STEP("NFKD") ", " STEP("StripAccents") ", " STEP("NFC") "]}, \"pre_tokenizer\": " STEP("Whitespace") "}",
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"abab\": 3, \"\\u0120\": 4, "
    "\"\\u0120a\": 5, \"\\u00c3\": 6}, \"merges\": [\"a b\", \"ab ab\", \"\\u0120 a\"]}, \"decoder\": "
    STEP("ByteLevel") ", \"pre_tokenizer\": " STEP("ByteLevel") ", \"post_processor\": {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}}",
    "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"unk_token\": \"u\", \"fuse_unk\": true, \"vocab\": "
    "{\"u\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"_\": 4, \"_a\": 5, \"<0xC3>\": 6, \"<0xA9>\": 7}, \"merges\": "
    "[\"a b\", \"_ a\"]}, \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [" STEP("Nmt") ", "
    STEP("Strip") ", {\"type\": \"Prepend\", \"prepend\": \"ab\"}, {\"type\": \"Replace\", \"pattern\": "
    "{\"Regex\": \" {2,}\"}, \"content\": \"xy\"}]}, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
    "{\"type\": \"Punctuation\", \"behavior\": \"MergedWithNext\"}, {\"type\": \"Digits\"}, {\"type\": "
    "\"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}]}, \"decoder\": {\"type\": \"Sequence\", "
    "\"decoders\": [" STEP("ByteFallback") ", " STEP("Fuse") ", " STEP("Metaspace") "]}}",
    "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": true, \"vocab\": [[\"u\", 0], [\"a\", -1], "
    "[\"b\", -2.5], [\"ab\", -3], [\"bab\", -3], [\"<0xC3>\", 0], [\"<0xA9>\", 0]]}, \"normalizer\": {\"type\": "
    "\"Precompiled\", \"precompiled_charsmap\": \"IAAAAACAAQBhDQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAeHkA\"}}",
};

/* Characters of a text, or of a token's word in it, as places count them. */
static int64_t characters(struct ah_source source, const struct ah_token *token)
{
    struct ah_chars chars = {0};
    size_t from = 0, end = source.bytes;
    if (source.end && token->sequence >= 0) {
        if (token->word < 0 || (size_t)token->word >= source.words)
            abort();
        from = token->word ? source.end[token->word - 1] : 0;
        end = source.end[token->word];
    }
    if (ah_chars_read(&chars, source.text + from, end - from) < 0)
        abort();
    int64_t count = (int64_t)chars.count;
    ah_chars_close(&chars);
    return count;
}

static void check(struct ah_tokenizer *tokenizer, const struct ah_batch *batch, const struct ah_rows_made *made)
{
    size_t text = 0;
    for (size_t r = 0; r < made->count; r++) {
        const struct ah_row *row = &made->row[r];
        if (row->text < text || row->text > text + 1 || row->text >= batch->count)
            abort();
        text = row->text;
        if (batch->truncation == AH_TRUNCATE_LONGEST && batch->most > 4 && (int64_t)row->count > batch->most)
            abort();
        for (size_t i = 0; i < row->count; i++) {
            const struct ah_token *token = &row->at[i];
            struct ah_source source = token->sequence == 1 ? batch->second[text] : batch->first[text];
            size_t length;
            if (token->from < 0 || token->to < token->from || token->to > characters(source, token) ||
                !ah_tokenizer_token(tokenizer, token->id, &length))
                abort();
        }
    }
    if (batch->count > 0 && text + 1 != batch->count)
        abort();
}

static void run(struct ah_tokenizer *tokenizer, const struct ah_batch *batch)
{
    struct ah_rows_made made;
    int status = ah_batch_encode(tokenizer, batch, &made);
    if (status < 0 && !*ah_error_text())
        abort();
    if (status == 0)
        check(tokenizer, batch, &made);
    ah_batch_close(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct ah_tokenizer *known[sizeof fixed / sizeof *fixed];
    struct ah_source source[8] = {{.text = ""}};
    size_t texts = 0, words = 0, end_of[400];
    if (count < 4 || count > 400)
        return 0;
    struct ah_batch batch = {.specials = bytes[0] & 1, .cut_left = bytes[0] & 2, .overflow = bytes[0] & 4,
                             .truncation = (enum ah_truncation)(bytes[1] & 3), .most = bytes[2] % 24,
                             .stride = bytes[3] % 8, .first = source};
    for (size_t at = 4; at < count && texts < 8; texts++) {
        const uint8_t *stop = memchr(bytes + at, 255, count - at);
        size_t end = stop ? (size_t)(stop - bytes) : count;
        source[texts] = (struct ah_source){.text = (const char *)bytes + at, .bytes = end - at};
        words += bytes[0] & 16 ? split(&source[texts], end_of + words) : 0;
        at = end + 1;
    }
    batch.count = bytes[0] & 8 ? texts / 2 : texts;
    batch.second = bytes[0] & 8 ? source + texts / 2 : NULL;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (!known[i] && ah_tokenizer_read(&known[i], fixed[i], strlen(fixed[i])) < 0)
            abort();
        run(known[i], &batch);
    }
    return 0;
}
