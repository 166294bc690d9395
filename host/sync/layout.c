/* One pass over the parameters for each dtype. */
#include "sync/layout.h"

#include <stdlib.h>

static const int64_t first_bucket_bytes = 1 << 20, bucket_bytes_default = 25 << 20;
enum { SLOT_ALIGN = 64 };

struct cursor {
    size_t at;
    int place;
};

static void lay_out_dtype(struct ah_layout *layout, struct ah_tensor *const *params, enum ah_dtype dtype,
                          int64_t bucket_bytes, struct cursor *cursor)
{
    struct ah_bucket *open = NULL;
    bool first = true;
    for (int i = layout->count - 1; i >= 0; i--) {
        if (params[i]->dtype != dtype)
            continue;
        if (!open) {
            open = &layout->bucket[layout->bucket_count++];
            *open = (struct ah_bucket){.offset = cursor->at, .dtype = dtype, .first = cursor->place};
        }
        size_t bytes = (size_t)params[i]->numel * ah_dtype_size(dtype);
        size_t slot = (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
        layout->place[i] = (struct ah_place){cursor->at, slot, (int)(open - layout->bucket)};
        cursor->at += slot;
        cursor->place++;
        open->count++;
        open->bytes = cursor->at - open->offset;
        open->payload += (int64_t)bytes;
        if (open->payload >= (bucket_bytes > 0 ? bucket_bytes : first ? first_bucket_bytes : bucket_bytes_default)) {
            open = NULL;
            first = false;
        }
    }
}

int ah_layout_init(struct ah_layout *layout, struct ah_tensor *const *params, int count, int64_t bucket_bytes)
{
    struct cursor cursor = {0};
    *layout = (struct ah_layout){.count = count};
    layout->place = calloc((size_t)count + 1, sizeof *layout->place);
    layout->bucket = calloc((size_t)count + 1, sizeof *layout->bucket);
    if (!layout->place || !layout->bucket) {
        ah_layout_free(layout);
        return ah_fail(AH_ENOMEM, "prepare: out of memory");
    }
    for (int d = 0; d < AH_DTYPE_COUNT; d++)
        lay_out_dtype(layout, params, (enum ah_dtype)d, bucket_bytes, &cursor);
    layout->bytes = cursor.at;
    return 0;
}

void ah_layout_free(struct ah_layout *layout)
{
    free(layout->place);
    free(layout->bucket);
    *layout = (struct ah_layout){0};
}
