/* Products of 8-bit floats, which are stored as their codes in uint8 and scaled by numbers in the device's memory. */
#include "ops/dispatch/rows.h"

/* A float32 scalar of the call. */
static int check_scalar(const struct ah_call *c, const char *name, const struct ah_tensor *t)
{
    if (t->dtype == AH_F32 && t->numel == 1)
        return 0;
    return ah_fail(AH_EINVAL, "%s: %s: expected one float32, got %s %s", c->op->name, name, ah_dtype_name(t->dtype),
                   ah_shape(t));
}

int ah_forward_fp8_quantize(struct ah_call *c)
{
    const struct ah_args_fp8_quantize *arg = ah_args(c, fp8_quantize);
    const struct ah_tensor *x = arg->input.tensor, *amax = ah_given(&arg->amax);
    if (!ah_dtype_is_float(x->dtype) || x->dtype == AH_F64) {
        return ah_fail(AH_EINVAL, "fp8_quantize: input: expected float32, float16 or bfloat16, got %s",
                       ah_dtype_name(x->dtype));
    }
    AH_TRY(check_scalar(c, "scale", arg->scale.tensor));
    if (amax)
        AH_TRY(check_scalar(c, "amax", amax));
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, AH_U8));
    return x->numel == 0 ? 0 : ah_call_kernel(c);
}

int ah_forward_fp8_matmul(struct ah_call *c)
{
    const struct ah_args_fp8_matmul *arg = ah_args(c, fp8_matmul);
    const struct ah_tensor *a = arg->a.tensor, *b = arg->b.tensor, *bias = ah_given(&arg->bias);
    enum ah_dtype dtype = arg->dtype.dtype;
    if (a->dtype != AH_U8 || b->dtype != AH_U8 || a->ndim != 2 || b->ndim != 2 || a->size[1] != b->size[1]) {
        return ah_fail(AH_EINVAL, "fp8_matmul: expected codes (uint8) [m, k] and [n, k], got %s %s and %s %s",
                       ah_dtype_name(a->dtype), ah_shape(a), ah_dtype_name(b->dtype), ah_shape(b));
    }
    if (arg->a_e5m2.flag && arg->b_e5m2.flag)
        return ah_fail(AH_EINVAL, "fp8_matmul: expected one operand in e4m3, got both in e5m2");
    if (dtype != AH_F32 && dtype != AH_F16 && dtype != AH_BF16) {
        return ah_fail(AH_EINVAL, "fp8_matmul: dtype: expected float32, float16 or bfloat16, got %s",
                       ah_dtype_name(dtype));
    }
    AH_TRY(check_scalar(c, "a_inverse", arg->a_inverse.tensor));
    AH_TRY(check_scalar(c, "b_inverse", arg->b_inverse.tensor));
    if (bias && (bias->dtype != dtype || bias->ndim != 1 || bias->size[0] != b->size[0])) {
        return ah_fail(AH_EINVAL, "fp8_matmul: expected a bias [%lld] of %s, got %s of %s", (long long)b->size[0],
                       ah_dtype_name(dtype), ah_shape(bias), ah_dtype_name(bias->dtype));
    }
    AH_TRY(ah_call_output(c, 0, (int64_t[]){a->size[0], b->size[0]}, 2, dtype));
    return c->out[0]->numel == 0 ? 0 : ah_call_kernel(c);
}
