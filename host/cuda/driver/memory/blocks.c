/* Places are found by halving. */
#include "cuda/driver/memory/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"

static int blocks_compare(const struct ah_cuda_block *a, const struct ah_cuda_block *b)
{
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

bool ah_cuda_block_is_spare(const struct ah_cuda_block *block)
{
    return block && !block->used && block->streams == 0 && !block->hole;
}

struct ah_cuda_block *ah_cuda_block_split(struct ah_cuda_block *block, size_t bytes)
{
    struct ah_cuda_block *after = calloc(1, sizeof *after);
    if (!after)
        return NULL;
    *after = (struct ah_cuda_block){.at = block->at + bytes, .bytes = block->bytes - bytes, .small = block->small,
                                    .pool = block->pool, .before = block, .after = block->after};
    if (after->after)
        after->after->before = after;
    block->after = after;
    block->bytes = bytes;
    return after;
}

void ah_cuda_block_join(struct ah_cuda_block *block)
{
    struct ah_cuda_block *after = block->after;
    block->bytes += after->bytes;
    block->after = after->after;
    if (block->after)
        block->after->before = block;
    free(after);
}

size_t ah_cuda_blocks_place(const struct ah_cuda_blocks *list, const struct ah_cuda_block *block)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks_compare(list->at[middle], block) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int ah_cuda_blocks_room(struct ah_cuda_blocks *list)
{
    return ah_grow(&list->at, list->count + 1, &list->room, sizeof list->at[0]);
}

void ah_cuda_blocks_insert(struct ah_cuda_blocks *list, size_t place, struct ah_cuda_block *block)
{
    memmove(list->at + place + 1, list->at + place, (list->count - place) * sizeof list->at[0]);
    list->at[place] = block;
    list->count++;
}

struct ah_cuda_block *ah_cuda_blocks_take_out(struct ah_cuda_blocks *list, size_t place)
{
    struct ah_cuda_block *block = list->at[place];
    list->count--;
    memmove(list->at + place, list->at + place + 1, (list->count - place) * sizeof list->at[0]);
    return block;
}
