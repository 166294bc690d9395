/* Forwards of the elementwise rows that accept only some dtypes; layout, broadcasting and promotion are
 * ah_forward_promoted's and its kin's (ops/math/elementwise.c). */
#include "ops/dispatch/rows.h"

static int special_refuse(const struct ah_call *c, enum ah_dtype dtype, const char *wanted)
{
    return ah_fail(AH_EINVAL, "%s: expected %s, got %s", c->op->name, wanted, ah_dtype_name(dtype));
}

int ah_forward_floats(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, c->op->tensor_count);
    return ah_dtype_is_float(dtype) ? ah_forward_promoted(c) : special_refuse(c, dtype, "floating inputs");
}

int ah_forward_integers(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, c->op->tensor_count);
    return ah_dtype_category(dtype) == AH_CATEGORY_INT ? ah_forward_promoted(c) : special_refuse(c, dtype, "integers");
}

int ah_forward_nextafter(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    bool known = dtype == AH_F32 || dtype == AH_F64;
    return known ? ah_forward_promoted(c) : special_refuse(c, dtype, "float32 or float64");
}

int ah_forward_heaviside(struct ah_call *c)
{
    const struct ah_args_heaviside *arg = ah_args(c, heaviside);
    if (arg->values.tensor->dtype != arg->input.tensor->dtype) {
        return ah_fail(AH_EINVAL, "heaviside: values must be %s like input, got %s",
                       ah_dtype_name(arg->input.tensor->dtype), ah_dtype_name(arg->values.tensor->dtype));
    }
    return ah_forward_promoted(c);
}

int ah_forward_polygamma(struct ah_call *c)
{
    int64_t n = ah_args(c, polygamma)->n.integer;
    if (n < 0 || n > 170) /* 171! overflows */
        return ah_fail(AH_EINVAL, "polygamma: n: expected an integer in 0..170, got %lld", (long long)n);
    return ah_forward_promoted_float(c);
}

int ah_forward_rsub(struct ah_call *c)
{
    const struct ah_args_rsub *arg = ah_args(c, rsub);
    int status = ah_op1(AH_OP_sub, &c->out[0], arg->other, arg->input, arg->alpha);
    c->out_count = status == 0;
    return status;
}

/* In float64, a number as it is. */
static int in_double(struct ah_tensor **out, struct ah_tensor *x)
{
    if (!x->wrapped)
        return ah_op1(AH_OP_to, out, AH_T(x), AH_D(AH_F64));
    *out = ah_tensor_retain(x);
    return 0;
}

int ah_forward_float_power(struct ah_call *c)
{
    const struct ah_args_float_power *arg = ah_args(c, float_power);
    AH_OWNED struct ah_tensor *base = NULL, *exponent = NULL;
    if (arg->input.tensor->wrapped && arg->exponent.tensor->wrapped)
        return ah_fail(AH_EINVAL, "float_power: expected at least one tensor, got two numbers");
    AH_TRY(in_double(&base, arg->input.tensor));
    AH_TRY(in_double(&exponent, arg->exponent.tensor));
    AH_TRY(ah_op1(AH_OP_pow, &c->out[0], AH_T(base), AH_T(exponent)));
    c->out_count = 1;
    return 0;
}
