/* Open addressing at most half full; texts are stored one after the other in one block. */
#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/status/status.h"

uint64_t ah_hash_text(const char *text, size_t length)
{
    uint64_t hash = AH_HASH_START;
    for (size_t i = 0; i < length; i++)
        hash = ah_hash_byte(hash, (unsigned char)text[i]);
    return hash;
}

/* The slot of a text: its entry's, or the empty one where it would go. */
static size_t vocabulary_place(const struct ah_vocabulary *v, uint64_t hash, const char *text, size_t length)
{
    size_t slot = hash & (v->slots - 1);
    for (; v->slot[slot]; slot = (slot + 1) & (v->slots - 1)) {
        const struct ah_vocabulary_entry *entry = &v->entry[v->slot[slot] - 1];
        if (entry->hash == hash && entry->length == length && memcmp(v->text + entry->at, text, length) == 0)
            break;
    }
    return slot;
}

static int vocabulary_widen(struct ah_vocabulary *v)
{
    if (2 * (v->count + 1) <= v->slots)
        return 0;
    size_t slots = v->slots ? 2 * v->slots : 64;
    uint32_t *slot = calloc(slots, sizeof *slot);
    AH_TRY_MEMORY(slot, "out of memory");
    for (size_t i = 0; i < v->count; i++) {
        size_t at = v->entry[i].hash & (slots - 1);
        while (slot[at])
            at = (at + 1) & (slots - 1);
        slot[at] = (uint32_t)i + 1;
    }
    free(v->slot);
    v->slot = slot;
    v->slots = slots;
    return 0;
}

static int name_id(struct ah_vocabulary *v, int32_t id, size_t entry)
{
    AH_TRY(ah_grow(&v->name, (size_t)id + 1, &v->name_room, sizeof *v->name));
    for (; v->ids <= (size_t)id; v->ids++)
        v->name[v->ids] = -1;
    if (v->name[id] < 0)
        v->name[id] = (int32_t)entry;
    return 0;
}

int ah_vocabulary_add(struct ah_vocabulary *v, const char *text, size_t length, int64_t id)
{
    uint64_t hash = ah_hash_text(text, length);
    if (id < 0 || id >= AH_VOCABULARY_IDS)
        return ah_fail(AH_EINVAL, "the id %lld of '%.*s' is not in 0 to %d", (long long)id,
                       (int)(length < 40 ? length : 40), text, AH_VOCABULARY_IDS - 1);
    AH_TRY(vocabulary_widen(v));
    size_t slot = vocabulary_place(v, hash, text, length);
    if (v->slot[slot]) {
        v->entry[v->slot[slot] - 1].id = (int32_t)id;
        return name_id(v, (int32_t)id, v->slot[slot] - 1);
    }
    AH_TRY(ah_grow(&v->entry, v->count + 1, &v->room, sizeof *v->entry));
    AH_TRY(ah_grow(&v->text, v->bytes + length + 1, &v->text_room, 1));
    AH_TRY(name_id(v, (int32_t)id, v->count));
    memcpy(v->text + v->bytes, text, length);
    v->text[v->bytes + length] = 0;
    v->entry[v->count] = (struct ah_vocabulary_entry){hash, v->bytes, (uint32_t)length, (int32_t)id};
    v->bytes += length + 1;
    v->slot[slot] = (uint32_t)++v->count;
    v->longest = length > v->longest ? (uint32_t)length : v->longest;
    return 0;
}

int32_t ah_vocabulary_find(const struct ah_vocabulary *v, uint64_t hash, const char *text, size_t length)
{
    if (v->slots == 0)
        return -1;
    uint32_t found = v->slot[vocabulary_place(v, hash, text, length)];
    return found ? v->entry[found - 1].id : -1;
}

int32_t ah_vocabulary_id(const struct ah_vocabulary *v, const char *text, size_t length)
{
    return ah_vocabulary_find(v, ah_hash_text(text, length), text, length);
}

const char *ah_vocabulary_text(const struct ah_vocabulary *v, int64_t id, size_t *length)
{
    if (id < 0 || (uint64_t)id >= v->ids || v->name[id] < 0)
        return NULL;
    const struct ah_vocabulary_entry *entry = &v->entry[v->name[id]];
    *length = entry->length;
    return v->text + entry->at;
}

void ah_vocabulary_close(struct ah_vocabulary *v)
{
    free(v->entry);
    free(v->text);
    free(v->slot);
    free(v->name);
    *v = (struct ah_vocabulary){0};
}
