/* Places are found by halving. */
#include "cuda/blocks.h"

#include <string.h>

#include "base/array.h"

static int compare(const struct ah_cuda_block *a, const struct ah_cuda_block *b)
{
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

size_t ah_cuda_blocks_place(const struct ah_cuda_blocks *list, const struct ah_cuda_block *block)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare(list->at[middle], block) < 0)
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
