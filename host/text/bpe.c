/* Byte pair encoding: of all neighbours the pair with the lowest rank is joined, the leftmost first, until no pair has
 * one. Symbols form a list; pairs wait in a heap by rank and place, and a removed one is ignored when its symbols have
 * changed meanwhile: n log n for a word of n symbols. */
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "text/model.h"
#include "text/unicode.h"

struct ah_bpe_symbol {
    int32_t id;          /* -1: joined to its left neighbour */
    int32_t left, right; /* -1 at the ends */
    uint32_t begin, end; /* bytes */
};

struct ah_bpe_candidate {
    uint32_t rank;
    int32_t at, left, right; /* left symbol's place, ids of both */
    int32_t id;
};

static bool bpe_before(const struct ah_bpe_candidate *a, const struct ah_bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int bpe_offer(const struct ah_model *model, struct ah_bpe_work *work, int32_t at)
{
    const struct ah_bpe_symbol *symbol = work->symbol;
    if (at < 0 || symbol[at].right < 0)
        return 0;
    int32_t left = symbol[at].id, right = symbol[symbol[at].right].id;
    const struct ah_merge *merge = ah_model_merge(model, left, right);
    if (!merge)
        return 0;
    AH_TRY(ah_grow(&work->heap, work->count + 1, &work->heap_room, sizeof *work->heap));
    struct ah_bpe_candidate new = {merge->rank, at, left, right, merge->id}, *heap = work->heap;
    size_t i = work->count++;
    for (; i > 0 && bpe_before(&new, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = new;
    return 0;
}

static struct ah_bpe_candidate bpe_take(struct ah_bpe_work *work)
{
    struct ah_bpe_candidate *heap = work->heap, top = heap[0], last = heap[--work->count];
    size_t i = 0;
    for (size_t child = 1; child < work->count; child = 2 * i + 1) {
        child += child + 1 < work->count && bpe_before(&heap[child + 1], &heap[child]);
        if (!bpe_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static int merge_all(const struct ah_model *model, struct ah_bpe_work *work)
{
    struct ah_bpe_symbol *symbol = work->symbol;
    work->count = 0;
    for (size_t i = 0; i < work->symbols; i++)
        AH_TRY(bpe_offer(model, work, (int32_t)i));
    while (work->count > 0) {
        struct ah_bpe_candidate top = bpe_take(work);
        struct ah_bpe_symbol *left = &symbol[top.at];
        if (left->id != top.left || left->right < 0 || symbol[left->right].id != top.right)
            continue;
        struct ah_bpe_symbol *right = &symbol[left->right];
        left->id = top.id;
        left->end = right->end;
        left->right = right->right;
        right->id = -1;
        if (left->right >= 0)
            symbol[left->right].left = top.at;
        AH_TRY(bpe_offer(model, work, left->left));
        AH_TRY(bpe_offer(model, work, top.at));
    }
    return 0;
}

static void bpe_push(struct ah_bpe_work *work, int32_t id, size_t begin, size_t end)
{
    work->symbol[work->symbols++] =
        (struct ah_bpe_symbol){.id = id, .begin = (uint32_t)begin, .end = (uint32_t)end};
}

/* The symbols of a word of byte level. A byte that the vocabulary does not have becomes the unknown id, or is left
 * out. */
static void bpe_bytes(const struct ah_model *model, struct ah_bpe_work *work, const char *word, size_t length)
{
    bool was_unknown = false;
    for (size_t i = 0; i < length; i++) {
        int32_t id = model->byte_id[(unsigned char)word[i]];
        bool unknown = id < 0;
        if (unknown && was_unknown && model->fuse_unknown && work->symbols)
            work->symbol[work->symbols - 1].end = (uint32_t)i + 1;
        else if (!unknown || model->unknown >= 0)
            bpe_push(work, unknown ? model->unknown : id, i, i + 1);
        was_unknown = unknown;
    }
}

/* Append the bytes of an unknown character as symbols, if the vocabulary has them all. */
static bool bpe_fall_back(const struct ah_model *model, struct ah_bpe_work *work, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (model->fallback[(unsigned char)text[i]] < 0)
            return false;
    for (size_t i = 0; i < length; i++, work->bytes++)
        bpe_push(work, model->fallback[(unsigned char)text[i]], work->bytes, work->bytes + 1);
    return true;
}

/* Append the unknown characters that are held back, of `bytes` bytes. */
static void bpe_push_unknown(const struct ah_model *model, struct ah_bpe_work *work, size_t *bytes)
{
    if (*bytes > 0)
        bpe_push(work, model->unknown, work->bytes, work->bytes + *bytes);
    work->bytes += *bytes;
    *bytes = 0;
}

/* The symbols of a word of characters. As in the tokenizers package unknown characters are held back until the next one
 * of the vocabulary, also past characters that become bytes, and each symbol begins where the one before ends. */
static void bpe_characters(const struct ah_model *model, struct ah_bpe_work *work, const char *word, size_t length)
{
    size_t held = 0;
    work->bytes = 0;
    for (size_t at = 0; at < length;) {
        size_t begin = at++;
        while (at < length && ((unsigned char)word[at] & 0xC0) == 0x80)
            at++;
        int32_t id = ah_vocabulary_id(&model->whole, word + begin, at - begin);
        if (id >= 0) {
            bpe_push_unknown(model, work, &held);
            bpe_push(work, id, work->bytes, work->bytes + at - begin);
            work->bytes += at - begin;
        } else if (!(model->byte_fallback && bpe_fall_back(model, work, word + begin, at - begin)) &&
                   model->unknown >= 0) {
            if (!model->fuse_unknown)
                bpe_push_unknown(model, work, &held);
            held += at - begin;
        }
    }
    bpe_push_unknown(model, work, &held);
}

static int begin_word(const struct ah_model *model, struct ah_bpe_work *work, const char *word, size_t length)
{
    work->symbols = 0;
    AH_TRY(ah_grow(&work->symbol, length, &work->symbol_room, sizeof *work->symbol));
    (model->byte_level ? bpe_bytes : bpe_characters)(model, work, word, length);
    for (size_t i = 0; i < work->symbols; i++) {
        work->symbol[i].left = (int32_t)i - 1;
        work->symbol[i].right = i + 1 < work->symbols ? (int32_t)i + 1 : -1;
    }
    return 0;
}

/* The id of the word as a whole, -1 when it has none. */
static int whole_word(const struct ah_model *model, struct ah_bpe_work *work, const char *word, size_t length,
                      int32_t *id)
{
    *id = -1;
    if (!model->byte_level) {
        *id = ah_vocabulary_id(&model->whole, word, length);
        return 0;
    }
    AH_TRY(ah_grow(&work->mapped, 2 * length, &work->mapped_room, 1));
    size_t bytes = 0;
    for (size_t i = 0; i < length; i++) /* none of these characters has more than two bytes */
        bytes += (size_t)ah_utf8_put(ah_byte_character((unsigned char)word[i]), (unsigned char *)work->mapped + bytes);
    *id = ah_vocabulary_id(&model->whole, work->mapped, bytes);
    return 0;
}

int ah_bpe(const struct ah_model *model, struct ah_bpe_work *work, const char *word, size_t length,
           struct ah_pieces *out)
{
    if (model->ignore_merges) {
        int32_t id;
        AH_TRY(whole_word(model, work, word, length, &id));
        if (id >= 0)
            return ah_pieces_push(out, id, 0, length);
    }
    AH_TRY(begin_word(model, work, word, length));
    AH_TRY(merge_all(model, work));
    for (int32_t i = work->symbols ? 0 : -1; i >= 0; i = work->symbol[i].right)
        AH_TRY(ah_pieces_push(out, work->symbol[i].id, work->symbol[i].begin, work->symbol[i].end));
    return 0;
}

void ah_bpe_close(struct ah_bpe_work *work)
{
    free(work->symbol);
    free(work->heap);
    free(work->mapped);
    *work = (struct ah_bpe_work){0};
}

uint32_t ah_byte_character(unsigned char byte)
{
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0)
        return 0x121u + (byte - 0x7Fu);
    return byte == 0xAD ? 0x143u : byte;
}

int ah_character_byte(uint32_t c)
{
    if (c < 0x100)
        return ah_byte_character((unsigned char)c) == c ? (int)c : -1;
    if (c <= 0x120)
        return (int)(c - 0x100);
    if (c <= 0x142)
        return (int)(c - 0x121 + 0x7F);
    return c == 0x143 ? 0xAD : -1;
}
