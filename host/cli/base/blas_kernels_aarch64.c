/* No choice on aarch64: OpenBLAS identifies the processor by a register that the kernel emulates, and an unknown one
 * runs the kernels for ARMV8. */
#include "cli/base/blas_kernels.h"

#include <stddef.h>

char *ah_blas_kernels(void)
{
    return NULL;
}
