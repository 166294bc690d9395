/* Connectionist temporal classification by the forward-backward algorithm in log space. Targets are read with a blank
 * before, between and after the labels; lengths and labels are checked before the loops of ctc_loops.h index by them.
 * Threads own sequences. */
#include <math.h>
#include <string.h>

#include "base/status/status.h"
#include "cpu/elementwise/elementwise_math.h"
#include "base/process/parallel.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

struct ctc {
    int64_t steps, batch, classes, longest; /* log_probs [steps, batch, classes], targets [batch, longest] */
    int64_t blank;
    const int64_t *target, *input_length, *target_length;
};

/* The label at place s of sequence n with its blanks. */
static inline int64_t label_at(const struct ctc *p, int64_t n, int64_t s)
{
    return s % 2 ? p->target[n * p->longest + s / 2] : p->blank;
}

#define LOOPS "cpu/optim_loss/ctc_loops.h"
#include "cpu/loop/for_reals.h"

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
static void ctc_open(struct ctc *p, const struct ah_call *c, int at, int64_t blank, struct ah_arrays *a)
{
    const struct ah_tensor *x = c->arg[at].tensor;
    *p = (struct ctc){.steps = x->size[0], .batch = x->size[1], .classes = x->size[2],
                      .longest = c->arg[at + 1].tensor->size[1], .blank = blank,
                      .target = ah_array_as_is(a, c->arg[at + 1].tensor),
                      .input_length = ah_array_as_is(a, c->arg[at + 2].tensor),
                      .target_length = ah_array_as_is(a, c->arg[at + 3].tensor)};
    if (a->status == 0)
        a->status = ctc_check(p);
}

int ah_cpu_ctc(struct ah_call *c)
{
    const struct ah_args_ctc *arg = ah_args(c, ctc);
    struct ctc p;
    struct ah_arrays a = {0};
    bool zero_infinity = arg->zero_infinity.flag;
    ctc_open(&p, c, 0, arg->blank.integer, &a);
    const void *x = ah_array_in(&a, arg->log_probs.tensor);
    if (a.status < 0)
        return ah_arrays_close(&a);
    AH_BY_REAL(c->extra[1]->dtype, ctc_forward, &p, x, ah_tensor_data(c->extra[0]), ah_tensor_data(c->extra[1]));
    for (int64_t n = 0; n < p.batch; n++) {
        double loss = ah_tensor_get(c->extra[1], n);
        ah_tensor_set(c->out[0], n, zero_infinity && isinf(loss) ? 0 : loss);
    }
    return ah_arrays_close(&a);
}

int ah_cpu_ctc_backward(struct ah_call *c)
{
    const struct ah_args_ctc_backward *arg = ah_args(c, ctc_backward);
    struct ctc p;
    struct ah_arrays a = {0};
    const struct ah_tensor *alpha = arg->log_alpha.tensor, *likelihood = arg->likelihood.tensor;
    ctc_open(&p, c, 1, arg->blank.integer, &a);
    const void *x = ah_array_in(&a, arg->log_probs.tensor), *g = ah_array_in(&a, arg->grad.tensor);
    void *gx = ah_array_out(&a, c->out[0]);
    void *beta = ah_array_scratch(&a, (size_t)(p.batch * 2 * (2 * p.longest + 1)) * sizeof(double));
    if (a.status == 0)
        AH_BY_REAL(likelihood->dtype, ctc_backward, &p, x, ah_tensor_data(alpha), ah_tensor_data(likelihood), g,
                   arg->zero_infinity.flag, beta, gx);
    return ah_arrays_close(&a);
}
