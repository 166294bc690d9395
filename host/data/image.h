/* Image files: PNG and JPEG bytes to uint8 tensors [channels, rows, columns], and such tensors to PNG bytes.
 *
 * The codecs (libpng, libjpeg) are in the plugin accelhost-image.so, which exports its `struct ah_image_codecs` as
 * `ah_image_plugin` and is opened with the first image. Everything is checked against the number of bytes, so a damaged
 * or hostile file ends in an error text and nothing else. */
#pragma once

#include <stddef.h>

#include "tensor/tensor.h"

/* Channels of the result; UNCHANGED: those of the file, 1 to 4. */
enum ah_image_mode { AH_IMAGE_UNCHANGED, AH_IMAGE_GRAY, AH_IMAGE_GRAY_ALPHA, AH_IMAGE_RGB, AH_IMAGE_RGB_ALPHA };

enum {
    AH_IMAGE_ABI = 2,
    AH_IMAGE_MOST = 1 << 30, /* bytes of a decoded image */
};

struct ah_image_codecs {
    unsigned abi; /* AH_IMAGE_ABI of the headers that the plugin was built with */
    int (*decode_png)(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode);
    int (*decode_jpeg)(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode);
    int (*encode_png)(unsigned char **out, size_t *count, const struct ah_tensor *image);
};

/* Decode an image. AH_EIO: the bytes are not valid, the text has the reason; AH_EINVAL: the plugin is not installed. */
int ah_image_decode(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode);

/* Encode a uint8 image [channels, rows, columns] of 1 to 4 channels, contiguous on the CPU, as a PNG file; the caller
 * frees *out. AH_EINVAL also if the plugin is not installed. */
int ah_image_encode_png(unsigned char **out, size_t *count, const struct ah_tensor *image);

/* For the decoders: can a file of `count` bytes hold such an image (else AH_EIO), a tensor for it, and its lines of
 * interleaved bytes into the tensor. */
int ah_image_check(int64_t channels, int64_t rows, int64_t columns, size_t count);
int ah_image_new(struct ah_tensor **out, int64_t channels, int64_t rows, int64_t columns, size_t count);
void ah_image_set_line(struct ah_tensor *image, int64_t row, const uint8_t *line);
