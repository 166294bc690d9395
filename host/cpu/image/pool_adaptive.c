/* Maxima of windows that share out a plane: each row of a window is searched for its largest element alone, by vector
 * instructions, and the place is searched for in the row of the largest of all. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "base/process/parallel.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/row_extreme.h"
#include "ops/dispatch/op.h"
#include "ops/nn/pool.h"

#define LOOPS "cpu/image/pool_adaptive_loops.h"
#include "cpu/loop/for_reals.h"

int ah_cpu_adaptive_max_pool2d(struct ah_call *c)
{
    const struct ah_args_adaptive_max_pool2d *arg = ah_args(c, adaptive_max_pool2d);
    struct ah_tensor *in = arg->input.tensor, *out = c->out[0];
    int n = in->ndim;
    struct ah_window s = {.n = n == 4 ? in->size[0] : 1, .c = in->size[n - 3], .h = in->size[n - 2],
                          .w = in->size[n - 1], .oh = out->size[n - 2], .ow = out->size[n - 1]};
    int64_t *place = ah_tensor_data(c->extra[0]);
    struct ah_arrays a = {0};
    const void *x = ah_array_in(&a, in);
    void *y = ah_array_out(&a, out);
    if (a.status == 0) {
        AH_BY_REAL(in->dtype, adaptive_max, &s, x, y, place);
        if (arg->return_indices.flag)
            memcpy(ah_tensor_data(c->out[1]), place, (size_t)out->numel * sizeof *place);
    }
    return ah_arrays_close(&a);
}
