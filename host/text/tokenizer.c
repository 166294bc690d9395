/* Encoding: added tokens cut the text; the parts between are normalized, cut at the other added tokens and into words,
 * and the model splits each word. Short words are cached with their pieces, by hash in one place each. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/encoder.h"
#include "text/unicode.h"

#define REMEMBERED 8192

static void encoder_close(struct ah_encoder *encoder)
{
    ah_chars_close(&encoder->source);
    ah_chars_close(&encoder->part);
    ah_chars_close(&encoder->words_text);
    ah_chars_close(&encoder->spare);
    ah_spans_close(&encoder->words);
    ah_split_work_close(&encoder->split);
    ah_bpe_close(&encoder->bpe);
    ah_unigram_close(&encoder->unigram);
    free(encoder->pieces.at);
    free(encoder->bytes);
    free(encoder->owner);
    free(encoder->memory);
    for (int i = 0; i < 2; i++) {
        ah_encoding_close(&encoder->part_of[i]);
        ah_encoding_close(&encoder->piece[i]);
    }
    ah_encoding_close(&encoder->made);
    free(encoder->row);
    free(encoder);
}

int ah_encoder_take(struct ah_tokenizer *tokenizer, struct ah_encoder **out)
{
    pthread_mutex_lock(&tokenizer->lock);
    struct ah_encoder *encoder = tokenizer->idle;
    if (encoder)
        tokenizer->idle = encoder->next;
    pthread_mutex_unlock(&tokenizer->lock);
    if (!encoder && (encoder = calloc(1, sizeof *encoder))) {
        encoder->memory = calloc(REMEMBERED, sizeof *encoder->memory);
        if (!encoder->memory) {
            free(encoder);
            encoder = NULL;
        }
    }
    *out = encoder;
    return encoder ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

void ah_encoder_give(struct ah_tokenizer *tokenizer, struct ah_encoder *encoder)
{
    AH_LOCK_SCOPE(&tokenizer->lock);
    encoder->next = tokenizer->idle;
    tokenizer->idle = encoder;
}

/* The word's characters as UTF-8, and whose bytes they are; the count of bytes. */
static int write_word(struct ah_encoder *encoder, struct ah_span word, size_t *bytes)
{
    size_t most = 4 * (word.end - word.begin) + 4, count = 0;
    AH_TRY(ah_grow(&encoder->bytes, most, &encoder->bytes_room, 1));
    AH_TRY(ah_grow(&encoder->owner, most, &encoder->owner_room, sizeof *encoder->owner));
    const struct ah_char *at = encoder->words_text.at + word.begin;
    for (size_t i = 0; i < word.end - word.begin; i++) {
        int taken = ah_utf8_put(at[i].c, (unsigned char *)encoder->bytes + count);
        for (int k = 0; k < taken; k++)
            encoder->owner[count++] = (uint32_t)i;
    }
    *bytes = count;
    return 0;
}

static int ask_model(const struct ah_model *model, struct ah_encoder *encoder, size_t bytes, size_t characters)
{
    switch (model->kind) {
    case AH_MODEL_BPE: return ah_bpe(model, &encoder->bpe, encoder->bytes, bytes, &encoder->pieces);
    case AH_MODEL_UNIGRAM: return ah_unigram(model, &encoder->unigram, encoder->bytes, bytes, &encoder->pieces);
    default: return ah_wordpiece(model, encoder->bytes, bytes, characters, &encoder->pieces);
    }
}

/* The word's pieces into encoder->pieces, remembered or from the model. */
static int pieces_of(const struct ah_model *model, struct ah_encoder *encoder, size_t bytes, size_t characters)
{
    struct ah_pieces *pieces = &encoder->pieces;
    pieces->count = 0;
    if (bytes > AH_SHORT_WORD)
        return ask_model(model, encoder, bytes, characters);
    struct ah_remembered *known = &encoder->memory[ah_hash_text(encoder->bytes, bytes) % REMEMBERED];
    if (known->length == bytes && memcmp(known->word, encoder->bytes, bytes) == 0) {
        for (int i = 0; i < known->pieces; i++)
            AH_TRY(ah_pieces_push(pieces, known->id[i], i ? known->end[i - 1] : 0, known->end[i]));
        return 0;
    }
    AH_TRY(ask_model(model, encoder, bytes, characters));
    /* Pieces that leave bytes out are not kept: their beginnings would be lost. */
    size_t end = 0;
    for (size_t i = 0; i < pieces->count; end = pieces->at[i++].end) {
        if (pieces->at[i].begin != end)
            return 0;
    }
    if (pieces->count > AH_SHORT_PIECES || end != bytes)
        return 0;
    const uint8_t count = (uint8_t)pieces->count;
    known->length = (uint8_t)bytes;
    known->pieces = count;
    memcpy(known->word, encoder->bytes, bytes);
    for (uint8_t i = 0; i < count; i++) {
        known->id[i] = pieces->at[i].id;
        known->end[i] = (uint8_t)pieces->at[i].end;
    }
    return 0;
}

/* The characters [begin, end) of `text`, normalized and between added tokens, as tokens. */
static int encode_part(const struct ah_tokenizer *tokenizer, struct ah_encoder *encoder, const struct ah_chars *text,
                       struct ah_span span, int32_t *word, struct ah_encoding *out)
{
    struct ah_chars *own = &encoder->words_text;
    size_t count = span.end - span.begin;
    if (count == 0)
        return 0;
    own->count = 0;
    AH_TRY(ah_chars_reserve(own, count));
    memcpy(own->at, text->at + span.begin, count * sizeof *own->at);
    own->count = count;
    AH_TRY(ah_split(tokenizer->splitter, tokenizer->splitters, own, &encoder->words, &encoder->split));
    for (size_t i = 0; i < encoder->words.count; i++, ++*word) {
        struct ah_span place = encoder->words.at[i];
        const struct ah_char *at = own->at + place.begin;
        size_t bytes;
        AH_TRY(write_word(encoder, place, &bytes));
        AH_TRY(pieces_of(&tokenizer->model, encoder, bytes, place.end - place.begin));
        for (size_t k = 0; k < encoder->pieces.count; k++) {
            struct ah_piece piece = encoder->pieces.at[k];
            struct ah_token token = {.id = piece.id, .from = at[encoder->owner[piece.begin]].from,
                                     .to = at[encoder->owner[piece.end - 1]].to, .word = *word};
            AH_TRY(ah_encoding_push(out, token));
        }
    }
    return 0;
}

static int push_added(const struct ah_added *added, const struct ah_chars *text, struct ah_span span, int32_t *word,
                      struct ah_encoding *out)
{
    struct ah_token token = {.id = added->id, .from = text->at[span.begin].from, .to = text->at[span.end - 1].to,
                             .word = (*word)++, .added = true};
    for (size_t i = span.begin; i < span.end && ah_unicode_is(text->at[i].c, AH_UNICODE_SPACE); i++)
        token.leading++;
    for (size_t i = span.end; i > span.begin && ah_unicode_is(text->at[i - 1].c, AH_UNICODE_SPACE); i--)
        token.trailing++;
    return ah_encoding_push(out, token);
}

/* Characters [begin, end) of the source: normalized, and cut at the added tokens of normalized text. */
static int encode_between(const struct ah_tokenizer *tokenizer, struct ah_encoder *encoder, struct ah_span span,
                          int32_t *word, struct ah_encoding *out)
{
    struct ah_chars *part = &encoder->part;
    const struct ah_added *added;
    size_t taken = 0, from = 0, begin, stop;
    if (span.begin == span.end)
        return 0;
    part->count = 0;
    AH_TRY(ah_chars_reserve(part, span.end - span.begin));
    part->count = span.end - span.begin;
    memcpy(part->at, encoder->source.at + span.begin, part->count * sizeof *part->at);
    AH_TRY(ah_normalize(tokenizer->normalizer, tokenizer->normalizers, part, &encoder->spare));
    while ((added = ah_added_find(&tokenizer->normalized, part, from, taken, &begin, &stop, &from))) {
        AH_TRY(encode_part(tokenizer, encoder, part, (struct ah_span){taken, begin}, word, out));
        AH_TRY(push_added(added, part, (struct ah_span){begin, stop}, word, out));
        taken = stop;
    }
    return encode_part(tokenizer, encoder, part, (struct ah_span){taken, part->count}, word, out);
}

int ah_tokenizer_encode(const struct ah_tokenizer *tokenizer, struct ah_encoder *encoder, const char *text,
                        size_t bytes, struct ah_encoding *out)
{
    const struct ah_chars *source = &encoder->source;
    const struct ah_added *added;
    size_t taken = 0, from = 0, begin, stop;
    int32_t word = 0;
    AH_TRY(ah_chars_read(&encoder->source, text, bytes));
    while ((added = ah_added_find(&tokenizer->raw, source, from, taken, &begin, &stop, &from))) {
        AH_TRY(encode_between(tokenizer, encoder, (struct ah_span){taken, begin}, &word, out));
        AH_TRY(push_added(added, source, (struct ah_span){begin, stop}, &word, out));
        taken = stop;
    }
    return encode_between(tokenizer, encoder, (struct ah_span){taken, source->count}, &word, out);
}

/* Count the blanks at the ends of a token's text, as space or as the byte level's mark for it. */
static void count_blanks(const struct ah_tokenizer *tokenizer, struct ah_token *token)
{
    bool inside = false;
    size_t length = 0;
    const char *text = ah_tokenizer_token(tokenizer, token->id, &length);
    for (size_t i = 0; i < length;) {
        int taken;
        uint32_t c = ah_utf8_next((const unsigned char *)text + i, length - i, &taken);
        bool blank = c == 0x120 || ah_unicode_is(c, AH_UNICODE_SPACE);
        i += (size_t)taken;
        token->leading += blank && !inside;
        token->trailing = blank ? token->trailing + 1 : 0;
        inside = inside || !blank;
    }
}

void ah_tokenizer_trim(const struct ah_tokenizer *tokenizer, struct ah_encoding *encoding)
{
    for (size_t i = 0; tokenizer->trim_offsets && i < encoding->count; i++) {
        struct ah_token *at = &encoding->at[i];
        if (!at->added)
            count_blanks(tokenizer, at);
        int32_t leading = at->leading, trailing = at->trailing;
        if (leading > 0) {
            /* One alone at the beginning was inserted. */
            leading -= tokenizer->trims_prefix && leading == 1 && (i == 0 || at->from == 0);
            at->from = at->from + leading < at->to ? at->from + leading : at->to;
        }
        if (trailing > 0 && at->to >= trailing)
            at->to = at->to - trailing > at->from ? at->to - trailing : at->from;
    }
}

const char *ah_tokenizer_token(const struct ah_tokenizer *tokenizer, int64_t id, size_t *length)
{
    const char *text = ah_vocabulary_text(&tokenizer->shown, id, length);
    return text ? text : ah_vocabulary_text(&tokenizer->model.whole, id, length);
}

int32_t ah_tokenizer_id(const struct ah_tokenizer *tokenizer, const char *text, size_t length)
{
    int32_t id = ah_vocabulary_id(&tokenizer->added, text, length);
    return id >= 0 ? id : ah_vocabulary_id(&tokenizer->model.whole, text, length);
}

bool ah_tokenizer_is_special(const struct ah_tokenizer *tokenizer, int64_t id)
{
    return id >= 0 && (uint64_t)id < tokenizer->specials && tokenizer->is_special[id];
}

void ah_tokenizer_close(struct ah_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (struct ah_encoder *encoder = tokenizer->idle, *next; encoder; encoder = next) {
        next = encoder->next;
        encoder_close(encoder);
    }
    ah_model_close(&tokenizer->model);
    ah_added_close(&tokenizer->raw);
    ah_added_close(&tokenizer->normalized);
    ah_vocabulary_close(&tokenizer->added);
    ah_vocabulary_close(&tokenizer->shown);
    free(tokenizer->is_special);
    free(tokenizer->single.item);
    free(tokenizer->pair.item);
    for (int i = 0; i < tokenizer->normalizers; i++)
        ah_normalizer_close(&tokenizer->normalizer[i]);
    for (int i = 0; i < tokenizer->splitters; i++)
        ah_splitter_close(&tokenizer->splitter[i]);
    for (int i = 0; i < tokenizer->decoders; i++)
        ah_decoder_close(&tokenizer->decoder[i]);
    pthread_mutex_destroy(&tokenizer->lock);
    free(tokenizer);
}
