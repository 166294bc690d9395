/* Rules of products: each factor's gradient is a product with the other one, for every mix of 1-d, 2-d and batched
 * operands. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"
#include "ops/math/gelu_linear.h"
#include "ops/math/linear.h"

/* t as a matrix of `columns` columns. -1 would be ambiguous where a size is 0. */
static struct ah_tensor *as_matrix(struct ah_rule *r, struct ah_tensor *t, int64_t columns)
{
    int64_t rows = 1;
    for (int d = 0; t && d < t->ndim - 1; d++)
        rows *= t->size[d];
    return ah_r(r, AH_OP_reshape, AH_T(t), AH_INTS_OF((int64_t[]){rows, columns}, 2));
}

/* d(a b) = g b^T, a^T g. A 1-d operand is a row on the left and a column on the right. */
void ah_backward_matmul(struct ah_rule *r)
{
    const struct ah_args_matmul *arg = ah_args(r, matmul);
    struct ah_tensor *a = ah_given(&arg->input);
    struct ah_tensor *b = ah_given(&arg->other);
    const struct ah_input_meta *ma = ah_rule_input(r, 0), *mb = ah_rule_input(r, 1);
    struct ah_tensor *g = r->grad_out[0];
    if (ma->ndim == 1 && mb->ndim == 1) {
        if (r->needs[0])
            r->grad_in[0] = ah_r_mul(r, g, b);
        if (r->needs[1])
            r->grad_in[1] = ah_r_mul(r, g, a);
        return;
    }
    if (mb->ndim == 1) {
        /* y[..., m] = sum_k a[..., m, k] b[k] */
        struct ah_tensor *column = ah_r(r, AH_OP_unsqueeze, AH_T(g), AH_I(-1));
        if (r->needs[0])
            r->grad_in[0] = ah_r_mul(r, column, b);
        if (r->needs[1]) {
            struct ah_tensor *rows = as_matrix(r, a, mb->size[0]);
            struct ah_tensor *flat = ah_r(r, AH_OP_reshape, AH_T(g), AH_I(-1));
            r->grad_in[1] = ah_r_matmul(r, flat, rows);
        }
        return;
    }
    if (ma->ndim == 1) {
        /* y[..., n] = sum_k a[k] b[..., k, n] */
        struct ah_tensor *row = ah_r(r, AH_OP_unsqueeze, AH_T(g), AH_I(-2));
        if (r->needs[0]) {
            struct ah_tensor *products = ah_r_matmul(r, b, ah_r_transpose(r, row, -1, -2));
            products = ah_r(r, AH_OP_squeeze, AH_T(products), AH_I(-1));
            r->grad_in[0] = ah_r_to_input(r, products, 0);
        }
        if (r->needs[1])
            r->grad_in[1] = ah_r_mul(r, ah_r(r, AH_OP_unsqueeze, AH_T(a), AH_I(-1)), row);
        return;
    }
    if (r->needs[0])
        r->grad_in[0] = ah_r_to_input(r, ah_r_matmul(r, g, ah_r_transpose(r, b, -1, -2)), 0);
    if (r->needs[1] && mb->ndim == 2 && ma->ndim > 2) {
        /* One matrix for the whole batch: one product instead of a batch of them and a sum. */
        a = as_matrix(r, a, mb->size[0]);
        g = as_matrix(r, g, mb->size[1]);
    }
    if (r->needs[1])
        r->grad_in[1] = ah_r_to_input(r, ah_r_matmul(r, ah_r_transpose(r, a, -1, -2), g), 1);
}

/* The gradients of matmul in float32, rounded once. Operands are matrices or equal batches of them. */
void ah_backward_matmul_wide(struct ah_rule *r)
{
    const struct ah_args_matmul_wide *arg = ah_args(r, matmul_wide);
    struct ah_tensor *a = ah_given(&arg->input), *b = ah_given(&arg->other), *g = r->grad_out[0];
    if (r->needs[0]) {
        struct ah_tensor *wide = ah_r(r, AH_OP_to, AH_T(b), AH_D(AH_F32));
        r->grad_in[0] = ah_r_to_input(r, ah_r_matmul(r, g, ah_r_transpose(r, wide, -1, -2)), 0);
    }
    if (r->needs[1]) {
        struct ah_tensor *wide = ah_r(r, AH_OP_to, AH_T(a), AH_D(AH_F32));
        r->grad_in[1] = ah_r_to_input(r, ah_r_matmul(r, ah_r_transpose(r, wide, -1, -2), g), 1);
    }
}

/* The product of rows and a weight. */
static struct ah_tensor *product_with(struct ah_rule *r, struct ah_tensor *rows, struct ah_tensor *weight)
{
    return rows && weight ? ah_r(r, ah_product_with(rows, weight), AH_T(rows), AH_T(weight)) : NULL;
}

/* The gradient of a float32 weight that was rounded is a sum in float32. */
static struct ah_tensor *weight_gradient(struct ah_rule *r, struct ah_tensor *rows, struct ah_tensor *x, int at)
{
    struct ah_tensor *columns = ah_r_transpose(r, rows, 0, 1);
    bool wide = rows && rows->dtype != ah_rule_input(r, at)->dtype;
    return wide ? ah_r(r, AH_OP_matmul_wide, AH_T(columns), AH_T(x)) : ah_r_matmul(r, columns, x);
}

void ah_backward_matmul_rounded(struct ah_rule *r)
{
    const struct ah_args_matmul_rounded *arg = ah_args(r, matmul_rounded);
    struct ah_tensor *a = ah_given(&arg->input), *b = ah_given(&arg->other), *g = r->grad_out[0];
    const struct ah_input_meta *mb = ah_rule_input(r, 1);
    if (r->needs[0])
        r->grad_in[0] = product_with(r, g, ah_r_transpose(r, b, 0, 1));
    if (r->needs[1])
        r->grad_in[1] = weight_gradient(r, as_matrix(r, a, mb->size[0]), as_matrix(r, g, mb->size[1]), 1);
}

/* Is a weight the transpose of a matrix, as in GPT-2's Conv1D? Its gradient is then made in the order of that matrix,
 * which needs no copy to turn it. On the CPU in float32 it is the product that it is for other weights, with its
 * bits. */
static bool is_turned(const struct ah_tensor *w)
{
    bool turns = w && (w->dtype == AH_F16 || w->dtype == AH_BF16 || !ah_on_cpu(w));
    return turns && w->stride[0] == 1 && w->stride[1] > 1 && w->stride[1] >= w->size[0];
}

/* Can the gradient of a weight be stored in its slot by the product itself? On the CPU only where the slot then has the
 * bits that it would have by way of a separate matrix. Devices also add it in the product, from halves in float32. */
static bool weight_fits(const struct ah_destination *to, const struct ah_tensor *g, const struct ah_input_meta *weight)
{
    const struct ah_tensor *slot = to->slot;
    if (!slot || !slot->storage->device->kernels[AH_OP_linear_weight_backward_into])
        return false;
    bool same = slot->dtype == g->dtype, halves = g->dtype == AH_F16 || g->dtype == AH_BF16;
    bool by_rows = ah_tensor_is_contiguous(slot);
    if (ah_on_cpu(slot))
        return (same || weight->dtype != g->dtype) && to->exact && !to->adds && by_rows;
    return (same || (halves && slot->dtype == AH_F32)) && (by_rows || ah_is_by_columns(slot));
}

/* Store the gradients of a weight and, with `bias`, of the bias behind it, from matrices of rows, in the weight's slot
 * and, where nothing is to be added there, the bias's. */
static void weight_store(struct ah_rule *r, struct ah_tensor *g, struct ah_tensor *x, int at, bool bias)
{
    struct ah_destination *weight = &r->into[at], *sums = bias ? &r->into[at + 1] : NULL;
    bool whole = sums && sums->slot && !sums->adds && sums->exact && sums->slot->dtype == weight->slot->dtype;
    struct ah_tensor *made[AH_MAX_OUTS];
    int count;
    const struct ah_value args[] = {AH_T(weight->slot),    AH_T(g),     AH_T(x),
                                    AH_B(weight->adds), AH_B(bias), AH_T(whole ? sums->slot : NULL)};
    r->status = ah_op_call(AH_OP_linear_weight_backward_into, args, 6, true, made, &count);
    if (r->status < 0)
        return;
    for (int i = 0; i < count; i++)
        ah_rule_keep(r, made[i]);
    weight->written = true;
    if (whole)
        sums->written = true;
    else if (bias)
        ah_rule_store(r, at + 1, made[1]);
}

/* The gradients of a linear map's weight, input number `at`, and of its bias behind it. `w` is the weight, or NULL
 * where it was not saved. */
static void give_weight(struct ah_rule *r, struct ah_tensor *g, struct ah_tensor *x, const struct ah_tensor *w, int at)
{
    const struct ah_input_meta *mw = ah_rule_input(r, at), *mx = ah_rule_input(r, 0);
    bool bias = r->input_count > at + 1 && r->needs[at + 1];
    struct ah_tensor *g2 = g, *both[2];
    if (r->needs[at] && mx->ndim != 2) {
        g2 = as_matrix(r, g, mw->size[0]);
        x = as_matrix(r, x, mw->size[1]);
    }
    if (r->needs[at] && r->into && g2 && x && r->status == 0 && weight_fits(&r->into[at], g2, mw)) {
        weight_store(r, g2, x, at, bias);
        return;
    }
    if (r->needs[at] && bias && !ah_grad_enabled && g2 && g2->dtype == mw->dtype) {
        const struct ah_value args[] = {AH_T(g2), AH_T(x), AH_B(is_turned(w))};
        ah_rule_ops(r, AH_OP_linear_weight_backward, args, 3, both, 2);
        r->grad_in[at] = both[0];
        r->grad_in[at + 1] = both[1];
        return;
    }
    if (r->needs[at] && is_turned(w))
        r->grad_in[at] = ah_r_transpose(r, ah_r_matmul(r, ah_r_transpose(r, x, 0, 1), g2), 0, 1);
    else if (r->needs[at])
        r->grad_in[at] = weight_gradient(r, g2, x, at);
    if (bias)
        r->grad_in[at + 1] = ah_r(r, AH_OP_column_sum, AH_T(g));
}

void ah_backward_linear(struct ah_rule *r)
{
    const struct ah_args_linear *arg = ah_args(r, linear);
    struct ah_tensor *g = r->grad_out[0];
    give_weight(r, g, ah_given(&arg->input), ah_given(&arg->weight), 1);
    ah_rule_done(r, 0);
    if (r->needs[0])
        r->grad_in[0] = product_with(r, g, ah_given(&arg->weight));
}

/* The weight is a constant: its other product is the input's gradient. */
void ah_backward_quantized_matmul(struct ah_rule *r)
{
    const struct ah_args_quantized_matmul *arg = ah_args(r, quantized_matmul);
    const struct ah_input_meta *x = ah_rule_input(r, 0);
    struct ah_tensor *g = r->grad_out[0];
    int bias = r->state->affine.bias;
    if (bias)
        ah_r_give(r, bias, ah_r(r, AH_OP_column_sum, AH_T(g)));
    if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_quantized_matmul, AH_T(g), arg->weight, arg->absmax, arg->code,
                             arg->nested_absmax, arg->nested_code, AH_NIL, AH_I(x->size[x->ndim - 1]), arg->block_size,
                             arg->nested_offset, AH_B(!arg->transposed.flag));
}

/* The gradient of gelu's result is multiplied by gelu's derivative; that of its input is added unchanged. */
void ah_backward_linear_gelu(struct ah_rule *r)
{
    const struct ah_args_linear_gelu *arg = ah_args(r, linear_gelu);
    struct ah_tensor *g = r->grad_out[1];
    if (r->grad_out[0]) {
        struct ah_tensor *through = ah_r(r, AH_OP_gelu_backward, AH_T(r->grad_out[0]), AH_T(r->out[1]), AH_S("tanh"));
        g = g ? ah_r_add(r, g, through) : through;
    }
    give_weight(r, g, ah_given(&arg->input), ah_given(&arg->weight), 1);
    ah_rule_done(r, 0);
    if (r->needs[0])
        r->grad_in[0] = product_with(r, g, ah_given(&arg->weight));
}

/* Input 1 is gelu's input; input 0, its result, receives no gradient. */
void ah_backward_linear_of_gelu(struct ah_rule *r)
{
    const struct ah_args_linear_of_gelu *arg = ah_args(r, linear_of_gelu);
    struct ah_tensor *g = r->grad_out[0], *w = ah_given(&arg->weight), *before = ah_given(&arg->before);
    give_weight(r, g, ah_given(&arg->input), w, 2);
    ah_rule_done(r, 0);
    if (r->needs[1] && ah_grad_enabled)
        r->grad_in[1] = ah_r(r, AH_OP_gelu_backward, AH_T(product_with(r, g, w)), AH_T(before), AH_S("tanh"));
    else if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_linear_of_gelu_backward, AH_T(g), AH_T(w), AH_T(before));
}

/* In one block gelu's result is made again for the gradient of the weight, in several it never is as a whole. */
void ah_backward_gelu_linear(struct ah_rule *r)
{
    const struct ah_args_gelu_linear *arg = ah_args(r, gelu_linear);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input), *w = ah_given(&arg->weight);
    bool dense = !ah_grad_enabled && ah_tensor_is_contiguous(g), bias = r->input_count > 2 && r->needs[2];
    if (dense && ah_gelu_linear_has_blocks(x)) {
        if (r->needs[1])
            r->grad_in[1] = ah_r(r, AH_OP_gelu_linear_weight_backward, AH_T(x), AH_T(g), arg->approximate);
        if (bias)
            r->grad_in[2] = ah_r(r, AH_OP_column_sum, AH_T(g));
    } else if (r->needs[1] || bias) {
        struct ah_tensor *y = ah_r(r, AH_OP_gelu, AH_T(x), arg->approximate);
        give_weight(r, g, y, w, 1);
        if (!ah_grad_enabled)
            ah_rule_free(r, y);
    }
    if (r->needs[0] && dense)
        r->grad_in[0] = ah_r_over(r, AH_OP_gelu_linear_backward, AH_T(x), AH_T(g), AH_T(w), arg->approximate);
    else if (r->needs[0])
        r->grad_in[0] = ah_r(r, AH_OP_gelu_backward, AH_T(product_with(r, g, w)), AH_T(x), arg->approximate);
}

void ah_backward_column_sum(struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_expand, AH_T(r->grad_out[0]), AH_INTS_OF(meta->size, meta->ndim));
}
