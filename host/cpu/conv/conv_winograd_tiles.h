/* The transforms of Winograd's filtering: of tiles of images, and of weights. */
#pragma once

#include <stdint.h>

#include "cpu/conv/conv_winograd_sides.h"

enum {
    LANES = AH_LANES_BYTES / 4,
    PANEL = AH_LANES_REGISTERS / 8 * LANES, /* columns of a product's tile in registers */
    GROUP = 64,                             /* output channels whose weights are transformed at a time */
    PAD = 16,                               /* floats between arrays, against conflicts in the caches */
    DEPTH = 16,                             /* channels of a block of weights that is transposed */
    MOST_SIDE = 6,                          /* items of a side of a transformed tile */
    MOST_ITEMS = MOST_SIDE * MOST_SIDE,
    MOST_KERNEL = 49,                       /* items of a kernel */
};

/* A sum of convolutions with stride 1 of an input of `c` channels, with kernels of taps x taps and `oc` outputs. The
 * terms are parts x parts; their channels, `depth` in all, are those of one convolution. In part p the pixels of a side
 * begin at shift * p and are `step` apart, and so are the items of the kernel:
 *
 *     3x3                   one part
 *     a larger kernel       parts of 2x2 or 3x3 items: shift is `taps`
 *     stride 2              the phases, pixels of even or odd rows and columns: step 2, shift 1
 *
 * The adjoint of a convolution with stride 2 is one convolution for each phase of the outputs (out_step 2): `at` is the
 * outputs' phase, `from` that of the kernel.
 *
 * The weight of output o and input i starts at weight + o * w_out + i * w_in; where it is turned, its items are in
 * reverse order and w_out is the kernel's size, else w_in is. */
struct wino {
    int64_t n, c, h, w, oc, oh, ow, pad[2], w_out, w_in;
    int64_t kernel[2], depth;
    int64_t dst_h, dst_w, at[2], from[2];
    int taps, side, items, parts, step, shift, out_step;
    bool turned, half; /* half: src and dst are bfloat16 */
    const char *src;
    const float *weight, *bias;
    char *dst;
    int64_t rows, cols, tiles; /* of tiles in an image; of all images */
    int64_t block;             /* tiles of a block */
    int64_t first, count;      /* the tiles of this block */
    int64_t group;             /* of output channels */
    int64_t v_row, v_item;     /* steps in `v`: from tile to tile, from item to item */
    int64_t y_row, y_item;     /* in `y`, the transformed gradients of the outputs */
    int64_t chunk, m_item;     /* tiles of a piece; steps in its products `m` */
    int64_t u_group;           /* from group to group in `u`; 0: it has one group at a time */
    float *v, *y, *u, *m;
    const char *zeros;
};

/* The bytes of an item of an image. */
static inline int64_t wino_item(const struct wino *s)
{
    return s->half ? sizeof(uint16_t) : sizeof(float);
}

static inline int64_t wino_width(const struct wino *s, int64_t group)
{
    int64_t left = s->oc - group * GROUP;
    return left < GROUP ? left : GROUP;
}

/* From item to item of a group's transformed weights, `width` wide. */
static inline int64_t wino_u_item(const struct wino *s, int64_t width)
{
    return s->depth * width + PAD;
}

static inline void wino_place(const struct wino *s, int64_t tile, int64_t *image, int64_t *y, int64_t *x)
{
    int64_t in_image = tile % (s->rows * s->cols);
    *image = tile / (s->rows * s->cols);
    *y = in_image / s->cols * 4;
    *x = in_image % s->cols * 4;
}

/* Transforms of tiles. */

/* Transform a tile of one part of the input. */
static inline __attribute__((always_inline)) void input_part(const bool half, const int taps, const struct wino *s,
                                                             const char *const *pixel, float *to)
{
    const int side = taps + 3;
    for (int64_t c = 0; c < s->c; c += LANES) {
        lanes part[MOST_ITEMS];
#pragma GCC unroll 6
        for (int i = 0; i < side; i++) {
            lanes line[MOST_SIDE];
#pragma GCC unroll 6
            for (int j = 0; j < side; j++)
                line[j] = ah_lanes_load(half, pixel[side * i + j], c);
            input_side(taps, line, 1, part + side * i, 1);
        }
#pragma GCC unroll 6
        for (int j = 0; j < side; j++) {
            lanes line[MOST_SIDE];
            input_side(taps, part + j, side, line, 1);
#pragma GCC unroll 6
            for (int i = 0; i < side; i++)
                lanes_store(to + (side * i + j) * s->v_item + c, line[i]);
        }
    }
}

static inline __attribute__((always_inline)) void input_tile(const bool half, const int taps, const struct wino *s,
                                                             int64_t tile)
{
    int64_t image, top, left;
    wino_place(s, s->first + tile, &image, &top, &left);
    for (int64_t part = 0; part < s->parts * s->parts; part++) {
        const char *pixel[MOST_ITEMS];
        for (int i = 0; i < s->items; i++) {
            int64_t y = s->step * (top + i / s->side) + part / s->parts * s->shift - s->pad[0];
            int64_t x = s->step * (left + i % s->side) + part % s->parts * s->shift - s->pad[1];
            bool inside = y >= 0 && y < s->h && x >= 0 && x < s->w;
            pixel[i] = inside ? s->src + ((image * s->h + y) * s->w + x) * s->c * wino_item(s) : s->zeros;
        }
        input_part(half, taps, s, pixel, s->v + tile * s->v_row + part * s->c);
    }
}

/* The gradients of a tile's outputs; those beyond the image are 0. */
static inline __attribute__((always_inline)) void gradient_tile(const bool half, const int taps, const struct wino *s,
                                                                int64_t tile)
{
    const int side = taps + 3;
    int64_t image, top, left;
    wino_place(s, s->first + tile, &image, &top, &left);
    const char *pixel[16];
    for (int i = 0; i < 16; i++) {
        int64_t y = top + i / 4, x = left + i % 4;
        bool inside = y < s->oh && x < s->ow;
        pixel[i] = inside ? s->dst + ((image * s->oh + y) * s->ow + x) * s->oc * wino_item(s) : s->zeros;
    }
    float *to = s->y + tile * s->y_row;
    for (int64_t c = 0; c < s->oc; c += LANES) {
        lanes part[4 * MOST_SIDE];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            lanes line[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                line[j] = ah_lanes_load(half, pixel[4 * i + j], c);
            gradient_side(taps, line, 1, part + side * i, 1);
        }
#pragma GCC unroll 6
        for (int j = 0; j < side; j++) {
            lanes line[MOST_SIDE];
            gradient_side(taps, part + j, side, line, 1);
#pragma GCC unroll 6
            for (int i = 0; i < side; i++)
                lanes_store(to + (side * i + j) * s->y_item + c, line[i]);
        }
    }
}

/* Store a tile's outputs of the group from the products `m` of its piece. */
static inline __attribute__((always_inline)) void output_tile(const bool half, const int taps, const struct wino *s,
                                                              int64_t tile, const float *m, int64_t width)
{
    const int side = taps + 3;
    int64_t image, top, left;
    wino_place(s, s->first + tile, &image, &top, &left);
    int64_t rows = s->oh - top < 4 ? s->oh - top : 4, cols = s->ow - left < 4 ? s->ow - left : 4;
    int64_t y = top * s->out_step + s->at[0], x = left * s->out_step + s->at[1];
    int64_t step = s->out_step * s->oc * wino_item(s);
    char *to = s->dst + (((image * s->dst_h + y) * s->dst_w + x) * s->oc + s->group * GROUP) * wino_item(s);
    for (int64_t c = 0; c < width; c += LANES) {
        lanes part[4 * MOST_SIDE], out[16];
        lanes bias = s->bias ? lanes_load(s->bias + s->group * GROUP + c) : (lanes){0};
#pragma GCC unroll 6
        for (int i = 0; i < side; i++) {
            lanes line[MOST_SIDE];
#pragma GCC unroll 6
            for (int j = 0; j < side; j++)
                line[j] = lanes_load(m + (side * i + j) * s->m_item + c);
            output_side(taps, line, 1, part + 4 * i, 1);
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            output_side(taps, part + j, 4, out + j, 4);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                ah_lanes_store(half, to + (i * s->dst_w + j) * step, c, out[4 * i + j] + bias);
    }
}

#define OF_IMAGE(name, parameters, ...)            \
    static inline void wino_##name parameters      \
    {                                              \
        if (s->half && s->taps == 3)               \
            name(true, 3, __VA_ARGS__);            \
        else if (s->half)                          \
            name(true, 2, __VA_ARGS__);            \
        else if (s->taps == 3)                     \
            name(false, 3, __VA_ARGS__);           \
        else                                       \
            name(false, 2, __VA_ARGS__);           \
    }
OF_IMAGE(input_tile, (const struct wino *s, int64_t tile), s, tile)
OF_IMAGE(gradient_tile, (const struct wino *s, int64_t tile), s, tile)
OF_IMAGE(output_tile, (const struct wino *s, int64_t tile, const float *m, int64_t width), s, tile, m, width)

/* Transforms of weights. */

/* to[col, row] = from[row, col]; rows are a multiple of 4. */
static inline __attribute__((always_inline)) void weights_turn(float *to, int64_t to_step, const float *from,
                                                               int64_t from_step, int rows, int cols)
{
    for (int row = 0; row < rows; row += 4) {
        for (int col = 0; col + 4 <= cols; col += 4)
            ah_turn_4_f32(to + col * to_step + row, to_step, from + row * from_step + col, from_step, 1);
        for (int col = cols / 4 * 4; col < cols; col++)
            for (int i = row; i < row + 4; i++)
                to[col * to_step + i] = from[i * from_step + col];
    }
}

static inline __attribute__((always_inline)) void weights_turn_kernels(const int kernel, const struct wino *s,
                                                                       const float *from, float *to)
{
    for (int d = 0; d < DEPTH; d++)
        weights_turn(to + d * kernel * LANES, LANES, from + d * s->w_in, s->w_out, LANES, kernel);
}

/* DEPTH input channels of the weights of LANES outputs, by input channel and item of the kernel. */
static inline void weights_load(const struct wino *s, const float *from, float *to)
{
    int kernel = (int)(s->kernel[0] * s->kernel[1]);
    if (!s->turned)
        weights_turn(to, LANES, from, s->w_out, LANES, DEPTH * kernel);
    else if (kernel == 9)
        weights_turn_kernels(9, s, from, to);
    else
        weights_turn_kernels(kernel, s, from, to);
}

/* The item of a side of the kernel that is tap `tap` of a part. */
static inline int64_t wino_tap(const struct wino *s, int side, int64_t part, int tap)
{
    if (s->turned)
        return s->out_step * (s->parts * s->taps - 1 - part * s->shift - tap) + s->from[side];
    return s->step * tap + part * s->shift;
}

/* The items of a weight's kernel that are the taps of a part, in steps of LANES; negative: there is none. */
static inline void wino_taps(const struct wino *s, int64_t part, int64_t *at)
{
    for (int q = 0; q < s->taps * s->taps; q++) {
        int64_t y = wino_tap(s, 0, part / s->parts, q / s->taps), x = wino_tap(s, 1, part % s->parts, q % s->taps);
        at[q] = y < s->kernel[0] && x < s->kernel[1] ? (y * s->kernel[1] + x) * LANES : -1;
    }
}

static inline __attribute__((always_inline)) void weight_tile(const int taps, const int64_t *at,
                                                              const float *loaded, int64_t item, float *to)
{
    const int side = taps + 3;
    lanes in[9], part[3 * MOST_SIDE], line[MOST_SIDE];
#pragma GCC unroll 9
    for (int q = 0; q < taps * taps; q++)
        in[q] = at[q] < 0 ? (lanes){0} : lanes_load(loaded + at[q]);
#pragma GCC unroll 3
    for (int j = 0; j < taps; j++)
        weight_side(taps, in + j, taps, part + j, taps);
#pragma GCC unroll 6
    for (int i = 0; i < side; i++) {
        weight_side(taps, part + taps * i, 1, line, 1);
#pragma GCC unroll 6
        for (int j = 0; j < side; j++)
            lanes_store(to + (side * i + j) * item, line[j]);
    }
}

/* Transform the weights of the group for input channels [begin, end) * DEPTH. */
static inline void wino_weights(void *context, int64_t begin, int64_t end)
{
    const struct wino *s = context;
    int64_t width = wino_width(s, s->group), item = wino_u_item(s, width), kernel = s->kernel[0] * s->kernel[1];
    for (int64_t o = 0; o < width; o += LANES) {
        int64_t panel = o / PANEL * PANEL, wide = width - panel < PANEL ? width - panel : PANEL;
        float *to = s->u + s->group * s->u_group + panel * s->depth + (o - panel);
        const float *of_lanes = s->weight + (s->group * GROUP + o) * s->w_out;
        for (int64_t k = begin * DEPTH; k < end * DEPTH; k += DEPTH) {
            float loaded[DEPTH * MOST_KERNEL * LANES] __attribute__((aligned(64)));
            weights_load(s, of_lanes + k * s->w_in, loaded);
            for (int64_t part = 0; part < s->parts * s->parts; part++) {
                int64_t at[9];
                wino_taps(s, part, at);
                for (int64_t d = 0; d < DEPTH; d++) {
                    const float *from = loaded + d * kernel * LANES;
                    float *row = to + (part * s->c + k + d) * wide;
                    if (s->taps == 3)
                        weight_tile(3, at, from, item, row);
                    else
                        weight_tile(2, at, from, item, row);
                }
            }
        }
    }
}

static inline __attribute__((always_inline)) void sums_tile(const int taps, const int64_t *at, const float *from,
                                                            int64_t item, float *stored)
{
    const int side = taps + 3;
    lanes part[3 * MOST_SIDE], out[9];
#pragma GCC unroll 6
    for (int i = 0; i < side; i++) {
        lanes line[MOST_SIDE];
#pragma GCC unroll 6
        for (int j = 0; j < side; j++)
            line[j] = lanes_load(from + (side * i + j) * item);
        sums_side(taps, line, 1, part + taps * i, 1);
    }
#pragma GCC unroll 3
    for (int j = 0; j < taps; j++)
        sums_side(taps, part + j, taps, out + j, taps);
#pragma GCC unroll 9
    for (int q = 0; q < taps * taps; q++)
        if (at[q] >= 0)
            lanes_store(stored + at[q], out[q]);
}

/* Store the gradient of the group's weights for input channels [begin, end) * DEPTH, from the sums in `u`. */
static inline void wino_weight_gradients(void *context, int64_t begin, int64_t end)
{
    const struct wino *s = context;
    int64_t width = wino_width(s, s->group), item = wino_u_item(s, width), kernel = s->kernel[0] * s->kernel[1];
    for (int64_t o = 0; o < width; o += LANES) {
        const float *from = s->u + s->group * s->u_group + o;
        float *of_lanes = (float *)(uintptr_t)s->weight + (s->group * GROUP + o) * s->w_out;
        for (int64_t k = begin * DEPTH; k < end * DEPTH; k += DEPTH) {
            float stored[DEPTH * MOST_KERNEL * LANES] __attribute__((aligned(64)));
            for (int64_t part = 0; part < s->parts * s->parts; part++) {
                int64_t at[9];
                wino_taps(s, part, at);
                for (int64_t d = 0; d < DEPTH; d++) {
                    const float *sums = from + (part * s->c + k + d) * width;
                    if (s->taps == 3)
                        sums_tile(3, at, sums, item, stored + d * kernel * LANES);
                    else
                        sums_tile(2, at, sums, item, stored + d * kernel * LANES);
                }
            }
            weights_turn(of_lanes + k * kernel, s->w_out, stored, LANES, DEPTH * (int)kernel, LANES);
        }
    }
}
