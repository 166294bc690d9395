/* Matrix products: batch broadcasting and inner sizes are checked here, mm, bmm, mv, dot, addmm and their kin are
 * checks around matmul. linear.c has the linear maps. */
#include <math.h>

#include "ops/dispatch/rows.h"
#include "ops/math/linear.h"

int ah_check_product_dtypes(const struct ah_call *c, const struct ah_tensor *a, const struct ah_tensor *b)
{
    if (a->dtype != b->dtype) {
        return ah_fail(AH_EINVAL, "%s: dtypes differ: %s and %s", c->op->name, ah_dtype_name(a->dtype),
                       ah_dtype_name(b->dtype));
    }
    if (a->dtype == AH_BOOL)
        return ah_fail(AH_EINVAL, "%s: bool has no product", c->op->name);
    return 0;
}

static int matmul_of_dtype(struct ah_call *c, enum ah_dtype dtype)
{
    const struct ah_tensor *a = c->arg[0].tensor, *b = c->arg[1].tensor;
    AH_TRY(ah_check_product_dtypes(c, a, b));
    if (a->ndim == 0 || b->ndim == 0) {
        return ah_fail(AH_EINVAL, "matmul: expected at least one dimension on both sides, got %s x %s", ah_shape(a),
                       ah_shape(b));
    }
    int64_t inner_a = a->size[a->ndim - 1], inner_b = b->size[b->ndim == 1 ? 0 : b->ndim - 2];
    if (inner_a != inner_b)
        return ah_fail(AH_EINVAL, "matmul: inner sizes differ: %s x %s", ah_shape(a), ah_shape(b));

    /* Batch dims broadcast; the matrix dims that a 1-d operand lacks are left out of the result. */
    int batch_a = a->ndim > 2 ? a->ndim - 2 : 0, batch_b = b->ndim > 2 ? b->ndim - 2 : 0;
    int ndim = batch_a > batch_b ? batch_a : batch_b;
    int64_t size[AH_MAX_DIMS + 2];
    for (int d = 0; d < ndim; d++) {
        int da = d - (ndim - batch_a), db = d - (ndim - batch_b);
        int64_t sa = da < 0 ? 1 : a->size[da], sb = db < 0 ? 1 : b->size[db];
        if (sa != sb && sa != 1 && sb != 1) {
            return ah_fail(AH_EINVAL, "matmul: batch dimensions do not broadcast: %s x %s", ah_shape(a),
                           ah_shape(b));
        }
        size[d] = sa == 1 ? sb : sa;
    }
    if (a->ndim > 1)
        size[ndim++] = a->size[a->ndim - 2];
    if (b->ndim > 1)
        size[ndim++] = b->size[b->ndim - 1];
    return ah_call_single(c, size, ndim, dtype);
}

AH_FORWARD(matmul, matmul_of_dtype(c, ah_args(c, matmul)->input.tensor->dtype))
AH_FORWARD(matmul_wide, matmul_of_dtype(c, AH_F32))

static int expect_ndim(const struct ah_call *c, int arg, int ndim)
{
    const struct ah_tensor *t = c->arg[arg].tensor;
    if (t->ndim == ndim)
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected %s with %d dimension%s, got %s", c->op->name, c->op->param[arg].name, ndim,
                   ndim == 1 ? "" : "s", ah_shape(t));
}

static int matmul_product(struct ah_call *c, int ndim_a, int ndim_b)
{
    const struct ah_args_mm *arg = ah_args(c, mm);
    AH_TRY(expect_ndim(c, 0, ndim_a));
    AH_TRY(expect_ndim(c, 1, ndim_b));
    const struct ah_tensor *a = arg->input.tensor, *b = c->arg[1].tensor;
    if (ndim_a == 3 && a->size[0] != b->size[0])
        return ah_fail(AH_EINVAL, "%s: batch sizes differ: %s x %s", c->op->name, ah_shape(a), ah_shape(b));
    c->out_count = 1;
    return ah_op1(AH_OP_matmul, &c->out[0], arg->input, c->arg[1]);
}

AH_FORWARD(mm, matmul_product(c, 2, 2))
AH_FORWARD(bmm, matmul_product(c, 3, 3))
AH_FORWARD(mv, matmul_product(c, 2, 1))
AH_FORWARD(dot, matmul_product(c, 1, 1))

int ah_forward_outer(struct ah_call *c)
{
    const struct ah_args_outer *arg = ah_args(c, outer);
    AH_TRY(expect_ndim(c, 0, 1));
    AH_TRY(expect_ndim(c, 1, 1));
    AH_OWNED struct ah_tensor *column = NULL, *row = NULL;
    AH_TRY(ah_op1(AH_OP_unsqueeze, &column, arg->input, AH_I(1)));
    AH_TRY(ah_op1(AH_OP_unsqueeze, &row, arg->vec2, AH_I(0)));
    AH_TRY(ah_op1(AH_OP_mul, &c->out[0], AH_T(column), AH_T(row)));
    c->out_count = 1;
    return 0;
}

static int matmul_scaled(struct ah_tensor **out, struct ah_tensor *t, double factor)
{
    /* An integral factor keeps integers integers. */
    bool integral = factor == floor(factor) && fabs(factor) <= 0x1p53;
    if (factor != 1)
        return ah_op1(AH_OP_mul, out, AH_T(t), integral ? AH_I((int64_t)factor) : AH_N(factor));
    *out = ah_tensor_retain(t);
    return 0;
}

static bool broadcasts_to(const struct ah_tensor *tensor, const struct ah_tensor *other)
{
    int missing = other->ndim - tensor->ndim;
    for (int d = 0; missing >= 0 && d < tensor->ndim; d++)
        if (tensor->size[d] != 1 && tensor->size[d] != other->size[missing + d])
            return false;
    return missing >= 0;
}

/* alpha or beta of a product: of integers its fraction is cut, as in PyTorch. */
static double product_factor(const struct ah_tensor *product, const struct ah_value *factor)
{
    return ah_dtype_is_float(product->dtype) ? factor->number : __builtin_trunc(factor->number);
}

/* beta * input + alpha * (a @ b); beta 0 drops the input, whatever it holds. Halves are summed in float32 and rounded
 * once. */
static int add_product(struct ah_call *c, int ndim)
{
    const struct ah_args_addmm *arg = ah_args(c, addmm);
    AH_TRY(expect_ndim(c, 1, ndim));
    AH_TRY(expect_ndim(c, 2, ndim));
    const struct ah_tensor *a = c->arg[1].tensor, *b = c->arg[2].tensor;
    if (ndim == 3 && a->size[0] != b->size[0])
        return ah_fail(AH_EINVAL, "%s: batch sizes differ: %s x %s", c->op->name, ah_shape(a), ah_shape(b));
    struct ah_tensor *input = arg->input.tensor;
    AH_OWNED struct ah_tensor *wide = NULL, *raw = NULL, *right = NULL, *left = NULL, *sum = NULL;
    bool halves = (a->dtype == AH_F16 || a->dtype == AH_BF16) && a->dtype == b->dtype && a->dtype == input->dtype;
    AH_TRY(ah_op1(halves ? AH_OP_matmul_wide : AH_OP_matmul, &raw, c->arg[1], c->arg[2]));
    if (!broadcasts_to(input, raw)) {
        return ah_fail(AH_EINVAL, "%s: input %s does not broadcast to %s", c->op->name, ah_shape(input),
                       ah_shape(raw));
    }
    double beta = product_factor(raw, &arg->beta);
    AH_TRY(matmul_scaled(&right, raw, product_factor(raw, &arg->alpha)));
    if (beta == 0) {
        sum = ah_tensor_retain(right);
    } else {
        if (halves)
            AH_TRY(ah_op1(AH_OP_to, &wide, arg->input, AH_D(AH_F32)));
        AH_TRY(matmul_scaled(&left, halves ? wide : input, beta));
        AH_TRY(ah_op1(AH_OP_add, &sum, AH_T(left), AH_T(right)));
    }
    if (halves)
        AH_TRY(ah_op1(AH_OP_to, &c->out[0], AH_T(sum), AH_D(a->dtype)));
    else
        c->out[0] = ah_tensor_retain(sum);
    c->out_count = 1;
    return 0;
}

AH_FORWARD(addmm, add_product(c, 2))
AH_FORWARD(baddbmm, add_product(c, 3))
