/* Atomic operations on integers. A block's threads change places only where they wait for each other, and a device runs
 * one kernel at a time, so that plain accesses are atomic. There are none on floats: sums would depend on the order. */
#pragma once

#define AH_SIM_ATOMIC(name, type, expression)                                                                          \
    static inline type name(type *at, type value)                                                                      \
    {                                                                                                                  \
        if ((uintptr_t)at % sizeof(type))                                                                              \
            sim::misaligned(at);                                                                                       \
        type old = *at;                                                                                                \
        *at = (expression);                                                                                            \
        return old;                                                                                                    \
    }
#define AH_SIM_ATOMICS(type, unsigned_type)                                                                            \
    AH_SIM_ATOMIC(atomicAdd, type, (type)((unsigned_type)old + (unsigned_type)value))                                  \
    AH_SIM_ATOMIC(atomicMax, type, old > value ? old : value)                                                          \
    AH_SIM_ATOMIC(atomicMin, type, old < value ? old : value)                                                          \
    AH_SIM_ATOMIC(atomicExch, type, value)                                                                             \
    AH_SIM_ATOMIC(atomicOr, type, old | value)                                                                         \
    AH_SIM_ATOMIC(atomicAnd, type, old &value)                                                                         \
    static inline type atomicCAS(type *at, type expected, type value)                                                  \
    {                                                                                                                  \
        if ((uintptr_t)at % sizeof(type))                                                                              \
            sim::misaligned(at);                                                                                       \
        type old = *at;                                                                                                \
        if (old == expected)                                                                                           \
            *at = value;                                                                                               \
        return old;                                                                                                    \
    }

AH_SIM_ATOMICS(int, unsigned)
AH_SIM_ATOMICS(unsigned, unsigned)
AH_SIM_ATOMICS(unsigned long long, unsigned long long)

static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}
