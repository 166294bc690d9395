/* Launching kernels made by AH_ROW_KERNEL (kernels/lib/rows.cuh). */
#pragma once

#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/lib/rows.h"
#include "ops/dispatch/op.h"

/* Static: for rows by warps and by blocks. */
struct ah_cuda_row_kernels {
    struct ah_cuda_kernel warp[AH_DTYPE_COUNT], block[AH_DTYPE_COUNT];
};
#define AH_CUDA_ROWS(file, name) \
    {.warp = AH_CUDA_REALS(file, name "_warp"), .block = AH_CUDA_REALS(file, name "_block")}

/* `rows` of `length` elements. */
static inline int ah_cuda_launch_rows(struct ah_device *device, struct ah_cuda_row_kernels *kernels,
                                      const char *op_name, enum ah_dtype dtype, int64_t rows, int64_t length,
                                      const void *args, size_t size)
{
    bool warps = length <= AH_ROW_SHORT;
    struct ah_cuda_grid grid = {ah_cuda_blocks(rows, warps ? AH_ROW_THREADS / 32 : 1), AH_ROW_THREADS, 0};
    return ah_cuda_launch_sized(device, warps ? &kernels->warp[dtype] : &kernels->block[dtype], op_name, grid, args,
                                size);
}

/* Can rows of `length` be read 16 bytes at a time from all these addresses? 0 is none. */
static inline bool ah_cuda_rows_wide(int64_t length, enum ah_dtype dtype, uint64_t a, uint64_t b, uint64_t c)
{
    return ((a | b | c) | (uint64_t)length * ah_dtype_size(dtype)) % 16 == 0;
}
