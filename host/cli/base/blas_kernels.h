/* The kernels of OpenBLAS for a processor that an older OpenBLAS does not know; a file for each architecture. */
#pragma once

/* The value of OPENBLAS_CORETYPE; NULL: OpenBLAS detects the processor itself. Callable before any constructor. */
char *ah_blas_kernels(void);
