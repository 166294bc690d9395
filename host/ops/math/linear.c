/* Linear maps and ops fused with them. Each of the fused ops has a kernel made of the kernels of its parts, which is
 * the CPU's; other devices may have their own. */
#include "ops/math/linear.h"

#include <string.h>

#include "ops/dispatch/rows.h"

/* Integers and a weight of one dim: other ops, which record themselves. */
static int linear_by_product(struct ah_call *c)
{
    const struct ah_args_linear *arg = ah_args(c, linear);
    AH_OWNED struct ah_tensor *weight = NULL, *product = NULL;
    c->recording = false;
    AH_TRY(ah_op1(AH_OP_t, &weight, arg->weight));
    AH_TRY(ah_op1(AH_OP_matmul, &product, arg->input, AH_T(weight)));
    if (arg->bias.tensor)
        AH_TRY(ah_op1(AH_OP_add, &c->out[0], AH_T(product), arg->bias));
    else
        c->out[0] = ah_tensor_retain(product);
    c->out_count = 1;
    return 0;
}

/* A weight that the product rounds may be float32. */
static int check_weight_dtype(struct ah_call *c, const struct ah_tensor *x, const struct ah_tensor *w)
{
    return c->rounds_weight && ah_is_rounded(x, w) ? 0 : ah_check_product_dtypes(c, x, w);
}

int ah_check_linear(struct ah_call *c, const struct ah_tensor *x, const struct ah_tensor *w, const struct ah_tensor *b)
{
    AH_TRY(check_weight_dtype(c, x, w));
    if (w->ndim != 2 || x->ndim == 0 || x->size[x->ndim - 1] != w->size[1]) {
        return ah_fail(AH_EINVAL, "linear: input %s does not fit weight %s (out_features, in_features)", ah_shape(x),
                       ah_shape(w));
    }
    if (b) {
        AH_TRY(ah_check_product_dtypes(c, x, b));
        if (b->ndim != 1 || b->size[0] != w->size[0])
            return ah_fail(AH_EINVAL, "linear: bias %s does not fit weight %s", ah_shape(b), ah_shape(w));
    }
    return 0;
}

int ah_linear_output(struct ah_call *c, int index, const struct ah_tensor *x, int64_t columns)
{
    int64_t size[AH_MAX_DIMS];
    memcpy(size, x->size, sizeof size);
    size[x->ndim - 1] = columns;
    return ah_call_output(c, index, size, x->ndim, x->dtype);
}

int ah_forward_linear(struct ah_call *c)
{
    const struct ah_args_linear *arg = ah_args(c, linear);
    const struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor, *b = arg->bias.tensor;
    AH_TRY(check_weight_dtype(c, x, w));
    bool alone = w->ndim == 1 && x->ndim > 0 && x->size[x->ndim - 1] == w->size[0] && !b;
    if (alone || (w->ndim == 2 && !ah_dtype_is_float(x->dtype)))
        return linear_by_product(c);
    AH_TRY(ah_check_linear(c, x, w, b));
    AH_TRY(ah_linear_output(c, 0, x, w->size[0]));
    return ah_call_kernel(c);
}

/* By other ops, which record themselves. */
static int matmul_of_rounded_copy(struct ah_call *c)
{
    AH_OWNED struct ah_tensor *rounded = NULL;
    c->recording = false;
    AH_TRY(ah_op1(AH_OP_to, &rounded, c->arg[1], AH_D(AH_BF16)));
    AH_TRY(ah_op1(AH_OP_matmul, &c->out[0], c->arg[0], AH_T(rounded)));
    c->out_count = 1;
    return 0;
}

int ah_forward_matmul_rounded(struct ah_call *c)
{
    const struct ah_tensor *a = c->arg[0].tensor, *b = c->arg[1].tensor;
    if (!ah_is_rounded(a, b))
        return ah_fail(AH_EINVAL, "matmul_rounded: expected bfloat16 and float32, got %s and %s",
                       ah_dtype_name(a->dtype), ah_dtype_name(b->dtype));
    if (a->ndim == 0 || b->ndim != 2 || a->size[a->ndim - 1] != b->size[0])
        return ah_fail(AH_EINVAL, "matmul_rounded: expected rows and a matrix, got %s x %s", ah_shape(a), ah_shape(b));
    if (!c->device->rounds_weights || !c->device->rounds_weights())
        return matmul_of_rounded_copy(c);
    AH_TRY(ah_linear_output(c, 0, a, b->size[1]));
    return ah_call_kernel(c);
}

int ah_forward_linear_gelu(struct ah_call *c)
{
    const struct ah_args_linear_gelu *arg = ah_args(c, linear_gelu);
    const struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(ah_check_linear(c, x, w, ah_given(&arg->bias)));
    AH_TRY(ah_linear_output(c, 0, x, w->size[0]));
    if (c->recording)
        AH_TRY(ah_linear_output(c, 1, x, w->size[0]));
    return ah_call_kernel(c);
}

int ah_linear_gelu_by_parts(struct ah_call *c)
{
    const struct ah_args_linear_gelu *arg = ah_args(c, linear_gelu);
    AH_OWNED struct ah_tensor *before = ah_tensor_retain(c->out[1]);
    if (!before)
        AH_TRY(ah_tensor_empty_like(&before, c->out[0]));
    AH_TRY(ah_call_part(c, AH_OP_linear, before, arg->input, arg->weight, arg->bias));
    return ah_call_part(c, AH_OP_gelu, c->out[0], AH_T(before), AH_S("tanh"));
}

int ah_forward_linear_of_gelu(struct ah_call *c)
{
    const struct ah_args_linear_of_gelu *arg = ah_args(c, linear_of_gelu);
    const struct ah_tensor *x = arg->input.tensor;
    AH_TRY(ah_check_linear(c, x, arg->weight.tensor, ah_given(&arg->bias)));
    AH_TRY(ah_linear_output(c, 0, x, arg->weight.tensor->size[0]));
    return ah_call_part(c, AH_OP_linear, c->out[0], arg->input, arg->weight, arg->bias);
}

int ah_forward_linear_of_gelu_backward(struct ah_call *c)
{
    const struct ah_tensor *before = ah_args(c, linear_of_gelu_backward)->before.tensor;
    return ah_call_single(c, before->size, before->ndim, before->dtype);
}

int ah_linear_of_gelu_backward_by_parts(struct ah_call *c)
{
    const struct ah_args_linear_of_gelu_backward *arg = ah_args(c, linear_of_gelu_backward);
    AH_TRY(ah_call_part(c, ah_product_with(arg->grad.tensor, arg->weight.tensor), c->out[0], arg->grad, arg->weight));
    return ah_call_part(c, AH_OP_gelu_backward, c->out[0], AH_T(c->out[0]), arg->before, AH_S("tanh"));
}

int ah_forward_linear_weight_backward(struct ah_call *c)
{
    const struct ah_args_linear_weight_backward *arg = ah_args(c, linear_weight_backward);
    const struct ah_tensor *g = arg->grad.tensor, *x = arg->input.tensor;
    if (arg->turned.flag) {
        AH_OWNED struct ah_tensor *by_columns = NULL;
        AH_TRY(ah_tensor_empty(&by_columns, (int64_t[]){x->size[1], g->size[1]}, 2, g->dtype, c->device));
        AH_TRY(ah_turned(&c->out[0], by_columns));
    } else {
        AH_TRY(ah_call_output(c, 0, (int64_t[]){g->size[1], x->size[1]}, 2, g->dtype));
    }
    AH_TRY(ah_call_output(c, 1, &g->size[1], 1, g->dtype));
    return ah_call_kernel(c);
}

int ah_forward_linear_weight_backward_into(struct ah_call *c)
{
    const struct ah_args_linear_weight_backward_into *arg = ah_args(c, linear_weight_backward_into);
    const struct ah_tensor *g = arg->grad.tensor, *x = arg->input.tensor;
    struct ah_tensor *bias = ah_given(&arg->bias);
    AH_TRY(ah_call_output(c, 0, (int64_t[]){g->size[1], x->size[1]}, 2, g->dtype));
    if (bias) {
        c->out[c->out_count++] = ah_tensor_retain(bias);
        ah_tensor_touch(bias);
    } else if (arg->sums.flag) {
        AH_TRY(ah_call_output(c, 1, &g->size[1], 1, c->out[0]->dtype));
    }
    return ah_call_kernel(c);
}

int ah_turned(struct ah_tensor **out, const struct ah_tensor *matrix)
{
    return ah_tensor_view(out, matrix, (int64_t[]){matrix->size[1], matrix->size[0]},
                          (int64_t[]){matrix->stride[1], matrix->stride[0]}, 2, matrix->offset);
}

/* The product of halves whose result is stored in `out`. */
static enum ah_opid product_to(const struct ah_tensor *out, const struct ah_tensor *grad)
{
    return out->dtype == grad->dtype ? AH_OP_matmul : AH_OP_matmul_wide;
}

int ah_linear_weight_backward_by_parts(struct ah_call *c)
{
    const struct ah_args_linear_weight_backward *arg = ah_args(c, linear_weight_backward);
    AH_OWNED struct ah_tensor *left = NULL, *by_columns = NULL;
    enum ah_opid product = product_to(c->out[0], arg->grad.tensor);
    AH_TRY(ah_turned(&left, arg->turned.flag ? arg->input.tensor : arg->grad.tensor));
    if (arg->turned.flag) {
        AH_TRY(ah_turned(&by_columns, c->out[0]));
        AH_TRY(ah_call_part(c, product, by_columns, AH_T(left), arg->grad));
    } else {
        AH_TRY(ah_call_part(c, product, c->out[0], AH_T(left), arg->input));
    }
    return ah_call_part(c, AH_OP_column_sum, c->out[1], arg->grad);
}

bool ah_is_rounded(const struct ah_tensor *rows, const struct ah_tensor *weight)
{
    return rows->dtype == AH_BF16 && weight->dtype == AH_F32;
}

enum ah_opid ah_product_with(const struct ah_tensor *rows, const struct ah_tensor *weight)
{
    return ah_is_rounded(rows, weight) ? AH_OP_matmul_rounded : AH_OP_matmul;
}

bool ah_is_by_columns(const struct ah_tensor *matrix)
{
    return matrix->stride[0] == 1 && matrix->stride[1] >= matrix->size[0] && matrix->size[0] > 1;
}

/* The products of a call into `product`, which is stored in the order of out[0], and, unless NULL, `sums`. */
static int weight_products(struct ah_call *c, struct ah_tensor *product, struct ah_tensor *sums)
{
    const struct ah_args_linear_weight_backward_into *arg = ah_args(c, linear_weight_backward_into);
    bool turned = ah_is_by_columns(product);
    AH_OWNED struct ah_tensor *left = NULL, *by_rows = NULL;
    if (sums) {
        enum ah_opid id = AH_OP_linear_weight_backward;
        struct ah_call part = {.op = ah_op_get(id), .device = c->device, .out = {product, sums}, .out_count = 2,
                               .arg = {arg->grad, arg->input, AH_B(turned)}};
        return c->device->kernels[id](&part);
    }
    enum ah_opid id = product_to(product, arg->grad.tensor);
    AH_TRY(ah_turned(&left, turned ? arg->input.tensor : arg->grad.tensor));
    if (!turned)
        return ah_call_part(c, id, product, AH_T(left), arg->input);
    AH_TRY(ah_turned(&by_rows, product));
    return ah_call_part(c, id, by_rows, AH_T(left), arg->grad);
}

int ah_linear_weight_backward_into_by_parts(struct ah_call *c)
{
    const struct ah_args_linear_weight_backward_into *arg = ah_args(c, linear_weight_backward_into);
    struct ah_tensor *into = c->out[0], *sums = c->out_count > 1 ? c->out[1] : NULL;
    enum ah_dtype dtype = arg->grad.tensor->dtype;
    AH_OWNED struct ah_tensor *matrix = NULL, *product = NULL, *own_sums = NULL;
    bool turned = ah_is_by_columns(into), wide = c->device->rounds_weights && c->device->rounds_weights();
    enum ah_dtype product_dtype = wide ? into->dtype : dtype;
    if (sums && sums->dtype != dtype)
        AH_TRY(ah_tensor_empty(&own_sums, sums->size, 1, dtype, c->device));
    if (!arg->adds.flag && into->dtype == product_dtype) {
        product = ah_tensor_retain(into);
    } else {
        AH_TRY(ah_tensor_empty(&matrix, (int64_t[]){into->size[turned], into->size[!turned]}, 2, product_dtype,
                               c->device));
        if (turned)
            AH_TRY(ah_turned(&product, matrix));
        else
            product = ah_tensor_retain(matrix);
    }
    AH_TRY(weight_products(c, product, own_sums ? own_sums : sums));
    if (own_sums)
        AH_TRY(ah_call_part(c, AH_OP_copy_, sums, AH_T(sums), AH_T(own_sums)));
    if (arg->adds.flag)
        return ah_call_part(c, AH_OP_add, into, AH_T(into), AH_T(product), AH_N(1));
    return matrix ? ah_call_part(c, AH_OP_copy_, into, AH_T(into), AH_T(product)) : 0;
}

/* The sum over all dims but the last: the gradient of a bias. */
int ah_forward_column_sum(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, column_sum)->input.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    return ah_call_single(c, &x->size[x->ndim - 1], 1, x->dtype);
}
