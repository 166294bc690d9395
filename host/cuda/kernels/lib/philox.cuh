/* Philox4x32-10 (Salmon and others, 2011) as cuRAND lays it out: the seed is the key, a thread has a sequence of its
 * own in the upper half of the counter, and the lower half counts groups of four numbers, from offset / 4 on. */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"
#include "cuda/kernels/lib/philox.h"

/* A thread's stream. */
struct ah_philox {
    uint64_t seed, sequence, group;

    /* The next four numbers. */
    __device__ __forceinline__ uint4 next()
    {
        uint32_t c0 = static_cast<uint32_t>(group), c1 = static_cast<uint32_t>(group >> 32);
        uint32_t c2 = static_cast<uint32_t>(sequence), c3 = static_cast<uint32_t>(sequence >> 32);
        uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
        group++;
        AH_UNROLL
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = static_cast<uint64_t>(0xd2511f53u) * c0, p1 = static_cast<uint64_t>(0xcd9e8d57u) * c2;
            c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
            c1 = static_cast<uint32_t>(p1);
            c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
            c3 = static_cast<uint32_t>(p0);
            k0 += 0x9e3779b9u;
            k1 += 0xbb67ae85u;
        }
        return make_uint4(c0, c1, c2, c3);
    }
};

/* The stream of sequence number `sequence`, which is the thread's number in the grid unless a kernel sets another. */
__device__ __forceinline__ ah_philox ah_philox_open(const ah_philox_place &place, uint64_t sequence)
{
    uint64_t seed = place.seed, offset = place.offset;
    if (place.through) {
        const ah_philox_state *state = reinterpret_cast<const ah_philox_state *>(place.through);
        seed = state->seed;
        offset += state->offset;
    }
    return {seed, sequence, offset / 4};
}

/* The same one word after the other. */
struct ah_philox_words {
    ah_philox stream;
    uint4 group;
    int used;

    __device__ __forceinline__ ah_philox_words(const ah_philox_place &place, uint64_t sequence)
        : stream(ah_philox_open(place, sequence)), group(make_uint4(0, 0, 0, 0)), used(4)
    {
    }
    __device__ __forceinline__ uint32_t next()
    {
        if (used == 4) {
            group = stream.next();
            used = 0;
        }
        const int at = used++;
        return at == 0 ? group.x : at == 1 ? group.y : at == 2 ? group.z : group.w;
    }
};
