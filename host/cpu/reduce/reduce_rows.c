/* The bodies of reduce_rows.h, from one macro for each kind. */
#include "cpu/reduce/reduce_rows.h"

#include <math.h>

#include "cpu/elementwise/elementwise_math.h"
#include "cpu/reduce/reduce_loops.h"

#define VARIANCE(name, type)                                                                  \
    void name(void *context, int64_t begin, int64_t end)                                      \
    {                                                                                         \
        const struct ah_by_row *job = context;                                                   \
        for (int64_t r = begin; r < end; r++) {                                               \
            const type *x = (const type *)job->input + r * job->columns;                      \
            double sum = 0, squares = 0;                                                      \
            _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < job->columns; i++) \
                sum += (double)x[i];                                                          \
            double mean = sum / (double)job->columns;                                         \
            _Pragma("omp simd reduction(+ : squares)") for (int64_t i = 0; i < job->columns; i++) \
                squares += ((double)x[i] - mean) * ((double)x[i] - mean);                     \
            double rest = job->columns > 0 ? (double)job->columns - job->number : 0;          \
            double var = squares / (rest > 0 ? rest : 0);                                     \
            ((type *)job->out)[r] = (type)(job->flag ? sqrt(var) : var);                      \
        }                                                                                     \
    }
VARIANCE(ah_rows_variance_f32, float)
VARIANCE(ah_rows_variance_f64, double)

#define LOGSUMEXP(name, type, exponential, largest)                                           \
    void name(void *context, int64_t begin, int64_t end)                                      \
    {                                                                                         \
        const struct ah_by_row *job = context;                                                   \
        for (int64_t r = begin; r < end; r++) {                                               \
            const type *x = (const type *)job->input + r * job->columns;                      \
            type top = job->columns ? largest(x, job->columns) : -INFINITY;                   \
            type base = isinf(top) ? 0 : top;                                                 \
            double sum = 0;                                                                   \
            _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < job->columns; i++) \
                sum += (double)exponential(x[i] - base);                                      \
            ((type *)job->out)[r] = (type)(log(sum) + (double)base);                          \
        }                                                                                     \
    }
LOGSUMEXP(ah_rows_logsumexp_f32, float, ah_expf, ah_largest_f32)
LOGSUMEXP(ah_rows_logsumexp_f64, double, ah_exp, ah_largest_f64)

/* Products of all other elements, by running products from both sides; exact where some element is 0, also where the
 * product of the rest overflows. */
#define OTHERS(name, type)                                                                    \
    void name(void *context, int64_t begin, int64_t end)                                      \
    {                                                                                         \
        const struct ah_by_row *job = context;                                                   \
        for (int64_t r = begin; r < end; r++) {                                               \
            const type *x = (const type *)job->input + r * job->columns;                      \
            type *y = (type *)job->out + r * job->columns;                                    \
            double before = 1, after = 1;                                                     \
            bool finite = true;                                                               \
            for (int64_t i = 0; i < job->columns; i++) {                                      \
                y[i] = (type)before;                                                          \
                before *= (double)x[i];                                                       \
                finite = finite && isfinite(x[i]);                                            \
            }                                                                                 \
            for (int64_t i = job->columns - 1; i >= 0; i--) {                                 \
                bool zero = finite && (y[i] == 0 || after == 0);                              \
                y[i] = zero ? 0 : (type)((double)y[i] * after);                               \
                after *= (double)x[i];                                                        \
            }                                                                                 \
        }                                                                                     \
    }
OTHERS(ah_rows_others_f32, float)
OTHERS(ah_rows_others_f64, double)

/* Find the place of the extreme: the first one among equals, or the first NaN. The value is found first, in vectors;
 * then the first block of 32 that holds it. */
#define EXTREME(name, type, extreme_of)                                                       \
    void name(void *context, int64_t begin, int64_t end)                                      \
    {                                                                                         \
        const struct ah_by_row *job = context;                                                   \
        for (int64_t r = begin; r < end; r++) {                                               \
            const type *x = (const type *)job->input + r * job->columns;                      \
            type best = extreme_of(x, job->columns);                                          \
            bool nan = !(best == best);                                                       \
            int64_t i = 0;                                                                    \
            for (; i + 32 <= job->columns; i += 32) {                                         \
                int hits = 0;                                                                 \
                for (int k = 0; k < 32; k++)                                                  \
                    hits |= (x[i + k] == best) | (nan & !(x[i + k] == x[i + k]));             \
                if (hits)                                                                     \
                    break;                                                                    \
            }                                                                                 \
            while (!(x[i] == best || (nan && !(x[i] == x[i]))))                               \
                i++;                                                                          \
            job->index[r] = i;                                                                \
            if (job->out)                                                                     \
                ((type *)job->out)[r] = x[i];                                                 \
        }                                                                                     \
    }
ROW_EXTREME(max_i64, int64_t, INT_MAX_STEP)
ROW_EXTREME(min_i64, int64_t, INT_MIN_STEP)
EXTREME(ah_rows_largest_f32, float, ah_largest_f32)
EXTREME(ah_rows_largest_f64, double, ah_largest_f64)
EXTREME(ah_rows_largest_i64, int64_t, max_i64)
EXTREME(ah_rows_smallest_f32, float, ah_smallest_f32)
EXTREME(ah_rows_smallest_f64, double, ah_smallest_f64)
EXTREME(ah_rows_smallest_i64, int64_t, min_i64)
