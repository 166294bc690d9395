/* Distances of all pairs of rows: against one row as many others as a block holds, read from the matrix's transpose, so
 * that vectors run along the pairs. A gradient sums, row by row, the contributions of all pairs of the row, in
 * double. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "base/process/parallel.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/lanes.h"
#include "ops/dispatch/op.h"

enum {
    BLOCK = 256, /* pairs at a time */
    SUMMED = 32, /* terms added up in the element type before they go into a double */
    LINE = 64,   /* elements of a row whose gradients are added up at a time */
};

enum norm { COUNT, ABSOLUTE, SQUARE, LARGEST, POWER };

struct pairs {
    int64_t n, width;
    int64_t stride; /* of the transpose: room after each row for vectors that begin in it */
    double p;
    enum norm norm;
};

static struct pairs pairs_of(const struct ah_tensor *x, double p)
{
    enum norm norm = p == 0 ? COUNT : p == 1 ? ABSOLUTE : p == 2 ? SQUARE : isinf(p) ? LARGEST : POWER;
    return (struct pairs){x->size[0], x->size[1], x->size[0] + BLOCK, p, norm};
}

/* Return the index of the pair (i, j), i < j, less j. */
static int64_t pairs_before(int64_t n, int64_t i)
{
    return i * (2 * n - i - 1) / 2 - i - 1;
}

#define LOOPS "cpu/reduce/distance_loops.h"
#include "cpu/loop/for_reals.h"

int ah_cpu_pair_distances(struct ah_call *c)
{
    const struct ah_args_pair_distances *arg = ah_args(c, pair_distances);
    struct ah_tensor *input = arg->input.tensor;
    struct pairs pairs = pairs_of(input, arg->p.number);
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, input);
    size_t item = ah_dtype_size(ah_compute_dtype(input->dtype));
    void *turned = ah_array_scratch(&a, (size_t)(pairs.width * pairs.stride) * item);
    void *y = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        AH_BY_REAL(input->dtype, distances, &pairs, x, turned, y);
    return ah_arrays_close(&a);
}

int ah_cpu_pair_distances_backward(struct ah_call *c)
{
    const struct ah_args_pair_distances_backward *arg = ah_args(c, pair_distances_backward);
    struct ah_tensor *input = arg->input.tensor;
    struct pairs pairs = pairs_of(input, arg->p.number);
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, input), *g = ah_array_in(&a, arg->grad.tensor);
    const void *d = ah_array_in(&a, arg->distances.tensor);
    void *y = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        AH_BY_REAL(input->dtype, gradients, &pairs, x, g, d, y);
    return ah_arrays_close(&a);
}
