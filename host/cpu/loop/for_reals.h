/* Loops written once for both real types: includes the file that LOOPS names with REAL float, then with REAL double.
 *
 * SUFFIX(name) is name_f32 or name_f64; EXP LOG SQRT RINT FMA TANH SIGMOID GEMM are the functions of the type,
 * LAPACK(name) and CBLAS(name) those of the libraries (include their headers first). A .c file defines LOOPS and
 * includes this, once for each file of loops. */
#define REAL float
#define SUFFIX(name) name##_f32
#define EXP ah_expf
#define LOG logf
#define SQRT sqrtf
#define RINT rintf
#define FMA fmaf
#define TANH ah_tanhf
#define SIGMOID ah_sigmoidf
#define GEMM ah_gemm_f32
#define LAPACK(name) ah_blas.s##name##_
#define CBLAS(name) ah_blas.cblas_s##name
#include LOOPS
#include "cpu/loop/end_real.h"
#define REAL double
#define SUFFIX(name) name##_f64
#define EXP ah_exp
#define LOG log
#define SQRT sqrt
#define RINT rint
#define FMA fma
#define TANH tanh
#define SIGMOID ah_sigmoid
#define GEMM ah_gemm_f64
#define LAPACK(name) ah_blas.d##name##_
#define CBLAS(name) ah_blas.cblas_d##name
#include LOOPS
#include "cpu/loop/end_real.h"
#undef LOOPS
