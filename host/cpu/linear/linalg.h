/* Decompositions and solvers of row-major matrices, for both real types. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { AH_LINALG_COLUMNS = 64 }; /* that LAPACK's blocked routines work on at once, at most */

struct ah_linalg_job {
    int64_t batch, m, n, k; /* matrices a are m x n; k: columns of b, or as the routine defines */
    const void *a, *b;
    void *out[3], *pivots;
    bool flag, upper, unit;
    double number;
    const char *word;
    int32_t *info; /* NULL: not wanted */
};

/* With room NULL: return the number of reals of room; else the info of matrix `at`. */
typedef int64_t (*ah_linalg_routine)(const struct ah_linalg_job *job, int64_t at, void *room);

#define AH_LINALG_ROUTINE(name)                                                                  \
    int64_t ah_linalg_##name##_f32(const struct ah_linalg_job *j, int64_t at, void *room);       \
    int64_t ah_linalg_##name##_f64(const struct ah_linalg_job *j, int64_t at, void *room);
AH_LINALG_ROUTINE(lu)
AH_LINALG_ROUTINE(lu_solve)
AH_LINALG_ROUTINE(solve)
AH_LINALG_ROUTINE(inverse)
AH_LINALG_ROUTINE(det)
AH_LINALG_ROUTINE(triangular_solve)
AH_LINALG_ROUTINE(cholesky)
AH_LINALG_ROUTINE(qr)
AH_LINALG_ROUTINE(svd)
AH_LINALG_ROUTINE(eigh)
AH_LINALG_ROUTINE(lstsq)
