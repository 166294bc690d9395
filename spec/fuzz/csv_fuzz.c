/* Fuzz target: rows and fields, by comma with quotes and by tab without. Whatever the bytes are, the reader reaches
 * the end, returns fields within its memory, and ends in an error text if in an error.
 * sources: host/data/csv.c host/base/memory/array.c host/base/status/status.c */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "data/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void read_all(const uint8_t *bytes, size_t count, char delimiter, int quote)
{
    struct ah_csv csv;
    size_t rows = 0, total = 0;
    int status = ah_csv_open(&csv, bytes, count, delimiter, quote);
    while (status == 0 && (status = ah_csv_next(&csv)) == 1) {
        for (int i = 0; i < csv.fields; i++)
            for (size_t k = 0; k < csv.field[i].length; k++)
                total += (unsigned char)csv.field[i].text[k] > 0;
        if (++rows > count || csv.fields < 1 || csv.line > csv.next_line)
            abort();
        status = 0;
    }
    if (total > count || (status < 0 && !*ah_error_text()))
        abort();
    ah_csv_close(&csv);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    read_all(bytes, count, ',', '"');
    read_all(bytes, count, '\t', -1);
    return 0;
}
