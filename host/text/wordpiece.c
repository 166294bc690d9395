/* WordPiece: the longest text of the vocabulary that the rest of the word begins with, again and again. */
#include <string.h>

#include "base/status/status.h"
#include "text/model.h"

static bool is_boundary(const char *word, size_t length, size_t at)
{
    return at == length || ((unsigned char)word[at] & 0xC0) != 0x80;
}

/* Find the longest text of `v` that begins at `begin`: its id and end, -1 when there is none. */
static int32_t wordpiece_longest(const struct ah_vocabulary *v, const char *word, size_t length, size_t begin,
                                 size_t *end)
{
    uint64_t hash = AH_HASH_START;
    int32_t best = -1;
    size_t last = length - begin > v->longest ? begin + v->longest : length;
    for (size_t at = begin; at < last; at++) {
        hash = ah_hash_byte(hash, (unsigned char)word[at]);
        if (!is_boundary(word, length, at + 1))
            continue;
        int32_t id = ah_vocabulary_find(v, hash, word + begin, at + 1 - begin);
        if (id >= 0) {
            best = id;
            *end = at + 1;
        }
    }
    return best;
}

int ah_wordpiece(const struct ah_model *model, const char *word, size_t length, size_t characters,
                 struct ah_pieces *out)
{
    size_t first = out->count, end = 0;
    if ((int64_t)characters > model->most_characters)
        return ah_pieces_push(out, model->unknown, 0, length);
    for (size_t begin = 0; begin < length; begin = end) {
        int32_t id = wordpiece_longest(begin ? &model->inner : &model->whole, word, length, begin, &end);
        if (id < 0) {
            out->count = first;
            return ah_pieces_push(out, model->unknown, 0, length);
        }
        AH_TRY(ah_pieces_push(out, id, begin, end));
    }
    return 0;
}
