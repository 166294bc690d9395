/* Sampling at the locations of a grid: tensors as the arrays of grid_sample.h. */
#include <string.h>

#include "base/process/threads.h"
#include "base/status/status.h"
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
static struct ah_sample_room open_room(struct ah_arrays *a, const struct ah_sampling *s, int64_t locations,
                                       int64_t reals, enum ah_dtype dtype)
{
    size_t entries = (size_t)(s->corners * locations);
    size_t weights = entries * (size_t)reals * ah_dtype_size(ah_compute_dtype(dtype));
    char *block = ah_array_scratch(a, weights + entries * sizeof(int32_t));
    return (struct ah_sample_room){.weight = block, .at = block ? (int32_t *)(void *)(block + weights) : NULL};
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
    struct ah_arrays a = {0};
    struct ah_sampling s;
    AH_TRY(grid_sample_describe(&s, c, xt, arg->grid.tensor));
    s.group = group_size(&s);
    struct ah_sample_room room = open_room(&a, &s, (int64_t)ah_num_threads() * s.group, 1, xt->dtype);
    const void *x = ah_array_in(&a, xt), *grid = ah_array_in(&a, arg->grid.tensor);
    void *y = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        AH_BY_REAL(xt->dtype, ah_sample_read, &s, x, grid, y, &room);
    return ah_arrays_close(&a);
}

int ah_cpu_grid_sample_backward(struct ah_call *c)
{
    const struct ah_args_grid_sample_backward *arg = ah_args(c, grid_sample_backward);
    struct ah_tensor *xt = arg->input.tensor;
    struct ah_arrays a = {0};
    struct ah_sampling s;
    AH_TRY(grid_sample_describe(&s, c, xt, arg->grid.tensor));
    struct ah_sample_room room = open_room(&a, &s, s.pixels, 1 + s.space, xt->dtype);
    const void *g = ah_array_in(&a, arg->grad.tensor), *x = ah_array_in(&a, xt);
    const void *grid = ah_array_in(&a, arg->grid.tensor);
    void *gx = ah_array_out(&a, c->out[0]), *ggrid = ah_array_out(&a, c->out[1]);
    if (a.status == 0)
        AH_BY_REAL(xt->dtype, ah_sample_add, &s, g, x, grid, gx, ggrid, &room);
    return ah_arrays_close(&a);
}
