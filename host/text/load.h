/* Parts of reading a tokenizer.json, which is jansson's tree by then. Errors name the section. */
#ifndef AH_TEXT_LOAD_H
#define AH_TEXT_LOAD_H

#include <jansson.h>

#include "text/tokenizer.h"

/* One step or, by the type Sequence, several. */
int ah_load_normalizer(struct ah_tokenizer *tokenizer, const json_t *value);
int ah_load_splitter(struct ah_tokenizer *tokenizer, const json_t *value);
int ah_load_model(struct ah_model *model, const json_t *value);
/* After the model, which has the ids of special tokens. */
int ah_load_post_processor(struct ah_tokenizer *tokenizer, const json_t *value);
int ah_load_decoder(struct ah_tokenizer *tokenizer, const json_t *value);
/* After model and normalizer. */
int ah_load_added(struct ah_tokenizer *tokenizer, const json_t *value);

/* A field that must be true or false where it is there and not null. */
int ah_load_flag(const json_t *object, const char *what, const char *name, bool fallback, bool *out);
/* A text, NULL where it is absent or null. */
int ah_load_text(const json_t *object, const char *what, const char *name, const char **out);

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
