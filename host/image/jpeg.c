/* JPEG by libjpeg (libjpeg-turbo). An error of the library returns by longjmp to `jpeg_decode`, whose variables that
 * change after setjmp are in `struct state`; so does a truncated file, which the library would fill up with gray. */
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "image/codecs.h"

struct state {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors; /* first, so that `on_error` finds the state */
    jmp_buf back;
    struct ah_tensor *image;
    unsigned char *line, *colors; /* a line as the library decodes it, and in the channels of the mode */
    char text[JMSG_LENGTH_MAX];
};

static struct state *state_of(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

static void on_error(j_common_ptr jpeg)
{
    struct state *state = state_of(jpeg);
    state->errors.format_message(jpeg, state->text);
    longjmp(state->back, 1);
}

/* Level -1 are warnings of data that is not right; most mean that pixels are missing or wrong. */
static void on_message(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
                    code == JWRN_TOO_MUCH_DATA;
    if (level < 0 && !harmless)
        on_error(jpeg);
}

static int channels_of(enum ah_image_mode mode, int components)
{
    static const int channels[] = {0, 1, 2, 3, 4};
    return mode == AH_IMAGE_UNCHANGED ? components : channels[mode];
}

/* A line of the library's components as `channels` of them. Four components are inks, by Adobe's custom inverted. */
static void set_channels(const struct state *state, int channels, int64_t columns)
{
    int components = state->jpeg.output_components;
    for (int64_t x = 0; x < columns; x++) {
        const unsigned char *from = state->line + x * components;
        unsigned char *to = state->colors + x * channels, rgb[3] = {from[0], from[0], from[0]};
        if (components == 3)
            memcpy(rgb, from, 3);
        for (int c = 0; c < 3 && components == 4; c++)
            rgb[c] = (unsigned char)((state->jpeg.saw_Adobe_marker ? from[c] * from[3] : (255 - from[c]) *
                                      (255 - from[3])) / 255);
        if (channels >= 3)
            memcpy(to, rgb, 3);
        else
            to[0] = components == 1 ? from[0]
                                    : (unsigned char)((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
        if (channels == 2 || channels == 4)
            to[channels - 1] = 255;
    }
}

static int read_lines(struct state *state, enum ah_image_mode mode, size_t count)
{
    struct jpeg_decompress_struct *jpeg = &state->jpeg;
    int64_t rows = jpeg->output_height, columns = jpeg->output_width;
    int components = jpeg->output_components, channels = channels_of(mode, components);
    if (mode == AH_IMAGE_UNCHANGED && components == 4)
        channels = 3;
    AH_TRY(ah_image_new(&state->image, channels, rows, columns, count));
    state->line = malloc((size_t)columns * (size_t)components);
    state->colors = malloc((size_t)columns * (size_t)channels);
    if (!state->line || !state->colors)
        return ah_fail(AH_ENOMEM, "out of memory");
    for (int64_t row = 0; row < rows; row++) {
        JSAMPROW lines[1] = {state->line};
        jpeg_read_scanlines(jpeg, lines, 1);
        if (channels != components)
            set_channels(state, channels, columns);
        ah_image_set_line(state->image, row, channels == components ? state->line : state->colors);
    }
    return 0;
}

static int jpeg_decode(struct state *state, const void *bytes, size_t count, enum ah_image_mode mode)
{
    struct jpeg_decompress_struct *jpeg = &state->jpeg;
    if (setjmp(state->back))
        return ah_fail(AH_EIO, "damaged JPEG: %s", state->text);
    jpeg_create_decompress(jpeg);
    jpeg_mem_src(jpeg, bytes, count);
    jpeg_read_header(jpeg, TRUE);
    bool inks = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    bool gray = mode == AH_IMAGE_GRAY || mode == AH_IMAGE_GRAY_ALPHA || jpeg->jpeg_color_space == JCS_GRAYSCALE;
    jpeg->out_color_space = inks ? JCS_CMYK : gray ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_calc_output_dimensions(jpeg);
    /* Checked before the library allocates memory: a progressive file is held whole. */
    AH_TRY(ah_image_check(4, jpeg->output_height, jpeg->output_width, count));
    jpeg_start_decompress(jpeg);
    AH_TRY(read_lines(state, mode, count));
    jpeg_finish_decompress(jpeg);
    return 0;
}

int ah_jpeg_decode(struct ah_tensor **out, const void *bytes, size_t count, enum ah_image_mode mode)
{
    struct state state = {0};
    state.jpeg.err = jpeg_std_error(&state.errors);
    state.jpeg.client_data = &state;
    state.errors.error_exit = on_error;
    state.errors.emit_message = on_message;
    int status = jpeg_decode(&state, bytes, count, mode);
    jpeg_destroy_decompress(&state.jpeg);
    free(state.line);
    free(state.colors);
    if (status < 0)
        ah_tensor_release(state.image);
    else
        *out = state.image;
    return status;
}
