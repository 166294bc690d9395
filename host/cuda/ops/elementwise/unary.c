/* Elementwise ops of one input (kernels/elementwise/unary.cu, special.cu). */
#include <math.h>

#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static int unary_run(struct ah_call *c, struct ah_cuda_kernel *loops, const double *numbers)
{
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_cuda_elementwise(c, loops, 1, dtype, dtype, numbers);
}

#define FLOATS(name)                                                    \
    int ah_cuda_##name(struct ah_call *c)                               \
    {                                                                   \
        static ah_cuda_loops loops = {AH_CUDA_FLOATS("unary", #name)};  \
        return unary_run(c, loops, NULL);                               \
    }
#define SPECIAL(name)                                                    \
    int ah_cuda_##name(struct ah_call *c)                                \
    {                                                                    \
        static ah_cuda_loops loops = {AH_CUDA_FLOATS("special", #name)}; \
        return unary_run(c, loops, NULL);                                \
    }
#define NUMBERS(name)                                                                                    \
    int ah_cuda_##name(struct ah_call *c)                                                                \
    {                                                                                                    \
        static ah_cuda_loops loops = {AH_CUDA_INTEGERS("unary", #name), AH_CUDA_FLOATS("unary", #name)}; \
        return unary_run(c, loops, NULL);                                                                \
    }
/* Whole numbers are copied: a result never is its input. */
#define ROUNDING(name)                                                                                       \
    int ah_cuda_##name(struct ah_call *c)                                                                    \
    {                                                                                                        \
        static ah_cuda_loops loops = {AH_CUDA_FLOATS("unary", #name)};                                       \
        return ah_dtype_is_float(c->out[0]->dtype) ? unary_run(c, loops, NULL)                               \
                                                   : ah_cuda_assign(c->device, c->out[0], c->arg[0].tensor); \
    }
/* Whole numbers are seen as float64: all finite, with their sign. */
#define TEST(name)                                                      \
    int ah_cuda_##name(struct ah_call *c)                               \
    {                                                                   \
        static ah_cuda_loops loops = {AH_CUDA_FLOATS("unary", #name)};  \
        enum ah_dtype dtype = c->arg[0].tensor->dtype;                  \
        return ah_cuda_elementwise(c, loops, 1, ah_dtype_is_float(dtype) ? dtype : AH_F64, AH_BOOL, NULL); \
    }

NUMBERS(neg)
NUMBERS(abs)
NUMBERS(sign)
NUMBERS(square)
NUMBERS(relu)
ROUNDING(floor)
ROUNDING(ceil)
ROUNDING(round)
ROUNDING(trunc)
FLOATS(frac)
FLOATS(reciprocal)
FLOATS(sqrt)
FLOATS(rsqrt)
FLOATS(exp)
FLOATS(exp2)
FLOATS(expm1)
FLOATS(log)
FLOATS(log1p)
FLOATS(log2)
FLOATS(log10)
FLOATS(sin)
FLOATS(cos)
FLOATS(tan)
FLOATS(asin)
FLOATS(acos)
FLOATS(atan)
FLOATS(sinh)
FLOATS(cosh)
FLOATS(tanh)
FLOATS(asinh)
FLOATS(acosh)
FLOATS(atanh)
FLOATS(erf)
FLOATS(erfc)
FLOATS(lgamma)
FLOATS(deg2rad)
FLOATS(rad2deg)
FLOATS(sinc)
SPECIAL(digamma)
SPECIAL(erfinv)
SPECIAL(ndtri)
SPECIAL(i0)
SPECIAL(i1)
TEST(isnan)
TEST(isinf)
TEST(isfinite)
TEST(isposinf)
TEST(isneginf)
TEST(signbit)

int ah_cuda_logical_not(struct ah_call *c)
{
    static ah_cuda_loops loops = {[AH_BOOL] = AH_CUDA_KERNEL("unary", "logical_not_b8")};
    return ah_cuda_elementwise(c, loops, 1, AH_BOOL, AH_BOOL, NULL);
}

int ah_cuda_bitwise_not(struct ah_call *c)
{
    static ah_cuda_loops loops = {[AH_BOOL] = AH_CUDA_KERNEL("unary", "logical_not_b8"),
                                  AH_CUDA_INTEGERS("unary", "bitwise_not")};
    return unary_run(c, loops, NULL);
}

int ah_cuda_polygamma(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("special", "polygamma")};
    return unary_run(c, loops, (double[4]){(double)ah_args(c, polygamma)->n.integer});
}

int ah_cuda_logit(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("unary", "logit")};
    const struct ah_args_logit *arg = ah_args(c, logit);
    bool bounded = arg->eps.kind == AH_NUMBER;
    double low = bounded ? arg->eps.number : -INFINITY, high = bounded ? 1 - arg->eps.number : INFINITY;
    if (bounded && ah_compute_dtype(c->out[0]->dtype) == AH_F32)
        high = 1 - (float)low;
    return unary_run(c, loops, (double[4]){low, high});
}

int ah_cuda_nan_to_num(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("unary", "nan_to_num")};
    const struct ah_args_nan_to_num *arg = ah_args(c, nan_to_num);
    enum ah_dtype dtype = c->out[0]->dtype;
    if (!ah_dtype_is_float(dtype))
        return ah_cuda_assign(c->device, c->out[0], arg->input.tensor);
    double most = ah_float_largest(dtype);
    return unary_run(c, loops,
                     (double[4]){arg->nan.kind == AH_NUMBER ? arg->nan.number : 0,
                                 arg->posinf.kind == AH_NUMBER ? arg->posinf.number : most,
                                 arg->neginf.kind == AH_NUMBER ? arg->neginf.number : -most});
}
