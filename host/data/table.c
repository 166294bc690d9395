/* Lines are remembered where they do not follow one another, so that they cost nothing in most files. */
#include "data/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"

enum { SLOTS = 2 * AH_TABLE_COLUMNS };

/* The slot with a name's column, or the empty one where it belongs. */
static int16_t *find_slot(const struct ah_table *table, const char *name, size_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    for (;; hash++) {
        int16_t *slot = &table->slot[hash % SLOTS];
        const char *held = *slot ? table->name[*slot - 1] : NULL;
        if (!held || (!strncmp(held, name, length) && held[length] == '\0'))
            return slot;
    }
}

int ah_table_find(const struct ah_table *table, const char *name, size_t length)
{
    return table->slot ? *find_slot(table, name, length) - 1 : -1;
}

int ah_table_add_column(struct ah_table *table, const char *name, size_t length)
{
    if (ah_table_find(table, name, length) >= 0)
        return ah_fail(AH_EINVAL, "two columns are named '%.*s'", (int)length, name);
    if (table->columns == AH_TABLE_COLUMNS)
        return ah_fail(AH_EINVAL, "more than %d columns", AH_TABLE_COLUMNS);
    char **names = realloc(table->name, (size_t)(table->columns + 1) * sizeof *names);
    if (names)
        table->name = names;
    struct ah_packed *columns = realloc(table->column, (size_t)(table->columns + 1) * sizeof *columns);
    if (columns)
        table->column = columns;
    if (!table->slot)
        table->slot = calloc(SLOTS, sizeof *table->slot);
    char *copy = malloc(length + 1);
    if (!names || !columns || !table->slot || !copy) {
        free(copy);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    memcpy(copy, name, length);
    copy[length] = '\0';
    table->name[table->columns] = copy;
    table->column[table->columns++] = (struct ah_packed){0};
    *find_slot(table, name, length) = (int16_t)table->columns;
    return 0;
}

int ah_table_fill(struct ah_table *table, int column)
{
    return ah_packed_pad(&table->column[column], table->rows);
}

int64_t ah_table_line(const struct ah_table *table, int64_t row, int *file)
{
    size_t low = 0, high = table->marks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table->mark[middle].row <= row)
            low = middle + 1;
        else
            high = middle;
    }
    *file = low ? table->mark[low - 1].file : 0;
    return low ? table->mark[low - 1].line + (row - table->mark[low - 1].row) : 0;
}

static int note_line(struct ah_table *table, int64_t line)
{
    const struct ah_table_mark *last = table->marks ? &table->mark[table->marks - 1] : NULL;
    if (last && last->file == table->file && last->line + (table->rows - last->row) == line)
        return 0;
    AH_TRY(ah_grow(&table->mark, table->marks + 1, &table->mark_room, sizeof *table->mark));
    table->mark[table->marks++] = (struct ah_table_mark){table->rows, line, table->file};
    return 0;
}

int ah_table_end_row(struct ah_table *table, int64_t line)
{
    AH_TRY(note_line(table, line));
    table->rows++;
    return 0;
}

void ah_table_drop_row(struct ah_table *table)
{
    for (int k = 0; k < table->columns; k++)
        ah_packed_cut(&table->column[k], table->rows);
}

void ah_table_clear(struct ah_table *table)
{
    table->rows = 0;
    table->marks = 0;
    ah_table_drop_row(table);
}

void ah_table_free(struct ah_table *table)
{
    for (int k = 0; k < table->columns; k++) {
        free(table->name[k]);
        ah_packed_free(&table->column[k]);
    }
    free(table->name);
    free(table->slot);
    free(table->column);
    free(table->mark);
    *table = (struct ah_table){0};
}
