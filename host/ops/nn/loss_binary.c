/* Binary cross entropies: a fused row per formula computes the terms, weighing and reducing are plain ops, which record
 * themselves. */
#include "ops/dispatch/rows.h"
#include "ops/nn/loss.h"
#include "tensor/owned.h"

static int check_pair(const struct ah_call *c, const char *name, bool mixed)
{
    const struct ah_args_logit_nll *arg = ah_args(c, logit_nll);
    const struct ah_tensor *x = arg->input.tensor, *t = arg->target.tensor;
    if (!ah_dtype_is_float(x->dtype))
        return ah_fail(AH_EINVAL, "%s: expected a floating input, got %s", name, ah_dtype_name(x->dtype));
    if (!ah_same_shape(x, t) || (x->dtype != t->dtype && !(mixed && ah_dtype_is_float(t->dtype)))) {
        return ah_fail(AH_EINVAL, "%s: expected a target like the input, %s %s, got %s %s", name,
                       ah_dtype_name(x->dtype), ah_shape(x), ah_dtype_name(t->dtype), ah_shape(t));
    }
    return 0;
}

int ah_forward_probability_nll(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, probability_nll)->input.tensor;
    AH_TRY(check_pair(c, "binary_cross_entropy", false));
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}

int ah_forward_logit_nll(struct ah_call *c)
{
    const struct ah_args_logit_nll *arg = ah_args(c, logit_nll);
    const struct ah_tensor *x = arg->input.tensor, *p = arg->pos_weight.tensor;
    AH_TRY(check_pair(c, "binary_cross_entropy_with_logits", false));
    if (p) {
        int64_t size[AH_MAX_DIMS];
        int ndim;
        AH_TRY(ah_broadcast_shapes("binary_cross_entropy_with_logits: pos_weight", x, p, size, &ndim));
        bool fits = ndim == x->ndim && p->dtype == x->dtype;
        for (int d = 0; fits && d < ndim; d++)
            fits = size[d] == x->size[d];
        if (!fits) {
            return ah_fail(AH_EINVAL, "binary_cross_entropy_with_logits: pos_weight %s %s does not fit input %s %s",
                           ah_dtype_name(p->dtype), ah_shape(p), ah_dtype_name(x->dtype), ah_shape(x));
        }
    }
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}

/* Weigh and reduce `terms` unless `status` is an error; consumes the reference. */
static int loss_finish(struct ah_call *c, int status, struct ah_tensor *terms)
{
    const struct ah_args_binary_cross_entropy *arg = ah_args(c, binary_cross_entropy);
    enum ah_reduction reduction = AH_REDUCTION_MEAN;
    struct ah_tensor *weighted = NULL;
    if (status == 0)
        status = ah_reduction_parse(c->op->name, arg->reduction.string, &reduction);
    if (status == 0 && arg->weight.tensor) {
        status = ah_op1(AH_OP_mul, &weighted, AH_T(terms), arg->weight);
        ah_tensor_release(terms);
        terms = weighted;
    }
    if (status == 0 && reduction == AH_REDUCTION_NONE)
        c->out[0] = ah_tensor_retain(terms);
    else if (status == 0)
        status = ah_op1(reduction == AH_REDUCTION_MEAN ? AH_OP_mean : AH_OP_sum, &c->out[0], AH_T(terms));
    c->out_count = status == 0;
    ah_tensor_release(terms);
    return status;
}

int ah_forward_binary_cross_entropy(struct ah_call *c)
{
    const struct ah_args_binary_cross_entropy *arg = ah_args(c, binary_cross_entropy);
    struct ah_tensor *terms = NULL;
    int status = ah_op1(AH_OP_probability_nll, &terms, arg->input, arg->target);
    return loss_finish(c, status, terms);
}

/* Logits, target and pos_weight are cast to the wider dtype of the first two. */
int ah_forward_binary_cross_entropy_with_logits(struct ah_call *c)
{
    enum { COUNT = 3 };
    const struct ah_args_binary_cross_entropy_with_logits *arg = ah_args(c, binary_cross_entropy_with_logits);
    struct ah_value used[COUNT] = {arg->input, arg->target, arg->pos_weight};
    AH_OWNED_LIST(cast, COUNT);
    struct ah_tensor *terms = NULL;
    AH_TRY(check_pair(c, c->op->name, true));
    enum ah_dtype dtype = ah_dtype_promote(arg->input.tensor->dtype, arg->target.tensor->dtype);
    int status = 0;
    for (int i = 0; i < COUNT && status == 0; i++) {
        if (used[i].kind != AH_TENSOR || used[i].tensor->dtype == dtype)
            continue;
        status = ah_op1(AH_OP_to, &cast[i], used[i], AH_D(dtype));
        used[i] = AH_T(cast[i]);
    }
    if (status == 0)
        status = ah_op1(AH_OP_logit_nll, &terms, used[0], used[1], used[2]);
    return loss_finish(c, status, terms);
}
