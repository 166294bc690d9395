/* Rules of running products and log-sums, as sums from the other end. */
#include <math.h>

#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"
#include "base/status/status.h"

static struct ah_tensor *from_the_end(struct ah_rule *r, struct ah_tensor *x)
{
    return ah_r(r, AH_OP_cumsum_reverse, AH_T(x), ah_args(r, cumprod)->dim);
}

static bool running_any(struct ah_rule *r, struct ah_tensor *mask)
{
    struct ah_tensor *found = ah_r(r, AH_OP_any, AH_T(mask)), *here;
    if (!found)
        return false;
    int status = ah_host_copy(&here, found);
    if (status < 0) {
        r->status = status;
        return false;
    }
    bool is = ah_tensor_get_int(here, 0) != 0;
    ah_tensor_release(here);
    return is;
}

/* sum over k >= i of g_k times the product of all x_j up to k but x_i, from the products written out: n^2 numbers, but
 * right for derivatives of any order whatever is 0. */
static struct ah_tensor *written_out(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *g)
{
    int64_t dim = ah_args(r, cumprod)->dim.integer, n = x->ndim > 0 ? x->size[dim < 0 ? dim + x->ndim : dim] : 1;
    int64_t size[AH_MAX_DIMS + 1];
    if (x->ndim >= AH_MAX_DIMS) {
        r->status = ah_fail(AH_EINVAL, "cumprod: no second derivative at zeros of %d dims", x->ndim);
        return NULL;
    }
    struct ah_tensor *row = ah_r(r, AH_OP_unsqueeze, AH_T(ah_r_transpose(r, x, dim, -1)), AH_I(-2));
    if (!row)
        return NULL;
    for (int d = 0; d < row->ndim; d++)
        size[d] = row->size[d];
    size[row->ndim - 2] = n;
    struct ah_tensor *wide = ah_r(r, AH_OP_expand, AH_T(row), AH_INTS_OF(size, row->ndim));
    struct ah_tensor *own = ah_r(r, AH_OP_eye, AH_I(n), AH_NIL, AH_D(AH_BOOL), AH_DEV(x->storage->device));
    struct ah_tensor *others = ah_r(r, AH_OP_masked_fill, AH_T(wide), AH_T(own), AH_N(1));
    struct ah_tensor *products = ah_r(r, AH_OP_cumprod, AH_T(others), AH_I(-1));
    g = ah_r(r, AH_OP_unsqueeze, AH_T(ah_r_transpose(r, g, dim, -1)), AH_I(-2));
    struct ah_tensor *later = ah_r(r, AH_OP_triu, AH_T(ah_r_mul(r, products, g)));
    return ah_r_transpose(r, ah_r(r, AH_OP_sum, AH_T(later), AH_I(-1)), dim, -1);
}

/* Before the first zero of a line the product is divided by x_i again; at that zero it is the product without it; after
 * it the gradient is zero. */
void ah_backward_cumprod(struct ah_rule *r)
{
    const struct ah_args_cumprod *arg = ah_args(r, cumprod);
    struct ah_tensor *g = r->grad_out[0], *out = r->out[0];
    struct ah_tensor *x = ah_r(r, AH_OP_to, arg->input, AH_D(g->dtype)), *zero = ah_r(r, AH_OP_eq, AH_T(x), AH_N(0));
    if (x && x->ndim == 0) {
        ah_r_give(r, 0, g);
        return;
    }
    bool zeros = running_any(r, zero);
    if (zeros && ah_grad_enabled) {
        ah_r_give(r, 0, written_out(r, x, g));
        return;
    }
    struct ah_tensor *grad = from_the_end(r, ah_r_mul(r, g, out));
    if (!zeros) {
        ah_r_give(r, 0, ah_r_div(r, grad, x));
        return;
    }
    grad = ah_r_div(r, grad, ah_r(r, AH_OP_masked_fill, AH_T(x), AH_T(zero), AH_N(1)));
    struct ah_tensor *count = ah_r(r, AH_OP_cumsum, AH_T(zero), arg->dim);
    struct ah_tensor *first = ah_r(r, AH_OP_logical_and, AH_T(zero), AH_T(ah_r(r, AH_OP_eq, AH_T(count), AH_N(1))));
    struct ah_tensor *without = ah_r(r, AH_OP_masked_fill, AH_T(x), AH_T(first), AH_N(1));
    struct ah_tensor *at_first = from_the_end(r, ah_r_mul(r, g, ah_r(r, AH_OP_cumprod, AH_T(without), arg->dim)));
    struct ah_tensor *before = ah_r_where(r, ah_r(r, AH_OP_eq, AH_T(count), AH_N(0)), grad, AH_N(0));
    ah_r_give(r, 0, ah_r_where(r, first, at_first, AH_T(before)));
}

/* exp(x_i) times the sum over k >= i of g_k exp(-out_k), for the gradients of one sign (1 or -1), in logarithms so that
 * nothing overflows. */
static struct ah_tensor *running_shares(struct ah_rule *r, double sign)
{
    const struct ah_args_logcumsumexp *arg = ah_args(r, logcumsumexp);
    struct ah_tensor *g = ah_r_scale(r, r->grad_out[0], sign), *out = r->out[0];
    struct ah_tensor *none = ah_r(r, AH_OP_le, AH_T(g), AH_N(0));
    none = ah_r(r, AH_OP_logical_or, AH_T(none), AH_T(ah_r(r, AH_OP_isneginf, AH_T(out))));
    struct ah_tensor *safe = ah_r(r, AH_OP_masked_fill, AH_T(g), AH_T(none), AH_N(1));
    struct ah_tensor *log_g = ah_r_sub(r, ah_r(r, AH_OP_log, AH_T(safe)), out);
    log_g = ah_r(r, AH_OP_masked_fill, AH_T(log_g), AH_T(none), AH_N(-(double)INFINITY));
    if (ah_rule_input(r, 0)->ndim > 0) {
        struct ah_value dim = AH_INTS_OF(&arg->dim.integer, 1);
        struct ah_tensor *turned = ah_r(r, AH_OP_flip, AH_T(log_g), dim);
        log_g = ah_r(r, AH_OP_flip, AH_T(ah_r(r, AH_OP_logcumsumexp, AH_T(turned), arg->dim)), dim);
    }
    return ah_r(r, AH_OP_exp, AH_T(ah_r_add(r, log_g, ah_given(&arg->input))));
}

AH_BACKWARD(logcumsumexp, ah_r_give(r, 0, ah_r_sub(r, running_shares(r, 1), running_shares(r, -1))))
