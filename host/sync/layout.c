/* One pass over the parameters for each dtype. */
#include "sync/layout.h"

#include <stdlib.h>

#include "base/status/status.h"

static const int64_t first_bucket_bytes = 1 << 20, bucket_bytes_default = 25 << 20;
enum { SLOT_ALIGN = 64 };

struct cursor {
    size_t at;
    int count;
    struct ah_bucket *open;
    bool first; /* of its dtype */
};

static void close_bucket(struct cursor *cursor, int parts)
{
    if (!cursor->open)
        return;
    size_t step = (size_t)SLOT_ALIGN * (size_t)parts;
    cursor->open->bytes = (cursor->at - cursor->open->offset + step - 1) / step * step;
    cursor->at = cursor->open->offset + cursor->open->bytes;
    cursor->open = NULL;
    cursor->first = false;
}

static void layout_add_slot(struct ah_layout *layout, const struct ah_tensor *param, int index, struct cursor *cursor)
{
    if (!cursor->open) {
        cursor->open = &layout->bucket[layout->bucket_count++];
        *cursor->open = (struct ah_bucket){.offset = cursor->at, .dtype = param->dtype, .first = cursor->count};
    }
    size_t bytes = ah_tensor_bytes(param);
    size_t span = (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
    layout->slot[index] = (struct ah_slot){cursor->at, span, (int)(cursor->open - layout->bucket)};
    cursor->at += span;
    cursor->count++;
    cursor->open->count++;
    cursor->open->payload += (int64_t)bytes;
}

static void lay_out_dtype(struct ah_layout *layout, struct ah_tensor *const *params, enum ah_dtype dtype,
                          const struct ah_layout_options *options, struct cursor *cursor)
{
    int parts = options->parts > 1 ? options->parts : 1, unit = 0;
    cursor->first = true;
    for (int i = layout->count - 1; i >= 0; i--) {
        if (params[i]->dtype != dtype)
            continue;
        if (options->unit && options->unit[i] != unit)
            close_bucket(cursor, parts);
        unit = options->unit ? options->unit[i] : 0;
        layout_add_slot(layout, params[i], i, cursor);
        int64_t limit = options->bucket_bytes > 0 ? options->bucket_bytes
                        : cursor->first           ? first_bucket_bytes
                                                  : bucket_bytes_default;
        if (cursor->open->payload >= limit)
            close_bucket(cursor, parts);
    }
    close_bucket(cursor, parts);
}

int ah_layout_init(struct ah_layout *layout, struct ah_tensor *const *params, int count,
                   struct ah_layout_options options)
{
    struct cursor cursor = {0};
    *layout = (struct ah_layout){.count = count};
    layout->slot = calloc((size_t)count + 1, sizeof *layout->slot);
    layout->bucket = calloc((size_t)count + 1, sizeof *layout->bucket);
    if (!layout->slot || !layout->bucket) {
        ah_layout_free(layout);
        return ah_fail(AH_ENOMEM, "prepare: out of memory");
    }
    for (int d = 0; d < AH_DTYPE_COUNT; d++)
        lay_out_dtype(layout, params, (enum ah_dtype)d, &options, &cursor);
    layout->bytes = cursor.at;
    return 0;
}

void ah_layout_free(struct ah_layout *layout)
{
    free(layout->slot);
    free(layout->bucket);
    *layout = (struct ah_layout){0};
}
