/* The routines of LAPACK that the kernels call, by their Fortran names: OpenBLAS contains them, without a header in
 * Debian. Matrices are column-major, numbers are passed by address, and the length of each letter argument follows at
 * the end. */
#pragma once

#include <stddef.h>

#define AH_LAPACK(p, REAL)                                                                                            \
    void p##getrf_(const int *m, const int *n, REAL *a, const int *lda, int *pivots, int *info);                      \
    void p##getrs_(const char *trans, const int *n, const int *columns, const REAL *lu, const int *lda,               \
                   const int *pivots, REAL *b, const int *ldb, int *info, size_t);                                    \
    void p##getri_(const int *n, REAL *lu, const int *lda, const int *pivots, REAL *work, const int *lwork,           \
                   int *info);                                                                                        \
    void p##potrf_(const char *uplo, const int *n, REAL *a, const int *lda, int *info, size_t);                       \
    void p##geqrf_(const int *m, const int *n, REAL *a, const int *lda, REAL *tau, REAL *work, const int *lwork,      \
                   int *info);                                                                                        \
    void p##orgqr_(const int *m, const int *n, const int *k, REAL *a, const int *lda, const REAL *tau, REAL *work,    \
                   const int *lwork, int *info);                                                                      \
    void p##gesdd_(const char *job, const int *m, const int *n, REAL *a, const int *lda, REAL *s, REAL *u,            \
                   const int *ldu, REAL *vt, const int *ldvt, REAL *work, const int *lwork, int *iwork, int *info,    \
                   size_t);                                                                                           \
    void p##syevd_(const char *job, const char *uplo, const int *n, REAL *a, const int *lda, REAL *w, REAL *work,     \
                   const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t);                       \
    void p##gels_(const char *trans, const int *m, const int *n, const int *columns, REAL *a, const int *lda,         \
                  REAL *b, const int *ldb, REAL *work, const int *lwork, int *info, size_t);                          \
    void p##gelsy_(const int *m, const int *n, const int *columns, REAL *a, const int *lda, REAL *b, const int *ldb,  \
                   int *jpvt, const REAL *rcond, int *rank, REAL *work, const int *lwork, int *info);                 \
    void p##gelsd_(const int *m, const int *n, const int *columns, REAL *a, const int *lda, REAL *b, const int *ldb,  \
                   REAL *s, const REAL *rcond, int *rank, REAL *work, const int *lwork, int *iwork, int *info);       \
    void p##gelss_(const int *m, const int *n, const int *columns, REAL *a, const int *lda, REAL *b, const int *ldb,  \
                   REAL *s, const REAL *rcond, int *rank, REAL *work, const int *lwork, int *info);
AH_LAPACK(s, float)
AH_LAPACK(d, double)
#undef AH_LAPACK
