/* Rules of products: each factor's gradient is a product with the other one, for every mix of 1-d, 2-d and batched
 * operands. */
#include "autograd/rules.h"

/* t as a matrix of `columns` columns. -1 would be ambiguous where a size is 0. */
static struct ah_tensor *as_matrix(struct ah_rule *r, struct ah_tensor *t, int64_t columns)
{
    int64_t rows = 1;
    for (int d = 0; t && d < t->ndim - 1; d++)
        rows *= t->size[d];
    return ah_r(r, AH_OP_reshape, AH_T(t), AH_INTS_OF((int64_t[]){rows, columns}, 2));
}

/* d(a b) = g b^T, a^T g. A 1-d operand is a row on the left and a column on the right. */
int ah_backward_matmul(struct ah_rule *r)
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
        return r->status;
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
        return r->status;
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
        return r->status;
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
    return r->status;
}

int ah_backward_linear(struct ah_rule *r)
{
    const struct ah_args_linear *arg = ah_args(r, linear);
    struct ah_tensor *x = ah_given(&arg->input);
    struct ah_tensor *w = ah_given(&arg->weight);
    const struct ah_input_meta *mw = ah_rule_input(r, 1), *mx = ah_rule_input(r, 0);
    struct ah_tensor *g = r->grad_out[0];
    if (r->needs[0])
        r->grad_in[0] = ah_r_matmul(r, g, w);
    if (r->needs[1]) {
        struct ah_tensor *g2 = g;
        if (mx->ndim != 2) {
            g2 = as_matrix(r, g, mw->size[0]);
            x = as_matrix(r, x, mw->size[1]);
        }
        r->grad_in[1] = ah_r_matmul(r, ah_r_transpose(r, g2, 0, 1), x);
    }
    if (r->input_count > 2 && r->needs[2])
        r->grad_in[2] = ah_r(r, AH_OP_column_sum, AH_T(g));
    return r->status;
}

int ah_backward_column_sum(struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    r->grad_in[0] = ah_r(r, AH_OP_expand, AH_T(r->grad_out[0]), AH_INTS_OF(meta->size, meta->ndim));
    return r->status;
}
