/* Reversing a block's values, by way of shared memory. */
#include "cuda/kernels/lib/kernel.cuh"
#include "sim/planted/planted.h"

AH_KERNEL(reverse, planted_args, 256)
{
    AH_SHARED_ARRAY(float, rows, 256);
    rows[threadIdx.x] = a.from[threadIdx.x];
    __syncthreads();
    a.to[threadIdx.x] = rows[blockDim.x - 1 - threadIdx.x];
}

AH_KERNEL(reverse_without_barrier, planted_args, 256)
{
    AH_SHARED_ARRAY(float, rows, 256);
    rows[threadIdx.x] = a.from[threadIdx.x];
    a.to[threadIdx.x] = rows[blockDim.x - 1 - threadIdx.x];
}

/* The second round overwrites values that slower threads still read. */
AH_KERNEL(reverse_turns, planted_args, 256)
{
    AH_SHARED_ARRAY(float, rows, 256);
    a.to[threadIdx.x] = 0.0f;
    for (int i = 0; i < a.n; i++) {
        rows[threadIdx.x] = a.from[threadIdx.x] * (float)(i + 1);
        __syncthreads();
        a.to[threadIdx.x] += rows[blockDim.x - 1 - threadIdx.x];
        __syncthreads();
    }
}

AH_KERNEL(reverse_turns_one_barrier, planted_args, 256)
{
    AH_SHARED_ARRAY(float, rows, 256);
    a.to[threadIdx.x] = 0.0f;
    for (int i = 0; i < a.n; i++) {
        rows[threadIdx.x] = a.from[threadIdx.x] * (float)(i + 1);
        __syncthreads();
        a.to[threadIdx.x] += rows[blockDim.x - 1 - threadIdx.x];
    }
}

/* Barriers that only some threads reach, and different ones for different threads. */
AH_KERNEL(half_at_barrier, planted_args, 256)
{
    if (threadIdx.x < blockDim.x / 2)
        __syncthreads();
    a.to[threadIdx.x] = a.from[threadIdx.x];
}

AH_KERNEL(two_barriers, planted_args, 256)
{
    if (threadIdx.x < blockDim.x / 2)
        __syncthreads();
    else
        __syncthreads();
    a.to[threadIdx.x] = a.from[threadIdx.x];
}

AH_KERNEL(same_barrier, planted_args, 256)
{
    float x = threadIdx.x < blockDim.x / 2 ? a.from[threadIdx.x] : 1.0f;
    __syncthreads();
    a.to[threadIdx.x] = x;
}
