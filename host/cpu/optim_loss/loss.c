/* Kernels of class-label losses. Labels are checked against the class count before the loops of loss_loops.h index by
 * them; sums run in order in double. */
#include "ops/nn/loss.h"

#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/row_max.h"
#include "ops/dispatch/op.h"

/* The positions of a loss and how they are reduced. */
struct labels {
    const int64_t *label; /* [count], each a class or `ignore` */
    struct ah_dense held;
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
    struct ah_dense held, room;
};

static void *scores_room(const struct labels *l, const struct scores *x)
{
    return x->half ? (float *)x->room.block + x->group * l->classes * ah_thread_index() : NULL;
}

static int scores_open(struct scores *x, struct ah_tensor *tensor, int64_t classes)
{
    x->dtype = tensor->dtype;
    x->computed = ah_compute_dtype(x->dtype);
    x->size = ah_dtype_size(x->dtype);
    x->half = x->computed != x->dtype;
    x->group = x->half && classes > 0 && classes < SCORES_PART ? SCORES_PART / classes : 1;
    AH_TRY(ah_dense_open_as_is(&x->held, tensor));
    x->data = x->held.data;
    return 0;
}

static void scores_close(struct scores *x)
{
    ah_dense_close(&x->room);
    ah_dense_close(&x->held);
}

#define LOOPS "cpu/optim_loss/loss_loops.h"
#include "cpu/loop/for_reals.h"

/* Row-major int64 labels, checked against the class count. */
static int labels_open(struct labels *l, const char *name, struct ah_tensor *target, const int64_t *size, int ndim,
                       int64_t ignore, const char *reduction, double smoothing)
{
    *l = (struct labels){.count = target->numel, .ignore = ignore, .inner = 1, .smoothing = smoothing};
    l->classes = size[ndim == 1 ? 0 : 1];
    for (int d = 2; d < ndim; d++)
        l->inner *= size[d];
    AH_TRY(ah_reduction_parse(name, reduction, &l->reduction));
    if (target->dtype == AH_I64 && ah_tensor_is_contiguous(target)) {
        l->label = ah_tensor_data(target);
    } else {
        AH_TRY(ah_dense_scratch(&l->held, (size_t)target->numel * sizeof(int64_t)));
        int64_t *to = l->held.block;
        for (int64_t i = 0; i < l->count; i++)
            to[i] = ah_tensor_get_int(target, i);
        l->label = to;
    }
    for (int64_t i = 0; i < l->count; i++) {
        int64_t label = l->label[i];
        if (label != ignore && (label < 0 || label >= l->classes)) {
            ah_dense_close(&l->held);
            return ah_fail(AH_EINVAL, "%s: target %lld at position %lld is outside 0..%lld", name, (long long)label,
                           (long long)i, (long long)(l->classes - 1));
        }
    }
    return 0;
}

int ah_cpu_class_nll(struct ah_call *c)
{
    const struct ah_args_class_nll *arg = ah_args(c, class_nll);
    struct ah_tensor *xt = arg->input.tensor;
    struct labels l;
    struct ah_dense x = {0}, w = {0};
    struct ah_dense_out out = {0};
    int status;
    AH_TRY(labels_open(&l, "nll_loss", arg->target.tensor, xt->size, xt->ndim, arg->ignore_index.integer,
                       arg->reduction.string, arg->label_smoothing.number));
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_out_open(&out, c->out[0]), out);
    if (ah_compute_dtype(xt->dtype) == AH_F32)
        class_nll_f32(&l, x.data, w.data, out.data, ah_tensor_data(c->extra[1]));
    else
        class_nll_f64(&l, x.data, w.data, out.data, ah_tensor_data(c->extra[1]));
out:
    ah_dense_out_close(&out);
    ah_dense_close(&w);
    ah_dense_close(&x);
    ah_dense_close(&l.held);
    return status;
}

int ah_cpu_class_nll_backward(struct ah_call *c)
{
    const struct ah_args_class_nll_backward *arg = ah_args(c, class_nll_backward);
    struct ah_tensor *gt = arg->grad.tensor;
    struct labels l;
    struct ah_dense g = {0}, w = {0};
    struct ah_dense_out gx = {0};
    int status;
    AH_TRY(labels_open(&l, "nll_loss", arg->target.tensor, c->out[0]->size, c->out[0]->ndim, arg->ignore_index.integer,
                       arg->reduction.string, arg->label_smoothing.number));
    l.total = ah_tensor_get(arg->total.tensor, 0);
    AH_TRYGO(ah_dense_open(&g, gt), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_out_open(&gx, c->out[0]), out);
    if (ah_compute_dtype(gt->dtype) == AH_F32)
        class_nll_backward_f32(&l, g.data, w.data, gx.data);
    else
        class_nll_backward_f64(&l, g.data, w.data, gx.data);
out:
    ah_dense_out_close(&gx);
    ah_dense_close(&w);
    ah_dense_close(&g);
    ah_dense_close(&l.held);
    return status;
}

int ah_cpu_cross_entropy_rows(struct ah_call *c)
{
    const struct ah_args_cross_entropy_rows *arg = ah_args(c, cross_entropy_rows);
    struct ah_tensor *xt = arg->input.tensor;
    struct labels l;
    struct scores x = {0};
    struct ah_dense w = {0}, loss = {0}, sums = {0};
    struct ah_dense_out out = {0};
    int status;
    AH_TRY(labels_open(&l, "cross_entropy", arg->target.tensor, xt->size, xt->ndim, arg->ignore_index.integer,
                       arg->reduction.string, arg->label_smoothing.number));
    AH_TRYGO(scores_open(&x, xt, l.classes), out);
    if (x.half)
        AH_TRYGO(ah_dense_scratch(&x.room, (size_t)(ah_num_threads() * x.group * l.classes) * sizeof(float)), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    AH_TRYGO(ah_dense_out_open(&out, c->out[0]), out);
    AH_TRYGO(ah_dense_scratch(&loss, (size_t)l.count * sizeof(double)), out);
    AH_TRYGO(ah_dense_scratch(&sums, (size_t)l.count * sizeof(double)), out);
    void *log_sum = c->extra[0] ? ah_tensor_data(c->extra[0]) : sums.block;
    if (ah_compute_dtype(xt->dtype) == AH_F32) {
        cross_entropy_f32(&l, &x, w.data, log_sum, loss.block);
        reduce_rows_f32(&l, loss.data, w.data, out.data, ah_tensor_data(c->extra[1]));
    } else {
        cross_entropy_f64(&l, &x, w.data, log_sum, loss.block);
        reduce_rows_f64(&l, loss.data, w.data, out.data, ah_tensor_data(c->extra[1]));
    }
out:
    ah_dense_close(&sums);
    ah_dense_close(&loss);
    ah_dense_out_close(&out);
    ah_dense_close(&w);
    scores_close(&x);
    ah_dense_close(&l.held);
    return status;
}

int ah_cpu_cross_entropy_rows_backward(struct ah_call *c)
{
    const struct ah_args_cross_entropy_rows_backward *arg = ah_args(c, cross_entropy_rows_backward);
    struct ah_tensor *xt = arg->input.tensor;
    struct labels l;
    struct scores x = {0};
    struct ah_dense g = {0}, w = {0};
    void *gx = ah_tensor_data(c->out[0]);
    int status;
    AH_TRY(labels_open(&l, "cross_entropy", arg->target.tensor, xt->size, xt->ndim, arg->ignore_index.integer,
                       arg->reduction.string, arg->label_smoothing.number));
    l.total = ah_tensor_get(arg->total.tensor, 0);
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(scores_open(&x, xt, l.classes), out);
    AH_TRYGO(ah_dense_open(&w, arg->weight.tensor), out);
    const void *log_sum = ah_tensor_data(arg->log_sum.tensor);
    if (ah_compute_dtype(xt->dtype) == AH_F32)
        cross_entropy_backward_f32(&l, g.data, &x, log_sum, w.data, gx);
    else
        cross_entropy_backward_f64(&l, g.data, &x, log_sum, w.data, gx);
out:
    ah_dense_close(&w);
    scores_close(&x);
    ah_dense_close(&g);
    ah_dense_close(&l.held);
    return status;
}
