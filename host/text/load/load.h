/* Parts of reading a tokenizer.json, which is jansson's tree by then. Errors name the section. */
#ifndef AH_TEXT_LOAD_H
#define AH_TEXT_LOAD_H

#include <jansson.h>

#include "text/tokenizer.h"

/* One step or, by the type Sequence, several. */
int ah_load_normalizer(struct ah_tokenizer *tokenizer, const json_t *value);
int ah_load_splitter(struct ah_tokenizer *tokenizer, const json_t *value);
int ah_load_model(struct ah_model *model, const json_t *value);
int ah_load_unigram(struct ah_model *model, const json_t *value);
/* The ids of <0x00> to <0xFF>, of a model with byte_fallback. */
void ah_load_fallback(struct ah_model *model);
/* After the model, which has the ids of special tokens. */
int ah_load_post_processor(struct ah_tokenizer *tokenizer, const json_t *value);
int ah_load_decoder(struct ah_tokenizer *tokenizer, const json_t *value);
/* After model and normalizer. */
int ah_load_added(struct ah_tokenizer *tokenizer, const json_t *value);

/* A field that must be true or false where it is there and not null. */
int ah_load_flag(const json_t *object, const char *what, const char *name, bool fallback, bool *out);
/* A text, NULL where it is absent or null. */
int ah_load_text(const json_t *object, const char *what, const char *name, const char **out);

/* The field "pattern": a String or a Regex. */
int ah_load_pattern(const json_t *object, const char *what, struct ah_pattern *pattern);
/* A text of one character. */
int ah_load_character(const json_t *object, const char *what, const char *name, const char *fallback, uint32_t *out);
/* The field "prepend_scheme" of Metaspace, or the older "add_prefix_space". */
#define AH_METASPACE "\xE2\x96\x81"
int ah_load_prepend(const json_t *value, const char *what, enum ah_split_prepend *out);

/* Reader of an object by its "type": AH_EINVAL names types that are not in the table. */
struct ah_load_type {
    const char *name;
    int (*load)(struct ah_tokenizer *tokenizer, const json_t *value);
};
int ah_load_by_type(struct ah_tokenizer *tokenizer, const json_t *value, const char *what,
                    const struct ah_load_type *types);
/* The same for each item of the array `name` in `value`. */
int ah_load_each(struct ah_tokenizer *tokenizer, const json_t *value, const char *what, const char *name,
                 const struct ah_load_type *types);

#endif
