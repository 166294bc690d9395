/* Kernels of class-label losses. Labels are checked against the class count before the loops of loss_loops.h index by
 * them; sums run in order in double. */
#include "ops/nn/loss.h"

#include <math.h>
#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/row_exp.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/row_max.h"
#include "ops/dispatch/op.h"

/* The positions of a loss and how they are reduced. */
struct labels {
    const int64_t *label; /* [count], each a class or `ignore` */
    int64_t count, classes, inner; /* input is (count / inner) x classes x inner */
    int64_t ignore;
    enum ah_reduction reduction;
    double smoothing, total;
};

/* Scores as they are stored. Those of fp16 and bf16 are converted a group of rows at a time, as many as make
 * SCORES_PART scores, but at least one; forward does so in `room`, a group of float for each thread. */
enum { SCORES_PART = 1024 };
struct scores {
    const void *data;
    enum ah_dtype dtype, computed; /* `half` where they differ */
    size_t size;                   /* of a score */
    bool half;
    int64_t group;
    float *room;
};

static void *scores_room(const struct labels *l, const struct scores *x)
{
    return x->half ? x->room + x->group * l->classes * ah_thread_index() : NULL;
}

static struct scores scores_open(struct ah_arrays *a, struct ah_tensor *tensor, int64_t classes)
{
    enum ah_dtype dtype = tensor->dtype, computed = ah_compute_dtype(dtype);
    bool half = computed != dtype;
    return (struct scores){.data = ah_array_as_is(a, tensor), .dtype = dtype, .computed = computed,
                           .size = ah_dtype_size(dtype), .half = half,
                           .group = half && classes > 0 && classes < SCORES_PART ? SCORES_PART / classes : 1};
}

#define LOOPS "cpu/optim_loss/loss_loops.h"
#include "cpu/loop/for_reals.h"

/* Row-major int64 labels, checked against the class count. */
static void labels_open(struct labels *l, struct ah_arrays *a, const char *name, struct ah_tensor *target,
                        const int64_t *size, int ndim, int64_t ignore, const char *reduction, double smoothing)
{
    *l = (struct labels){.count = target->numel, .ignore = ignore, .inner = 1, .smoothing = smoothing};
    l->classes = size[ndim == 1 ? 0 : 1];
    for (int d = 2; d < ndim; d++)
        l->inner *= size[d];
    a->status = ah_reduction_parse(name, reduction, &l->reduction);
    l->label = ah_array_ints(a, target);
    for (int64_t i = 0; a->status == 0 && i < l->count; i++)
        if (l->label[i] != ignore && (l->label[i] < 0 || l->label[i] >= l->classes))
            a->status = ah_fail(AH_EINVAL, "%s: target %lld at position %lld is outside 0..%lld", name,
                                (long long)l->label[i], (long long)i, (long long)(l->classes - 1));
}

int ah_cpu_class_nll(struct ah_call *c)
{
    const struct ah_args_class_nll *arg = ah_args(c, class_nll);
    struct ah_tensor *xt = arg->input.tensor;
    struct labels l;
    struct ah_arrays a = {0};
    labels_open(&l, &a, "nll_loss", arg->target.tensor, xt->size, xt->ndim, arg->ignore_index.integer,
                arg->reduction.string, arg->label_smoothing.number);
    struct ah_items x = ah_items_in(&a, xt);
    const void *w = ah_array_in(&a, arg->weight.tensor);
    void *out = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        AH_BY_REAL(xt->dtype, class_nll, &l, &x, w, out, ah_tensor_data(c->extra[1]));
    return ah_arrays_close(&a);
}

int ah_cpu_class_nll_backward(struct ah_call *c)
{
    const struct ah_args_class_nll_backward *arg = ah_args(c, class_nll_backward);
    struct ah_tensor *gt = arg->grad.tensor;
    struct labels l;
    struct ah_arrays a = {0};
    labels_open(&l, &a, "nll_loss", arg->target.tensor, c->out[0]->size, c->out[0]->ndim, arg->ignore_index.integer,
                arg->reduction.string, arg->label_smoothing.number);
    l.total = ah_tensor_get(arg->total.tensor, 0);
    const void *g = ah_array_in(&a, gt), *w = ah_array_in(&a, arg->weight.tensor);
    void *gx = ah_array_out(&a, c->out[0]);
    if (a.status == 0)
        AH_BY_REAL(gt->dtype, class_nll_backward, &l, g, w, gx);
    return ah_arrays_close(&a);
}

int ah_cpu_cross_entropy_rows(struct ah_call *c)
{
    const struct ah_args_cross_entropy_rows *arg = ah_args(c, cross_entropy_rows);
    struct ah_tensor *xt = arg->input.tensor;
    struct labels l;
    struct ah_arrays a = {0};
    labels_open(&l, &a, "cross_entropy", arg->target.tensor, xt->size, xt->ndim, arg->ignore_index.integer,
                arg->reduction.string, arg->label_smoothing.number);
    struct scores x = scores_open(&a, xt, l.classes);
    if (x.half)
        x.room = ah_array_scratch(&a, (size_t)(ah_num_threads() * x.group * l.classes) * sizeof(float));
    const void *w = ah_array_in(&a, arg->weight.tensor);
    void *out = ah_array_out(&a, c->out[0]), *loss = ah_array_scratch(&a, (size_t)l.count * sizeof(double));
    void *sums = c->extra[0] ? ah_tensor_data(c->extra[0]) : ah_array_scratch(&a, (size_t)l.count * sizeof(double));
    if (a.status == 0) {
        AH_BY_REAL(xt->dtype, cross_entropy, &l, &x, w, sums, loss);
        AH_BY_REAL(xt->dtype, reduce_rows, &l, loss, w, out, ah_tensor_data(c->extra[1]));
    }
    return ah_arrays_close(&a);
}

int ah_cpu_cross_entropy_rows_backward(struct ah_call *c)
{
    const struct ah_args_cross_entropy_rows_backward *arg = ah_args(c, cross_entropy_rows_backward);
    struct ah_tensor *xt = arg->input.tensor;
    struct labels l;
    struct ah_arrays a = {0};
    labels_open(&l, &a, "cross_entropy", arg->target.tensor, xt->size, xt->ndim, arg->ignore_index.integer,
                arg->reduction.string, arg->label_smoothing.number);
    l.total = ah_tensor_get(arg->total.tensor, 0);
    struct scores x = scores_open(&a, xt, l.classes);
    const void *g = ah_array_in(&a, arg->grad.tensor), *w = ah_array_in(&a, arg->weight.tensor);
    const void *log_sum = ah_tensor_data(arg->log_sum.tensor);
    if (a.status == 0)
        AH_BY_REAL(xt->dtype, cross_entropy_backward, &l, g, &x, log_sum, w, ah_tensor_data(c->out[0]));
    return ah_arrays_close(&a);
}
