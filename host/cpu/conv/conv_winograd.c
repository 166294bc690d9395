/* Winograd's filtering of channels-last arrays: in the transformed domain (cpu/conv/conv_winograd_sides.h) each item
 * of a tile is one product of matrices: tiles x input channels times input channels x output channels. The input's
 * gradient is the same with turned weights; the weight's is G' [sum over tiles of (B' d B) * (A dY A')] G. */
#include "cpu/conv/conv_winograd.h"

#include "cpu/loop/lanes.h"

#if AH_LANES_BYTES >= 32

#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/conv/conv_winograd_tiles.h"
#include "cpu/loop/dense.h"

enum {
    ROWS = 6, /* of a product's tile in registers */
};

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

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

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

/* Products of the transformed. */

/* The products of one item for the group and `rows` of the block's tiles. */
static void wino_products(const struct wino *s, int i, int64_t begin, int64_t rows, float *m)
{
    int64_t width = wino_width(s, s->group);
    const float *u = s->u + s->group * s->u_group + i * wino_u_item(s, width);
    for (int64_t o = 0; o < width; o += PANEL) {
        int64_t wide = width - o < PANEL ? width - o : PANEL;
        struct strip strip = {.a = s->v + i * s->v_item + begin * s->v_row, .a_row = s->v_row, .a_step = 1,
                              .b = u + o * s->depth, .b_step = wide, .depth = s->depth, .d = m + i * s->m_item + o,
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
    float *m = s->m + ah_thread_index() * s->items * s->m_item;
    for (int i = 0; i < s->items; i++)
        wino_products(s, i, begin, rows, m);
    for (int64_t t = 0; t < rows; t++)
        wino_output_tile(s, begin + t, m + t * width, width);
}

/* Blocks that one thread computes from the inputs to the outputs, with the weights of all groups. */
static void wino_blocks(void *context, int64_t begin, int64_t end)
{
    struct wino s = *(const struct wino *)context;
    s.v += ah_thread_index() * s.items * s.v_item;
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
        strip_run(strip, s->depth, wide);
    }
}

/* The convolutions. */

enum {
    SMALL_WEIGHTS = 2560 << 10, /* bytes of transformed weights that are kept during a call */
    BLOCK_BYTES = 512 << 10,    /* of a block's transformed inputs for each thread, where weights are small, */
    LARGE_BLOCK = 8 << 20,      /* and where each block transforms the weights again */
    SUMS_TILES = 96,            /* of a block in the weight's gradient, where the sums are small */
    SUMS_BYTES = 16 << 20,      /* of a block, where the sums are large */
    MOST_SUMS = 64 << 20,       /* bytes of sums of several blocks */
};

/* Set how a convolution is a sum of those with kernels of 2x2 or 3x3. Returns the number of multiplications that one of
 * a transformed tile replaces, in percent; 0 where it is no such sum. */
static int64_t wino_form(const struct ah_conv *s, struct wino *form)
{
    int64_t least = s->kh < s->kw ? s->kh : s->kw, most = s->kh < s->kw ? s->kw : s->kh;
    form->step = (int)s->stride[0];
    form->taps = most == 4 ? 2 : 3;
    form->parts = (int)((most + form->taps - 1) / form->taps);
    form->shift = form->step == 1 ? form->taps : 1;
    form->side = form->taps + 3;
    form->items = form->side * form->side;
    bool fits = s->stride[1] == s->stride[0] && form->step <= 2 && (form->step == 1 || form->parts == 2) &&
                most * most <= MOST_KERNEL && least > (form->parts - 1) * form->taps && s->dilation[0] == 1 &&
                s->dilation[1] == 1 && s->groups == 1 && s->c % DEPTH == 0 && s->oc % DEPTH == 0 && s->c >= 2 * DEPTH &&
                s->oc >= 2 * DEPTH;
    return fits ? 1600 * s->kh * s->kw / (form->items * form->parts * form->parts) : 0;
}

/* Does it pay for results of `rows` x `cols` pixels? The transform of the weights needs the time of the products of
 * some 20 tiles, more where it is large. A fourth of the multiplications suffices against those in bfloat16, else only
 * where the library's are slow: 4x4 with stride 2 and many channels. */
static bool wino_pays(const struct ah_conv *s, bool half, int64_t rows, int64_t cols)
{
    struct wino form;
    int64_t replaced = wino_form(s, &form), outputs = s->n * s->oh * s->ow;
    int64_t tiles = s->n * ((rows + 3) / 4) * ((cols + 3) / 4);
    if (replaced >= 400 && form.step == 1)
        return outputs >= 5 * tiles + 40;
    return replaced > 200 && outputs >= 7 * tiles + (form.parts > 2 ? 1024 : 128) &&
           (!half || (form.step == 2 && form.taps == 2 && s->c >= 128));
}

bool ah_conv_winograd_pays(const struct ah_conv *s, bool half)
{
    return wino_pays(s, half, s->oh, s->ow);
}

bool ah_conv_winograd_pays_grad_input(const struct ah_conv *s, bool half)
{
    int64_t step = s->stride[0];
    return wino_pays(s, half, (s->h + step - 1) / step, (s->w + step - 1) / step);
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
    int64_t most = bytes / (s->items * per_tile * (int64_t)sizeof(float));
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
    ah_parallel_units(s->c / DEPTH, s->parts * s->parts * DEPTH * GROUP * s->items, AH_SHARE_LIGHT,
                      wino_weights, s);
}

/* Tiles of a block that one thread computes, a multiple of the chunk: one chunk where larger blocks were too few for
 * the threads. 0: there are too few tiles. */
static int64_t wino_own_block(const struct wino *s, int threads)
{
    int64_t block = wino_block(s, BLOCK_BYTES, s->depth) / s->chunk * s->chunk;
    if (block == 0 || s->tiles < 8 * block * threads)
        block = s->chunk;
    return threads == 1 || s->tiles >= 2 * block * threads ? block : 0;
}

/* All blocks, each divided among the threads. */
static void wino_shared_blocks(struct wino *s, int64_t groups, bool kept, bool by_item)
{
    for (s->first = 0; s->first < s->tiles; s->first += s->block) {
        s->count = least_of(s->block, s->tiles - s->first);
        ah_parallel_units(s->count, s->items * s->depth, AH_SHARE_LIGHT, wino_inputs, s);
        for (s->group = 0; s->group < groups; s->group++) {
            if (!kept)
                wino_make_weights(s);
            if (by_item) {
                ah_pool_run(s->items, wino_item_piece, s);
                ah_parallel_units(s->count, s->items * GROUP, AH_SHARE_LIGHT, wino_outputs, s);
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
    int64_t groups = (s->oc + GROUP - 1) / GROUP, one = s->items * wino_u_item(s, least_of(GROUP, s->oc));
    bool kept = groups * one * (int64_t)sizeof(float) <= SMALL_WEIGHTS;
    s->chunk = s->depth >= 256 ? 48 : 24;
    int64_t own = kept ? wino_own_block(s, threads) : 0;
    s->block = own ? own : wino_block(s, kept ? (int64_t)BLOCK_BYTES * threads : LARGE_BLOCK, s->depth);
    s->u_group = kept ? one : 0;
    s->v_row = s->depth;
    s->v_item = s->block * s->depth + PAD;
    bool by_item = !own && s->block < s->chunk * threads;
    s->m_item = (by_item ? s->block : s->chunk) * least_of(GROUP, s->oc) + PAD;
    struct ah_arrays a = {0};
    s->zeros = wino_zeros(&a, s->c);
    s->v = wino_scratch(&a, (own ? threads : 1) * s->items * s->v_item);
    s->u = wino_scratch(&a, kept ? groups * one : one);
    s->m = wino_scratch(&a, (by_item ? 1 : threads) * s->items * s->m_item);
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

/* A convolution, as far as its forward and the gradient of its weight have it in common. */
static struct wino wino_of(const struct ah_conv *conv, bool half, const void *src, const float *weight, void *dst)
{
    int64_t kernel = conv->kh * conv->kw;
    struct wino s = {.n = conv->n, .c = conv->c, .h = conv->h, .w = conv->w, .oc = conv->oc, .oh = conv->oh,
                     .ow = conv->ow, .pad = {conv->padding[0], conv->padding[1]}, .w_out = kernel * conv->c,
                     .w_in = kernel, .kernel = {conv->kh, conv->kw}, .dst_h = conv->oh, .dst_w = conv->ow,
                     .out_step = 1, .half = half, .src = src, .weight = weight, .dst = dst};
    wino_form(conv, &s);
    s.depth = s.parts * s.parts * s.c;
    return s;
}

int ah_conv_winograd(const struct ah_conv *conv, bool half, const void *src, const float *weight, const float *bias,
                     void *dst)
{
    struct wino s = wino_of(conv, half, src, weight, dst);
    s.bias = bias;
    return wino_run(&s);
}

int ah_conv_winograd_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const float *weight,
                                void *grad_src)
{
    struct wino s = wino_of(conv, half, grad_dst, weight, grad_src);
    s.turned = true;
    s.c = conv->oc;
    s.oc = conv->c;
    s.h = conv->oh;
    s.w = conv->ow;
    s.dst_h = conv->h;
    s.dst_w = conv->w;
    s.w_in = s.w_out;
    s.w_out = conv->kh * conv->kw;
    if (s.step > 1) {
        s.out_step = s.step;
        s.parts = s.step = 1;
    }
    s.depth = s.parts * s.parts * s.c;
    for (int64_t phase = 0; phase < s.out_step * s.out_step; phase++) {
        const int64_t at[2] = {phase / 2, phase % 2}, size[2] = {conv->h, conv->w};
        int64_t count[2];
        for (int i = 0; i < 2; i++) {
            /* Row y of the phase is one of outputs and kernel items with out_step * output + item = y + padding. */
            int64_t first = at[i] + conv->padding[i];
            s.at[i] = at[i];
            s.from[i] = first % s.out_step;
            s.pad[i] = s.parts * s.taps - 1 - first / s.out_step;
            count[i] = (size[i] - at[i] + s.out_step - 1) / s.out_step;
        }
        s.oh = count[0];
        s.ow = count[1];
        if (s.oh > 0 && s.ow > 0)
            AH_TRY(wino_run(&s));
    }
    return 1;
}

/* The bytes of the sums of all groups. */
static int64_t wino_sums_bytes(const struct wino *s)
{
    int64_t groups = (s->oc + GROUP - 1) / GROUP;
    return groups * s->items * wino_u_item(s, least_of(GROUP, s->oc)) * (int64_t)sizeof(float);
}

/* Tiles of a block. The order of additions follows from it: it must not depend on the number of threads. */
static int64_t wino_sums_block(const struct wino *s)
{
    bool small = wino_sums_bytes(s) <= SMALL_WEIGHTS;
    return small ? least_of(SUMS_TILES, s->tiles) : wino_block(s, SUMS_BYTES, s->depth + s->oc);
}

bool ah_conv_winograd_pays_grad_weight(const struct ah_conv *conv, bool half)
{
    if (!wino_pays(conv, half, conv->oh, conv->ow))
        return false;
    struct wino s = wino_of(conv, half, NULL, NULL, NULL);
    wino_tiles(&s);
    return s.parts <= 2 && (wino_sums_block(&s) >= s.tiles || wino_sums_bytes(&s) <= MOST_SUMS);
}

int ah_conv_winograd_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                                 float *grad_weight)
{
    ah_trace_kernel(half ? "own winograd bfloat16" : "own winograd float32");
    struct wino s = wino_of(conv, half, src, grad_weight, (void *)(uintptr_t)grad_dst);
    wino_tiles(&s);
    int64_t groups = (s.oc + GROUP - 1) / GROUP, one = s.items * wino_u_item(&s, least_of(GROUP, s.oc));
    int64_t block = wino_sums_block(&s);
    bool kept = block < s.tiles;
    s.u_group = kept ? one : 0;
    s.v_row = s.depth + PAD;
    s.y_row = s.oc + PAD;
    s.v_item = block * s.v_row + PAD;
    s.y_item = block * s.y_row + PAD;
    struct ah_arrays a = {0};
    s.zeros = wino_zeros(&a, s.c > s.oc ? s.c : s.oc);
    s.v = wino_scratch(&a, s.items * s.v_item);
    s.y = wino_scratch(&a, s.items * s.y_item);
    s.u = wino_scratch(&a, kept ? groups * one : one);
    if (a.status < 0)
        return ah_arrays_close(&a);
    for (s.first = 0; s.first < s.tiles; s.first += block) {
        s.count = least_of(block, s.tiles - s.first);
        ah_parallel_units(s.count, s.items * (s.depth + s.oc), AH_SHARE_LIGHT, wino_inputs_and_gradients, &s);
        for (s.group = 0; s.group < groups; s.group++) {
            ah_pool_run(s.items, wino_sums_piece, &s);
            if (s.first + block >= s.tiles)
                ah_parallel_units(s.c / DEPTH, s.depth / s.c * DEPTH * GROUP * s.items, AH_SHARE_LIGHT,
                                  wino_weight_gradients, &s);
        }
    }
    ah_arrays_close(&a);
    return 1;
}

#else

bool ah_conv_winograd_pays(const struct ah_conv *s, bool half)
{
    return false;
}

bool ah_conv_winograd_pays_grad_weight(const struct ah_conv *s, bool half)
{
    return false;
}

bool ah_conv_winograd_pays_grad_input(const struct ah_conv *s, bool half)
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
