/* Fuzz target: an IDX file, compressed or not, from memory. Whatever the bytes are, the reader answers with a tensor or
 * with an error text.
 * sources: TENSORS host/data/idx.c */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    for (int kind = AH_IDX_ANY; kind <= AH_IDX_IMAGES; kind++) {
        struct ah_tensor *tensor = NULL;
        int status = ah_idx_parse(&tensor, bytes, count, (enum ah_idx_kind)kind);
        if ((status == 0) != (tensor != NULL) || (status < 0 && !*ah_error_text()))
            abort();
        ah_tensor_release(tensor);
    }
    return 0;
}
