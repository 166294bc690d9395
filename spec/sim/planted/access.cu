/* 16-byte copies, and addresses that are no allocation's. */
#include "cuda/kernels/lib/kernel.cuh"
#include "sim/planted/planted.h"

AH_KERNEL(copy16, planted_args, 256)
{
    int i = 4 * (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 4 <= a.n)
        ah_store16(a.to + i, ah_load16(a.from + i));
}

AH_KERNEL(copy16_from_one, planted_args, 256)
{
    int i = 4 * (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 5 <= a.n)
        ah_store16(a.to + i, ah_load16(a.from + i + 1));
}

AH_KERNEL(write_to_null, planted_args, 256)
{
    if (threadIdx.x == 3)
        *(volatile float *)(uintptr_t)a.n = 1.0f;
}

__device__ static float deep(volatile float *rows, int n)
{
    volatile float more[1024];
    more[0] = rows[0];
    return n ? deep(more, n - 1) + more[0] : rows[0];
}

AH_KERNEL(endless_stack, planted_args, 256)
{
    volatile float rows[1] = {1.0f};
    a.to[0] = deep(rows, 1000);
}
