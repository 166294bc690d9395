/* A stable radix sort, 8 bits a pass: digits are counted by tiles, the counts of each digit summed up, and each tile
 * writes its elements after those of smaller digits and of the tiles before it. Within a tile rounds, warps and lanes
 * follow the order of the elements, so equal keys keep it. Elements that fit one tile are sorted in it, by one
 * block. */
#include "cuda/kernels/index/radix.h"
#include "cuda/kernels/lib/order.cuh"

template <typename K> __device__ __forceinline__ unsigned digit_of(K key, int shift)
{
    return (unsigned)(key >> shift) & (AH_RADIX_DIGITS - 1);
}

template <typename K> __device__ __forceinline__ void radix_count(const ah_radix_args &a, unsigned *count)
{
    for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        count[threadIdx.x] = 0;
        __syncthreads();
        for (int round = 0; round < AH_RADIX_ROUNDS; round++) {
            const int64_t i = tile * AH_RADIX_TILE + round * AH_RADIX_THREADS + threadIdx.x;
            if (i < a.n)
                atomicAdd(&count[digit_of(ah_at<const K>(a.keys)[i], a.shift)], 1u);
        }
        __syncthreads();
        ah_at<uint32_t>(a.counts)[(int64_t)threadIdx.x * a.tiles + tile] = count[threadIdx.x];
        __syncthreads();
    }
}

/* The sum of the values of the lanes before this one. */
static __device__ __forceinline__ unsigned before(unsigned x, unsigned lane)
{
    unsigned sum = x;
    for (unsigned by = 1; by < 32; by *= 2) {
        const unsigned other = __shfl_up_sync(0xffffffff, sum, by);
        sum += lane >= by ? other : 0;
    }
    return sum - x;
}

/* The sum of the values of the threads before this one, and of all; `shared` has a number for each warp. */
static __device__ __forceinline__ unsigned before_in_block(unsigned x, unsigned *shared, unsigned *all)
{
    enum { WARPS = AH_RADIX_THREADS / 32 };
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned begin = before(x, lane), sum = 0;
    __syncthreads(); /* who used `shared` before has read it */
    if (lane == 31)
        shared[warp] = begin + x;
    __syncthreads();
    for (unsigned w = 0; w < WARPS; w++) {
        if (w == warp)
            begin += sum;
        sum += shared[w];
    }
    *all = sum;
    return begin;
}

/* A block for each digit. */
AH_KERNEL(radix_scan, ah_radix_args, AH_RADIX_THREADS)
{
    enum { EACH = 4 };
    AH_SHARED_ARRAY(unsigned, shared, AH_RADIX_THREADS / 32);
    uint32_t *counts = ah_at<uint32_t>(a.counts) + blockIdx.x * a.tiles;
    unsigned carried = 0;
    for (int64_t first = 0; first < a.tiles; first += EACH * AH_RADIX_THREADS) {
        const int64_t at = first + threadIdx.x * EACH;
        unsigned own[EACH], sum = 0, all;
        AH_UNROLL
        for (int j = 0; j < EACH; j++) {
            own[j] = at + j < a.tiles ? counts[at + j] : 0;
            sum += own[j];
        }
        unsigned begin = carried + before_in_block(sum, shared, &all);
        AH_UNROLL
        for (int j = 0; j < EACH; j++) {
            if (at + j < a.tiles)
                counts[at + j] = begin;
            begin += own[j];
        }
        carried += all;
    }
    if (threadIdx.x == 0)
        ah_at<uint32_t>(a.totals)[blockIdx.x] = carried;
}

/* The lanes that have this lane's digit. */
static __device__ __forceinline__ unsigned peers_of(unsigned digit, bool there)
{
    unsigned peers = __ballot_sync(0xffffffff, there);
    AH_UNROLL
    for (int bit = 0; bit < 8; bit++) {
        const unsigned set = __ballot_sync(0xffffffff, digit >> bit & 1);
        peers &= digit >> bit & 1 ? set : ~set;
    }
    return peers;
}

struct radix_places {
    unsigned next[AH_RADIX_DIGITS];
    unsigned warp[AH_RADIX_THREADS / 32][AH_RADIX_DIGITS];
};

template <typename K> __device__ __forceinline__ void radix_place(const ah_radix_args &a, radix_places &places)
{
    enum { WARPS = AH_RADIX_THREADS / 32 };
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned all;
    const unsigned begin = before_in_block(ah_at<const uint32_t>(a.totals)[threadIdx.x], places.next, &all);
    __syncthreads();
    for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        places.next[threadIdx.x] = begin + ah_at<const uint32_t>(a.counts)[(int64_t)threadIdx.x * a.tiles + tile];
        for (int round = 0; round < AH_RADIX_ROUNDS; round++) {
            const int64_t i = tile * AH_RADIX_TILE + round * AH_RADIX_THREADS + threadIdx.x;
            const bool there = i < a.n;
            const K key = there ? ah_at<const K>(a.keys)[i] : (K)0;
            const unsigned digit = digit_of(key, a.shift), peers = peers_of(digit, there);
            const unsigned rank = (unsigned)__popc(peers & ((1u << lane) - 1));
            for (unsigned w = 0; w < WARPS; w++)
                places.warp[w][threadIdx.x] = 0;
            __syncthreads();
            if (there && rank == 0)
                places.warp[warp][digit] = (unsigned)__popc(peers);
            __syncthreads();
            unsigned next = places.next[threadIdx.x];
            for (unsigned w = 0; w < WARPS; w++) {
                const unsigned count = places.warp[w][threadIdx.x];
                places.warp[w][threadIdx.x] = next;
                next += count;
            }
            places.next[threadIdx.x] = next;
            __syncthreads();
            if (there) {
                const unsigned to = places.warp[warp][digit] + rank;
                ah_at<K>(a.to_keys)[to] = key;
                ah_at<uint32_t>(a.to_values)[to] = a.values ? ah_at<const uint32_t>(a.values)[i] : (uint32_t)i;
            }
            __syncthreads();
        }
    }
}

template <typename K> __device__ __forceinline__ void radix_tile(const ah_radix_args &a, uint64_t *key, uint32_t *place)
{
    const uint64_t mask = ~(uint64_t)0 >> (64 - a.bits);
    for (unsigned i = threadIdx.x; i < (unsigned)a.padded; i += AH_RADIX_THREADS) {
        key[i] = i < a.n ? ah_at<const K>(a.keys)[i] & mask : ~(uint64_t)0;
        place[i] = i;
    }
    ah_sort_runs(key, place, (unsigned)a.padded, (unsigned)a.padded);
    for (unsigned i = threadIdx.x; i < a.n; i += AH_RADIX_THREADS) {
        ah_at<K>(a.to_keys)[i] = ah_at<const K>(a.keys)[place[i]];
        ah_at<uint32_t>(a.to_values)[i] = a.values ? ah_at<const uint32_t>(a.values)[place[i]] : place[i];
    }
}

#define RADIX(suffix, type)                                             \
    AH_KERNEL(radix_count_##suffix, ah_radix_args, AH_RADIX_THREADS)    \
    {                                                                   \
        AH_SHARED_ARRAY(unsigned, count, AH_RADIX_DIGITS);              \
        radix_count<type>(a, count);                                    \
    }                                                                   \
    AH_KERNEL(radix_place_##suffix, ah_radix_args, AH_RADIX_THREADS)    \
    {                                                                   \
        AH_SHARED(radix_places, places);                                \
        radix_place<type>(a, places);                                   \
    }                                                                   \
    AH_KERNEL(radix_tile_##suffix, ah_radix_args, AH_RADIX_THREADS)     \
    {                                                                   \
        AH_SHARED_ARRAY(uint64_t, key, AH_RADIX_TILE);                  \
        AH_SHARED_ARRAY(uint32_t, place, AH_RADIX_TILE);                \
        radix_tile<type>(a, key, place);                                \
    }
RADIX(32, uint32_t)
RADIX(64, uint64_t)
