/* The error of a device without memory: the live blocks, the sizes that use most memory first. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/driver/memory/memory_state.h"

#define MIB ((size_t)1 << 20)

enum { LISTED = 6 };

struct size_count {
    size_t bytes, count;
};

static int by_total(const void *a, const void *b)
{
    const struct size_count *x = a, *y = b;
    size_t p = x->bytes * x->count, q = y->bytes * y->count;
    return p < q ? 1 : p > q ? -1 : 0;
}

static const char *in_units(char *text, size_t room, size_t bytes)
{
    if (bytes < MIB)
        snprintf(text, room, "%.4g KiB", (double)bytes / 1024);
    else if (bytes < 1024 * MIB)
        snprintf(text, room, "%.4g MiB", (double)bytes / (double)MIB);
    else
        snprintf(text, room, "%.4g GiB", (double)bytes / (double)(1024 * MIB));
    return text;
}

static void list_sizes(struct ah_cuda_memory *memory, char *text, size_t room)
{
    struct size_count sizes[256];
    size_t count = 0;
    for (int i = 0; i < AH_BLOCK_BUCKETS; i++) {
        for (const struct ah_cuda_block *block = memory->used[i]; block; block = block->chain) {
            size_t k = 0;
            while (k < count && sizes[k].bytes != block->bytes)
                k++;
            if (k == count && count < sizeof sizes / sizeof sizes[0])
                sizes[count++] = (struct size_count){block->bytes, 0};
            if (k < count)
                sizes[k].count++;
        }
    }
    qsort(sizes, count, sizeof sizes[0], by_total);
    size_t length = 0;
    text[0] = '\0';
    for (size_t k = 0; k < count && k < LISTED && length < room; k++) {
        char size[32];
        length += (size_t)snprintf(text + length, room - length, "%s%zu x %s", k ? ", " : "; most of it: ",
                                   sizes[k].count, in_units(size, sizeof size, sizes[k].bytes));
    }
}

int ah_cuda_memory_fail(struct ah_cuda_memory *memory, size_t bytes)
{
    char asked[32], live[32], cached[32], left[32], all[32], sizes[256];
    size_t available = 0, total = 0;
    ah_cuda.memory_info(&available, &total);
    list_sizes(memory, sizes, sizeof sizes);
    return ah_fail(AH_ENOMEM, "%s: out of memory: %s asked for, %s live, %s cached, %s of %s available%s",
                   memory->cuda->device->name, in_units(asked, sizeof asked, bytes),
                   in_units(live, sizeof live, memory->stats.live),
                   in_units(cached, sizeof cached, memory->reserved - memory->stats.live),
                   in_units(left, sizeof left, available), in_units(all, sizeof all, total), sizes);
}
