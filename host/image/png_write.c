/* PNG files of 8-bit images by libpng, into memory that grows. An error of the library returns by longjmp to
 * `png_encode`, whose variables that change after setjmp are in `struct state`. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory/array.h"
#include "image/codecs.h"

struct state {
    struct ah_text file;
    unsigned char *line;
    png_infop info;
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

static void on_write(png_structp png, png_bytep from, size_t count)
{
    struct state *state = png_get_io_ptr(png);
    if (ah_text_append(&state->file, from, count) < 0)
        png_error(png, "out of memory");
}

static void on_flush(png_structp png)
{
}

static int png_encode(struct state *state, png_structp png, const struct ah_tensor *image)
{
    static const int colors[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA};
    int64_t channels = image->size[0], rows = image->size[1], columns = image->size[2];
    const unsigned char *pixels = ah_tensor_data(image);
    state->line = malloc((size_t)(channels * columns));
    AH_TRY_MEMORY(state->line, "out of memory");
    if (setjmp(png_jmpbuf(png)))
        return ah_fail(AH_EINVAL, "cannot write a PNG of %lld x %lld pixels: %s", (long long)columns, (long long)rows,
                       state->text);
    png_set_write_fn(png, state, on_write, on_flush);
    png_set_IHDR(png, state->info, (png_uint_32)columns, (png_uint_32)rows, 8, colors[channels], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, state->info);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t c = 0; c < channels; c++)
            for (int64_t x = 0; x < columns; x++)
                state->line[x * channels + c] = pixels[(c * rows + row) * columns + x];
        png_write_row(png, state->line);
    }
    png_write_end(png, state->info);
    return 0;
}

int ah_png_encode(unsigned char **out, size_t *count, const struct ah_tensor *image)
{
    struct state state = {0};
    int status = ah_fail(AH_ENOMEM, "out of memory");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &state, on_error, on_warning);
    if (png)
        state.info = png_create_info_struct(png);
    if (state.info)
        status = png_encode(&state, png, image);
    png_destroy_write_struct(&png, &state.info);
    free(state.line);
    if (status < 0) {
        free(state.file.at);
        return status;
    }
    *out = (unsigned char *)state.file.at;
    *count = state.file.bytes;
    return 0;
}
