/* Elementwise kernels that choose: a loop by the values of operands (sums, powers, clamping, polygamma), elements by a
 * mask of one byte per element (where); copies and fills. */
#include <math.h>
#include <string.h>

#include "base/status/status.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/elementwise/float64_vector.h"
#include "cpu/elementwise/special.h"
#include "cpu/elementwise/special_vector.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

AH_CPU_OP(add, ah_elementwise_of_two(c, ah_call_promote(c, 2), ah_sum_loops(ah_args(c, add)->alpha.number), NULL))

int ah_cpu_sub(struct ah_call *c)
{
    double alpha = -ah_args(c, sub)->alpha.number;
    enum ah_dtype dtype = ah_call_promote(c, 2);
    return ah_elementwise_of_two(c, dtype, ah_sum_loops(alpha), (double[]){alpha, 0});
}

int ah_cpu_pow(struct ah_call *c)
{
    const struct ah_tensor *exponent = ah_args(c, pow)->exponent.tensor;
    const ah_loop *loops = NULL;
    enum ah_dtype dtype = ah_call_promote(c, 2);
    if (exponent->wrapped && ah_dtype_is_float(dtype))
        loops = ah_power_loops(ah_tensor_get(exponent, 0));
    return ah_elementwise(c, loops ? 1 : 2, dtype, dtype, loops ? loops : ah_any_power_loops, NULL);
}

/* Clamping between two bounds; numbers go the fast way. */

LOOP1(clamp_numbers_u8, uint8_t, uint8_t, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
LOOP1(clamp_numbers_i32, int32_t, int32_t, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
LOOP1(clamp_numbers_i64, int64_t, int64_t, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
LOOP1(clamp_numbers_f32, float, float, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
LOOP1(clamp_numbers_f64, double, double, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
NUMBER_TABLE(clamp_numbers);

#define CLAMP(in_t) (a != a || b != b ? a + b : c != c ? c : (a < b ? b : a) > c ? c : (a < b ? b : a))
LOOP3(clamp_u8, uint8_t, uint8_t, uint8_t, CLAMP(uint8_t))
LOOP3(clamp_i32, int32_t, int32_t, int32_t, (a < b ? b : a) > c ? c : (a < b ? b : a))
LOOP3(clamp_i64, int64_t, int64_t, int64_t, (a < b ? b : a) > c ? c : (a < b ? b : a))
LOOP3(clamp_f32, float, float, float, CLAMP(float))
LOOP3(clamp_f64, double, double, double, CLAMP(double))
NUMBER_TABLE(clamp);

int ah_cpu_clamp(struct ah_call *c)
{
    const struct ah_args_clamp *arg = ah_args(c, clamp);
    enum ah_dtype dtype = ah_call_promote(c, 3);
    if (arg->min.tensor->wrapped && arg->max.tensor->wrapped) {
        double bounds[2] = {ah_tensor_get(arg->min.tensor, 0), ah_tensor_get(arg->max.tensor, 0)};
        bool exact = fabs(bounds[0]) < 0x1p53 && fabs(bounds[1]) < 0x1p53; /* as double */
        if (ah_dtype_is_float(dtype) || exact)
            return ah_elementwise(c, 1, dtype, dtype, clamp_numbers_loops, bounds);
    }
    return ah_elementwise(c, 3, dtype, dtype, clamp_loops, NULL);
}

AH_CPU_OP(hardtanh, ah_elementwise_result(c, 1, clamp_numbers_loops))

/* Special functions with numbers. */

LONG_LOOP1(trigamma_f32, float, ah_trigammaf(a))
LONG_LOOP1(trigamma_f64, double, ah_trigamma(a))
LOOP1(polygamma_f32, float, float, (float)ah_polygamma((int)c0, a))
LOOP1(polygamma_f64, double, double, ah_polygamma((int)c0, a))
FLOAT_TABLE(polygamma);

int ah_cpu_polygamma(struct ah_call *c)
{
    static const ah_loop trigamma_loops[AH_DTYPE_COUNT] = {[AH_F32] = trigamma_f32, [AH_F64] = trigamma_f64};
    int64_t order = ah_args(c, polygamma)->n.integer;
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_elementwise(c, 1, dtype, dtype, order == 1 ? trigamma_loops : polygamma_loops,
                          (double[]){(double)order, 0});
}

/* log(x / (1 - x)), x clamped to c0..c1 first. */
LOOP1(logit_f32, float, float, ah_logf((a < c0 ? c0 : a > c1 ? c1 : a) / (1 - (a < c0 ? c0 : a > c1 ? c1 : a))))
LOOP1(logit_f64, double, double, ah_log((a < c0 ? c0 : a > c1 ? c1 : a) / (1 - (a < c0 ? c0 : a > c1 ? c1 : a))))
FLOAT_TABLE(logit);

int ah_cpu_logit(struct ah_call *c)
{
    const struct ah_args_logit *arg = ah_args(c, logit);
    bool bounded = arg->eps.kind == AH_NUMBER;
    enum ah_dtype dtype = c->out[0]->dtype;
    double low = bounded ? arg->eps.number : -INFINITY, high = bounded ? 1 - arg->eps.number : INFINITY;
    if (bounded && ah_compute_dtype(dtype) == AH_F32)
        high = 1 - (float)low;
    return ah_elementwise(c, 1, dtype, dtype, logit_loops, (double[]){low, high});
}

/* Replacements of nan and the infinities, in the tensor's dtype (fp16 and bf16 loops work in float32). */
struct stand_ins {
    double nan, high, low;
};

/* Most blocks have nothing to replace and are copied; the others are done again where they are. */
#define NAN_TO_NUM(suffix, type)                                                                               \
    static void replace_##suffix(type *y, int64_t n, const struct stand_ins *by)                               \
    {                                                                                                          \
        const type nan = (type)by->nan, high = (type)by->high, low = (type)by->low, infinity = (type)INFINITY; \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                    \
            y[i] = y[i] != y[i] ? nan : y[i] == infinity ? high : y[i] == -infinity ? low : y[i];              \
    }                                                                                                          \
    static void nan_to_num_##suffix(int64_t n, void *const *data, const int64_t *step, const void *context)    \
    {                                                                                                          \
        type *y = data[0];                                                                                     \
        const type *x = data[1];                                                                               \
        for (int64_t begin = 0, count; begin < n; begin += count) {                                            \
            int odd = 0;                                                                                       \
            count = n - begin < 256 ? n - begin : 256;                                                         \
            _Pragma("omp simd reduction(| : odd)") for (int64_t i = begin; i < begin + count; i++)             \
            {                                                                                                  \
                const type a = x[i];                                                                           \
                y[i] = a;                                                                                      \
                odd |= !(a - a == 0); /* an infinity or NaN */                                                 \
            }                                                                                                  \
            if (odd)                                                                                           \
                replace_##suffix(y + begin, count, context);                                                   \
        }                                                                                                      \
    }
NAN_TO_NUM(f32, float)
NAN_TO_NUM(f64, double)

int ah_cpu_nan_to_num(struct ah_call *c)
{
    const struct ah_args_nan_to_num *arg = ah_args(c, nan_to_num);
    enum ah_dtype dtype = c->out[0]->dtype, in = ah_compute_dtype(dtype);
    if (!ah_dtype_is_float(dtype))
        return ah_copy(c->out[0], arg->input.tensor);
    struct stand_ins by = {arg->nan.kind == AH_NUMBER ? arg->nan.number : 0,
                           arg->posinf.kind == AH_NUMBER ? arg->posinf.number : ah_float_largest(dtype),
                           arg->neginf.kind == AH_NUMBER ? arg->neginf.number : -ah_float_largest(dtype)};
    const struct ah_operand operand[] = {{c->out[0], in}, {arg->input.tensor, in}};
    return ah_iterate(operand, 2, false, in == AH_F64 ? nan_to_num_f64 : nan_to_num_f32, &by, AH_SHARE_LIGHT);
}

/* where: a selects; masked_fill: b selects, so its loops' operands are (mask, value, input). */
LOOP3(where_b8, uint8_t, uint8_t, uint8_t, a ? b : c)
LOOP3(where_u16, uint8_t, uint16_t, uint16_t, a ? b : c)
LOOP3(where_i32, uint8_t, int32_t, int32_t, a ? b : c)
LOOP3(where_i64, uint8_t, int64_t, int64_t, a ? b : c)
LOOP3(where_f32, uint8_t, float, float, a ? b : c)
LOOP3(where_f64, uint8_t, double, double, a ? b : c)
static const ah_loop where_loops[AH_DTYPE_COUNT] = {
    [AH_BOOL] = where_b8, [AH_U8] = where_b8,   [AH_I32] = where_i32, [AH_I64] = where_i64, [AH_F32] = where_f32,
    [AH_F64] = where_f64, [AH_I8] = where_b8,   [AH_I16] = where_u16, [AH_U16] = where_u16, [AH_U32] = where_i32,
    [AH_U64] = where_i64};

static int select_into(struct ah_tensor *out, struct ah_tensor *mask, struct ah_tensor *yes, struct ah_tensor *no)
{
    static const double none[2];
    enum ah_dtype dtype = ah_compute_dtype(out->dtype);
    const struct ah_operand operand[] = {{out, dtype}, {mask, AH_BOOL}, {yes, dtype}, {no, dtype}};
    return ah_iterate(operand, 4, false, where_loops[dtype], none, AH_SHARE_LIGHT);
}

AH_CPU_OP_WITH(where, where, select_into(c->out[0], arg->condition.tensor, arg->input.tensor, arg->other.tensor))
AH_CPU_OP_WITH(masked_fill, masked_fill, select_into(c->out[0], arg->mask.tensor, arg->value.tensor, arg->input.tensor))

/* Copies and fills. */

AH_CPU_OP(copy_first, ah_copy(c->out[0], ah_args(c, copy_first)->input.tensor))
AH_CPU_OP(copy_, ah_copy(c->out[0], c->arg[1].tensor))

int ah_cpu_zero_(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    if (ah_tensor_is_contiguous(out)) {
        ah_zero_fill(ah_tensor_data(out), ah_tensor_bytes(out));
        return 0;
    }
    AH_OWNED struct ah_tensor *zero = NULL;
    AH_TRY(ah_tensor_scalar(&zero, 0, out->dtype, &ah_cpu));
    return ah_copy(out, zero);
}
