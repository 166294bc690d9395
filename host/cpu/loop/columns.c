/* Windows as columns and back: every row of columns is one place of the window over all its positions, so rows are
 * copied on their own, whatever the dtype, and added up one image plane at a time. */
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/nn/spatial.h"

/* The window positions whose place k is within 0..n - 1. */
struct span {
    int64_t first, end;
};

static struct span columns_inside(const struct ah_patches *p, int axis, int64_t k, int64_t n, int64_t count)
{
    int64_t start = k * p->dilation[axis] - p->padding[axis], step = p->stride[axis];
    struct span s = {start < 0 ? (-start + step - 1) / step : 0, start >= n ? 0 : (n - 1 - start) / step + 1};
    s.end = s.end > count ? count : s.end;
    s.first = s.first > s.end ? s.end : s.first;
    return s;
}

#define LOOPS "cpu/loop/columns_loops.h"
#include "cpu/loop/for_reals.h"

/* to[i] = from[i * step] for items of a size. */
static void copy_stepping(char *to, const char *from, int64_t n, int64_t step, size_t item)
{
    if (step == 1) {
        memcpy(to, from, (size_t)n * item);
        return;
    }
#define STEP(type)                                                  \
    do {                                                            \
        for (int64_t i = 0; i < n; i++)                             \
            ((type *)to)[i] = ((const type *)from)[i * step];       \
    } while (0)
    switch (item) {
    case 1: STEP(uint8_t); break;
    case 2: STEP(uint16_t); break;
    case 4: STEP(uint32_t); break;
    default: STEP(uint64_t);
    }
#undef STEP
}

/* One row of columns from its plane, with zeros for the padding. */
static void take_row(const struct ah_patches *p, int64_t ky, int64_t kx, const char *plane, char *row, size_t item)
{
    struct span ys = columns_inside(p, 0, ky, p->h, p->oh), xs = columns_inside(p, 1, kx, p->w, p->ow);
    memset(row, 0, (size_t)(p->oh * p->ow) * item);
    if (xs.first == xs.end)
        return;
    for (int64_t y = ys.first; y < ys.end; y++) {
        int64_t iy = y * p->stride[0] + ky * p->dilation[0] - p->padding[0];
        int64_t ix = xs.first * p->stride[1] + kx * p->dilation[1] - p->padding[1];
        copy_stepping(row + (size_t)(y * p->ow + xs.first) * item, plane + (size_t)(iy * p->w + ix) * item,
                      xs.end - xs.first, p->stride[1], item);
    }
}

int ah_cpu_im2col(struct ah_call *c)
{
    struct ah_tensor *x = ah_args(c, im2col)->input.tensor;
    struct ah_patches p;
    AH_CLEANUP(ah_dense_close) struct ah_dense dense = {0};
    AH_TRY(ah_patches_of(&p, c, 1, x->size[x->ndim - 2], x->size[x->ndim - 1]));
    AH_TRY(ah_dense_open_as_is(&dense, x));
    size_t item = ah_dtype_size(x->dtype), plane = (size_t)(p.h * p.w) * item, row = (size_t)(p.oh * p.ow) * item;
    int64_t window = p.kernel[0] * p.kernel[1], rows = x->numel / (p.h * p.w) * window;
    char *to = ah_tensor_data(c->out[0]);
#pragma omp parallel for schedule(static) if (ah_worth_threads(c->out[0]->numel, AH_SHARE_LIGHT))
    for (int64_t r = 0; r < rows; r++)
        take_row(&p, r % window / p.kernel[1], r % p.kernel[1], (const char *)dense.data + (size_t)(r / window) * plane,
                 to + (size_t)r * row, item);
    return 0;
}

int ah_cpu_col2im(struct ah_call *c)
{
    struct ah_tensor *x = ah_args(c, col2im)->input.tensor, *out = c->out[0];
    struct ah_patches p;
    struct ah_arrays a = {0};
    AH_TRY(ah_patches_of(&p, c, 2, out->size[out->ndim - 2], out->size[out->ndim - 1]));
    p.c = out->size[out->ndim - 3];
    p.n = out->ndim == 4 ? out->size[0] : 1;
    const void *from = ah_array_in(&a, x);
    void *to = ah_array_out(&a, out);
    if (a.status == 0)
        AH_BY_REAL(x->dtype, add_rows, &p, from, to);
    return ah_arrays_close(&a);
}
