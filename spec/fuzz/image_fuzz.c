/* Fuzz target: a PNG or JPEG file, from memory, in every mode. Whatever the bytes are, the decoders answer with a
 * tensor or with an error text. The checksums of a PNG's chunks are set right first, or little would get past them.
 * sources: TENSORS host/image/png.c host/image/jpeg.c host/data/image.c -lpng -ljpeg */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/status/status.h"
#include "image/codecs.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static uint32_t word(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void set_checksums(uint8_t *bytes, size_t count)
{
    size_t at = 8;
    while (at + 12 <= count && word(bytes + at) <= count - at - 12) {
        size_t length = word(bytes + at);
        uint32_t sum = (uint32_t)crc32(0, bytes + at + 4, (unsigned)length + 4);
        for (int i = 0; i < 4; i++)
            bytes[at + 8 + length + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += length + 12;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + 1);
    if (!copy)
        return 0;
    memcpy(copy, bytes, count);
    if (count > 8)
        set_checksums(copy, count);
    for (int mode = AH_IMAGE_UNCHANGED; mode <= AH_IMAGE_RGB_ALPHA; mode++) {
        struct ah_tensor *image = NULL;
        int status = ah_png_decode(&image, copy, count, (enum ah_image_mode)mode);
        if ((status == 0) != (image != NULL) || (status < 0 && !*ah_error_text()))
            abort();
        ah_tensor_release(image);
        image = NULL;
        status = ah_jpeg_decode(&image, bytes, count, (enum ah_image_mode)mode);
        if ((status == 0) != (image != NULL) || (status < 0 && !*ah_error_text()))
            abort();
        ah_tensor_release(image);
    }
    free(copy);
    return 0;
}
