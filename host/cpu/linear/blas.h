/* OpenBLAS: the functions of BLAS and LAPACK that the kernels call, as members of ah_blas. */
#pragma once

#include <cblas.h>

#include "base/process/lazy_library.h"
#include "cpu/linear/lapack.h"

#define AH_LAPACK_CALLS(F, p)                                                                                         \
    F(p##getrf_) F(p##getrs_) F(p##getri_) F(p##potrf_) F(p##geqrf_) F(p##orgqr_) F(p##gesdd_) F(p##syevd_)           \
    F(p##gels_) F(p##gelsy_) F(p##gelsd_) F(p##gelss_)
#define AH_BLAS_CALLS(F)                                                                                              \
    F(openblas_get_config) F(cblas_sgemm) F(cblas_dgemm) F(cblas_strsm) F(cblas_dtrsm)                                \
    AH_LAPACK_CALLS(F, s) AH_LAPACK_CALLS(F, d)

#define AH_BLAS_MEMBER(name) __typeof__(&name) name;
extern struct ah_blas {
    AH_BLAS_CALLS(AH_BLAS_MEMBER)
} ah_blas; /* valid after ah_blas_open */
#undef AH_BLAS_MEMBER

extern struct ah_lazy_library ah_blas_library;

/* Load the library, the first time; any thread may call. AH_EIO: it is missing. */
static inline int ah_blas_open(void)
{
    return ah_lazy_open(&ah_blas_library);
}
