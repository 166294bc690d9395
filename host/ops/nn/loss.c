/* Losses of class labels: nll and cross entropy. Labels (N, d...) against scores (N, C, d...); rows of a matrix go to
 * a fused kernel, other shapes through log_softmax, class probabilities through plain ops. Kernels check the label
 * values and leave the sum of the weights that counted, which a mean was divided by, in extra[1]. */
#include "ops/nn/loss.h"

#include <string.h>

#include "ops/dispatch/rows.h"
#include "tensor/owned.h"

int ah_reduction_parse(const char *op, const char *text, enum ah_reduction *out)
{
    if (!strcmp(text, "mean"))
        *out = AH_REDUCTION_MEAN;
    else if (!strcmp(text, "sum"))
        *out = AH_REDUCTION_SUM;
    else if (!strcmp(text, "none"))
        *out = AH_REDUCTION_NONE;
    else
        return ah_fail(AH_EINVAL, "%s: reduction: expected \"none\", \"mean\" or \"sum\", got \"%s\"", op, text);
    return 0;
}

/* Class labels. */

static int check_weight(const char *name, const struct ah_tensor *w, enum ah_dtype dtype, int64_t classes)
{
    if (!w || (w->ndim == 1 && w->size[0] == classes && w->dtype == dtype))
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected weight %s of %lld classes, got %s %s", name, ah_dtype_name(dtype),
                   (long long)classes, ah_dtype_name(w->dtype), ah_shape(w));
}

/* input (N, C, d...) or (C); target the same without C; the weight in the dtype of the loss. */
static int check_labels(const char *name, const struct ah_tensor *x, const struct ah_tensor *t,
                        const struct ah_tensor *w, enum ah_dtype loss_dtype)
{
    if (!ah_dtype_is_float(x->dtype))
        return ah_fail(AH_EINVAL, "%s: expected a floating input, got %s", name, ah_dtype_name(x->dtype));
    if (t->dtype != AH_I64 && t->dtype != AH_I32 && t->dtype != AH_U8) {
        return ah_fail(AH_EINVAL, "%s: expected int64, int32 or uint8 class labels as target, got %s", name,
                       ah_dtype_name(t->dtype));
    }
    bool fits = x->ndim > 0 && t->ndim == x->ndim - 1;
    for (int d = 0; fits && d < t->ndim; d++)
        fits = t->size[d] == x->size[d == 0 ? 0 : d + 1];
    if (!fits) {
        return ah_fail(AH_EINVAL, "%s: target %s does not fit input %s; expected (N, d...) for (N, C, d...)", name,
                       ah_shape(t), ah_shape(x));
    }
    return check_weight(name, w, loss_dtype, x->size[x->ndim == 1 ? 0 : 1]);
}

static int label_output(struct ah_call *c, enum ah_dtype dtype)
{
    const struct ah_args_class_nll *arg = ah_args(c, class_nll);
    const struct ah_tensor *t = arg->target.tensor;
    enum ah_reduction reduction;
    AH_TRY(ah_reduction_parse(c->op->name, arg->reduction.string, &reduction));
    return ah_call_output(c, 0, t->size, reduction == AH_REDUCTION_NONE ? t->ndim : 0, dtype);
}

int ah_forward_class_nll(struct ah_call *c)
{
    const struct ah_args_class_nll *arg = ah_args(c, class_nll);
    enum ah_dtype dtype = arg->input.tensor->dtype;
    AH_TRY(check_labels("nll_loss", arg->input.tensor, arg->target.tensor, arg->weight.tensor, dtype));
    AH_TRY(label_output(c, dtype));
    AH_TRY(ah_tensor_empty(&c->extra[1], NULL, 0, AH_F64, c->device));
    return ah_call_kernel(c);
}

AH_FORWARD_WITH(class_nll_backward, class_nll_backward,
                ah_call_single(c, arg->size.ints.at, arg->size.ints.count, arg->grad.tensor->dtype))

int ah_forward_cross_entropy_rows(struct ah_call *c)
{
    const struct ah_args_cross_entropy_rows *arg = ah_args(c, cross_entropy_rows);
    const struct ah_tensor *x = arg->input.tensor, *t = arg->target.tensor;
    enum ah_dtype dtype = ah_compute_dtype(x->dtype), loss_dtype = arg->float_loss.flag ? dtype : x->dtype;
    AH_TRY(check_labels("cross_entropy", x, t, arg->weight.tensor, loss_dtype));
    AH_TRY(label_output(c, loss_dtype));
    if (c->recording)
        AH_TRY(ah_tensor_empty(&c->extra[0], t->size, t->ndim, dtype, c->device));
    AH_TRY(ah_tensor_empty(&c->extra[1], NULL, 0, AH_F64, c->device));
    return ah_call_kernel(c);
}

int ah_forward_cross_entropy_rows_backward(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, cross_entropy_rows_backward)->input.tensor;
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}

int ah_forward_nll_loss(struct ah_call *c)
{
    const struct ah_args_nll_loss *arg = ah_args(c, nll_loss);
    enum ah_reduction reduction;
    AH_TRY(ah_reduction_parse("nll_loss", arg->reduction.string, &reduction));
    c->out_count = 1;
    return ah_op1(AH_OP_class_nll, &c->out[0], arg->input, arg->target, arg->weight, arg->ignore_index,
                  arg->reduction, AH_N(0));
}

/* Targets that are probabilities: -sum over classes of target * weight * log_softmax, the mean over everything else. */
static int soft_targets(struct ah_call *c)
{
    const struct ah_args_cross_entropy *arg = ah_args(c, cross_entropy);
    const struct ah_tensor *x = arg->input.tensor, *t = arg->target.tensor, *w = arg->weight.tensor;
    int dim = x->ndim == 1 ? 0 : 1;
    int64_t classes = x->ndim ? x->size[dim] : 0, rows = classes ? x->numel / classes : 0;
    double smoothing = arg->label_smoothing.number;
    enum ah_reduction reduction = AH_REDUCTION_MEAN;
    if (x->ndim == 0 || !ah_same_shape(x, t) || !ah_dtype_is_float(x->dtype)) {
        return ah_fail(AH_EINVAL, "cross_entropy: a floating target holds class probabilities and has the input's "
                       "shape; got input %s and target %s", ah_shape(x), ah_shape(t));
    }
    AH_TRY(ah_reduction_parse("cross_entropy", arg->reduction.string, &reduction));
    AH_TRY(check_weight("cross_entropy", w, x->dtype, classes));
    AH_OWNED_LIST(made, 9);
    struct ah_tensor *product;
    int n = 0;
    AH_TRY(ah_op1(AH_OP_log_softmax, &made[n++], arg->input, AH_I(dim)));
    struct ah_tensor *target = arg->target.tensor;
    if (smoothing > 0) {
        AH_TRY(ah_op1(AH_OP_mul, &made[n++], AH_T(target), AH_N(1 - smoothing)));
        AH_TRY(ah_op1(AH_OP_add, &made[n], AH_T(made[n - 1]), AH_N(smoothing / (double)classes)));
        target = made[n++];
    }
    AH_TRY(ah_op1(AH_OP_mul, &made[n++], AH_T(made[0]), AH_T(target)));
    product = made[n - 1];
    if (w) {
        int64_t shape[AH_MAX_DIMS] = {classes};
        for (int d = 1; d < x->ndim - dim; d++)
            shape[d] = 1;
        AH_TRY(ah_op1(AH_OP_reshape, &made[n++], arg->weight, AH_INTS_OF(shape, x->ndim - dim)));
        AH_TRY(ah_op1(AH_OP_mul, &made[n], AH_T(product), AH_T(made[n - 1])));
        product = made[n++];
    }
    if (reduction == AH_REDUCTION_NONE) {
        int64_t over = dim;
        AH_TRY(ah_op1(AH_OP_sum, &made[n++], AH_T(product), AH_INTS_OF(&over, 1)));
        AH_TRY(ah_op1(AH_OP_neg, &c->out[0], AH_T(made[n - 1])));
    } else {
        AH_TRY(ah_op1(AH_OP_sum, &made[n++], AH_T(product)));
        double divisor = reduction == AH_REDUCTION_MEAN ? (double)rows : 1;
        AH_TRY(ah_op1(AH_OP_div, &c->out[0], AH_T(made[n - 1]), AH_N(-divisor)));
    }
    c->out_count = 1;
    return 0;
}

static int loss_of_scores(struct ah_call *c)
{
    const struct ah_args_cross_entropy *arg = ah_args(c, cross_entropy);
    const struct ah_tensor *x = arg->input.tensor, *t = arg->target.tensor;
    enum ah_dtype loss_dtype = c->float_result ? ah_compute_dtype(x->dtype) : x->dtype;
    double smoothing = arg->label_smoothing.number;
    if (!(smoothing >= 0 && smoothing <= 1))
        return ah_fail(AH_EINVAL, "cross_entropy: label_smoothing: expected 0..1, got %g", smoothing);
    if (ah_dtype_is_float(t->dtype)) {
        if (arg->ignore_index.integer >= 0)
            return ah_fail(AH_EINVAL, "cross_entropy: ignore_index goes with labels, not with probabilities");
        return soft_targets(c);
    }
    enum ah_reduction reduction;
    AH_TRY(ah_reduction_parse("cross_entropy", arg->reduction.string, &reduction));
    AH_TRY(check_labels("cross_entropy", x, t, arg->weight.tensor, loss_dtype));
    c->out_count = 1;
    if (x->ndim == 2) {
        return ah_op1(AH_OP_cross_entropy_rows, &c->out[0], arg->input, arg->target, arg->weight, arg->ignore_index,
                      arg->reduction, arg->label_smoothing, AH_B(c->float_result));
    }
    AH_OWNED struct ah_tensor *log_probability = NULL;
    AH_TRY(ah_op1(AH_OP_log_softmax, &log_probability, arg->input, AH_I(x->ndim == 1 ? 0 : 1)));
    return ah_op1(AH_OP_class_nll, &c->out[0], AH_T(log_probability), arg->target, arg->weight, arg->ignore_index,
                  arg->reduction, arg->label_smoothing);
}

/* Under autocast fp16 and bf16 become float32, but for rows of scores with labels, whose kernel reads them. */
int ah_forward_cross_entropy(struct ah_call *c)
{
    enum { CAST = 3 }; /* input, target, weight */
    const struct ah_args_cross_entropy *arg = ah_args(c, cross_entropy);
    AH_OWNED_LIST(cast, CAST);
    struct ah_tensor *given[CAST];
    bool rows = arg->input.tensor->ndim == 2 && !ah_dtype_is_float(arg->target.tensor->dtype);
    for (int i = 0; i < CAST; i++) {
        given[i] = ah_given(&c->arg[i]);
        bool half = given[i] && (given[i]->dtype == AH_F16 || given[i]->dtype == AH_BF16);
        if (c->float_result && half && !(rows && i == 0))
            AH_TRY(ah_op1(AH_OP_to, &cast[i], AH_T(given[i]), AH_D(AH_F32)));
    }
    for (int i = 0; i < CAST; i++)
        if (cast[i])
            c->arg[i].tensor = cast[i];
    int status = loss_of_scores(c);
    for (int i = 0; i < CAST; i++)
        if (cast[i])
            c->arg[i].tensor = given[i];
    return status;
}
