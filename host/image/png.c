/* PNG by libpng. Palettes become colours, 16 bits 8; gamma is left alone. An error of the library returns by longjmp to
 * `png_decode`, whose variables that change after setjmp are in `struct state`. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "image/codecs.h"

struct state {
    const unsigned char *bytes;
    size_t count, at;
    png_structp png;
    png_infop info;
    struct ah_tensor *image;
    unsigned char *pixels; /* all lines: an interlaced file is decoded in passes */
    char text[128];
};

static void on_error(png_structp png, png_const_charp text)
{
    struct state *state = png_get_error_ptr(png);
    snprintf(state->text, sizeof state->text, "%s", text);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
}

static void on_read(png_structp png, png_bytep to, size_t want)
{
    struct state *state = png_get_io_ptr(png);
    if (want > state->count - state->at)
        png_error(png, "the file ends early");
    memcpy(to, state->bytes + state->at, want);
    state->at += want;
}

/* Ask for 8 bits and the channels of the mode. */
static void png_transform(struct state *state, enum ah_image_mode mode)
{
    png_structp png = state->png;
    png_byte type = png_get_color_type(png, state->info);
    bool transparent = png_get_valid(png, state->info, PNG_INFO_tRNS) != 0;
    png_set_expand(png);
    png_set_strip_16(png);
    if (mode != AH_IMAGE_UNCHANGED) {
        bool color = (type & PNG_COLOR_MASK_COLOR) != 0, alpha = (type & PNG_COLOR_MASK_ALPHA) || transparent;
        bool want_color = mode == AH_IMAGE_RGB || mode == AH_IMAGE_RGB_ALPHA;
        bool want_alpha = mode == AH_IMAGE_GRAY_ALPHA || mode == AH_IMAGE_RGB_ALPHA;
        if (want_color && !color)
            png_set_gray_to_rgb(png);
        if (!want_color && color)
            png_set_rgb_to_gray(png, PNG_ERROR_ACTION_NONE, 0.2989, 0.587);
        if (want_alpha && !alpha)
            png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
        if (!want_alpha && alpha)
            png_set_strip_alpha(png);
    }
    png_set_interlace_handling(png);
    png_read_update_info(png, state->info);
}

static int png_decode(struct state *state, enum ah_image_mode mode)
{
    if (setjmp(png_jmpbuf(state->png)))
        return ah_fail(AH_EIO, "damaged PNG: %s", state->text);
    png_set_read_fn(state->png, state, on_read);
    png_read_info(state->png, state->info);
    png_transform(state, mode);
    int64_t rows = png_get_image_height(state->png, state->info);
    int64_t columns = png_get_image_width(state->png, state->info);
    int channels = png_get_channels(state->png, state->info), passes = png_set_interlace_handling(state->png);
    AH_TRY(ah_image_new(&state->image, channels, rows, columns, state->count));
    size_t line = (size_t)(columns * channels);
    if (png_get_rowbytes(state->png, state->info) != line)
        return ah_fail(AH_EIO, "damaged PNG: lines of another length");
    state->pixels = calloc((size_t)rows, line);
    AH_TRY_MEMORY(state->pixels, "out of memory");
    for (int pass = 0; pass < passes; pass++)
        for (int64_t row = 0; row < rows; row++)
            png_read_row(state->png, state->pixels + (size_t)row * line, NULL);
    png_read_end(state->png, NULL);
    for (int64_t row = 0; row < rows; row++)
        ah_image_set_line(state->image, row, state->pixels + (size_t)row * line);
    return 0;
}

int ah_png_decode(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode)
{
    struct state state = {.bytes = bytes, .count = count};
    int status = ah_fail(AH_ENOMEM, "out of memory");
    state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, on_error, on_warning);
    if (state.png)
        state.info = png_create_info_struct(state.png);
    if (state.info)
        status = png_decode(&state, mode);
    png_destroy_read_struct(&state.png, &state.info, NULL);
    free(state.pixels);
    if (status < 0)
        ah_tensor_release(state.image);
    else
        *out = state.image;
    return status;
}
