/* The kernels of OpenBLAS for a processor that an older OpenBLAS does not know; a file for each architecture. */
#ifndef AH_CLI_BLAS_KERNELS_H
#define AH_CLI_BLAS_KERNELS_H

/* The value of OPENBLAS_CORETYPE; NULL: OpenBLAS detects the processor itself. Callable before any constructor. */
char *ah_blas_kernels(void);

#endif
