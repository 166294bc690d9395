/* Columns are filled row by row; the three ways differ in the treatment of a row's bytes. */
#include "data/column.h"

#include <string.h>

#include "base/status/status.h"

/* Describe the steps of a column, and the number of elements that they make of a row. */
static int describe_grid(struct ah_column *column, const struct ah_gather_column *spec, int64_t *elements)
{
    const struct ah_grid *grid = &column->grid;
    if (!spec->grid)
        return 0;
    column->moves = true;
    column->grid = *spec->grid;
    if (spec->source->dtype != AH_U8 || grid->channels * grid->size[0] * grid->size[1] != *elements)
        return ah_fail(AH_EINVAL, "steps for %lld x %lld x %lld bytes do not fit %s %s", (long long)grid->channels,
                       (long long)grid->size[0], (long long)grid->size[1], ah_dtype_name(spec->source->dtype),
                       ah_shape(spec->source));
    AH_TRY(ah_grid_check(&column->grid));
    *elements = grid->channels * grid->out[0] * grid->out[1];
    column->scratch = ah_grid_scratch(grid) + (spec->table ? (size_t)*elements : 0);
    for (int s = 0; s < grid->count; s++)
        column->random |= grid->step[s].kind == AH_GRID_RANDOM_CROP || grid->step[s].kind == AH_GRID_FLIP;
    return 0;
}

static int describe_erasing(struct ah_column *column, const struct ah_gather_column *spec)
{
    const struct ah_erase *erase = spec->erase;
    const struct ah_grid *grid = &column->grid;
    if (!erase)
        return 0;
    if (!column->moves || !column->table || erase->channels != grid->channels || erase->size[0] != grid->out[0] ||
        erase->size[1] != grid->out[1] || erase->channels > AH_ERASE_CHANNELS)
        return ah_fail(AH_EINVAL, "erasing a part of %lld x %lld x %lld floats does not fit %s",
                       (long long)erase->channels, (long long)erase->size[0], (long long)erase->size[1],
                       ah_shape(spec->source));
    column->erases = column->random = true;
    column->erase = *erase;
    return 0;
}

static int describe_table(struct ah_column *column, const struct ah_gather_column *spec, int64_t elements)
{
    struct ah_tensor *source = spec->source, *table = spec->table;
    column->out_bytes = (size_t)elements * ah_dtype_size(source->dtype);
    if (!table)
        return 0;
    if (source->dtype != AH_U8 || table->dtype != AH_F32 || table->ndim != 2 || table->size[1] != 256 ||
        table->size[0] < 1 || elements % table->size[0] || !ah_tensor_is_contiguous(table) || !ah_on_cpu(table)) {
        return ah_fail(AH_EINVAL, "a float32 table %s does not fit %s rows of %lld", ah_shape(table),
                       ah_dtype_name(source->dtype), (long long)elements);
    }
    column->table = ah_tensor_data(table);
    column->channels = table->size[0];
    column->plane = elements / table->size[0];
    column->out_bytes = (size_t)elements * sizeof(float);
    return 0;
}

static int check_source(const struct ah_gather_column *spec)
{
    const struct ah_tensor *source = spec->source;
    if (source->ndim < 1)
        return ah_fail(AH_EINVAL, "expected at least one dimension");
    if (!ah_on_cpu(source))
        return ah_fail(AH_EINVAL, "expected a tensor on the CPU");
    if (!ah_tensor_is_contiguous(source) || source->storage->channels_last)
        return ah_fail(AH_EINVAL, "expected a contiguous tensor");
    if (spec->ndim < 0 || spec->ndim > AH_MAX_DIMS - 1)
        return ah_fail(AH_EINVAL, "rows have %d dimensions", spec->ndim);
    return 0;
}

int ah_column_describe(struct ah_column *column, const struct ah_gather_column *spec)
{
    struct ah_tensor *source = spec->source;
    int64_t elements = 1, shaped = 1;
    AH_TRY(check_source(spec));
    for (int d = 1; d < source->ndim; d++)
        elements *= source->size[d];
    *column = (struct ah_column){
        .source = ah_tensor_data(source),
        .row_bytes = (size_t)elements * ah_dtype_size(source->dtype),
    };
    AH_TRY(describe_grid(column, spec, &elements));
    for (int d = 0; d < spec->ndim; d++)
        shaped *= spec->size[d];
    if (shaped != elements) {
        return ah_fail(AH_EINVAL, "rows %s do not have the %lld elements of %s", ah_shape_text(spec->size, spec->ndim),
                       (long long)elements, ah_shape(source));
    }
    AH_TRY(describe_table(column, spec, elements));
    return describe_erasing(column, spec);
}

static void copy_rows(char *restrict to, const char *restrict from, size_t bytes, const int64_t *index, int64_t count)
{
    if (bytes == sizeof(int64_t)) { /* labels */
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 8, from + index[i] * 8, 8);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(to + (size_t)i * bytes, from + (size_t)index[i] * bytes, bytes);
}

/* Eight bytes a load. The vectoriser would make gather instructions of it, which are slower than scalar loads on
 * today's processors (measured: 18.6 against 14.8 us for 64 x 784; the plain loop 47). */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-slp-vectorize", "no-tree-vectorize")))
#endif
static void
map_bytes(float *restrict to, const unsigned char *restrict from, int64_t count, const float *restrict table)
{
    int64_t k = 0;
    for (; k + 8 <= count; k += 8) {
        uint64_t eight;
        memcpy(&eight, from + k, 8);
        for (int byte = 0; byte < 8; byte++)
            to[k + byte] = table[(eight >> (8 * byte)) & 255];
    }
    for (; k < count; k++)
        to[k] = table[from[k]];
}

static void map_planes(float *restrict to, const unsigned char *restrict from, const struct ah_column *column)
{
    for (int64_t c = 0; c < column->channels; c++)
        map_bytes(to + c * column->plane, from + c * column->plane, column->plane, column->table + 256 * c);
}

static void map_rows(float *restrict to, const struct ah_column *column, const int64_t *index, int64_t count)
{
    const unsigned char *source = (const unsigned char *)column->source;
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *from = source + (size_t)index[i] * column->row_bytes;
        if (i + 1 < count) { /* shuffled rows defeat the hardware's prefetcher */
            const unsigned char *ahead = source + (size_t)index[i + 1] * column->row_bytes;
            size_t reach = column->row_bytes < 4096 ? column->row_bytes : 4096;
            for (size_t at = 0; at < reach; at += 64)
                __builtin_prefetch(ahead + at);
        }
        map_planes(to, from, column);
        to += column->channels * column->plane;
    }
}

/* Each image by its own steps, then through the table. The scratch holds the grid's own and, for the table, the image
 * that has moved. */
static void move_rows(char *to, const struct ah_column *column, const struct ah_gather_order *order, void *scratch)
{
    size_t own = ah_grid_scratch(&column->grid);
    for (int64_t i = 0; i < order->count; i++, to += column->out_bytes) {
        const uint8_t *from = (const uint8_t *)column->source + (size_t)order->row[i] * column->row_bytes;
        uint8_t *moved = column->table ? (uint8_t *)scratch + own : (uint8_t *)to;
        struct ah_stream stream;
        ah_stream_open(&stream, order->seed, order->sample[i], order->turn[i]);
        ah_grid_apply(&column->grid, from, moved, &stream, scratch);
        if (column->table)
            map_planes((float *)to, moved, column);
        if (column->erases)
            ah_erase_apply(&column->erase, (float *)to, &stream);
    }
}

void ah_column_fill(const struct ah_column *column, char *to, const struct ah_gather_order *order, void *scratch)
{
    if (column->moves)
        move_rows(to, column, order, scratch);
    else if (column->table)
        map_rows((float *)to, column, order->row, order->count);
    else
        copy_rows(to, column->source, column->row_bytes, order->row, order->count);
}
