/* Fuzz target: a zip archive in memory. Whatever the bytes are, the reader returns entries that are inside them
 * and unpack to the size they claim, or with an error text.
 *
 * sources: host/io/zip.c WRITER host/base/status/status.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_zip *zip = NULL;
    uint8_t *copy = malloc(count + 1); /* a separate block: its end is watched */
    memcpy(copy, bytes, count);
    int status = ah_zip_parse(&zip, copy, count);
    if ((status == 0) != (zip != NULL) || (status < 0 && !*ah_error_text()))
        abort();
    for (size_t i = 0; zip && i < zip->count; i++) {
        const struct ah_zip_entry *entry = &zip->entry[i];
        if (entry->end > count || entry->size > count * 1032)
            abort();
        void *content = malloc(entry->size + 1);
        if (ah_zip_read(entry, copy, content) < 0 && !*ah_error_text())
            abort();
        if (!entry->deflated)
            ah_zip_check(entry, copy);
        free(content);
    }
    ah_zip_close(zip);
    free(copy);
    return 0;
}
