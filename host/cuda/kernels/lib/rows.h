/* How rows are shared out: by warps up to AH_ROW_SHORT elements, by blocks above. */
#ifndef AH_CUDA_KERNELS_ROWS_H
#define AH_CUDA_KERNELS_ROWS_H

#include <stdint.h>

enum { AH_ROW_THREADS = 256, AH_ROW_SHORT = 1024 };

#endif
