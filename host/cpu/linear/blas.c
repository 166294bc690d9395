/* The addresses of OpenBLAS's functions. */
#include "cpu/linear/blas.h"

#include "libraries.h"

#define NAME(name) #name,
static const char *const blas_symbols[] = {AH_BLAS_CALLS(NAME)};

struct ah_blas ah_blas;
struct ah_lazy_library ah_blas_library = {"OpenBLAS", AH_BLAS_FILE, blas_symbols, (void **)(void *)&ah_blas,
                                     sizeof blas_symbols / sizeof *blas_symbols, false};
