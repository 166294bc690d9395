/* Elementwise kernels of two inputs that compare: extremes, order, equality, and the logic of bits. NaN wins in maxima
 * and minima and compares false otherwise. */
#include "cpu/elementwise/elementwise.h"
#include "cpu/elementwise/half_loops.h"

#define ALL_BINARY(name, expr)                                                                   \
    ALL_LOOPS2(name, expr)                                                                       \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                        \
        AH_HALF_ENTRIES(name) [AH_BOOL] = name##_b8, [AH_U8] = name##_u8, [AH_I32] = name##_i32, \
        [AH_I64] = name##_i64, [AH_F32] = name##_f32, [AH_F64] = name##_f64}

AH_HALF_LOOPS2(maximum, ah_choose_f32((a > b) | (a != a), a, b))
AH_HALF_LOOPS2(minimum, ah_choose_f32((a < b) | (a != a), a, b))
ALL_BINARY(maximum, a > b || a != a ? a : b);
ALL_BINARY(minimum, a < b || a != a ? a : b);
PROMOTED_KERNEL(maximum, 2)
PROMOTED_KERNEL(minimum, 2)

/* Loops of a comparison, but those of signed integers, its table with the given loops for these, and a kernel. */
#define COMPARE_LOOPS(name, op)                  \
    LOOP2(name##_u8, uint8_t, uint8_t, a op b)   \
    LOOP2(name##_u16, uint16_t, uint8_t, a op b) \
    LOOP2(name##_u32, uint32_t, uint8_t, a op b) \
    LOOP2(name##_u64, uint64_t, uint8_t, a op b) \
    LOOP2(name##_f32, float, uint8_t, a op b)    \
    LOOP2(name##_f64, double, uint8_t, a op b)
#define COMPARE_TABLE(name, i8, i16, i32, i64)                                                            \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                                 \
        [AH_BOOL] = name##_u8, [AH_U8] = name##_u8,     [AH_I8] = name##_##i8,   [AH_I16] = name##_##i16, \
        [AH_U16] = name##_u16, [AH_I32] = name##_##i32, [AH_U32] = name##_u32,   [AH_I64] = name##_##i64, \
        [AH_U64] = name##_u64, [AH_F32] = name##_f32,   [AH_F64] = name##_f64};
#define COMPARE_KERNEL(op_name, name, swapped)                   \
    int ah_cpu_##op_name(struct ah_call *c)                      \
    {                                                            \
        return ah_elementwise_compare(c, name##_loops, swapped); \
    }

/* Equality compares bits: signed integers have the loops of unsigned ones. */
#define EQUALITY(name, op)                 \
    COMPARE_LOOPS(name, op)                \
    COMPARE_TABLE(name, u8, u16, u32, u64) \
    COMPARE_KERNEL(name, name, false)
EQUALITY(eq, ==)
EQUALITY(ne, !=)

/* a > b is b < a, also for NaN. */
#define ORDER(name, op, opposite)               \
    COMPARE_LOOPS(name, op)                     \
    LOOP2(name##_i8, int8_t, uint8_t, a op b)   \
    LOOP2(name##_i16, int16_t, uint8_t, a op b) \
    LOOP2(name##_i32, int32_t, uint8_t, a op b) \
    LOOP2(name##_i64, int64_t, uint8_t, a op b) \
    COMPARE_TABLE(name, i8, i16, i32, i64)      \
    COMPARE_KERNEL(name, name, false)           \
    COMPARE_KERNEL(opposite, name, true)
ORDER(lt, <, gt)
ORDER(le, <=, ge)

#define BITWISE(name, op)                                                                          \
    LOOP2(name##_b8, uint8_t, uint8_t, a op b)                                                     \
    LOOP2(name##_i32, int32_t, int32_t, a op b)                                                    \
    LOOP2(name##_i64, int64_t, int64_t, a op b)                                                    \
    static const ah_loop name##_loops[AH_DTYPE_COUNT] = {                                          \
        [AH_BOOL] = name##_b8, [AH_U8] = name##_b8, [AH_I32] = name##_i32, [AH_I64] = name##_i64}; \
    int ah_cpu_bitwise_##name(struct ah_call *c)                                                   \
    {                                                                                              \
        return ah_elementwise_promoted(c, 2, name##_loops);                                        \
    }                                                                                              \
    int ah_cpu_logical_##name(struct ah_call *c)                                                   \
    {                                                                                              \
        return ah_elementwise(c, 2, AH_BOOL, AH_BOOL, name##_loops, NULL);                         \
    }
BITWISE(and, &)
BITWISE(or, |)
BITWISE(xor, ^)
