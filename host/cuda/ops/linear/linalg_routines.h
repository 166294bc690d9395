/* Routines of cuSOLVER and cuBLAS over a batch of column-major matrices, as steps of a work (linalg_steps.h). */
#pragma once

#include "cuda/ops/linear/linalg_steps.h"

/* LU = P^T A in place, m x n: pivots (int32) and infos of LAPACK. */
void ah_linalg_getrf(struct ah_linalg_work *w, uint64_t a, int64_t m, int64_t n, uint64_t pivots, uint64_t info);
/* A Cholesky factor in place, in the triangle `uplo`; the other one is undefined then. */
void ah_linalg_potrf(struct ah_linalg_work *w, uint64_t a, int64_t n, cublasFillMode_t uplo, uint64_t info);
/* Reflectors and R in place, m x n, `wide` columns from one matrix to the next; tau has min(m, n) reals. */
void ah_linalg_geqrf(struct ah_linalg_work *w, uint64_t a, int64_t m, int64_t n, int64_t wide, uint64_t tau);
/* The first k columns of Q in place of the reflectors. */
void ah_linalg_orgqr(struct ah_linalg_work *w, uint64_t a, int64_t m, int64_t k, int64_t reflectors, int64_t wide,
                     uint64_t tau);
/* Eigenvalues in ascending order, and with `vectors` the eigenvectors in place of the matrix. */
void ah_linalg_syevd(struct ah_linalg_work *w, uint64_t a, int64_t n, cublasFillMode_t uplo, bool vectors,
                     uint64_t values, uint64_t info);
/* Singular values of m x n matrices, m >= n, which are destroyed. `job`: 'A' all columns of U and rows of V^T, 'S' the
 * first n, 'N' none. */
void ah_linalg_gesvd(struct ah_linalg_work *w, int job, uint64_t a, int64_t m, int64_t n, uint64_t s, uint64_t u,
                     uint64_t vt, uint64_t info);

/* A triangular solve: b (m x n) becomes op(a)^-1 b, or b op(a)^-1 on the right; a is as wide as b on that side. */
struct ah_linalg_triangle {
    uint64_t a, b;
    int64_t m, n;
    cublasSideMode_t side;
    cublasFillMode_t uplo;
    cublasOperation_t trans;
    cublasDiagType_t diag;
};
void ah_linalg_trsm(struct ah_linalg_work *w, const struct ah_linalg_triangle *t);
