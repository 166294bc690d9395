/* Unigram: of all ways to cut a word into texts of the vocabulary, the one with the highest sum of scores, by Viterbi's
 * algorithm. A character that is no text of the vocabulary scores 10 less than the lowest score; neighbours of that
 * kind are one token. */
#include <stdlib.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/model.h"

/* The best way to a byte of the word: its last text, from `begin`. */
struct ah_unigram_node {
    double score;
    int32_t id;
    uint32_t begin; /* UINT32_MAX: no way yet */
};

/* Difference of an unknown character's score from the lowest of the vocabulary. */
static const double unknown_penalty = 10;

static size_t unigram_next(const char *word, size_t length, size_t at)
{
    do
        at++;
    while (at < length && ((unsigned char)word[at] & 0xC0) == 0x80);
    return at;
}

static void unigram_offer(struct ah_unigram_node *node, double score, int32_t id, size_t begin)
{
    if (node->begin == UINT32_MAX || score > node->score)
        *node = (struct ah_unigram_node){score, id, (uint32_t)begin};
}

/* Offer all texts that begin at `begin`; is the character there one of them? */
static bool unigram_extend(const struct ah_model *model, struct ah_unigram_node *node, const char *word,
                           size_t length, size_t begin)
{
    const struct ah_vocabulary *v = &model->whole;
    size_t last = length - begin > v->longest ? begin + v->longest : length, first = 0;
    uint64_t hash = AH_HASH_START;
    double score = node[begin].score;
    bool alone = false;
    for (size_t at = begin, stop; at < last; at = stop) {
        stop = unigram_next(word, length, at);
        for (size_t i = at; i < stop; i++)
            hash = ah_hash_byte(hash, (unsigned char)word[i]);
        first = first ? first : stop;
        int32_t id = ah_vocabulary_find(v, hash, word + begin, stop - begin);
        if (id < 0)
            continue;
        unigram_offer(&node[stop], model->score[id] + score, id, begin);
        alone = alone || stop == first;
    }
    return alone;
}

static int unigram_nodes(const struct ah_model *model, struct ah_unigram_work *work, const char *word, size_t length)
{
    AH_TRY(ah_grow(&work->node, length + 1, &work->room, sizeof *work->node));
    struct ah_unigram_node *node = work->node;
    for (size_t i = 0; i <= length; i++)
        node[i] = (struct ah_unigram_node){0, -1, UINT32_MAX};
    for (size_t at = 0, next; at < length; at = next) {
        next = unigram_next(word, length, at);
        if (unigram_extend(model, node, word, length, at))
            continue;
        if (model->unknown < 0)
            return ah_fail(AH_EINVAL, "Unigram: '%.*s' is not in the vocabulary, and there is no unk_id",
                           (int)(next - at), word + at);
        unigram_offer(&node[next], model->lowest - unknown_penalty + node[at].score, model->unknown, at);
    }
    return 0;
}

/* Collect the best way's texts from the last to the first, neighbouring unknown ones as one. */
static int unigram_collect(const struct ah_model *model, struct ah_unigram_work *work, size_t length)
{
    const struct ah_unigram_node *node = work->node;
    struct ah_pieces *parts = &work->parts;
    parts->count = 0;
    for (size_t end = length; end > 0; end = node[end].begin) {
        bool unknown = node[end].id == model->unknown;
        if (unknown && parts->count > 0 && parts->at[parts->count - 1].id == model->unknown)
            parts->at[parts->count - 1].begin = node[end].begin;
        else
            AH_TRY(ah_pieces_push(parts, node[end].id, node[end].begin, end));
    }
    return 0;
}

/* Append an unknown text: its bytes as tokens, or the unknown id. */
static int unigram_unknown(const struct ah_model *model, const char *word, size_t begin, size_t end,
                           struct ah_pieces *out)
{
    size_t first = out->count;
    for (size_t i = begin; model->byte_fallback && i < end; i++) {
        int32_t id = model->fallback[(unsigned char)word[i]];
        if (id < 0) {
            out->count = first;
            break;
        }
        AH_TRY(ah_pieces_push(out, id, begin, end));
    }
    return out->count > first ? 0 : ah_pieces_push(out, model->unknown, begin, end);
}

int ah_unigram(const struct ah_model *model, struct ah_unigram_work *work, const char *word, size_t length,
               struct ah_pieces *out)
{
    AH_TRY(unigram_nodes(model, work, word, length));
    AH_TRY(unigram_collect(model, work, length));
    for (size_t i = work->parts.count; i > 0; i--) {
        struct ah_piece part = work->parts.at[i - 1];
        int32_t id = part.id;
        if (id == model->unknown) /* several as one may be a text again */
            id = ah_vocabulary_id(&model->whole, word + part.begin, part.end - part.begin);
        AH_TRY(id >= 0 ? ah_pieces_push(out, id, part.begin, part.end)
                       : unigram_unknown(model, word, part.begin, part.end, out));
    }
    return 0;
}

void ah_unigram_close(struct ah_unigram_work *work)
{
    free(work->node);
    free(work->parts.at);
    *work = (struct ah_unigram_work){0};
}
