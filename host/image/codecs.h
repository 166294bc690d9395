/* The codecs of the plugin, each a wrapper around its library. Neither jumps out, prints or keeps anything. */
#pragma once

#include "data/image.h"

/* As ah_image_decode, of bytes that begin as their format does. */
int ah_png_decode(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode);
int ah_jpeg_decode(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode);

/* As ah_image_encode_png, of an image that it has checked. */
int ah_png_encode(unsigned char **out, size_t *count, const struct ah_tensor *image);
