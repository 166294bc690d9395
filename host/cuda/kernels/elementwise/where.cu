/* Elementwise kernels that choose: order, comparison, logic, clamping, where, dropout's mask, and those of three
 * inputs. NaN wins in maxima and minima and compares false otherwise; a mask is one byte per element. */
#include "cuda/kernels/lib/elementwise.cuh"

AH_EW2_ALL(maximum, a > b || a != a ? a : b)
AH_EW2_ALL(minimum, a < b || a != a ? a : b)

#define COMPARISON(name, op)                                                                                   \
    AH_EW2(name##_u8, uint8_t, uint8_t, a op b)                                                                \
    AH_EW2(name##_i32, uint8_t, int32_t, a op b)                                                               \
    AH_EW2(name##_i64, uint8_t, int64_t, a op b)                                                               \
    AH_EW2(name##_f32, uint8_t, float, a op b)                                                                 \
    AH_EW2(name##_f64, uint8_t, double, a op b)
COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)

AH_EW2_INTEGERS(and, a &b)
AH_EW2_INTEGERS(or, a | b)
AH_EW2_INTEGERS(xor, a ^ b)

/* c0: the least, c1: the most. */
AH_EW1_FLOATS(clamp_numbers, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
AH_EW1(clamp_numbers_u8, uint8_t, uint8_t, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
AH_EW1(clamp_numbers_i32, int32_t, int32_t, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
AH_EW1(clamp_numbers_i64, int64_t, int64_t, (a < c0 ? c0 : a) > c1 ? c1 : (a < c0 ? c0 : a))
AH_EW3_FLOATS(clamp, a != a || b != b ? a + b : c != c ? c : (a < b ? b : a) > c ? c : (a < b ? b : a))

#define AH_EW3_INTEGERS(name, expr)                                                                            \
    AH_EW3(name##_u8, uint8_t, uint8_t, uint8_t, expr)                                                         \
    AH_EW3(name##_i32, int32_t, int32_t, int32_t, expr)                                                        \
    AH_EW3(name##_i64, int64_t, int64_t, int64_t, expr)
AH_EW3_INTEGERS(clamp, (a < b ? b : a) > c ? c : (a < b ? b : a))

AH_EW3(where_u8, uint8_t, uint8_t, uint8_t, a ? b : c)
AH_EW3(where_i32, int32_t, uint8_t, int32_t, a ? b : c)
AH_EW3(where_i64, int64_t, uint8_t, int64_t, a ? b : c)
AH_EW3(where_f32, float, uint8_t, float, a ? b : c)
AH_EW3(where_f64, double, uint8_t, double, a ? b : c)

AH_EW3_FLOATS(lerp, fabs(c) < T(0.5) ? fma(c, b - a, a) : b - (b - a) * (T(1) - c))
#define U(x) static_cast<uint64_t>(x)
AH_EW3_INTEGERS(addcmul, U(a) + U(c0) * U(b) * U(c))
AH_EW3_FLOATS(addcmul, a + c0 * b * c)
AH_EW3_FLOATS(addcdiv, a + c0 * b / c)

/* a: the mask, b: the input, c0: the scale. Dropped elements are multiplied by 0, so that nan and infinity show. */
AH_EW2_MASK(keep_f32, float, b *(a ? c0 : T(0)))
AH_EW2_MASK(keep_f64, double, b *(a ? c0 : T(0)))
