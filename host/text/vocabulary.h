/* Texts and their numbers: a hash from text to id, and the text of each id. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Ids are below this. */
#define AH_VOCABULARY_IDS (1 << 24)

struct ah_vocabulary_entry {
    uint64_t hash;
    size_t at;
    uint32_t length;
    int32_t id;
};

struct ah_vocabulary {
    struct ah_vocabulary_entry *entry;
    size_t count, room;
    char *text;
    size_t bytes, text_room;
    uint32_t *slot; /* entry + 1 by hash, 0 where empty */
    size_t slots;
    int32_t *name; /* entry by id, -1 where none; of the first text that an id got */
    size_t ids, name_room;
    uint32_t longest;
};

/* Initial value of a text's hash, which is updated byte by byte, so that one pass computes those of all prefixes. */
#define AH_HASH_START 0xCBF29CE484222325u
static inline uint64_t ah_hash_byte(uint64_t hash, unsigned char byte)
{
    hash = (hash ^ byte) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}
uint64_t ah_hash_text(const char *text, size_t length);

/* A text that is there already gets the new id. AH_EINVAL when the id is out of range. */
int ah_vocabulary_add(struct ah_vocabulary *vocabulary, const char *text, size_t length, int64_t id);

/* The id of a text, -1 when it is not there; `hash` is the text's. */
int32_t ah_vocabulary_find(const struct ah_vocabulary *vocabulary, uint64_t hash, const char *text, size_t length);
int32_t ah_vocabulary_id(const struct ah_vocabulary *vocabulary, const char *text, size_t length);

/* The text of an id, NULL when there is none; it lives until the next text is added. */
const char *ah_vocabulary_text(const struct ah_vocabulary *vocabulary, int64_t id, size_t *length);

void ah_vocabulary_close(struct ah_vocabulary *vocabulary);
