/* Distances of all pairs of rows. */
#include "cuda/kernels/reduce/distance.h"

#include <math.h>

#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static struct ah_cuda_kernel distances_kernel[] = AH_CUDA_REALS("distance", "pair_distances");
static struct ah_cuda_kernel gradients_kernel[] = AH_CUDA_REALS("distance", "pair_gradients");

static struct ah_distance_args args_of(const struct ah_tensor *x, double p)
{
    return (struct ah_distance_args){.n = x->size[0], .width = x->size[1], .p = p,
                                     .norm = p == 0 ? AH_DISTANCE_COUNT : p == 1 ? AH_DISTANCE_ABSOLUTE
                                             : p == 2 ? AH_DISTANCE_SQUARE : isinf(p) ? AH_DISTANCE_LARGEST
                                                      : AH_DISTANCE_POWER};
}

int ah_cuda_pair_distances(struct ah_call *c)
{
    const struct ah_args_pair_distances *arg = ah_args(c, pair_distances);
    struct ah_tensor *input = arg->input.tensor;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_distance_args args = args_of(input, arg->p.number);
    int64_t tiles = (args.n + AH_DISTANCE_TILE - 1) / AH_DISTANCE_TILE;
    if (c->out[0]->numel == 0)
        return 0;
    args.x = ah_cuda_data(ah_cuda_input(&in, input, input->dtype));
    args.distance = ah_cuda_data(c->out[0]);
    AH_TRY(in.status);
    return ah_cuda_launch(c->device, &distances_kernel[input->dtype], "pdist",
                          ah_cuda_grid_each(tiles * tiles, AH_DISTANCE_THREADS), &args);
}

int ah_cuda_pair_distances_backward(struct ah_call *c)
{
    const struct ah_args_pair_distances_backward *arg = ah_args(c, pair_distances_backward);
    struct ah_tensor *input = arg->input.tensor;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_distance_args args = args_of(input, arg->p.number);
    if (c->out[0]->numel == 0)
        return 0;
    args.x = ah_cuda_data(ah_cuda_input(&in, input, input->dtype));
    args.g = ah_cuda_data(ah_cuda_input(&in, arg->grad.tensor, input->dtype));
    args.distance = ah_cuda_data(ah_cuda_input(&in, arg->distances.tensor, input->dtype));
    args.gx = ah_cuda_data(c->out[0]);
    AH_TRY(in.status);
    return ah_cuda_launch(c->device, &gradients_kernel[input->dtype], "pdist",
                          ah_cuda_grid_for(input->numel, AH_DISTANCE_THREADS), &args);
}
