/* The kernels for an Intel processor that OpenBLAS may not know. */
#include "cli/base/blas_kernels.h"

#include <stddef.h>

char *ah_blas_kernels(void)
{
    static char avx512[] = "SkylakeX", avx2[] = "Haswell";
    __builtin_cpu_init();
    if (__builtin_cpu_is("intel"))
        return __builtin_cpu_supports("avx512dq") ? avx512 : __builtin_cpu_supports("avx2") ? avx2 : NULL;
    return NULL;
}
