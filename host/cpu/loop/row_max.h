/* The maximum of a row; NaN is passed over, and nothing, or nothing but -inf, has -inf. */
#ifndef AH_CPU_ROW_MAX_H
#define AH_CPU_ROW_MAX_H

#include <math.h>
#include <stdint.h>

/* A reduction by max may begin at the lowest finite number (clang's does): a maximum as low as that is checked
 * again. */
#define AH_ROW_MAX(suffix, real)                                             \
    static inline real ah_row_max_##suffix(const real *restrict x, int64_t n) \
    {                                                                        \
        real m = (real)-INFINITY;                                            \
        _Pragma("omp simd reduction(max : m)")                               \
        for (int64_t i = 0; i < n; i++)                                      \
            m = x[i] > m ? x[i] : m;                                         \
        if (m + m > (real)-INFINITY)                                         \
            return m;                                                        \
        m = (real)-INFINITY;                                                 \
        for (int64_t i = 0; i < n; i++)                                      \
            m = x[i] > m ? x[i] : m;                                         \
        return m;                                                            \
    }

AH_ROW_MAX(f32, float)
AH_ROW_MAX(f64, double)

#endif
