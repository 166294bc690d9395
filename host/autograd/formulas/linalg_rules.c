/* Rules of decompositions and solvers. g is the incoming gradient, X' the transpose of X.
 *
 * The formulas are those of M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
 * algorithmic differentiation" (2008), for Cholesky I. Murray, arXiv:1602.07527, for QR S. Walter and L. Lehmann,
 * arXiv:1009.6112, for the SVD J. Townsend (2016). All are made of ops, so that they have derivatives themselves. */
#include <string.h>

#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"
#include "base/status/status.h"

static struct ah_tensor *linalg_transposed(struct ah_rule *r, struct ah_tensor *x)
{
    return ah_r_transpose(r, x, -1, -2);
}

/* a' b and a b' */
static struct ah_tensor *left_turned(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b)
{
    return ah_r_matmul(r, linalg_transposed(r, a), b);
}

static struct ah_tensor *right_turned(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b)
{
    return ah_r_matmul(r, a, linalg_transposed(r, b));
}

/* a + b, where NULL is nothing. */
static struct ah_tensor *sum_of(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b)
{
    return !a ? b : !b ? a : ah_r_add(r, a, b);
}

static struct ah_tensor *linalg_lower(struct ah_rule *r, struct ah_tensor *x, int64_t diagonal)
{
    return ah_r(r, AH_OP_tril, AH_T(x), AH_I(diagonal));
}

static struct ah_tensor *linalg_upper(struct ah_rule *r, struct ah_tensor *x, int64_t diagonal)
{
    return ah_r(r, AH_OP_triu, AH_T(x), AH_I(diagonal));
}

static struct ah_tensor *solve_triangle(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b, bool is_upper,
                                        bool left, bool unit)
{
    return ah_r(r, AH_OP_matrix_triangular_solve, AH_T(a), AH_T(b), AH_B(is_upper), AH_B(left), AH_B(unit));
}

static struct ah_tensor *at_dim(struct ah_rule *r, struct ah_tensor *x, int64_t dim)
{
    return ah_r(r, AH_OP_unsqueeze, AH_T(x), AH_I(dim));
}

static struct ah_tensor *linalg_identity(struct ah_rule *r, struct ah_tensor *like, int64_t n)
{
    return like ? ah_r(r, AH_OP_eye, AH_I(n), AH_I(n), AH_D(like->dtype), AH_DEV(like->storage->device)) : NULL;
}

/* (..., n) as diagonal matrices. */
static struct ah_tensor *linalg_diagonal(struct ah_rule *r, struct ah_tensor *x)
{
    return x ? ah_r_mul(r, at_dim(r, x, -1), linalg_identity(r, x, x->size[x->ndim - 1])) : NULL;
}

static struct ah_tensor *linalg_columns(struct ah_rule *r, struct ah_tensor *x, int64_t from, int64_t count)
{
    return ah_r(r, AH_OP_narrow, AH_T(x), AH_I(-1), AH_I(from), AH_I(count));
}

static struct ah_tensor *linalg_rows(struct ah_rule *r, struct ah_tensor *x, int64_t from, int64_t count)
{
    return ah_r(r, AH_OP_narrow, AH_T(x), AH_I(-2), AH_I(from), AH_I(count));
}

static struct ah_tensor *linalg_join(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b, int64_t dim)
{
    struct ah_tensor *both[2] = {a, b};
    return a && b ? ah_r(r, AH_OP_cat, AH_L(both, 2), AH_I(dim)) : NULL;
}

/* The first of two outputs. */
static struct ah_tensor *linalg_solved(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *b)
{
    struct ah_tensor *out[2] = {NULL};
    const struct ah_value args[2] = {AH_T(a), AH_T(b)};
    if (a && b)
        ah_rule_ops(r, AH_OP_matrix_solve, args, 2, out, 2);
    return out[0];
}

static struct ah_tensor *solved_by_factors(struct ah_rule *r, struct ah_tensor *lu, struct ah_tensor *pivots,
                                           struct ah_tensor *b, bool transposed)
{
    return ah_r(r, AH_OP_matrix_lu_solve, AH_T(lu), AH_T(pivots), AH_T(b), AH_B(transposed));
}

/* P x for the pivots of a factorisation: row i of x becomes row perm[i]. */
static struct ah_tensor *linalg_permuted(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *pivots)
{
    if (!x)
        return NULL;
    struct ah_tensor *row = ah_r(r, AH_OP_matrix_permutation, AH_T(pivots), AH_I(x->size[x->ndim - 2]));
    row = ah_r(r, AH_OP_argsort, AH_T(row), AH_I(-1));
    row = ah_r(r, AH_OP_expand, AH_T(at_dim(r, row, -1)), AH_INTS_OF(x->size, x->ndim));
    return ah_r(r, AH_OP_gather, AH_T(x), AH_I(x->ndim - 2), AH_T(row));
}

/* A = P L U with square factors: P L'^-1 (strictly lower(L' gL) + upper(gU U')) U'^-1. Columns of A beyond the rows are
 * P L U2, rows beyond the columns P L2 U: their gradients are first added to those of the square factors. */
void ah_backward_matrix_lu(struct ah_rule *r)
{
    struct ah_tensor *lu = r->out[0], *pivots = r->out[1], *g = r->grad_out[0];
    if (!lu || !g)
        return;
    int64_t m = lu->size[lu->ndim - 2], n = lu->size[lu->ndim - 1], k = m < n ? m : n;
    struct ah_tensor *l = linalg_rows(r, linalg_columns(r, lu, 0, k), 0, k), *u = linalg_upper(r, l, 0),
                     *l_turned = linalg_transposed(r, l);
    struct ah_tensor *gl = linalg_rows(r, linalg_columns(r, g, 0, k), 0, k), *gu = gl, *rest = NULL;
    if (n > m) {
        rest = solve_triangle(r, l_turned, linalg_columns(r, g, k, n - k), true, true, true);
        gl = ah_r_sub(r, gl, right_turned(r, rest, linalg_columns(r, lu, k, n - k)));
    } else if (m > n) {
        rest = solve_triangle(r, linalg_transposed(r, u), linalg_rows(r, g, k, m - k), false, false, false);
        gu = ah_r_sub(r, gu, left_turned(r, linalg_rows(r, lu, k, m - k), rest));
    }
    struct ah_tensor *unit = ah_r_add(r, linalg_lower(r, l, -1), linalg_identity(r, l, k));
    struct ah_tensor *inner = ah_r_add(r, linalg_lower(r, left_turned(r, unit, linalg_lower(r, gl, -1)), -1),
                                       linalg_upper(r, right_turned(r, linalg_upper(r, gu, 0), u), 0));
    inner = solve_triangle(r, l_turned, inner, true, true, true);
    inner = solve_triangle(r, linalg_transposed(r, u), inner, false, false, false);
    if (rest)
        inner = linalg_join(r, inner, rest, n > m ? -1 : -2);
    r->grad_in[0] = linalg_permuted(r, inner, pivots);
}

/* The factors count as constants here; accelhost.linalg solves by triangles where they are not. */
void ah_backward_matrix_lu_solve(struct ah_rule *r)
{
    const struct ah_args_matrix_lu_solve *arg = ah_args(r, matrix_lu_solve);
    r->grad_in[2] = solved_by_factors(r, arg->lu.tensor, arg->pivots.tensor, r->grad_out[0], !arg->transposed.flag);
}

/* gB = A'^-1 g, gA = -gB X' */
void ah_backward_matrix_solve(struct ah_rule *r)
{
    const struct ah_args_matrix_solve *arg = ah_args(r, matrix_solve);
    struct ah_tensor *gb = linalg_solved(r, linalg_transposed(r, arg->input.tensor), r->grad_out[0]);
    if (r->needs[0])
        r->grad_in[0] = ah_r_neg(r, right_turned(r, gb, r->out[0]));
    if (r->needs[1])
        r->grad_in[1] = gb;
}

void ah_backward_matrix_triangular_solve(struct ah_rule *r)
{
    const struct ah_args_matrix_triangular_solve *arg = ah_args(r, matrix_triangular_solve);
    bool is_upper = arg->upper.flag, left = arg->left.flag, unit = arg->unitriangular.flag;
    struct ah_tensor *x = r->out[0];
    struct ah_tensor *gb =
        solve_triangle(r, linalg_transposed(r, arg->input.tensor), r->grad_out[0], !is_upper, left, unit);
    if (r->needs[0]) {
        struct ah_tensor *ga = ah_r_neg(r, left ? right_turned(r, gb, x) : left_turned(r, x, gb));
        r->grad_in[0] = is_upper ? linalg_upper(r, ga, unit) : linalg_lower(r, ga, unit ? -1 : 0);
    }
    if (r->needs[1])
        r->grad_in[1] = gb;
}

/* -A'^-1 g A'^-1 */
void ah_backward_matrix_inverse(struct ah_rule *r)
{
    struct ah_tensor *inverse = linalg_transposed(r, r->out[0]);
    r->grad_in[0] = ah_r_neg(r, ah_r_matmul(r, inverse, ah_r_matmul(r, r->grad_out[0], inverse)));
}

/* g A'^-1, g being numbers per matrix: by the factors when no derivative of it is wanted, else from A. */
static struct ah_tensor *scaled_inverse(struct ah_rule *r, struct ah_tensor *a, struct ah_tensor *g,
                                        struct ah_tensor *lu, struct ah_tensor *pivots)
{
    if (!a || !g)
        return NULL;
    struct ah_tensor *g_matrix = at_dim(r, at_dim(r, g, -1), -1);
    struct ah_tensor *right = ah_r_mul(r, g_matrix, linalg_identity(r, a, a->size[a->ndim - 1]));
    return ah_grad_enabled ? linalg_solved(r, linalg_transposed(r, a), right)
                           : solved_by_factors(r, lu, pivots, right, true);
}

/* Return 1 or -1 for an even or odd number of row exchanges. */
static struct ah_tensor *linalg_parity(struct ah_rule *r, struct ah_tensor *pivots, enum ah_dtype dtype)
{
    struct ah_value n = AH_I(pivots->size[pivots->ndim - 1] + 1), device = AH_DEV(pivots->storage->device);
    struct ah_tensor *own = ah_r(r, AH_OP_arange, AH_I(1), n, AH_I(1), AH_D(AH_I32), device);
    struct ah_tensor *stays = ah_r(r, AH_OP_to, AH_T(ah_r(r, AH_OP_eq, AH_T(pivots), AH_T(own))), AH_D(dtype));
    return ah_r(r, AH_OP_prod, AH_T(ah_r_shift(r, ah_r_scale(r, stays, 2), -1)), AH_I(-1));
}

static struct ah_tensor *first_of_det(struct ah_rule *r, struct ah_tensor *a)
{
    struct ah_tensor *out[3] = {NULL};
    const struct ah_value args[1] = {AH_T(a)};
    if (a)
        ah_rule_ops(r, AH_OP_matrix_det, args, 1, out, 3);
    return out[0];
}

/* det(A) g A'^-1, which is smooth where det(A) is 0 and A'^-1 does not exist: zeros on the diagonal of U are moved by a
 * negligible amount, and the determinant and the inverse are those of the moved matrix: of the factors, or, for a
 * second derivative, of A itself. */
void ah_backward_matrix_det(struct ah_rule *r)
{
    struct ah_tensor *a = ah_args(r, matrix_det)->input.tensor, *lu = r->out[1], *g = r->grad_out[0];
    if (!a || !lu || !g)
        return;
    if (a->numel == 0) {
        r->grad_in[0] = ah_r_zeros_input(r, 0);
        return;
    }
    double eps = a->dtype == AH_F32 ? 0x1p-23 : 0x1p-52;
    struct ah_tensor *u = ah_r(r, AH_OP_diagonal, AH_T(lu), AH_I(0), AH_I(-2), AH_I(-1));
    struct ah_tensor *zero = ah_r(r, AH_OP_to, AH_T(ah_r(r, AH_OP_eq, AH_T(u), AH_I(0))), AH_D(a->dtype));
    struct ah_tensor *moved = ah_r_scale(r, linalg_diagonal(r, zero), eps);
    if (ah_grad_enabled) {
        struct ah_tensor *scale = ah_r(r, AH_OP_amax, AH_T(ah_r(r, AH_OP_abs, AH_T(lu))));
        scale = ah_r(r, AH_OP_ceil, AH_T(ah_r_shift(r, scale, eps)));
        a = ah_r_add(r, a, linalg_permuted(r, ah_r_mul(r, moved, scale), r->out[2]));
        /* Of the transposed matrix, as the solution below: both divide by the same rounded pivot near 0. */
        g = ah_r_mul(r, g, first_of_det(r, linalg_transposed(r, a)));
    } else {
        lu = ah_r_add(r, lu, moved);
        u = ah_r(r, AH_OP_diagonal, AH_T(lu), AH_I(0), AH_I(-2), AH_I(-1));
        struct ah_tensor *det = ah_r(r, AH_OP_prod, AH_T(u), AH_I(-1));
        g = ah_r_mul(r, ah_r_mul(r, g, det), linalg_parity(r, r->out[2], a->dtype));
    }
    r->grad_in[0] = scaled_inverse(r, a, g, lu, r->out[2]);
}

void ah_backward_matrix_slogdet(struct ah_rule *r)
{
    struct ah_tensor *a = ah_args(r, matrix_slogdet)->input.tensor;
    r->grad_in[0] = r->grad_out[1] ? scaled_inverse(r, a, r->grad_out[1], r->out[2], r->out[3])
                                   : ah_r_zeros_input(r, 0);
}

/* The lower triangle of x, its diagonal halved and mirrored upwards: x for a symmetric gradient. */
static struct ah_tensor *linalg_mirrored(struct ah_rule *r, struct ah_tensor *x)
{
    struct ah_tensor *low = linalg_lower(r, x, 0);
    return ah_r_add(r, low, linalg_transposed(r, linalg_lower(r, low, -1)));
}

/* A = L L': L'^-1 mirrored(L' gL) L^-1 / 2 */
void ah_backward_matrix_cholesky(struct ah_rule *r)
{
    bool is_upper = ah_args(r, matrix_cholesky)->upper.flag;
    struct ah_tensor *l = r->out[0], *g = r->grad_out[0];
    if (is_upper) {
        l = linalg_transposed(r, l);
        g = linalg_transposed(r, g);
    }
    struct ah_tensor *inner = linalg_mirrored(r, left_turned(r, l, g));
    inner = solve_triangle(r, linalg_transposed(r, l), inner, true, true, false);
    r->grad_in[0] = ah_r_scale(r, solve_triangle(r, l, inner, false, false, false), 0.5);
}

/* With at least as many rows as columns: (gQ + Q mirrored(M')) R'^-1, M = R gR' - gQ' Q. (A wide matrix is factored
 * from its square part, accelhost.linalg.) */
void ah_backward_matrix_qr(struct ah_rule *r)
{
    struct ah_tensor *q = r->out[0], *R = r->out[1], *gq = r->grad_out[0], *gr = r->grad_out[1];
    if (!q || !R || (!gq && !gr))
        return;
    const char *mode = ah_args(r, matrix_qr)->mode.string;
    const struct ah_input_meta *a = ah_rule_input(r, 0);
    int64_t m = a->size[a->ndim - 2], n = a->size[a->ndim - 1];
    if (!strcmp(mode, "r")) {
        r->status = ah_fail(AH_ENOTIMPL, "backward of linalg.qr: mode 'r' has no derivative, which depends on Q");
        return;
    }
    if (m < n || (m > n && !strcmp(mode, "complete"))) {
        r->status = ah_fail(AH_ENOTIMPL, "backward of linalg.qr: mode 'complete' has no derivative for more rows than "
                            "columns");
        return;
    }
    struct ah_tensor *inner = gr ? right_turned(r, R, gr) : NULL;
    if (gq)
        inner = sum_of(r, inner, ah_r_neg(r, left_turned(r, gq, q)));
    struct ah_tensor *ga = sum_of(r, gq, ah_r_matmul(r, q, linalg_mirrored(r, inner)));
    r->grad_in[0] = solve_triangle(r, linalg_transposed(r, R), ga, false, false, false);
}

static struct ah_tensor *linalg_skew(struct ah_rule *r, struct ah_tensor *x)
{
    return ah_r_sub(r, x, linalg_transposed(r, x));
}

/* x_j - x_i */
static struct ah_tensor *linalg_differences(struct ah_rule *r, struct ah_tensor *x)
{
    return ah_r_sub(r, at_dim(r, x, -2), at_dim(r, x, -1));
}

static struct ah_tensor *linalg_first(struct ah_rule *r, struct ah_tensor *x, int64_t dim, int64_t count)
{
    return x ? ah_r(r, AH_OP_narrow, AH_T(x), AH_I(dim), AH_I(0), AH_I(count)) : NULL;
}

/* g less its part in the columns of u. */
static struct ah_tensor *linalg_beyond(struct ah_rule *r, struct ah_tensor *u, struct ah_tensor *g)
{
    return ah_r_sub(r, g, ah_r_matmul(r, u, left_turned(r, u, g)));
}

/* A = U S V': U (skew(U' gU) / E S + S skew(V' gV) / E + gS) V', E_ij = s_j^2 - s_i^2 (1 where i = j), and the parts of
 * gU and gV outside of the columns of U and V. */
void ah_backward_matrix_svd(struct ah_rule *r)
{
    if (!ah_args(r, matrix_svd)->vectors.flag) {
        r->status = ah_fail(AH_ENOTIMPL, "backward of linalg.svd: the singular vectors were not computed");
        return;
    }
    struct ah_tensor *s = r->out[1], *gs = r->grad_out[1];
    if (!s || !r->out[0] || !r->out[2])
        return;
    const struct ah_input_meta *a = ah_rule_input(r, 0);
    int64_t m = a->size[a->ndim - 2], n = a->size[a->ndim - 1], k = s->size[s->ndim - 1];
    struct ah_tensor *u = linalg_first(r, r->out[0], -1, k), *gu = linalg_first(r, r->grad_out[0], -1, k);
    struct ah_tensor *v = linalg_transposed(r, linalg_first(r, r->out[2], -2, k));
    struct ah_tensor *gv = r->grad_out[2] ? linalg_transposed(r, linalg_first(r, r->grad_out[2], -2, k)) : NULL;
    struct ah_tensor *inner = gs ? linalg_diagonal(r, gs) : NULL, *row = at_dim(r, s, -2), *column = at_dim(r, s, -1);
    struct ah_tensor *e = NULL;
    if (gu || gv)
        e = ah_r_add(r, ah_r_mul(r, linalg_differences(r, s), ah_r_add(r, row, column)), linalg_identity(r, s, k));
    if (gu)
        inner = sum_of(r, inner, ah_r_mul(r, ah_r_div(r, linalg_skew(r, left_turned(r, u, gu)), e), row));
    if (gv)
        inner = sum_of(r, inner, ah_r_mul(r, column, ah_r_div(r, linalg_skew(r, left_turned(r, v, gv)), e)));
    struct ah_tensor *ga = inner ? right_turned(r, ah_r_matmul(r, u, inner), v) : ah_r_zeros_input(r, 0);
    if (gu && m > k)
        ga = ah_r_add(r, ga, right_turned(r, ah_r_div(r, linalg_beyond(r, u, gu), row), v));
    if (gv && n > k)
        ga = ah_r_add(r, ga, right_turned(r, u, ah_r_div(r, linalg_beyond(r, v, gv), row)));
    r->grad_in[0] = ga;
}

/* A = V W V': V (V' gV / E + gW) V', E_ij = w_j - w_i, V' gV without its diagonal. */
void ah_backward_matrix_eigh(struct ah_rule *r)
{
    if (!ah_args(r, matrix_eigh)->vectors.flag) {
        r->status = ah_fail(AH_ENOTIMPL, "backward of linalg.eigh: the eigenvectors were not computed");
        return;
    }
    struct ah_tensor *w = r->out[0], *v = r->out[1], *gw = r->grad_out[0], *gv = r->grad_out[1];
    if (!w || !v)
        return;
    struct ah_tensor *inner = gw ? linalg_diagonal(r, gw) : NULL;
    if (gv) {
        struct ah_tensor *by = left_turned(r, v, gv), *one = linalg_identity(r, w, w->size[w->ndim - 1]);
        by = ah_r_div(r, by, ah_r_add(r, linalg_differences(r, w), one));
        by = ah_r_mul(r, by, ah_r_shift(r, ah_r_neg(r, one), 1));
        inner = sum_of(r, inner, by);
    }
    r->grad_in[0] = inner ? right_turned(r, ah_r_matmul(r, v, inner), v) : ah_r_zeros_input(r, 0);
}
