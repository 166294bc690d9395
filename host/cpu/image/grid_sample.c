/* Sampling at the locations of a grid: tensors as the arrays of grid_sample.h. */
#include <string.h>

#include "base/process/threads.h"
#include "cpu/image/grid_sample.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

static int grid_sample_describe(struct ah_sampling *s, const struct ah_call *c, const struct ah_tensor *x,
                                const struct ah_tensor *grid)
{
    const struct ah_value *mode = &c->arg[c->op->param_count - 3], *padding = mode + 1;
    *s = (struct ah_sampling){.space = x->ndim - 2, .n = x->size[0], .c = x->size[1], .volume = 1, .pixels = 1,
                              .align_corners = padding[1].flag, .corners = 1};
    s->mode = !strcmp(mode->string, "nearest")   ? AH_SAMPLE_NEAREST
              : !strcmp(mode->string, "bicubic") ? AH_SAMPLE_BICUBIC : AH_SAMPLE_BILINEAR;
    s->padding = !strcmp(padding->string, "border") ? AH_PADDING_BORDER
                 : !strcmp(padding->string, "reflection") ? AH_PADDING_REFLECTION : AH_PADDING_ZEROS;
    s->taps = s->mode == AH_SAMPLE_NEAREST ? 1 : s->mode == AH_SAMPLE_BICUBIC ? 4 : 2;
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
static int open_room(struct ah_sample_room *room, struct ah_dense *scratch, const struct ah_sampling *s,
                     int64_t locations, int64_t reals, size_t item)
{
    size_t entries = (size_t)(s->corners * locations), weights = entries * (size_t)reals * item;
    AH_TRY(ah_dense_scratch(scratch, weights + entries * sizeof(int32_t)));
    room->weight = scratch->block;
    room->at = (int32_t *)((char *)scratch->block + weights);
    return 0;
}

/* Return the locations of a group: tables of 256 KiB at most, and work for each thread. */
static int64_t group_size(const struct ah_sampling *s)
{
    int64_t most = 32768 / s->corners, even = s->n * s->pixels / (4 * ah_num_threads());
    int64_t group = (even < most ? even : most) / AH_SAMPLE_BLOCK * AH_SAMPLE_BLOCK;
    return group > AH_SAMPLE_BLOCK ? group : AH_SAMPLE_BLOCK;
}

int ah_cpu_grid_sample(struct ah_call *c)
{
    const struct ah_args_grid_sample *arg = ah_args(c, grid_sample);
    struct ah_tensor *xt = arg->input.tensor;
    struct ah_dense x = {0}, grid = {0}, scratch = {0};
    struct ah_dense_out y = {0};
    struct ah_sampling s;
    struct ah_sample_room room;
    bool single = ah_compute_dtype(xt->dtype) == AH_F32;
    int status;
    AH_TRYGO(grid_sample_describe(&s, c, xt, arg->grid.tensor), out);
    s.group = group_size(&s);
    AH_TRYGO(open_room(&room, &scratch, &s, (int64_t)ah_num_threads() * s.group, 1, single ? 4 : 8), out);
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&grid, arg->grid.tensor), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    if (single)
        ah_sample_read_f32(&s, x.data, grid.data, y.data, &room);
    else
        ah_sample_read_f64(&s, x.data, grid.data, y.data, &room);
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
    struct ah_sampling s;
    struct ah_sample_room room;
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
        ah_sample_add_f32(&s, g.data, x.data, grid.data, gx.data, ggrid.data, &room);
    else
        ah_sample_add_f64(&s, g.data, x.data, grid.data, gx.data, ggrid.data, &room);
out:
    ah_dense_out_close(&ggrid);
    ah_dense_out_close(&gx);
    ah_dense_close(&grid);
    ah_dense_close(&x);
    ah_dense_close(&g);
    ah_dense_close(&scratch);
    return status;
}
