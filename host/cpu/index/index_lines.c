/* gather, scatter, scatter_add, scatter_fold: each line along dim moves on its own, so lines run in parallel and,
 * within a line, in the order of the index: the same bits for any number of threads. */
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/index/index.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

enum { BLOCK = 64 };

struct lines {
    enum ah_line_action action;
    char *dst;
    const char *src;
    const int64_t *at;         /* row-major in `size` */
    int64_t size[AH_MAX_DIMS]; /* of the index */
    int64_t ds[AH_MAX_DIMS], ss[AH_MAX_DIMS], is[AH_MAX_DIMS];
    int ndim, dim;
    int across;     /* the last dim, when it is not dim: walked in blocks inside a line; else -1 */
    int64_t blocks; /* of `across` */
    enum ah_dtype dtype;
    int64_t places; /* indices are checked against this number while they are in the first-level cache; -1: before */
    bool outside;   /* one was not below it, and the result is undefined */
};

/* The sign of at | (places - 1 - at) is set where `at` is outside: AVX2 has no maximum of integers of 64 bits. */
static bool lines_are_outside(const struct ah_line_move *m, int64_t places)
{
    const int64_t n = m->n, width = m->width;
    const uint64_t last = (uint64_t)places - 1;
    uint64_t outside = 0;
    for (int64_t k = 0; k < n; k++) {
        const uint64_t *at = (const uint64_t *)m->at + k * m->at_step;
        for (int64_t j = 0; j < width; j++)
            outside |= at[j] | (last - at[j]);
    }
    return outside >> 63;
}

/* `width` neighbouring lines from the given starts: k walks along dim, j across the lines. A single line (dim is the
 * last one) is walked by j instead, so that the inner loop is the long one. */
static void run_lines(struct lines *l, int64_t d0, int64_t s0, int64_t i0, int64_t width)
{
    int dim = l->dim, a = l->across;
    int64_t item = (int64_t)ah_dtype_size(l->dtype);
    struct ah_line_move m = {.action = l->action, .dtype = l->dtype, .dst = l->dst + d0 * item,
                             .src = l->src + s0 * item, .at = l->at + i0, .n = l->size[dim], .width = width,
                             .at_step = l->is[dim], .dst_step = l->ds[dim], .src_step = l->ss[dim]};
    if (a < 0) {
        m.width = m.n;
        m.n = 1;
        m.dst_across = l->action == AH_GATHER ? m.dst_step : 0;
        m.src_across = l->action == AH_GATHER ? 0 : m.src_step;
        m.plain = m.dst_step == 1 && m.src_step == 1;
    } else {
        m.dst_across = l->ds[a];
        m.src_across = l->ss[a];
    }
    bool inside = true;
    if (l->places >= 0 && m.plain && l->action == AH_SCATTER)
        inside = ah_line_scatter(&m, l->places);
    else if (l->places >= 0 && lines_are_outside(&m, l->places))
        inside = false;
    else
        ah_line_move(&m);
    if (!inside)
        __atomic_store_n(&l->outside, true, __ATOMIC_RELAXED);
}

static void lines_range(void *context, int64_t begin, int64_t end)
{
    struct lines *l = context;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t d0 = 0, s0 = 0, i0 = 0, rest = unit, width = 1;
        if (l->across >= 0) {
            int64_t j0 = rest % l->blocks * BLOCK, left = l->size[l->across] - j0;
            width = left < BLOCK ? left : BLOCK;
            d0 = j0 * l->ds[l->across], s0 = j0 * l->ss[l->across], i0 = j0;
            rest /= l->blocks;
        }
        for (int d = l->ndim - 1; d >= 0; d--) {
            if (d == l->dim || d == l->across)
                continue;
            int64_t at = rest % l->size[d];
            rest /= l->size[d];
            d0 += at * l->ds[d], s0 += at * l->ss[d], i0 += at * l->is[d];
        }
        run_lines(l, d0, s0, i0, width);
    }
}

static void set_strides(int64_t *to, const struct ah_tensor *tensor)
{
    for (int d = 0; d < AH_MAX_DIMS; d++)
        to[d] = tensor && d < tensor->ndim ? tensor->stride[d] : 0;
}

/* src NULL in strides: one value for all (a scalar). Returns whether an index was not below `places`, after which
 * dst is undefined; -1: they have been checked. */
static bool slices_run(enum ah_line_action action, struct ah_tensor *dst, const struct ah_tensor *src,
                       const struct ah_tensor *at, int dim, int64_t places)
{
    struct lines l = {.action = action,
                      .dst = ah_tensor_data(dst),
                      .src = ah_tensor_data(src),
                      .at = ah_tensor_data(at),
                      .ndim = at->ndim,
                      .dim = dim,
                      .across = -1,
                      .blocks = 1,
                      .dtype = dst->dtype,
                      .places = places};
    if (at->numel == 0)
        return false;
    set_strides(l.ds, dst);
    set_strides(l.ss, src);
    if (at->ndim == 0) { /* one line of one entry */
        l.ndim = 1;
        l.size[0] = 1;
        l.is[0] = 1;
    } else {
        memcpy(l.size, at->size, sizeof l.size);
        ah_contiguous_strides(at->size, at->ndim, l.is);
    }
    if (dim != l.ndim - 1) {
        l.across = l.ndim - 1;
        l.blocks = (l.size[l.across] + BLOCK - 1) / BLOCK;
    }
    int64_t units = l.blocks;
    for (int d = 0; d < l.ndim; d++)
        if (d != dim && d != l.across)
            units *= l.size[d];
    int64_t per_unit = at->numel / units + 1;
    ah_parallel_units(units, per_unit, AH_SHARE_MIDDLE, lines_range, &l);
    return l.outside;
}

static int64_t slices_length(const struct ah_tensor *tensor, int dim)
{
    return tensor->ndim > 0 ? tensor->size[dim] : 1;
}

int ah_cpu_gather(struct ah_call *c)
{
    const struct ah_args_gather *arg = ah_args(c, gather);
    struct ah_tensor *x = arg->input.tensor;
    AH_OWNED struct ah_tensor *at = NULL;
    int dim = (int)arg->dim.integer;
    if (x->ndim == 1)
        return ah_pick_rows("gather", c->out[0], x, arg->index.tensor, dim);
    AH_TRY(ah_contiguous_as(&at, arg->index.tensor, AH_I64));
    int64_t n = slices_length(x, dim);
    return slices_run(AH_GATHER, c->out[0], x, at, dim, n) ? ah_index_fail("gather", at, 0, n, dim, x) : 0;
}

int ah_cpu_gather_backward(struct ah_call *c)
{
    const struct ah_args_gather_backward *arg = ah_args(c, gather_backward);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *at = NULL, *sum = NULL, *grad = NULL;
    int dim = (int)arg->dim.integer;
    AH_TRY(ah_checked_index("gather", arg->index.tensor, slices_length(out, dim), false, dim, out, &at));
    AH_TRY(ah_sum_open(&sum, out, NULL, at->numel));
    AH_TRY(ah_contiguous_as(&grad, arg->grad.tensor, sum->dtype));
    slices_run(AH_SCATTER_ADD, sum, grad, at, dim, -1);
    return ah_copy(out, sum);
}

static int slices_scatter(struct ah_call *c, enum ah_line_action action)
{
    const struct ah_args_scatter *arg = ah_args(c, scatter);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *at = NULL, *src = NULL;
    struct ah_target target = {out, out};
    int dim = (int)arg->dim.integer;
    int64_t n = slices_length(out, dim);
    bool late = action == AH_SCATTER && !c->inplace; /* an error leaves no tensor of the caller half-written */
    if (late)
        AH_TRY(ah_contiguous_as(&at, arg->index.tensor, AH_I64));
    else
        AH_TRY(ah_checked_index(c->op->name, arg->index.tensor, n, false, dim, out, &at));
    if (arg->src.tensor->wrapped)
        AH_TRY(ah_contiguous_as(&src, arg->src.tensor, out->dtype));
    else
        src = ah_tensor_retain(arg->src.tensor);
    if (action == AH_SCATTER_ADD && ah_compute_dtype(out->dtype) != out->dtype) {
        AH_OWNED struct ah_tensor *sum = NULL, *addends = NULL;
        AH_TRY(ah_sum_open(&sum, out, c->arg[0].tensor, at->numel));
        AH_TRY(ah_contiguous_as(&addends, src, sum->dtype));
        slices_run(action, sum, addends, at, dim, -1);
        return ah_copy(out, sum);
    }
    AH_TRY(ah_target_open(c, true, &target));
    bool outside = slices_run(action, target.work, src, at, dim, late ? n : -1);
    return ah_target_close(&target, outside ? ah_index_fail(c->op->name, at, 0, n, dim, out) : 0);
}

int ah_cpu_scatter(struct ah_call *c)
{
    const struct ah_value *reduce = &ah_args(c, scatter)->reduce;
    if (reduce->kind != AH_STRING)
        return slices_scatter(c, AH_SCATTER);
    return slices_scatter(c, !strcmp(reduce->string, "add") ? AH_SCATTER_ADD : AH_SCATTER_PROD);
}

AH_CPU_OP(scatter_add, slices_scatter(c, AH_SCATTER_ADD))

int ah_cpu_scatter_fold(struct ah_call *c)
{
    const char *reduce = ah_args(c, scatter_fold)->reduce.string;
    return slices_scatter(c, !strcmp(reduce, "prod") ? AH_SCATTER_PROD
                             : !strcmp(reduce, "amax") ? AH_SCATTER_MAX : AH_SCATTER_MIN);
}
