/* Connectionist temporal classification by the forward-backward algorithm in log space. Targets are read with a blank
 * before, between and after the labels; lengths and labels are checked before the loops of ctc_loops.h index by them.
 * Threads own sequences. */
#include <math.h>
#include <string.h>

#include "cpu/elementwise/elementwise_math.h"
#include "base/process/parallel.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

struct ctc {
    int64_t steps, batch, classes, longest; /* log_probs [steps, batch, classes], targets [batch, longest] */
    int64_t blank;
    const int64_t *target, *input_length, *target_length;
    struct ah_dense held[3];
};

/* The label at place s of sequence n with its blanks. */
static inline int64_t label_at(const struct ctc *p, int64_t n, int64_t s)
{
    return s % 2 ? p->target[n * p->longest + s / 2] : p->blank;
}

#define LOOPS "cpu/optim_loss/ctc_loops.h"
#include "cpu/loop/for_reals.h"

static void ctc_close(struct ctc *p)
{
    for (int i = 0; i < 3; i++)
        ah_dense_close(&p->held[i]);
}

static int ctc_refuse(const char *what, int64_t number, int64_t at, int64_t most)
{
    return ah_fail(AH_EINVAL, "ctc_loss: %s %lld at position %lld is outside 0..%lld", what, (long long)number,
                   (long long)at, (long long)most);
}

static int ctc_check(const struct ctc *p)
{
    for (int64_t n = 0; n < p->batch; n++)
        if (p->input_length[n] < 0 || p->input_length[n] > p->steps)
            return ctc_refuse("input length", p->input_length[n], n, p->steps);
    for (int64_t n = 0; n < p->batch; n++)
        if (p->target_length[n] < 0 || p->target_length[n] > p->longest)
            return ctc_refuse("target length", p->target_length[n], n, p->longest);
    for (int64_t n = 0; n < p->batch; n++) {
        const int64_t *label = p->target + n * p->longest;
        for (int64_t k = 0; k < p->target_length[n]; k++)
            if (label[k] < 0 || label[k] >= p->classes)
                return ctc_refuse("target", label[k], n * p->longest + k, p->classes - 1);
    }
    return 0;
}

/* Arguments `at` .. at + 3: log_probs, targets, lengths. */
static int ctc_open(struct ctc *p, const struct ah_call *c, int at, int64_t blank)
{
    const struct ah_tensor *x = c->arg[at].tensor;
    *p = (struct ctc){.steps = x->size[0], .batch = x->size[1], .classes = x->size[2],
                      .longest = c->arg[at + 1].tensor->size[1], .blank = blank};
    for (int i = 0; i < 3; i++)
        AH_TRY(ah_dense_open_as_is(&p->held[i], c->arg[at + 1 + i].tensor));
    p->target = p->held[0].data;
    p->input_length = p->held[1].data;
    p->target_length = p->held[2].data;
    return ctc_check(p);
}

int ah_cpu_ctc(struct ah_call *c)
{
    const struct ah_args_ctc *arg = ah_args(c, ctc);
    struct ctc p;
    struct ah_dense x = {0};
    bool zero_infinity = arg->zero_infinity.flag;
    int status;
    AH_TRYGO(ctc_open(&p, c, 0, arg->blank.integer), out);
    AH_TRYGO(ah_dense_open(&x, arg->log_probs.tensor), out);
    if (c->extra[1]->dtype == AH_F32)
        ctc_forward_f32(&p, x.data, ah_tensor_data(c->extra[0]), ah_tensor_data(c->extra[1]));
    else
        ctc_forward_f64(&p, x.data, ah_tensor_data(c->extra[0]), ah_tensor_data(c->extra[1]));
    for (int64_t n = 0; n < p.batch; n++) {
        double loss = ah_tensor_get(c->extra[1], n);
        ah_tensor_set(c->out[0], n, zero_infinity && isinf(loss) ? 0 : loss);
    }
out:
    ah_dense_close(&x);
    ctc_close(&p);
    return status;
}

int ah_cpu_ctc_backward(struct ah_call *c)
{
    const struct ah_args_ctc_backward *arg = ah_args(c, ctc_backward);
    struct ctc p;
    struct ah_dense x = {0}, g = {0}, beta = {0};
    struct ah_dense_out gx = {0};
    bool zero_infinity = arg->zero_infinity.flag;
    const struct ah_tensor *alpha = arg->log_alpha.tensor, *likelihood = arg->likelihood.tensor;
    int status;
    AH_TRYGO(ctc_open(&p, c, 1, arg->blank.integer), out);
    AH_TRYGO(ah_dense_open(&x, arg->log_probs.tensor), out);
    AH_TRYGO(ah_dense_open(&g, arg->grad.tensor), out);
    AH_TRYGO(ah_dense_out_open(&gx, c->out[0]), out);
    AH_TRYGO(ah_dense_scratch(&beta, (size_t)(p.batch * 2 * (2 * p.longest + 1)) * sizeof(double)), out);
    if (likelihood->dtype == AH_F32)
        ctc_backward_f32(&p, x.data, ah_tensor_data(alpha), ah_tensor_data(likelihood), g.data, zero_infinity,
                         beta.block, gx.data);
    else
        ctc_backward_f64(&p, x.data, ah_tensor_data(alpha), ah_tensor_data(likelihood), g.data, zero_infinity,
                         beta.block, gx.data);
out:
    ah_dense_close(&beta);
    ah_dense_out_close(&gx);
    ah_dense_close(&g);
    ah_dense_close(&x);
    ctc_close(&p);
    return status;
}
