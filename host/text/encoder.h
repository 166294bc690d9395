/* Workspace of one encoding thread (text/tokenizer.h): that of text/tokenizer.c, and the rows of a batch
 * (text/batch.c). */
#pragma once

#include "text/tokenizer.h"

/* Words that are short are remembered with their pieces. */
#define AH_SHORT_WORD 23
#define AH_SHORT_PIECES 8

struct ah_remembered {
    uint8_t length, pieces; /* length 0: nothing here */
    char word[AH_SHORT_WORD];
    uint8_t end[AH_SHORT_PIECES];
    int32_t id[AH_SHORT_PIECES];
};

/* Tokens [from, from + count) of `made`, of text `text`. */
struct ah_encoder_row {
    size_t from, count, text;
};

struct ah_encoder {
    struct ah_chars source, part, words_text, spare;
    struct ah_spans words;
    struct ah_split_work split;
    struct ah_pieces pieces;
    struct ah_bpe_work bpe;
    struct ah_unigram_work unigram;
    char *bytes;     /* of a word */
    uint32_t *owner; /* the character that each of them belongs to, from the word's first */
    size_t bytes_room, owner_room;
    struct ah_remembered *memory;
    struct ah_encoder *next;
    /* Of a batch: the tokens of a text and its pair, the pieces of the current row, and the rows from text `begin`
     * on. */
    struct ah_encoding part_of[2], piece[2], made;
    struct ah_encoder_row *row;
    size_t rows, row_room, begin;
};
