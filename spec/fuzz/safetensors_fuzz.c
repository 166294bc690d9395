/* Fuzz target: a safetensors file in memory. Whatever the bytes are, the reader returns tensors that are inside
 * them, or with an error text.
 * sources: TENSORS host/io/safetensors.c host/io/mapping.c host/base/process/signals.c WRITER */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_safetensors *file = NULL;
    uint8_t *copy = malloc(count + 1); /* a separate block: its end is watched */
    memcpy(copy, bytes, count);
    struct ah_mapping mapping = {.refs = 1, .bytes = copy, .count = count};
    int status = ah_safetensors_parse(&file, copy, count);
    if ((status == 0) != (file != NULL) || (status < 0 && !*ah_error_text()))
        abort();
    for (size_t i = 0; file && i < file->tensor_count; i++) {
        struct ah_tensor *tensor = NULL;
        if (!file->tensor[i].kind && ah_safetensors_tensor(&tensor, file, i, &mapping) == 0) {
            volatile uint8_t sum = 0;
            for (int64_t k = 0; k < tensor->numel * (int64_t)ah_dtype_size(tensor->dtype); k++)
                sum ^= ((const uint8_t *)ah_tensor_data(tensor))[k];
        }
        ah_tensor_release(tensor);
    }
    ah_safetensors_close(file);
    if (mapping.refs != 1)
        abort();
    free(copy);
    return 0;
}
