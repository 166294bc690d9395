/* Forgets the real type of cpu/loop/for_reals.h. */
#undef REAL
#undef SUFFIX
#undef EXP
#undef LOG
#undef SQRT
#undef RINT
#undef FMA
#undef TANH
#undef SIGMOID
#undef GEMM
#undef LAPACK
#undef CBLAS
