/* Elementwise kernels of one input beyond the everyday ones (cpu/elementwise/elementwise_unary.c): the rest of libm,
 * special functions (cpu/elementwise/special.h, those of float32 in cpu/elementwise/special_vector.h), and tests of
 * single values. */
#include <math.h>

#include "cpu/elementwise/angle_vector.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/special.h"
#include "cpu/elementwise/special_vector.h"
#include "ops/dispatch/op.h"

static int special_run(struct ah_call *c, const ah_loop *loops, const double *numbers)
{
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_elementwise(c, 1, dtype, dtype, loops, numbers);
}

#define FLOATS(name, expr32, expr64)               \
    LOOP1(name##_f32, float, float, expr32)        \
    LOOP1(name##_f64, double, double, expr64)      \
    FLOAT_TABLE(name);                             \
    int ah_cpu_##name(struct ah_call *c)           \
    {                                              \
        return special_run(c, name##_loops, NULL); \
    }

FLOATS(asin, ah_asinf(a), asin(a))
FLOATS(acos, ah_acosf(a), acos(a))
FLOATS(sinh, sinhf(a), sinh(a))
FLOATS(cosh, coshf(a), cosh(a))
FLOATS(asinh, asinhf(a), asinh(a))
FLOATS(acosh, acoshf(a), acosh(a))
FLOATS(atanh, ah_atanhf(a), atanh(a))
FLOATS(exp2, ah_exp2f(a), exp2(a))
FLOATS(erfc, ah_erfcf(a), erfc(a))
FLOATS(frac, a - truncf(a), a - trunc(a))
FLOATS(deg2rad, a * (float)(M_PI / 180), a * (M_PI / 180))
FLOATS(rad2deg, a * (float)(180 / M_PI), a * (180 / M_PI))
FLOATS(sinc, a == 0 ? 1 : sinf((float)M_PI * a) / ((float)M_PI * a), a == 0 ? 1 : sin(M_PI * a) / (M_PI * a))
FLOATS(lgamma, ah_lgammaf(a), ah_lgamma(a))
FLOATS(digamma, ah_digammaf(a), ah_digamma(a))
FLOATS(erfinv, ah_erfinvf(a), ah_erfinv(a))
FLOATS(ndtri, (float)ah_ndtri(a), ah_ndtri(a))
FLOATS(i0, ah_i0f(a), ah_bessel_i(0, a))
FLOATS(i1, ah_i1f(a), ah_bessel_i(1, a))

LOOP1(trigamma_f32, float, float, ah_trigammaf(a))
LOOP1(polygamma_f32, float, float, (float)ah_polygamma((int)c0, a))
LOOP1(polygamma_f64, double, double, ah_polygamma((int)c0, a))
FLOAT_TABLE(polygamma);

int ah_cpu_polygamma(struct ah_call *c)
{
    static const ah_loop trigamma_loops[AH_DTYPE_COUNT] = {[AH_F32] = trigamma_f32, [AH_F64] = polygamma_f64};
    int64_t order = ah_args(c, polygamma)->n.integer;
    return special_run(c, order == 1 ? trigamma_loops : polygamma_loops, (double[]){(double)order, 0});
}

/* log(x / (1 - x)), x clamped to c0..c1 first. */
LOOP1(logit_f32, float, float, ah_logf((a < c0 ? c0 : a > c1 ? c1 : a) / (1 - (a < c0 ? c0 : a > c1 ? c1 : a))))
LOOP1(logit_f64, double, double, log((a < c0 ? c0 : a > c1 ? c1 : a) / (1 - (a < c0 ? c0 : a > c1 ? c1 : a))))
FLOAT_TABLE(logit);

int ah_cpu_logit(struct ah_call *c)
{
    const struct ah_args_logit *arg = ah_args(c, logit);
    bool bounded = arg->eps.kind == AH_NUMBER;
    double low = bounded ? arg->eps.number : -INFINITY, high = bounded ? 1 - arg->eps.number : INFINITY;
    if (bounded && ah_compute_dtype(c->out[0]->dtype) == AH_F32)
        high = 1 - (float)low;
    return special_run(c, logit_loops, (double[]){low, high});
}

/* Replacements of nan and the infinities, in the tensor's dtype (fp16 and bf16 loops work in float32). */
struct stand_ins {
    double nan, high, low;
};

#define NAN_TO_NUM(suffix, type)                                                                               \
    static void nan_to_num_##suffix(int64_t n, void *const *data, const int64_t *step, const void *context)    \
    {                                                                                                          \
        const struct stand_ins *by = context;                                                                  \
        const type nan = (type)by->nan, high = (type)by->high, low = (type)by->low, infinity = (type)INFINITY; \
        type *y = data[0];                                                                                     \
        const type *x = data[1];                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                    \
            y[i] = x[i] != x[i] ? nan : x[i] == infinity ? high : x[i] == -infinity ? low : x[i];              \
    }
NAN_TO_NUM(f32, float)
NAN_TO_NUM(f64, double)

static double special_largest(enum ah_dtype dtype)
{
    switch (dtype) {
    case AH_F16: return 65504;
    case AH_BF16: return 0x1.fep127;
    case AH_F32: return 0x1.fffffep127;
    default: return 0x1.fffffffffffffp1023;
    }
}

int ah_cpu_nan_to_num(struct ah_call *c)
{
    const struct ah_args_nan_to_num *arg = ah_args(c, nan_to_num);
    enum ah_dtype dtype = c->out[0]->dtype, in = ah_compute_dtype(dtype);
    if (!ah_dtype_is_float(dtype))
        return ah_copy(c->out[0], arg->input.tensor);
    struct stand_ins by = {arg->nan.kind == AH_NUMBER ? arg->nan.number : 0,
                           arg->posinf.kind == AH_NUMBER ? arg->posinf.number : special_largest(dtype),
                           arg->neginf.kind == AH_NUMBER ? arg->neginf.number : -special_largest(dtype)};
    const struct ah_operand operand[] = {{c->out[0], in}, {arg->input.tensor, in}};
    return ah_iterate(operand, 2, false, in == AH_F64 ? nan_to_num_f64 : nan_to_num_f32, &by);
}

#define TEST(name, expr)                                                                                        \
    LOOP1(name##_f32, float, uint8_t, expr)                                                                     \
    LOOP1(name##_f64, double, uint8_t, expr)                                                                    \
    FLOAT_TABLE(name);                                                                                          \
    int ah_cpu_##name(struct ah_call *c)                                                                        \
    {                                                                                                           \
        return ah_elementwise_test(c, name##_loops);                                                            \
    }
TEST(isposinf, a == __builtin_inf())
TEST(isneginf, a == -__builtin_inf())
TEST(signbit, signbit(a) != 0)
