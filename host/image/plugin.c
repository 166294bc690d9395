/* The plugin of image codecs: its exports. */
#include "image/codecs.h"

extern const struct ah_image_codecs ah_image_plugin;

const struct ah_image_codecs ah_image_plugin = {AH_IMAGE_ABI, ah_png_decode, ah_jpeg_decode,
                                                    ah_png_encode};
