/* Winograd's F(4x4, 3x3) on channels-last arrays.
 *
 *     Y = A' [(G g G') * (B' d B)] A     (' transposes; * multiplies item by item, summed over input channels)
 *
 * with 6x6 inputs d and 4x4 outputs Y of a tile, 3x3 weights g. In the transformed domain each of the 36 items is one
 * product of matrices: tiles x input channels times input channels x output channels. The input's gradient is the same
 * with turned weights; the weight's is G' [sum over tiles of (B' d B) * (A dY A')] G. */
#include "cpu/linear/conv_winograd.h"

#include "cpu/loop/lanes.h"

#if AH_LANES_BYTES >= 32

#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/trace/trace.h"
#include "cpu/loop/dense.h"

enum {
    ITEMS = 36,                           /* of a transformed tile */
    LANES = AH_LANES_BYTES / 4,
    PANEL = AH_LANES_REGISTERS / 8 * LANES, /* columns of a product's tile in registers */
    ROWS = 6,                             /* its rows */
    GROUP = 64,                           /* output channels whose weights are transformed at a time */
    PAD = 16,                             /* floats between arrays, against conflicts in the caches */
    DEPTH = 16,                           /* channels of a block of weights that is transposed */
};

typedef ah_lanes_f32 lanes;

static inline lanes lanes_load(const float *p)
{
    return *(const ah_lanes_at_f32 *)p;
}

static inline void lanes_store(float *p, lanes v)
{
    *(ah_lanes_at_f32 *)p = v;
}

/* The points are 0, +-a, +-b and infinity with a b = 1. */
#define POINT_A (2.0f / 3)
#define POINT_B 1.5f
#define SQUARE_A (4.0f / 9)
#define SQUARE_B 2.25f
#define SCALE_A (1 / (2 * SQUARE_A * (SQUARE_A - SQUARE_B)))
#define SCALE_B (1 / (2 * SQUARE_B * (SQUARE_B - SQUARE_A)))

#define TIMES(x, v) (ah_spread_f32(x) * (v))
#define PLUS(x, v, sum) ah_fma_f32(ah_spread_f32(x), v, sum)

/* B' d: 6 of 6 items, each `step` from the next. */
static inline __attribute__((always_inline)) void input_side(const lanes *d, int step, lanes *to, int to_step)
{
    lanes even_a = PLUS(-SQUARE_B, d[2 * step], d[4 * step]), odd_a = PLUS(-SQUARE_B, d[step], d[3 * step]);
    lanes even_b = PLUS(-SQUARE_A, d[2 * step], d[4 * step]), odd_b = PLUS(-SQUARE_A, d[step], d[3 * step]);
    to[0] = PLUS(-(SQUARE_A + SQUARE_B), d[2 * step], d[0] + d[4 * step]);
    to[to_step] = PLUS(POINT_A, odd_a, even_a);
    to[2 * to_step] = PLUS(-POINT_A, odd_a, even_a);
    to[3 * to_step] = PLUS(POINT_B, odd_b, even_b);
    to[4 * to_step] = PLUS(-POINT_B, odd_b, even_b);
    to[5 * to_step] = PLUS(-(SQUARE_A + SQUARE_B), d[3 * step], d[step] + d[5 * step]);
}

/* A' m: 4 of 6 items. */
static inline __attribute__((always_inline)) void output_side(const lanes *m, int step, lanes *to, int to_step)
{
    lanes sum_a = m[step] + m[2 * step], sum_b = m[3 * step] + m[4 * step];
    lanes rest_a = m[step] - m[2 * step], rest_b = m[3 * step] - m[4 * step];
    to[0] = m[0] + sum_a + sum_b;
    to[to_step] = PLUS(POINT_A, rest_a, TIMES(POINT_B, rest_b));
    to[2 * to_step] = PLUS(SQUARE_A, sum_a, TIMES(SQUARE_B, sum_b));
    to[3 * to_step] = PLUS(POINT_A * SQUARE_A, rest_a, PLUS(POINT_B * SQUARE_B, rest_b, m[5 * step]));
}

/* A y: 6 of 4 items, the adjoint of output_side. */
static inline __attribute__((always_inline)) void gradient_side(const lanes *y, int step, lanes *to, int to_step)
{
    lanes even_a = PLUS(SQUARE_A, y[2 * step], y[0]), even_b = PLUS(SQUARE_B, y[2 * step], y[0]);
    lanes odd_a = PLUS(SQUARE_A, y[3 * step], y[step]), odd_b = PLUS(SQUARE_B, y[3 * step], y[step]);
    to[0] = y[0];
    to[to_step] = PLUS(POINT_A, odd_a, even_a);
    to[2 * to_step] = PLUS(-POINT_A, odd_a, even_a);
    to[3 * to_step] = PLUS(POINT_B, odd_b, even_b);
    to[4 * to_step] = PLUS(-POINT_B, odd_b, even_b);
    to[5 * to_step] = y[3 * step];
}

/* G g: 6 of 3 items. */
static inline __attribute__((always_inline)) void weight_side(const lanes *g, int step, lanes *to, int to_step)
{
    lanes even_a = TIMES(SCALE_A, PLUS(SQUARE_A, g[2 * step], g[0]));
    lanes even_b = TIMES(SCALE_B, PLUS(SQUARE_B, g[2 * step], g[0]));
    to[0] = g[0];
    to[to_step] = PLUS(POINT_A * SCALE_A, g[step], even_a);
    to[2 * to_step] = PLUS(-POINT_A * SCALE_A, g[step], even_a);
    to[3 * to_step] = PLUS(POINT_B * SCALE_B, g[step], even_b);
    to[4 * to_step] = PLUS(-POINT_B * SCALE_B, g[step], even_b);
    to[5 * to_step] = g[2 * step];
}

/* G' u: 3 of 6 items, the adjoint of weight_side. */
static inline __attribute__((always_inline)) void sums_side(const lanes *u, int step, lanes *to, int to_step)
{
    lanes sum_a = TIMES(SCALE_A, u[step] + u[2 * step]), sum_b = TIMES(SCALE_B, u[3 * step] + u[4 * step]);
    lanes rest_a = TIMES(SCALE_A, u[step] - u[2 * step]), rest_b = TIMES(SCALE_B, u[3 * step] - u[4 * step]);
    to[0] = u[0] + sum_a + sum_b;
    to[to_step] = PLUS(POINT_A, rest_a, TIMES(POINT_B, rest_b));
    to[2 * to_step] = PLUS(SQUARE_A, sum_a, PLUS(SQUARE_B, sum_b, u[5 * step]));
}

/* Products. */

/* d[j, v] (+)= sum over k < depth of a[j a_row + k a_step] b[k b_step + v]: `J` rows of `V` vectors. */
struct strip {
    const float *a, *b;
    float *d;
    int64_t a_row, a_step, b_step, d_row, depth;
    bool add;
};

static inline __attribute__((always_inline)) void strip_sums(const int J, const int V, const struct strip *s)
{
    lanes sum[ROWS][PANEL / LANES];
#pragma GCC unroll 6
    for (int j = 0; j < J; j++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            sum[j][v] = s->add ? lanes_load(s->d + j * s->d_row + v * LANES) : (lanes){0};
    const float *a = s->a, *b = s->b;
    int64_t a_row = s->a_row, a_step = s->a_step, b_step = s->b_step;
    for (int64_t k = 0; k < s->depth; k++, a += a_step, b += b_step) {
        lanes row[PANEL / LANES];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            row[v] = lanes_load(b + v * LANES);
#pragma GCC unroll 6
        for (int j = 0; j < J; j++) {
            lanes value = ah_spread_f32(a[j * a_row]);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++)
                sum[j][v] = ah_fma_f32(value, row[v], sum[j][v]);
        }
    }
#pragma GCC unroll 6
    for (int j = 0; j < J; j++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            lanes_store(s->d + j * s->d_row + v * LANES, sum[j][v]);
}

#define STRIP(j, v)                                  \
    static void strip_##j##_##v(const struct strip *s) \
    {                                                \
        strip_sums(j, v, s);                         \
    }
STRIP(2, 1) STRIP(4, 1) STRIP(6, 1) STRIP(2, 2) STRIP(4, 2) STRIP(6, 2)
#if AH_LANES_REGISTERS == 32
STRIP(2, 3) STRIP(4, 3) STRIP(6, 3) STRIP(2, 4) STRIP(4, 4) STRIP(6, 4)
#endif

typedef void (*strip_fn)(const struct strip *s);
static const strip_fn strips[][3] = {
    {strip_2_1, strip_4_1, strip_6_1}, {strip_2_2, strip_4_2, strip_6_2},
#if AH_LANES_REGISTERS == 32
    {strip_2_3, strip_4_3, strip_6_3}, {strip_2_4, strip_4_4, strip_6_4},
#endif
};

/* All `rows` (even) of a strip whose columns are `width` (a multiple of LANES, at most PANEL). */
static void strip_run(struct strip s, int64_t rows, int64_t width)
{
    const strip_fn *of_width = strips[width / LANES - 1];
    while (rows > 0) {
        int64_t most = rows < ROWS ? rows : ROWS;
        of_width[most / 2 - 1](&s);
        s.a += most * s.a_row;
        s.d += most * s.d_row;
        rows -= most;
    }
}

/* Geometry. */

/* One convolution with an input of `c` channels and `oc` outputs. The weight of output o and input i starts at
 * weight + o * w_out + i * w_in; where it is turned, its items are in reverse order and w_out is 9, else w_in is 9. */
struct wino {
    int64_t n, c, h, w, oc, oh, ow, pad[2], w_out, w_in;
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
static int64_t wino_item(const struct wino *s)
{
    return s->half ? sizeof(uint16_t) : sizeof(float);
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t wino_width(const struct wino *s, int64_t group)
{
    int64_t left = s->oc - group * GROUP;
    return left < GROUP ? left : GROUP;
}

/* From item to item of a group's transformed weights, `width` wide. */
static int64_t wino_u_item(const struct wino *s, int64_t width)
{
    return s->c * width + PAD;
}

static void wino_place(const struct wino *s, int64_t tile, int64_t *image, int64_t *y, int64_t *x)
{
    int64_t in_image = tile % (s->rows * s->cols);
    *image = tile / (s->rows * s->cols);
    *y = in_image / s->cols * 4;
    *x = in_image % s->cols * 4;
}

/* Transforms of tiles. */

static inline __attribute__((always_inline)) void input_tile(const bool half, const struct wino *s, int64_t tile)
{
    int64_t image, top, left;
    wino_place(s, s->first + tile, &image, &top, &left);
    const char *pixel[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        int64_t y = top - s->pad[0] + i / 6, x = left - s->pad[1] + i % 6;
        bool inside = y >= 0 && y < s->h && x >= 0 && x < s->w;
        pixel[i] = inside ? s->src + ((image * s->h + y) * s->w + x) * s->c * wino_item(s) : s->zeros;
    }
    float *to = s->v + tile * s->v_row;
    for (int64_t c = 0; c < s->c; c += LANES) {
        lanes side[ITEMS];
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++) {
            lanes line[6];
#pragma GCC unroll 6
            for (int j = 0; j < 6; j++)
                line[j] = ah_lanes_load(half, pixel[6 * i + j], c);
            input_side(line, 1, side + 6 * i, 1);
        }
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            lanes line[6];
            input_side(side + j, 6, line, 1);
#pragma GCC unroll 6
            for (int i = 0; i < 6; i++)
                lanes_store(to + (6 * i + j) * s->v_item + c, line[i]);
        }
    }
}

/* The gradients of a tile's outputs; those beyond the image are 0. */
static inline __attribute__((always_inline)) void gradient_tile(const bool half, const struct wino *s, int64_t tile)
{
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
        lanes side[24];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            lanes line[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                line[j] = ah_lanes_load(half, pixel[4 * i + j], c);
            gradient_side(line, 1, side + 6 * i, 1);
        }
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            lanes line[6];
            gradient_side(side + j, 6, line, 1);
#pragma GCC unroll 6
            for (int i = 0; i < 6; i++)
                lanes_store(to + (6 * i + j) * s->y_item + c, line[i]);
        }
    }
}

/* Store a tile's outputs of the group from the products `m` of its piece. */
static inline __attribute__((always_inline)) void output_tile(const bool half, const struct wino *s, int64_t tile,
                                                              const float *m, int64_t width)
{
    int64_t image, top, left;
    wino_place(s, s->first + tile, &image, &top, &left);
    int64_t rows = s->oh - top < 4 ? s->oh - top : 4, cols = s->ow - left < 4 ? s->ow - left : 4;
    char *to = s->dst + (((image * s->oh + top) * s->ow + left) * s->oc + s->group * GROUP) * wino_item(s);
    for (int64_t c = 0; c < width; c += LANES) {
        lanes side[24], out[16];
        lanes bias = s->bias ? lanes_load(s->bias + s->group * GROUP + c) : (lanes){0};
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++) {
            lanes line[6];
#pragma GCC unroll 6
            for (int j = 0; j < 6; j++)
                line[j] = lanes_load(m + (6 * i + j) * s->m_item + c);
            output_side(line, 1, side + 4 * i, 1);
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            output_side(side + j, 4, out + j, 4);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                ah_lanes_store(half, to + (i * s->ow + j) * s->oc * wino_item(s), c, out[4 * i + j] + bias);
    }
}

#define OF_IMAGE(name, parameters, ...)             \
    static void wino_##name parameters              \
    {                                               \
        if (s->half)                                \
            name(true, __VA_ARGS__);                \
        else                                        \
            name(false, __VA_ARGS__);               \
    }
OF_IMAGE(input_tile, (const struct wino *s, int64_t tile), s, tile)
OF_IMAGE(gradient_tile, (const struct wino *s, int64_t tile), s, tile)
OF_IMAGE(output_tile, (const struct wino *s, int64_t tile, const float *m, int64_t width), s, tile, m, width)

static void wino_inputs(void *context, int64_t begin, int64_t end)
{
    for (int64_t tile = begin; tile < end; tile++)
        wino_input_tile(context, tile);
}

static void wino_inputs_and_gradients(void *context, int64_t begin, int64_t end)
{
    for (int64_t tile = begin; tile < end; tile++) {
        wino_input_tile(context, tile);
        wino_gradient_tile(context, tile);
    }
}

/* Transforms of weights. */

/* to[col, row] = from[row, col], multiples of 4 of both. */
static void weights_turn(float *to, int64_t to_step, const float *from, int64_t from_step, int rows, int cols)
{
    for (int row = 0; row < rows; row += 4)
        for (int col = 0; col < cols; col += 4)
            ah_turn_4_f32(to + col * to_step + row, to_step, from + row * from_step + col, from_step, 1);
}

/* The same for weights in reverse order whose outputs are 9 floats apart. */
static void weights_turn_items(const struct wino *s, const float *from, float turned[DEPTH][9][LANES])
{
    for (int d = 0; d < DEPTH; d++, from += s->w_in) {
        for (int l = 0; l < LANES; l += 4) {
            ah_turn_4_f32(&turned[d][8][l], -LANES, from + 9 * l, 9, 1);
            ah_turn_4_f32(&turned[d][4][l], -LANES, from + 9 * l + 4, 9, 1);
            for (int i = l; i < l + 4; i++)
                turned[d][0][i] = from[9 * i + 8];
        }
    }
}

/* Transform the weights of the group for input channels [begin, end) * DEPTH. */
static void wino_weights(void *context, int64_t begin, int64_t end)
{
    const struct wino *s = context;
    int64_t width = wino_width(s, s->group), item = wino_u_item(s, width);
    for (int64_t o = 0; o < width; o += LANES) {
        int64_t panel = o / PANEL * PANEL, wide = width - panel < PANEL ? width - panel : PANEL;
        float *to = s->u + s->group * s->u_group + panel * s->c + (o - panel);
        const float *of_lanes = s->weight + (s->group * GROUP + o) * s->w_out;
        for (int64_t k = begin * DEPTH; k < end * DEPTH; k += DEPTH) {
            float turned[DEPTH][9][LANES] __attribute__((aligned(64)));
            if (s->turned)
                weights_turn_items(s, of_lanes + k * s->w_in, turned);
            else
                weights_turn(&turned[0][0][0], LANES, of_lanes + k * 9, s->w_out, LANES, DEPTH * 9);
            for (int d = 0; d < DEPTH; d++) {
                lanes in[9], side[18], line[6];
#pragma GCC unroll 9
                for (int q = 0; q < 9; q++)
                    in[q] = lanes_load(turned[d][q]);
#pragma GCC unroll 3
                for (int j = 0; j < 3; j++)
                    weight_side(in + j, 3, side + j, 3);
#pragma GCC unroll 6
                for (int i = 0; i < 6; i++) {
                    weight_side(side + 3 * i, 1, line, 1);
#pragma GCC unroll 6
                    for (int j = 0; j < 6; j++)
                        lanes_store(to + (6 * i + j) * item + (k + d) * wide, line[j]);
                }
            }
        }
    }
}

/* Store the gradient of the group's weights for input channels [begin, end) * DEPTH, from the sums in `u`. */
static void wino_weight_gradients(void *context, int64_t begin, int64_t end)
{
    const struct wino *s = context;
    int64_t width = wino_width(s, s->group), item = wino_u_item(s, width);
    for (int64_t o = 0; o < width; o += LANES) {
        const float *from = s->u + s->group * s->u_group + o;
        float *of_lanes = (float *)(uintptr_t)s->weight + (s->group * GROUP + o) * s->w_out;
        for (int64_t k = begin * DEPTH; k < end * DEPTH; k += DEPTH) {
            float turned[DEPTH][9][LANES] __attribute__((aligned(64)));
            for (int d = 0; d < DEPTH; d++) {
                lanes side[18], out[9];
#pragma GCC unroll 6
                for (int i = 0; i < 6; i++) {
                    lanes line[6];
#pragma GCC unroll 6
                    for (int j = 0; j < 6; j++)
                        line[j] = lanes_load(from + (6 * i + j) * item + (k + d) * width);
                    sums_side(line, 1, side + 3 * i, 1);
                }
#pragma GCC unroll 3
                for (int j = 0; j < 3; j++)
                    sums_side(side + j, 3, out + j, 3);
#pragma GCC unroll 9
                for (int q = 0; q < 9; q++)
                    lanes_store(turned[d][q], out[q]);
            }
            weights_turn(of_lanes + k * 9, s->w_out, &turned[0][0][0], LANES, DEPTH * 9, LANES);
        }
    }
}

/* Products of the transformed. */

/* The products of one item for the group and `rows` of the block's tiles. */
static void wino_products(const struct wino *s, int i, int64_t begin, int64_t rows, float *m)
{
    int64_t width = wino_width(s, s->group);
    const float *u = s->u + s->group * s->u_group + i * wino_u_item(s, width);
    for (int64_t o = 0; o < width; o += PANEL) {
        int64_t wide = width - o < PANEL ? width - o : PANEL;
        struct strip strip = {.a = s->v + i * s->v_item + begin * s->v_row, .a_row = s->v_row, .a_step = 1,
                              .b = u + o * s->c, .b_step = wide, .depth = s->c, .d = m + i * s->m_item + o,
                              .d_row = width};
        strip_run(strip, (rows + 1) / 2 * 2, wide);
    }
}

/* The outputs of the group for one piece of the block's tiles. */
static void wino_piece(void *context, int piece)
{
    const struct wino *s = context;
    int64_t begin = piece * s->chunk, rows = s->count - begin < s->chunk ? s->count - begin : s->chunk;
    int64_t width = wino_width(s, s->group);
    float *m = s->m + ah_thread_index() * ITEMS * s->m_item;
    for (int i = 0; i < ITEMS; i++)
        wino_products(s, i, begin, rows, m);
    for (int64_t t = 0; t < rows; t++)
        wino_output_tile(s, begin + t, m + t * width, width);
}

/* Blocks that one thread computes from the inputs to the outputs, with the weights of all groups. */
static void wino_blocks(void *context, int64_t begin, int64_t end)
{
    struct wino s = *(const struct wino *)context;
    s.v += ah_thread_index() * ITEMS * s.v_item;
    for (int64_t block = begin; block < end; block++) {
        s.first = block * s.block;
        s.count = least_of(s.block, s.tiles - s.first);
        wino_inputs(&s, 0, s.count);
        for (s.group = 0; s.group * GROUP < s.oc; s.group++)
            for (int piece = 0; piece * s.chunk < s.count; piece++)
                wino_piece(&s, piece);
    }
}

/* The same for a block of few tiles: the products of one item for all of them, and then the outputs. */
static void wino_item_piece(void *context, int i)
{
    const struct wino *s = context;
    wino_products(s, i, 0, s->count, s->m);
}

static void wino_outputs(void *context, int64_t begin, int64_t end)
{
    const struct wino *s = context;
    int64_t width = wino_width(s, s->group);
    for (int64_t tile = begin; tile < end; tile++)
        wino_output_tile(s, tile, s->m + tile * width, width);
}

/* The sums of one item of the group's weights over the block's tiles. */
static void wino_sums_piece(void *context, int i)
{
    const struct wino *s = context;
    int64_t width = wino_width(s, s->group), item = wino_u_item(s, width);
    for (int64_t o = 0; o < width; o += PANEL) {
        int64_t wide = width - o < PANEL ? width - o : PANEL;
        struct strip strip = {.a = s->v + i * s->v_item, .a_row = 1, .a_step = s->v_row,
                              .b = s->y + i * s->y_item + s->group * GROUP + o, .b_step = s->y_row,
                              .depth = s->count, .d = s->u + s->group * s->u_group + i * item + o, .d_row = width,
                              .add = s->first > 0};
        strip_run(strip, s->c, wide);
    }
}

/* The convolutions. */

enum {
    SMALL_WEIGHTS = 2560 << 10, /* bytes of transformed weights that are kept during a call */
    BLOCK_BYTES = 512 << 10,    /* of a block's transformed inputs for each thread, where weights are small, */
    LARGE_BLOCK = 8 << 20,      /* and where each block transforms the weights again */
    SUMS_TILES = 96,            /* of a block in the weight's gradient, where the sums are small */
    SUMS_BYTES = 16 << 20,      /* of a block, where the sums are large */
};

bool ah_conv_winograd_pays(const struct ah_conv *s)
{
    int64_t tiles = s->n * ((s->oh + 3) / 4) * ((s->ow + 3) / 4);
    return s->kh == 3 && s->kw == 3 && s->stride[0] == 1 && s->stride[1] == 1 && s->dilation[0] == 1 &&
           s->dilation[1] == 1 && s->groups == 1 && s->padding[0] <= 2 && s->padding[1] <= 2 && s->c % 16 == 0 &&
           s->oc % 16 == 0 && s->c >= 32 && s->oc >= 32 && s->n * s->oh * s->ow >= 5 * tiles + 40;
}

static void wino_tiles(struct wino *s)
{
    s->rows = (s->oh + 3) / 4;
    s->cols = (s->ow + 3) / 4;
    s->tiles = s->n * s->rows * s->cols;
}

/* Tiles of a block, even. */
static int64_t wino_block(const struct wino *s, int64_t bytes, int64_t per_tile)
{
    int64_t most = bytes / (ITEMS * per_tile * (int64_t)sizeof(float));
    return (least_of(s->tiles, most < 16 ? 16 : most) + 1) / 2 * 2;
}

static void *wino_scratch(struct ah_arrays *a, int64_t floats)
{
    return ah_array_scratch(a, (size_t)floats * sizeof(float));
}

static char *wino_zeros(struct ah_arrays *a, int64_t floats)
{
    char *zeros = wino_scratch(a, floats);
    if (zeros)
        memset(zeros, 0, (size_t)floats * sizeof(float));
    return zeros;
}

static void wino_make_weights(struct wino *s)
{
    ah_parallel_units(s->c / DEPTH, DEPTH * GROUP * ITEMS, AH_SHARE_LIGHT, wino_weights, s);
}

/* Tiles of a block that one thread computes, a multiple of the chunk: one chunk where larger blocks were too few for
 * the threads. 0: there are too few tiles. */
static int64_t wino_own_block(const struct wino *s, int threads)
{
    int64_t block = wino_block(s, BLOCK_BYTES, s->c) / s->chunk * s->chunk;
    if (block == 0 || s->tiles < 8 * block * threads)
        block = s->chunk;
    return threads == 1 || s->tiles >= 2 * block * threads ? block : 0;
}

/* All blocks, each divided among the threads. */
static void wino_shared_blocks(struct wino *s, int64_t groups, bool kept, bool by_item)
{
    for (s->first = 0; s->first < s->tiles; s->first += s->block) {
        s->count = least_of(s->block, s->tiles - s->first);
        ah_parallel_units(s->count, ITEMS * s->c, AH_SHARE_LIGHT, wino_inputs, s);
        for (s->group = 0; s->group < groups; s->group++) {
            if (!kept)
                wino_make_weights(s);
            if (by_item) {
                ah_pool_run(ITEMS, wino_item_piece, s);
                ah_parallel_units(s->count, ITEMS * GROUP, AH_SHARE_LIGHT, wino_outputs, s);
            } else {
                ah_pool_run((int)((s->count + s->chunk - 1) / s->chunk), wino_piece, s);
            }
        }
    }
}

static int wino_run(struct wino *s)
{
    ah_trace_kernel(s->half ? "own winograd bfloat16" : "own winograd float32");
    wino_tiles(s);
    int threads = ah_num_threads();
    int64_t groups = (s->oc + GROUP - 1) / GROUP, one = ITEMS * wino_u_item(s, least_of(GROUP, s->oc));
    bool kept = groups * one * (int64_t)sizeof(float) <= SMALL_WEIGHTS;
    s->chunk = s->c >= 256 ? 48 : 24;
    int64_t own = kept ? wino_own_block(s, threads) : 0;
    s->block = own ? own : wino_block(s, kept ? (int64_t)BLOCK_BYTES * threads : LARGE_BLOCK, s->c);
    s->u_group = kept ? one : 0;
    s->v_row = s->c;
    s->v_item = s->block * s->c + PAD;
    bool by_item = !own && s->block < s->chunk * threads;
    s->m_item = (by_item ? s->block : s->chunk) * least_of(GROUP, s->oc) + PAD;
    struct ah_arrays a = {0};
    s->zeros = wino_zeros(&a, s->c);
    s->v = wino_scratch(&a, (own ? threads : 1) * ITEMS * s->v_item);
    s->u = wino_scratch(&a, kept ? groups * one : one);
    s->m = wino_scratch(&a, (by_item ? 1 : threads) * ITEMS * s->m_item);
    if (a.status < 0)
        return ah_arrays_close(&a);
    for (s->group = 0; kept && s->group < groups; s->group++)
        wino_make_weights(s);
    if (own)
        ah_parallel_for((s->tiles + own - 1) / own, 1, wino_blocks, s);
    else
        wino_shared_blocks(s, groups, kept, by_item);
    ah_arrays_close(&a);
    return 1;
}

int ah_conv_winograd(const struct ah_conv *conv, bool half, const void *src, const float *weight, const float *bias,
                     void *dst)
{
    struct wino s = {.n = conv->n, .c = conv->c, .h = conv->h, .w = conv->w, .oc = conv->oc, .oh = conv->oh,
                     .ow = conv->ow, .pad = {conv->padding[0], conv->padding[1]}, .w_out = 9 * conv->c, .w_in = 9,
                     .half = half, .src = src, .weight = weight, .bias = bias, .dst = dst};
    return wino_run(&s);
}

int ah_conv_winograd_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const float *weight,
                                void *grad_src)
{
    struct wino s = {.n = conv->n, .c = conv->oc, .h = conv->oh, .w = conv->ow, .oc = conv->c, .oh = conv->h,
                     .ow = conv->w, .pad = {2 - conv->padding[0], 2 - conv->padding[1]}, .w_out = 9,
                     .w_in = 9 * conv->c, .turned = true, .half = half, .src = grad_dst, .weight = weight,
                     .dst = grad_src};
    return wino_run(&s);
}

int ah_conv_winograd_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                                 float *grad_weight)
{
    ah_trace_kernel(half ? "own winograd bfloat16" : "own winograd float32");
    struct wino s = {.n = conv->n, .c = conv->c, .h = conv->h, .w = conv->w, .oc = conv->oc, .oh = conv->oh,
                     .ow = conv->ow, .pad = {conv->padding[0], conv->padding[1]}, .w_out = 9 * conv->c, .w_in = 9,
                     .half = half, .src = src, .weight = grad_weight, .dst = (char *)(uintptr_t)grad_dst};
    wino_tiles(&s);
    int64_t groups = (s.oc + GROUP - 1) / GROUP, one = ITEMS * wino_u_item(&s, least_of(GROUP, s.oc));
    /* The order of additions follows from the block: it must not depend on the number of threads. */
    bool small = groups * one * (int64_t)sizeof(float) <= SMALL_WEIGHTS;
    int64_t block = small ? least_of(SUMS_TILES, s.tiles) : wino_block(&s, SUMS_BYTES, s.c + s.oc);
    bool kept = block < s.tiles;
    s.u_group = kept ? one : 0;
    s.v_row = s.c + PAD;
    s.y_row = s.oc + PAD;
    s.v_item = block * s.v_row + PAD;
    s.y_item = block * s.y_row + PAD;
    struct ah_arrays a = {0};
    s.zeros = wino_zeros(&a, s.c > s.oc ? s.c : s.oc);
    s.v = wino_scratch(&a, ITEMS * s.v_item);
    s.y = wino_scratch(&a, ITEMS * s.y_item);
    s.u = wino_scratch(&a, kept ? groups * one : one);
    if (a.status < 0)
        return ah_arrays_close(&a);
    for (s.first = 0; s.first < s.tiles; s.first += block) {
        s.count = least_of(block, s.tiles - s.first);
        ah_parallel_units(s.count, ITEMS * (s.c + s.oc), AH_SHARE_LIGHT, wino_inputs_and_gradients, &s);
        for (s.group = 0; s.group < groups; s.group++) {
            ah_pool_run(ITEMS, wino_sums_piece, &s);
            if (s.first + block >= s.tiles)
                ah_parallel_units(s.c / DEPTH, DEPTH * GROUP * ITEMS, AH_SHARE_LIGHT, wino_weight_gradients,
                                  &s);
        }
    }
    ah_arrays_close(&a);
    return 1;
}

#else

bool ah_conv_winograd_pays(const struct ah_conv *s)
{
    return false;
}

int ah_conv_winograd(const struct ah_conv *conv, bool half, const void *src, const float *weight, const float *bias,
                     void *dst)
{
    return 0;
}

int ah_conv_winograd_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const float *weight,
                                void *grad_src)
{
    return 0;
}

int ah_conv_winograd_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                                 float *grad_weight)
{
    return 0;
}

#endif
