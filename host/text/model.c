/* Functions for all models: pieces, the table of merges, memory. */
#include "text/model.h"

#include <stdlib.h>

#include "base/memory/array.h"
#include "base/status/status.h"

int ah_pieces_push(struct ah_pieces *pieces, int32_t id, size_t begin, size_t end)
{
    AH_TRY(ah_grow(&pieces->at, pieces->count + 1, &pieces->room, sizeof *pieces->at));
    pieces->at[pieces->count++] = (struct ah_piece){id, (uint32_t)begin, (uint32_t)end};
    return 0;
}

static size_t slot_of(const struct ah_merge *merge, size_t slots, uint64_t pair)
{
    size_t slot = (pair * 0x9E3779B97F4A7C15u >> 32) & (slots - 1);
    while (merge[slot].pair != UINT64_MAX && merge[slot].pair != pair)
        slot = (slot + 1) & (slots - 1);
    return slot;
}

static int model_widen(struct ah_model *model)
{
    if (2 * (model->merges + 1) <= model->merge_slots)
        return 0;
    size_t slots = model->merge_slots ? 2 * model->merge_slots : 64;
    struct ah_merge *merge = malloc(slots * sizeof *merge);
    AH_TRY_MEMORY(merge, "out of memory");
    for (size_t i = 0; i < slots; i++)
        merge[i].pair = UINT64_MAX;
    for (size_t i = 0; i < model->merge_slots; i++) {
        if (model->merge[i].pair != UINT64_MAX)
            merge[slot_of(merge, slots, model->merge[i].pair)] = model->merge[i];
    }
    free(model->merge);
    model->merge = merge;
    model->merge_slots = slots;
    return 0;
}

int ah_model_add_merge(struct ah_model *model, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    AH_TRY(model_widen(model));
    struct ah_merge *merge = &model->merge[slot_of(model->merge, model->merge_slots, pair)];
    model->merges += merge->pair == UINT64_MAX;
    *merge = (struct ah_merge){pair, rank, id};
    return 0;
}

const struct ah_merge *ah_model_merge(const struct ah_model *model, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (model->merge_slots == 0)
        return NULL;
    const struct ah_merge *merge = &model->merge[slot_of(model->merge, model->merge_slots, pair)];
    return merge->pair == pair ? merge : NULL;
}

void ah_model_close(struct ah_model *model)
{
    ah_vocabulary_close(&model->whole);
    ah_vocabulary_close(&model->inner);
    free(model->prefix);
    free(model->merge);
    free(model->score);
    *model = (struct ah_model){0};
}
