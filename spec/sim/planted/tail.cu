/* Adding one to n numbers. */
#include "cuda/kernels/lib/kernel.cuh"
#include "sim/planted/planted.h"

AH_KERNEL(increment, planted_args, 256)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < a.n)
        a.to[i] = a.from[i] + 1.0f;
}

AH_KERNEL(increment_one_more, planted_args, 256)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i <= a.n)
        a.to[i] = a.from[i < a.n ? i : 0] + 1.0f;
}

AH_KERNEL(shared_tail, planted_args, 256)
{
    AH_SHARED_ARRAY(float, rows, 64);
    float *at = rows;
    if ((int)threadIdx.x < a.n)
        at[threadIdx.x] = a.from[threadIdx.x];
    __syncthreads();
    if ((int)threadIdx.x < a.n)
        a.to[threadIdx.x] = at[threadIdx.x];
}
