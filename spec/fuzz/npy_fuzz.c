/* Fuzz target: a .npy file in memory. Whatever the bytes are, the reader answers with a tensor or with an error text;
 * a tensor that is written again has the same header and elements when it is read back.
 * sources: TENSORS host/io/npy.c WRITER */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void write_and_read(const struct ah_tensor *tensor)
{
    char header[AH_NPY_HEADER];
    struct ah_tensor *again = NULL;
    size_t length = ah_npy_header(tensor, header), bytes = (size_t)tensor->numel * ah_dtype_size(tensor->dtype);
    char *file = malloc(length + bytes + 1);
    memcpy(file, header, length);
    memcpy(file + length, ah_tensor_data(tensor), bytes);
    if (!length || length % 64 || ah_npy_parse(&again, file, length + bytes) || !ah_same_shape(again, tensor) ||
        again->dtype != tensor->dtype || memcmp(ah_tensor_data(again), ah_tensor_data(tensor), bytes))
        abort();
    ah_tensor_release(again);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_tensor *tensor = NULL;
    uint8_t *copy = malloc(count + 1); /* a separate block: its end is watched */
    memcpy(copy, bytes, count);
    int status = ah_npy_parse(&tensor, copy, count);
    if ((status == 0) != (tensor != NULL) || (status < 0 && !*ah_error_text()))
        abort();
    if (tensor)
        write_and_read(tensor);
    ah_tensor_release(tensor);
    struct ah_npy_numbers numbers;
    if (ah_npy_find_unsigned(&numbers, copy, count) == 0 &&
        (numbers.begin > count || (uint64_t)numbers.count * (uint64_t)numbers.bytes != count - numbers.begin))
        abort();
    free(copy);
    return 0;
}
