/* Elementwise ops of two inputs that compute (kernels/elementwise/pairs.cu, kernels/elementwise/division.cu). */
#include "base/status/status.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/lib/search.h"

static int pairs_run(struct ah_call *c, struct ah_cuda_kernel *loops)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    return ah_cuda_elementwise(c, loops, 2, dtype, dtype, NULL);
}

static int like_output(struct ah_call *c, struct ah_cuda_kernel *loops, double number)
{
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_cuda_elementwise(c, loops, 2, dtype, dtype, (double[4]){number});
}

static int add_scaled(struct ah_call *c, double alpha)
{
    static ah_cuda_loops add = {[AH_BOOL] = AH_CUDA_KERNEL("pairs", "add_b8"), AH_CUDA_INTEGERS("pairs", "add"),
                                AH_CUDA_FLOATS("pairs", "add")};
    static ah_cuda_loops sub = {AH_CUDA_FLOATS("pairs", "sub")}, scaled = {AH_CUDA_FLOATS("pairs", "add_scaled")};
    enum ah_dtype dtype = ah_call_promote(c, 2);
    struct ah_cuda_kernel *loops = !ah_dtype_is_float(dtype) || alpha == 1 ? add : alpha == -1 ? sub : scaled;
    return ah_cuda_elementwise(c, loops, 2, dtype, dtype, (double[4]){alpha});
}

AH_CUDA_OP(add, add_scaled(c, ah_args(c, add)->alpha.number))
AH_CUDA_OP(sub, add_scaled(c, -ah_args(c, sub)->alpha.number))

int ah_cuda_mul(struct ah_call *c)
{
    static ah_cuda_loops loops = {[AH_BOOL] = AH_CUDA_KERNEL("pairs", "mul_b8"), AH_CUDA_INTEGERS("pairs", "mul"),
                                  AH_CUDA_FLOATS("pairs", "mul")};
    return pairs_run(c, loops);
}

/* Integers have no infinity: PyTorch's CPU raises. The divisor is checked as the kernel sees it: 256 is 0 in uint8. */
static int refuse_zero_divisor(const struct ah_call *c, enum ah_dtype dtype)
{
    AH_OWNED struct ah_tensor *divisor = NULL;
    int64_t at = -1;
    if (c->out[0]->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &divisor, ah_args(c, div)->other.tensor, dtype));
    AH_TRY(ah_cuda_find_zero(c->device, c->op->name, divisor, &at));
    if (at >= 0)
        return ah_fail(AH_EINVAL, "%s: division of integers by zero (the divisor in %s, at position %lld)",
                       c->op->name, ah_dtype_name(dtype), (long long)at);
    return 0;
}

static int pairs_divide(struct ah_call *c, struct ah_cuda_kernel *loops)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    if (!ah_dtype_is_float(dtype))
        AH_TRY(refuse_zero_divisor(c, dtype));
    return pairs_run(c, loops);
}

#define DIVISION(name) {AH_CUDA_INTEGERS("division", name), AH_CUDA_FLOATS("division", name)}
static ah_cuda_loops div_floor = DIVISION("div_floor"), div_trunc = DIVISION("div_trunc");

int ah_cuda_div(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("pairs", "div")};
    const struct ah_args_div *arg = ah_args(c, div);
    if (arg->rounding_mode.kind == AH_STRING)
        return pairs_divide(c, arg->rounding_mode.string[0] == 'f' ? div_floor : div_trunc);
    enum ah_dtype dtype = ah_call_promote(c, 2);
    if (!ah_dtype_is_float(dtype))
        dtype = AH_F32;
    return ah_cuda_elementwise(c, loops, 2, dtype, dtype, NULL);
}

AH_CUDA_OP(floor_divide, pairs_divide(c, div_floor))

int ah_cuda_remainder(struct ah_call *c)
{
    static ah_cuda_loops loops = DIVISION("remainder");
    return pairs_divide(c, loops);
}

int ah_cuda_fmod(struct ah_call *c)
{
    static ah_cuda_loops loops = DIVISION("fmod");
    return pairs_divide(c, loops);
}

int ah_cuda_pow(struct ah_call *c)
{
    static ah_cuda_loops any = {AH_CUDA_INTEGERS("pairs", "pow"), AH_CUDA_FLOATS("pairs", "pow")};
    static struct {
        double exponent;
        ah_cuda_loops loops;
    } fixed[] = {{2, {AH_CUDA_FLOATS("pairs", "pow_2")}},        {3, {AH_CUDA_FLOATS("pairs", "pow_3")}},
                 {0.5, {AH_CUDA_FLOATS("pairs", "pow_half")}},   {-0.5, {AH_CUDA_FLOATS("pairs", "pow_minus_half")}},
                 {-1, {AH_CUDA_FLOATS("pairs", "pow_minus_1")}}, {-2, {AH_CUDA_FLOATS("pairs", "pow_minus_2")}}};
    const struct ah_tensor *exponent = ah_args(c, pow)->exponent.tensor;
    if (exponent->wrapped && ah_dtype_is_float(ah_call_promote(c, 2)))
        for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++)
            if (fixed[k].exponent == ah_tensor_get(exponent, 0))
                return pairs_run(c, fixed[k].loops);
    return pairs_run(c, any);
}

#define PAIR(name, ...)                             \
    int ah_cuda_##name(struct ah_call *c)           \
    {                                               \
        static ah_cuda_loops loops = {__VA_ARGS__}; \
        return pairs_run(c, loops);                 \
    }
#define FLOATS(name)                                \
    int ah_cuda_##name(struct ah_call *c)           \
    {                                               \
        static ah_cuda_loops loops = {AH_CUDA_FLOATS("pairs", #name)}; \
        return like_output(c, loops, 0);            \
    }
FLOATS(atan2)
FLOATS(hypot)
FLOATS(nextafter)
FLOATS(copysign)
FLOATS(logaddexp)
FLOATS(logaddexp2)
FLOATS(xlogy)
FLOATS(ldexp)
PAIR(fmax, AH_CUDA_INTEGERS("pairs", "fmax"), AH_CUDA_FLOATS("pairs", "fmax"))
PAIR(fmin, AH_CUDA_INTEGERS("pairs", "fmin"), AH_CUDA_FLOATS("pairs", "fmin"))
PAIR(heaviside, AH_CUDA_INTEGERS("pairs", "heaviside"), AH_CUDA_FLOATS("pairs", "heaviside"))
PAIR(squared_difference, AH_CUDA_INTEGERS("pairs", "squared_difference"),
     AH_CUDA_FLOATS("pairs", "squared_difference"))
PAIR(gcd, AH_CUDA_INTEGERS("pairs", "gcd"))
PAIR(lcm, AH_CUDA_INTEGERS("pairs", "lcm"))
PAIR(bitwise_left_shift, AH_CUDA_INTEGERS("pairs", "left_shift"))
PAIR(bitwise_right_shift, AH_CUDA_INTEGERS("pairs", "right_shift"))

int ah_cuda_smooth_l1(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("pairs", "smooth_l1")};
    return like_output(c, loops, ah_args(c, smooth_l1)->beta.number);
}

int ah_cuda_huber(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("pairs", "huber")};
    return like_output(c, loops, ah_args(c, huber)->delta.number);
}
