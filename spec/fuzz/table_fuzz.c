/* Fuzz target: files of rows as columns, by comma with quotes, by tab without, as JSON and as text. Whatever the bytes
 * are, the columns have a cell for each row, become what was guessed of them, or there is an error text.
 * sources: host/data/csv.c host/data/packed.c host/data/table.c host/data/table_json.c TENSORS */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "data/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void convert(const struct ah_packed *column)
{
    static const enum ah_dtype dtypes[] = {
        [AH_GUESS_INT] = AH_I64, [AH_GUESS_FLOAT] = AH_F64, [AH_GUESS_BOOL] = AH_BOOL,
    };
    struct ah_tensor *tensor;
    enum ah_guess guess = ah_packed_guess(column);
    size_t total = 0, length;
    for (int64_t i = 0; i < column->count; i++) {
        const char *text = ah_packed_cell(column, i, &length);
        for (size_t k = 0; k < length; k++)
            total += (unsigned char)text[k] > 0;
    }
    if (total > column->used)
        abort();
    if (guess == AH_GUESS_TEXT || guess == AH_GUESS_MIXED)
        return;
    if (ah_packed_tensor(&tensor, column, dtypes[guess]) < 0)
        abort();
    ah_tensor_release(tensor);
}

static void finish(struct ah_table *table, int status)
{
    if (status < 0 && !*ah_error_text())
        abort();
    for (int k = 0; k < table->columns && status == 0; k++) {
        if (table->column[k].count != table->rows)
            abort();
        ah_packed_trim(&table->column[k]);
        convert(&table->column[k]);
    }
    ah_table_free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    for (int way = 0; way < 8; way++) {
        struct ah_table table = {0};
        int status;
        if (way < 4)
            status = ah_table_add_csv(&table, bytes, count, way & 1 ? '\t' : ',', way & 1 ? -1 : '"', way & 2, false);
        else if (way == 4)
            status = ah_table_add_json(&table, bytes, count);
        else
            status = ah_table_add_text(&table, bytes, count, (enum ah_text_unit)(way - 5));
        finish(&table, status);
    }
    return 0;
}
