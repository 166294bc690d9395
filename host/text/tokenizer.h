/* A tokenizer: normalizers, splitters, a model, added tokens, a template, a decoder, configured by a tokenizer.json.
 *
 * After ah_tokenizer_read it is not changed and any thread may encode with it, each with an encoder, which is
 * workspace. Results do not depend on the encoder. */
#pragma once

#include <pthread.h>

#include "text/added.h"
#include "text/decoder.h"
#include "text/encoding.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/splitter.h"

#define AH_TOKENIZER_STEPS 16

struct ah_encoder;

struct ah_tokenizer {
    struct ah_normalizer normalizer[AH_TOKENIZER_STEPS];
    struct ah_splitter splitter[AH_TOKENIZER_STEPS];
    int normalizers, splitters;
    struct ah_model model;
    struct ah_added_list raw, normalized; /* added tokens by the text in which they are searched for */
    struct ah_vocabulary added, shown;    /* ids of all of them by text, and by id their texts, normalized */
    bool *is_special;                     /* by id, for ids below `specials` */
    size_t specials;
    struct ah_template single, pair;
    bool trim_offsets, trims_prefix;
    struct ah_decoder decoder[AH_TOKENIZER_STEPS];
    int decoders; /* 0: tokens with blanks between them */
    pthread_mutex_t lock;
    struct ah_encoder *idle;
};

/* Read a tokenizer.json. AH_EINVAL: the text names the invalid or unsupported part. */
int ah_tokenizer_read(struct ah_tokenizer **out, const char *json, size_t bytes);
void ah_tokenizer_close(struct ah_tokenizer *tokenizer);

/* Return an idle encoder or a new one, with its cache of words; the caller must return it. */
int ah_encoder_take(struct ah_tokenizer *tokenizer, struct ah_encoder **out);
void ah_encoder_give(struct ah_tokenizer *tokenizer, struct ah_encoder *encoder);

/* Append the tokens of one text, without special tokens of the template; bytes that are no UTF-8 count as U+FFFD. */
int ah_tokenizer_encode(const struct ah_tokenizer *tokenizer, struct ah_encoder *encoder, const char *text,
                        size_t bytes, struct ah_encoding *out);

/* Exclude blanks at the ends of byte-level tokens from their ranges, when the template has that option. */
void ah_tokenizer_trim(const struct ah_tokenizer *tokenizer, struct ah_encoding *encoding);

/* Text of an id and id of a text, of an added token or of the vocabulary; NULL or -1 when there is none. */
const char *ah_tokenizer_token(const struct ah_tokenizer *tokenizer, int64_t id, size_t *length);
int32_t ah_tokenizer_id(const struct ah_tokenizer *tokenizer, const char *text, size_t length);
bool ah_tokenizer_is_special(const struct ah_tokenizer *tokenizer, int64_t id);

/* The text of ids into memory from malloc; ids without a token are passed over. */
int ah_tokenizer_decode(const struct ah_tokenizer *tokenizer, const int64_t *ids, size_t count, bool skip_special,
                        char **text, size_t *bytes);
