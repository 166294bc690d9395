/* Parts of reading a tokenizer.json, which is jansson's tree by then. Errors name the section. */
#pragma once

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

/* A section whose objects are steps of several types. */
struct ah_load_type {
    const char *name;
    int kind;                                     /* AH_LOAD_SEQUENCE: the list `sequence` has the steps */
    int (*load)(void *step, const json_t *value); /* reads the options; NULL: there are none */
};
#define AH_LOAD_SEQUENCE (-1)
struct ah_load_section {
    const char *what;     /* in errors */
    const char *sequence; /* field of a Sequence */
    /* Add a step, which the tokenizer owns and closes after a failure too. */
    int (*add)(struct ah_tokenizer *tokenizer, int kind, void **step);
    const struct ah_load_type *types; /* NULL-ended */
};
/* Read an object of a section; AH_EINVAL names the types if its own is another one. */
int ah_load_steps(struct ah_tokenizer *tokenizer, const json_t *value, const struct ah_load_section *section);
