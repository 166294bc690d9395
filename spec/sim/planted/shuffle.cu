/* Sums of a warp. */
#include "cuda/kernels/lib/kernel.cuh"
#include "sim/planted/planted.h"

AH_KERNEL(warp_sum, planted_args, 256)
{
    float sum = (int)threadIdx.x < a.n ? a.from[threadIdx.x] : 0.0f;
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, by);
    a.to[threadIdx.x] = sum;
}

/* The lanes past n are named and do not arrive. */
AH_KERNEL(warp_sum_of_some, planted_args, 256)
{
    if ((int)threadIdx.x < a.n) {
        float sum = a.from[threadIdx.x];
        for (int by = 16; by > 0; by /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, by);
        a.to[threadIdx.x] = sum;
    }
}

/* Half of the warp is at another meeting. */
AH_KERNEL(crossed_meetings, planted_args, 256)
{
    unsigned lane = threadIdx.x & 31;
    unsigned votes = lane < 16 ? __ballot_sync(0xffffffff, 1) : (unsigned)__any_sync(0xffffffff, 1);
    a.to[threadIdx.x] = (float)votes;
}

AH_KERNEL(mask_without_me, planted_args, 256)
{
    a.to[threadIdx.x] = __shfl_sync(0xfffffffe, a.from[threadIdx.x], 0);
}
