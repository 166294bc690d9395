/* Distances of all pairs of rows: against one row as many others as a block holds, read from the matrix's transpose, so
 * that vectors run along the pairs. A gradient sums, row by row, the contributions of all pairs of the row, in
 * double. */
#include <math.h>

#include "cpu/kernels.h"
#include "base/process/parallel.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

enum norm { COUNT, ABSOLUTE, SQUARE, LARGEST, POWER };

struct pairs {
    int64_t n, width;
    double p;
    enum norm norm;
};

static struct pairs pairs_of(const struct ah_tensor *x, double p)
{
    enum norm norm = p == 0 ? COUNT : p == 1 ? ABSOLUTE : p == 2 ? SQUARE : isinf(p) ? LARGEST : POWER;
    return (struct pairs){x->size[0], x->size[1], p, norm};
}

/* Return the index of the pair (i, j), i < j, less j. */
static int64_t pairs_before(int64_t n, int64_t i)
{
    return i * (2 * n - i - 1) / 2 - i - 1;
}

enum {
    BLOCK = 256, /* pairs at a time */
    SUMMED = 32, /* terms added up in the element type before they go into a double */
    LINE = 64,   /* elements of a row whose gradients are added up at a time */
};

#define LOOPS "cpu/reduce/distance_loops.h"
#include "cpu/loop/for_reals.h"

int ah_cpu_pair_distances(struct ah_call *c)
{
    const struct ah_args_pair_distances *arg = ah_args(c, pair_distances);
    struct ah_tensor *input = arg->input.tensor;
    struct pairs pairs = pairs_of(input, arg->p.number);
    enum ah_dtype dtype = ah_compute_dtype(input->dtype);
    struct ah_dense x = {0}, turned = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(ah_dense_open(&x, input), out);
    AH_TRYGO(ah_dense_scratch(&turned, (size_t)input->numel * ah_dtype_size(dtype)), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    if (dtype == AH_F32)
        distances_f32(&pairs, x.data, turned.block, y.data);
    else
        distances_f64(&pairs, x.data, turned.block, y.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&turned);
    ah_dense_close(&x);
    return status;
}

int ah_cpu_pair_distances_backward(struct ah_call *c)
{
    const struct ah_args_pair_distances_backward *arg = ah_args(c, pair_distances_backward);
    struct pairs pairs = pairs_of(arg->input.tensor, arg->p.number);
    struct ah_dense x = {0}, g = {0}, d = {0};
    struct ah_dense_out y = {0};
    int status;
    AH_TRYGO(ah_dense_open(&x, arg->input.tensor), out);
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_open(&d, arg->distances.tensor), out);
    AH_TRYGO(ah_dense_out_open(&y, c->out[0]), out);
    if (ah_compute_dtype(arg->input.tensor->dtype) == AH_F32)
        gradients_f32(&pairs, x.data, g.data, d.data, y.data);
    else
        gradients_f64(&pairs, x.data, g.data, d.data, y.data);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&d);
    ah_dense_close(&g);
    ah_dense_close(&x);
    return status;
}
