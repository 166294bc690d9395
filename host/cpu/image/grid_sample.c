/* Sample images and volumes at the locations of a grid. In every mode and padding, a location reads some input
 * positions with weights: the product of those along each axis. These tables are made once for all channels; the
 * gradient of the grid uses the weights' derivatives. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

/* Locations whose tables fit the first cache; the farthest that a coordinate may be, in input positions. */
enum { BLOCK = 128, FARTHEST = 1 << 30 };

enum mode { BILINEAR, NEAREST, BICUBIC };
enum padding { ZEROS, BORDER, REFLECTION };

struct sampling {
    enum mode mode;
    enum padding padding;
    bool align_corners;
    int space;         /* dims of it */
    int taps, corners; /* input positions along an axis, and of a location */
    int64_t n, c, size[3], volume, pixels; /* pixels: locations of a sample */
};

struct room {
    int32_t *at;
    void *weight; /* and behind them, for gradients, the slopes */
};

/* Return the number of locations of the block that begins at `first`. */
static int block_size(const struct sampling *s, int64_t first)
{
    return (int)(s->pixels - first < BLOCK ? s->pixels - first : BLOCK);
}

#define LOOPS "cpu/image/grid_sample_loops.h"
#include "cpu/loop/for_reals.h"

static int grid_sample_describe(struct sampling *s, const struct ah_call *c, const struct ah_tensor *x,
                                const struct ah_tensor *grid)
{
    const struct ah_value *mode = &c->arg[c->op->param_count - 3], *padding = mode + 1;
    *s = (struct sampling){.space = x->ndim - 2, .n = x->size[0], .c = x->size[1], .volume = 1, .pixels = 1,
                           .align_corners = padding[1].flag, .corners = 1};
    s->mode = !strcmp(mode->string, "nearest") ? NEAREST : !strcmp(mode->string, "bicubic") ? BICUBIC : BILINEAR;
    s->padding = !strcmp(padding->string, "border") ? BORDER
                 : !strcmp(padding->string, "reflection") ? REFLECTION : ZEROS;
    s->taps = s->mode == NEAREST ? 1 : s->mode == BICUBIC ? 4 : 2;
    for (int d = 0; d < s->space; d++) {
        s->size[d] = x->size[2 + d];
        s->volume *= s->size[d];
        s->pixels *= grid->size[1 + d];
        s->corners *= s->taps;
    }
    if (s->volume > INT32_MAX)
        return ah_fail(AH_ENOTIMPL, "grid_sample: planes beyond 2147483647 elements are not supported");
    return 0;
}

/* Tables of `locations`, with `reals` numbers for each of their corners. */
static int open_room(struct room *room, struct ah_dense *scratch, const struct sampling *s, int64_t locations,
                     int64_t reals, size_t item)
{
    size_t entries = (size_t)(s->corners * locations), weights = entries * (size_t)reals * item;
    AH_TRY(ah_dense_scratch(scratch, weights + entries * sizeof(int32_t)));
    room->weight = scratch->block;
    room->at = (int32_t *)((char *)scratch->block + weights);
    return 0;
}

int ah_cpu_grid_sample(struct ah_call *c)
{
    const struct ah_args_grid_sample *arg = ah_args(c, grid_sample);
    struct ah_tensor *xt = arg->input.tensor;
    struct ah_dense x = {0}, grid = {0}, scratch = {0};
    struct ah_dense_out y = {0};
    struct sampling s;
    struct room room;
    bool single = ah_compute_dtype(xt->dtype) == AH_F32;
    int status;
    AH_TRYGO(grid_sample_describe(&s, c, xt, arg->grid.tensor), out);
    AH_TRYGO(open_room(&room, &scratch, &s, (int64_t)ah_num_threads() * BLOCK, 1, single ? 4 : 8), out);
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&grid, arg->grid.tensor), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    if (single)
        read_f32(&s, x.data, grid.data, y.data, &room);
    else
        read_f64(&s, x.data, grid.data, y.data, &room);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&grid);
    ah_dense_close(&x);
    ah_dense_close(&scratch);
    return status;
}

int ah_cpu_grid_sample_backward(struct ah_call *c)
{
    const struct ah_args_grid_sample_backward *arg = ah_args(c, grid_sample_backward);
    struct ah_tensor *xt = arg->input.tensor;
    struct ah_dense g = {0}, x = {0}, grid = {0}, scratch = {0};
    struct ah_dense_out gx = {0}, ggrid = {0};
    struct sampling s;
    struct room room;
    bool single = ah_compute_dtype(xt->dtype) == AH_F32;
    int status;
    AH_TRYGO(grid_sample_describe(&s, c, xt, arg->grid.tensor), out);
    AH_TRYGO(open_room(&room, &scratch, &s, s.pixels, 1 + s.space, single ? 4 : 8), out);
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&grid, arg->grid.tensor), out);
    AH_TRYGO(ah_dense_out_open(&gx, c->out[0]), out);
    AH_TRYGO(ah_dense_out_open(&ggrid, c->out[1]), out);
    if (single)
        add_all_f32(&s, g.data, x.data, grid.data, gx.data, ggrid.data, &room);
    else
        add_all_f64(&s, g.data, x.data, grid.data, gx.data, ggrid.data, &room);
out:
    ah_dense_out_close(&ggrid);
    ah_dense_out_close(&gx);
    ah_dense_close(&grid);
    ah_dense_close(&x);
    ah_dense_close(&g);
    ah_dense_close(&scratch);
    return status;
}
