/* Checks of the engine's guarantees from inside. */
#include "cuda/kernels/lib/kernel.cuh"
#include "sim/test/kernels.h"

/* The order of arrival of threads and blocks. */
AH_KERNEL(order_of_arrival, kernel_args, 1024)
{
    int place = atomicAdd(a.count, 1);
    a.to[place] = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    __syncthreads();
    place = atomicAdd(a.count + 1 + blockIdx.x, 1);
    a.to[(gridDim.x + blockIdx.x) * blockDim.x + place] = (int)threadIdx.x;
}

AH_KERNEL(places, kernel_args, 1024)
{
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    a.to[block * blockDim.x * blockDim.y * blockDim.z + thread] = (int)(block * 1000 + thread);
}

/* The bits of untouched shared memory, static and dynamic; leaves other ones behind. */
AH_KERNEL(fresh_shared, kernel_args, 1024)
{
    AH_SHARED_ARRAY(int, fixed, 8);
    AH_SHARED(int, single);
    AH_SHARED_DYNAMIC(int, given);
    bool fresh = single == -1;
    for (int i = 0; i < 8; i++)
        fresh = fresh && fixed[i] == -1 && given[i] == -1;
    a.to[blockIdx.x] = fresh;
    for (int i = 0; i < 8; i++)
        fixed[i] = given[i] = single = 5;
}

AH_KERNEL(past_dynamic, kernel_args, 1024)
{
    AH_SHARED_DYNAMIC(int, given);
    given[a.n] = 1;
}

AH_KERNEL(votes, kernel_args, 1024)
{
    int odd = threadIdx.x & 1, n = (int)blockDim.x;
    bool fine = __syncthreads_count(odd) == n / 2 && __syncthreads_or(threadIdx.x == 3) == 1 &&
                __syncthreads_or(0) == 0 && __syncthreads_and(threadIdx.x != 3) == 0 && __syncthreads_and(1) == 1;
    unsigned lane = threadIdx.x % 32;
    fine = fine && __ballot_sync(0xffffffff, odd) == 0xaaaaaaaa && __any_sync(0xffffffff, lane == 9) &&
           !__all_sync(0xffffffff, lane == 9) && __all_sync(0xffffffff, 7);
    /* Two groups of a warp in separate votes. */
    unsigned mask = lane < 10 ? 0x3ff : 0xfffffc00;
    fine = fine && __ballot_sync(mask, 1) == mask;
    __syncwarp(mask);
    a.to[threadIdx.x] = fine;
}

AH_KERNEL(shuffles, kernel_args, 1024)
{
    int lane = (int)threadIdx.x % 32, *to = a.to + 8 * threadIdx.x;
    to[0] = __shfl_sync(0xffffffff, lane, 5);
    to[1] = __shfl_sync(0xffffffff, lane, 11, 8);
    to[2] = __shfl_up_sync(0xffffffff, lane, 3, 8);
    to[3] = __shfl_down_sync(0xffffffff, lane, 3, 8);
    to[4] = __shfl_xor_sync(0xffffffff, lane, 12, 8);
    to[5] = (int)__shfl_xor_sync(0xffffffff, (double)lane, 1);
    /* A lane outside the mask has no value. */
    to[6] = lane < 16 ? __shfl_down_sync(0xffff, lane, 1) : 0;
    to[7] = (int)(__shfl_sync(0xffffffff, (long long)lane << 40, 31) >> 40);
}

AH_KERNEL(atomics, kernel_args, 1024)
{
    atomicAdd(a.count, 1);
    atomicMax(a.count + 1, (int)threadIdx.x);
    atomicMin(a.count + 2, -(int)threadIdx.x);
    atomicOr((unsigned *)a.count + 3, 1u << threadIdx.x % 32);
    atomicAnd((unsigned *)a.count + 4, ~(1u << threadIdx.x % 32));
    atomicCAS(a.count + 5, 0, 9);
    atomicExch(a.count + 6, 4);
    atomicAdd((unsigned long long *)(a.count + 8), 1ull << 32);
}

AH_KERNEL(square, kernel_args, 256)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < a.n)
        a.to[i] = a.to[i] * a.to[i] + 1;
}

AH_KERNEL(bits, kernel_args, 32)
{
    bool fine = __popc(0xf0f0u) == 8 && __clz(1) == 31 && __clz(0) == 32 && __ffs(8) == 4 && __ffs(0) == 0 &&
                __brev(1u) == 0x80000000u && __umulhi(0x80000000u, 6u) == 3u && min(-1, 2) == -1 &&
                max(1.5f, 2.5f) == 2.5f && rsqrtf(4.0f) == 0.5f && __float_as_uint(1.0f) == 0x3f800000u &&
                __popcll(~0ull) == 64 && __umul64hi(1ull << 63, 6) == 3;
    a.to[threadIdx.x] = fine && alignof(float4) == 16 && make_float4(1, 2, 3, 4).w == 4;
}
