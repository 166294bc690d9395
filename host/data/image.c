/* Detects a format by its first bytes and opens the codecs' plugin, once. */
#include "data/image.h"

#include <string.h>

#include "base/process/plugin.h"
#include "base/status/status.h"

static int open_codecs(const struct ah_image_codecs **out)
{
    static const void *found;
    AH_TRY(ah_plugin_open("image", "ah_image_plugin", AH_IMAGE_ABI, NULL, &found));
    *out = found;
    return 0;
}

int ah_image_decode(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode)
{
    const struct ah_image_codecs *codecs = NULL;
    bool png = count >= 8 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8);
    bool jpeg = count >= 3 && !memcmp(bytes, "\xff\xd8\xff", 3);
    if (!png && !jpeg)
        return ah_fail(AH_EIO, "neither PNG nor JPEG (%zu bytes)", count);
    AH_TRY(open_codecs(&codecs));
    return png ? codecs->decode_png(out, bytes, count, mode) : codecs->decode_jpeg(out, bytes, count, mode);
}

int ah_image_encode_png(unsigned char **out, size_t *count, const struct ah_tensor *image)
{
    const struct ah_image_codecs *codecs = NULL;
    if (image->dtype != AH_U8 || image->ndim != 3 || image->size[0] < 1 || image->size[0] > 4 || image->numel == 0)
        return ah_fail(AH_EINVAL, "expected a uint8 image [1 to 4 channels, rows, columns], got %s %s",
                       ah_dtype_name(image->dtype), ah_shape(image));
    AH_TRY(open_codecs(&codecs));
    return codecs->encode_png(out, count, image);
}

int ah_image_check(int64_t channels, int64_t rows, int64_t columns, size_t count)
{
    int64_t bytes = rows < 1 || columns < 1 || rows > INT32_MAX || columns > INT32_MAX ? -1 : rows * columns;
    /* Both formats write a block of equal pixels in a bit or so: a thousandfold and more. */
    if (bytes < 0 || bytes > AH_IMAGE_MOST / channels || (uint64_t)bytes / 16384 > (uint64_t)count)
        return ah_fail(AH_EIO, "%lld x %lld pixels in a file of %zu bytes", (long long)columns, (long long)rows, count);
    return 0;
}

int ah_image_new(struct ah_tensor **out, int64_t channels, int64_t rows, int64_t columns, size_t count)
{
    AH_TRY(ah_image_check(channels, rows, columns, count));
    return ah_tensor_empty(out, (int64_t[]){channels, rows, columns}, 3, AH_U8, &ah_cpu);
}

void ah_image_set_line(struct ah_tensor *image, int64_t row, const uint8_t *line)
{
    int64_t channels = image->size[0], columns = image->size[2], plane = image->size[1] * columns;
    uint8_t *to = (uint8_t *)ah_tensor_data(image) + row * columns;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t x = 0; x < columns; x++)
            to[c * plane + x] = line[x * channels + c];
}
