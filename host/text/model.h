/* Models: split a word into ids of the vocabulary.
 *
 * A model is not changed after it is loaded, so any thread may use it, each with its own workspace. */
#pragma once

#include <stdbool.h>

#include "text/vocabulary.h"

/* A part of a word: bytes [begin, end). */
struct ah_piece {
    int32_t id;
    uint32_t begin, end;
};

struct ah_pieces {
    struct ah_piece *at;
    size_t count, room;
};

/* Append a piece. */
int ah_pieces_push(struct ah_pieces *pieces, int32_t id, size_t begin, size_t end);

struct ah_merge {
    uint64_t pair; /* of ids, left in the high half; ~0 where the slot is empty */
    uint32_t rank;
    int32_t id;
};

enum ah_model_kind { AH_MODEL_WORDPIECE, AH_MODEL_BPE, AH_MODEL_UNIGRAM };

struct ah_model {
    enum ah_model_kind kind;
    struct ah_vocabulary whole; /* all texts of the vocabulary */
    int32_t unknown;            /* an id, -1 when there is none */
    /* WordPiece */
    struct ah_vocabulary inner; /* texts of pieces inside of words, without their prefix */
    char *prefix;
    int64_t most_characters;
    /* BPE */
    bool byte_level, fuse_unknown, ignore_merges;
    int32_t byte_id[256]; /* of the characters of the byte level */
    struct ah_merge *merge;
    size_t merges, merge_slots;
    /* Unigram */
    double *score; /* by id */
    double lowest;
    /* BPE and Unigram: the ids of the bytes of unknown characters, as "<0x0A>"; -1 where there is none */
    bool byte_fallback;
    int32_t fallback[256];
};

/* Memory of one thread for BPE. */
struct ah_bpe_work {
    struct ah_bpe_symbol *symbol;
    struct ah_bpe_candidate *heap;
    char *mapped;
    size_t symbols, symbol_room, bytes, count, heap_room, mapped_room;
};

/* Memory of one thread for Unigram. */
struct ah_unigram_work {
    struct ah_unigram_node *node;
    size_t room;
    struct ah_pieces parts;
};

/* Append the pieces of a word of `characters` characters; an unknown word is the unknown id. A word must be UTF-8 and
 * not empty. */
int ah_wordpiece(const struct ah_model *model, const char *word, size_t length, size_t characters,
                 struct ah_pieces *out);
int ah_bpe(const struct ah_model *model, struct ah_bpe_work *work, const char *word, size_t length,
           struct ah_pieces *out);
void ah_bpe_close(struct ah_bpe_work *work);
int ah_unigram(const struct ah_model *model, struct ah_unigram_work *work, const char *word, size_t length,
               struct ah_pieces *out);
void ah_unigram_close(struct ah_unigram_work *work);

/* Let two ids be joined to `id`; the lower the rank, the earlier. A pair that is there already gets the new rank. */
int ah_model_add_merge(struct ah_model *model, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* Return the merge of two ids, NULL when there is none. */
const struct ah_merge *ah_model_merge(const struct ah_model *model, int32_t left, int32_t right);

/* Convert a byte to its character in vocabularies of byte level, and back (-1: no byte's character). */
uint32_t ah_byte_character(unsigned char byte);
int ah_character_byte(uint32_t c);

void ah_model_close(struct ah_model *model);
