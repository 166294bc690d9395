/* Running folds over the threads of a warp and of a block, in their order: it is the same whatever runs first. F has a
 * State, start(), the neutral element of join, and join(earlier, later). All threads must call. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

/* The state of the lane `by` before this one. */
template <typename S> __device__ __forceinline__ S ah_state_before(const S &state, unsigned by)
{
    static_assert(sizeof(S) % 8 == 0, "states are moved 8 bytes at a time");
    unsigned long long bits[sizeof(S) / 8];
    S earlier;
    memcpy(bits, &state, sizeof bits);
    AH_UNROLL
    for (unsigned i = 0; i < sizeof(S) / 8; i++)
        bits[i] = __shfl_up_sync(0xffffffff, bits[i], by);
    memcpy(&earlier, bits, sizeof bits);
    return earlier;
}

/* The fold of the lanes up to and with this one. */
template <class F> __device__ __forceinline__ typename F::State ah_warp_scan(const F &f, typename F::State state)
{
    const unsigned lane = threadIdx.x % 32;
    AH_UNROLL
    for (unsigned by = 1; by < 32; by *= 2) {
        const typename F::State earlier = ah_state_before(state, by);
        if (lane >= by)
            state = f.join(earlier, state);
    }
    return state;
}

/* The fold of the threads before this one in the warp, and of all of them. */
template <class F>
__device__ __forceinline__ typename F::State ah_warp_before(const F &f, const typename F::State &own,
                                                            typename F::State *all)
{
    const typename F::State with = ah_warp_scan(f, own);
    typename F::State before = ah_state_before(with, 1);
    unsigned long long bits[sizeof(with) / 8];
    memcpy(bits, &with, sizeof bits);
    AH_UNROLL
    for (unsigned i = 0; i < sizeof(with) / 8; i++)
        bits[i] = __shfl_sync(0xffffffff, bits[i], 31);
    memcpy(all, bits, sizeof bits);
    if (threadIdx.x % 32 == 0)
        before = f.start();
    return before;
}

/* The same of the block. `shared` has room for a state of each warp; blocks are of whole warps. */
template <class F>
__device__ __forceinline__ typename F::State ah_block_before(const F &f, const typename F::State &own,
                                                             typename F::State *shared, typename F::State *all)
{
    const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32;
    typename F::State of_warp, sum = f.start(), earlier = f.start();
    const typename F::State before = ah_warp_before(f, own, &of_warp);
    __syncthreads(); /* who used `shared` before has read it */
    if (threadIdx.x % 32 == 0)
        shared[warp] = of_warp;
    __syncthreads();
    for (unsigned w = 0; w < warps; w++) {
        if (w == warp)
            earlier = sum;
        sum = f.join(sum, shared[w]);
    }
    *all = sum;
    return f.join(earlier, before);
}
