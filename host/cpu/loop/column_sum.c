/* Column sums: chunks of a fixed number of rows are added up to partial sums, which are summed as a matrix again. The
 * chunks must not depend on the thread count, else results would. */
#include "cpu/loop/column_sum.h"

#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/loop/dense.h"

enum { CHUNK_ROWS = 256, BLOCK = 64 };

/* One chunk: blocks of columns stay in registers while the rows go by. */
#define SUM_CHUNK(suffix, item, real, read)                                                                  \
    static void sum_chunk_##suffix(const item *restrict x, int64_t rows, int64_t cols, real *restrict out)   \
    {                                                                                                        \
        int64_t j0 = 0;                                                                                      \
        for (; j0 + BLOCK <= cols; j0 += BLOCK) {                                                            \
            real sum[BLOCK] = {0};                                                                           \
            for (int64_t i = 0; i < rows; i++)                                                               \
                for (int j = 0; j < BLOCK; j++)                                                              \
                    sum[j] += read(x[i * cols + j0 + j]);                                                    \
            memcpy(out + j0, sum, sizeof sum);                                                               \
        }                                                                                                    \
        if (j0 == cols)                                                                                      \
            return;                                                                                          \
        memset(out + j0, 0, (size_t)(cols - j0) * sizeof *out);                                              \
        for (int64_t i = 0; i < rows; i++)                                                                   \
            for (int64_t j = j0; j < cols; j++)                                                              \
                out[j] += read(x[i * cols + j]);                                                             \
    }

/* sum_rest: the function that sums the sums of chunks. */
#define COLUMN_SUM(suffix, item, real, sum_rest)                                                             \
    int ah_column_sum_##suffix(const item *x, int64_t rows, int64_t cols, real *out)                         \
    {                                                                                                        \
        int64_t chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;                                               \
        if (chunks <= 1) {                                                                                   \
            sum_chunk_##suffix(x, rows, cols, out);                                                          \
            return 0;                                                                                        \
        }                                                                                                    \
        struct ah_dense partial = {0};                                                                       \
        AH_TRY(ah_dense_scratch(&partial, (size_t)(chunks * cols) * sizeof *out));                           \
        real *sums = partial.block;                                                                          \
        _Pragma("omp parallel for schedule(static) if (ah_worth_threads(rows * cols, AH_SHARE_LIGHT))")       \
        for (int64_t c = 0; c < chunks; c++) {                                                               \
            int64_t from = c * CHUNK_ROWS, count = rows - from < CHUNK_ROWS ? rows - from : CHUNK_ROWS;      \
            sum_chunk_##suffix(x + from * cols, count, cols, sums + c * cols);                               \
        }                                                                                                    \
        sum_rest(sums, chunks, cols, out);                                                                   \
        ah_dense_close(&partial);                                                                            \
        return 0;                                                                                            \
    }

#define AS_IT_IS(x) (x)
SUM_CHUNK(f32, float, float, AS_IT_IS)
SUM_CHUNK(f64, double, double, AS_IT_IS)
SUM_CHUNK(bf16, uint16_t, float, ah_bf16_to_f32)
COLUMN_SUM(f32, float, float, sum_chunk_f32)
COLUMN_SUM(f64, double, double, sum_chunk_f64)
COLUMN_SUM(bf16, uint16_t, float, sum_chunk_f32)
