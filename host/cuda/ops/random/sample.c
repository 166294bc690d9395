/* Permutations, by sorting random keys, and drawing of classes, as PyTorch does both on CUDA. */
#include <math.h>

#include "base/status/status.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/random/random.h"
#include "cuda/ops/index/radix.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/random/random.h"
#include "tensor/owned.h"

/* Bits of keys of which n are equal nowhere with a probability of 0.9 (https://osf.io/af2hy). */
static int key_bits(int64_t n)
{
    double count = (double)n, bits = ceil(log2(count - (6 * count * count + 1) / (12 * log(0.9))));
    return bits < 64 ? (int)bits : 64;
}

int ah_cuda_draw_randperm(struct ah_call *c)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("sample", "islands");
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *keys = NULL, *order = NULL;
    AH_CLEANUP(ah_cuda_sorted_release) struct ah_cuda_sorted sorted = {0};
    int64_t n = out->numel;
    int bits = n ? key_bits(n) : 0, item = bits > 32 ? 8 : 4;
    if (n == 0)
        return 0;
    AH_TRY(ah_tensor_empty(&keys, &n, 1, item == 8 ? AH_I64 : AH_I32, c->device));
    AH_TRY(ah_tensor_empty(&order, &n, 1, AH_I64, c->device));
    AH_TRY(ah_cuda_fill_keys(c, keys, bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1));
    AH_TRY(ah_cuda_sort_keys(c->device, "randperm", ah_tensor_data(keys), NULL, n, item, bits, &sorted));
    struct ah_island_args args = {
        .keys = ah_cuda_address(sorted.keys), .order = ah_cuda_address(sorted.order),
        .out = ah_cuda_data(order), .n = n, .wide = item == 8,
        .place = ah_cuda_philox_take(ah_cuda_state(c->device), (uint64_t)n)};
    AH_TRY(ah_cuda_launch(c->device, &kernel, "randperm", ah_cuda_grid_for(n, AH_ISLAND_THREADS), &args));
    return ah_cuda_assign(c->device, out, order);
}

/* Weights have to be finite and not below 0, and enough of them above it. */
static int check_weights(struct ah_call *c, struct ah_tensor *weights, int64_t least)
{
    AH_OWNED struct ah_tensor *counts = NULL;
    AH_TRY(ah_cuda_expect_numbers(c->device, "multinomial", "finite weights of 0 or more", INT64_MAX, weights));
    AH_TRY(ah_op1(AH_OP_count_nonzero, &counts, AH_T(weights), AH_INTS_OF((int64_t[]){-1}, 1)));
    struct ah_cuda_bounds bounds = {.op_name = "multinomial", .what = "the number of weights above 0", .low = least,
                                    .high = weights->size[weights->ndim - 1], .other = least};
    return ah_cuda_expect_within(c->device, &bounds, counts);
}

/* The `samples` largest of weight / exponential: without replacement, or one. */
static int draw_distinct(struct ah_call *c, struct ah_tensor *weights, int64_t samples)
{
    AH_OWNED struct ah_tensor *noise = NULL, *score = NULL;
    AH_OWNED_LIST(found, 2);
    struct ah_value args[] = {AH_NIL, AH_I(samples)};
    int count;
    AH_TRY(ah_tensor_empty(&noise, weights->size, weights->ndim, weights->dtype, c->device));
    AH_TRY(ah_cuda_fill_exponential(c, noise));
    AH_TRY(ah_op1(AH_OP_div, &score, AH_T(weights), AH_T(noise)));
    if (samples == 1) {
        AH_TRY(ah_op1(AH_OP_argmax, &found[1], AH_T(score), AH_I(-1), AH_B(true)));
    } else {
        args[0] = AH_T(score);
        AH_TRY(ah_op_call(AH_OP_topk, args, 2, false, found, &count));
    }
    return ah_cuda_assign(c->device, c->out[0], found[1]);
}

/* By running sums of each row's shares. */
static int draw_repeated(struct ah_call *c, struct ah_tensor *weights, int64_t samples)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("sample", "pick")};
    enum { MOST_ROWS = 65535 };
    enum ah_dtype dtype = ah_compute_dtype(weights->dtype);
    AH_OWNED struct ah_tensor *total = NULL, *shares = NULL, *sums = NULL;
    AH_OWNED_LIST(read, 2);
    int64_t classes = weights->size[weights->ndim - 1], rows = weights->numel / classes;
    AH_TRY(ah_op1(AH_OP_sum, &total, AH_T(weights), AH_INTS_OF((int64_t[]){-1}, 1), AH_B(true)));
    AH_TRY(ah_op1(AH_OP_div, &shares, AH_T(weights), AH_T(total)));
    AH_TRY(ah_op1(AH_OP_cumsum, &sums, AH_T(shares), AH_I(-1)));
    AH_TRY(ah_cuda_dense(c->device, &read[0], shares, dtype));
    AH_TRY(ah_cuda_dense(c->device, &read[1], sums, dtype));
    int64_t across = (samples - 1) / AH_PICK_THREADS + 1, down = rows < MOST_ROWS ? rows : MOST_ROWS;
    struct ah_pick_args args = {
        .shares = ah_cuda_data(read[0]), .sums = ah_cuda_data(read[1]),
        .out = ah_cuda_data(c->out[0]), .rows = rows, .classes = classes, .samples = samples,
        .across = across,
        .place = ah_cuda_philox_take(ah_cuda_state(c->device), (uint64_t)((rows - 1) / down + 1) * 4)};
    return ah_cuda_launch(c->device, &kernels[dtype], "multinomial",
                          ah_cuda_grid_of((unsigned)(across * down), AH_PICK_THREADS, 0), &args);
}

int ah_cuda_draw_multinomial(struct ah_call *c)
{
    const struct ah_args_multinomial *arg = ah_args(c, multinomial);
    struct ah_tensor *input = arg->input.tensor;
    AH_OWNED struct ah_tensor *dense = NULL, *weights = NULL;
    int64_t samples = arg->num_samples.integer;
    bool repeated = arg->replacement.flag && samples > 1;
    if (c->out[0]->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &dense, input, input->dtype));
    /* A view has no history, so that ops on it are not recorded. */
    AH_TRY(ah_tensor_view(&weights, dense, dense->size, dense->stride, dense->ndim, dense->offset));
    AH_TRY(check_weights(c, weights, repeated ? 1 : samples));
    return repeated ? draw_repeated(c, weights, samples) : draw_distinct(c, weights, samples);
}
