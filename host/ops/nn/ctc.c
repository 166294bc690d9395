/* Connectionist temporal classification: shapes. For the rule the forward keeps the probabilities of all prefixes and
 * the losses, in the kernels' dtype. */
#include "ops/dispatch/rows.h"

static int expect_integers(const struct ah_tensor *t, const char *name, int ndim, int64_t rows)
{
    if (t->dtype == AH_I64 && t->ndim == ndim && t->size[0] == rows)
        return 0;
    return ah_fail(AH_EINVAL, "ctc_loss: %s: expected int64 for a batch of %lld, got %s %s", name, (long long)rows,
                   ah_dtype_name(t->dtype), ah_shape(t));
}

int ah_forward_ctc(struct ah_call *c)
{
    const struct ah_args_ctc *arg = ah_args(c, ctc);
    const struct ah_tensor *x = arg->log_probs.tensor, *y = arg->targets.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim != 3)
        return ah_fail(AH_EINVAL, "ctc_loss: log_probs: expected shape (T, N, C), got %s", ah_shape(x));
    AH_TRY(expect_integers(y, "targets", 2, x->size[1]));
    AH_TRY(expect_integers(arg->input_lengths.tensor, "input_lengths", 1, x->size[1]));
    AH_TRY(expect_integers(arg->target_lengths.tensor, "target_lengths", 1, x->size[1]));
    if (arg->blank.integer < 0 || arg->blank.integer >= x->size[2]) {
        return ah_fail(AH_EINVAL, "ctc_loss: blank: expected a class in 0..%lld, got %lld", (long long)x->size[2] - 1,
                       (long long)arg->blank.integer);
    }
    enum ah_dtype dtype = ah_compute_dtype(x->dtype);
    AH_TRY(ah_call_output(c, 0, &x->size[1], 1, x->dtype));
    AH_TRY(ah_tensor_empty(&c->extra[0], (int64_t[]){x->size[1], x->size[0], 2 * y->size[1] + 1}, 3, dtype, c->device));
    AH_TRY(ah_tensor_empty(&c->extra[1], &x->size[1], 1, dtype, c->device));
    return ah_call_kernel(c);
}

int ah_forward_ctc_backward(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, ctc_backward)->log_probs.tensor;
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}
