/* The places where a mask is true, in their order: counted, written out, read from and written to by their ranks. */
#include "cuda/kernels/index/compact.h"
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/lib/scan.cuh"

enum { WARPS = AH_COMPACT_THREADS / 32 };

AH_KERNEL(compact_count, ah_compact_args, AH_COMPACT_THREADS)
{
    AH_SHARED_ARRAY(int, shared, WARPS);
    const uint8_t *mask = ah_at<const uint8_t>(a.mask);
    for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        int count = 0;
        AH_UNROLL
        for (int round = 0; round < AH_COMPACT_ROUNDS; round++) {
            const int64_t i = tile * AH_COMPACT_TILE + round * AH_COMPACT_THREADS + threadIdx.x;
            count += i < a.n && mask[i];
        }
        count = ah_block_fold(count, ah_add(), shared);
        if (threadIdx.x == 0)
            ah_at<int64_t>(a.offsets)[tile] = count;
    }
}

struct sum_of_counts {
    typedef int64_t State;
    __device__ __forceinline__ int64_t start() const
    {
        return 0;
    }
    __device__ __forceinline__ int64_t join(int64_t s, int64_t x) const
    {
        return s + x;
    }
};

/* Replace the counts of tiles by their exclusive sums, followed by the total: one block, 8 bytes for each tile. */
AH_KERNEL(compact_offsets, ah_compact_args, AH_COMPACT_SUM_THREADS)
{
    enum { EACH = AH_COMPACT_SUM_EACH };
    AH_SHARED_ARRAY(int64_t, shared, AH_COMPACT_SUM_THREADS / 32);
    const sum_of_counts sum;
    int64_t *offsets = ah_at<int64_t>(a.offsets), carried = 0;
    for (int64_t first = 0; first < a.tiles; first += EACH * blockDim.x) {
        const int64_t at = first + threadIdx.x * EACH;
        int64_t count[EACH], own = 0, all;
        AH_UNROLL
        for (int j = 0; j < EACH; j++) {
            count[j] = at + j < a.tiles ? offsets[at + j] : 0;
            own += count[j];
        }
        int64_t before = carried + ah_block_before(sum, own, shared, &all);
        AH_UNROLL
        for (int j = 0; j < EACH; j++) {
            if (at + j < a.tiles)
                offsets[at + j] = before;
            before += count[j];
        }
        carried += all;
    }
    if (threadIdx.x == 0)
        offsets[a.tiles] = carried;
}

/* visit(place, rank) for each place where the mask is true. `shared` has a number for each round and warp. */
template <class V> __device__ __forceinline__ void each_true(const ah_compact_args &a, unsigned *shared, V visit)
{
    static_assert(AH_COMPACT_ROUNDS * WARPS == 64, "two numbers for each lane");
    const uint8_t *mask = ah_at<const uint8_t>(a.mask);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        const int64_t first = tile * AH_COMPACT_TILE + threadIdx.x;
        unsigned set[AH_COMPACT_ROUNDS];
        AH_UNROLL
        for (int round = 0; round < AH_COMPACT_ROUNDS; round++) {
            const int64_t i = first + round * AH_COMPACT_THREADS;
            set[round] = __ballot_sync(0xffffffff, i < a.n && mask[i]);
            if (lane == 0)
                shared[round * WARPS + warp] = (unsigned)__popc(set[round]);
        }
        __syncthreads();
        if (warp == 0) {
            const unsigned one = shared[2 * lane], two = shared[2 * lane + 1];
            unsigned sum = one + two;
            for (unsigned by = 1; by < 32; by *= 2) {
                const unsigned other = __shfl_up_sync(0xffffffff, sum, by);
                sum += lane >= by ? other : 0;
            }
            shared[2 * lane] = sum - one - two;
            shared[2 * lane + 1] = sum - two;
        }
        __syncthreads();
        const int64_t before = ah_at<const int64_t>(a.offsets)[tile];
        AH_UNROLL
        for (int round = 0; round < AH_COMPACT_ROUNDS; round++)
            if (set[round] >> lane & 1)
                visit(first + round * AH_COMPACT_THREADS,
                      before + shared[round * WARPS + warp] + __popc(set[round] & ((1u << lane) - 1)));
        __syncthreads();
    }
}

/* The coordinates of each place. */
AH_KERNEL(compact_places, ah_compact_args, AH_COMPACT_THREADS)
{
    AH_SHARED_ARRAY(unsigned, shared, AH_COMPACT_ROUNDS * WARPS);
    each_true(a, shared, [&a](int64_t place, int64_t rank) {
        int64_t *to = ah_at<int64_t>(a.to) + rank * a.ndim;
        for (int d = a.ndim - 1; d > 0; d--) {
            const int64_t quotient = place / a.size[d];
            to[d] = place - quotient * a.size[d];
            place = quotient;
        }
        if (a.ndim > 0)
            to[0] = place;
    });
}

#define MOVES(suffix, type)                                                      \
    AH_KERNEL(compact_take_##suffix, ah_compact_args, AH_COMPACT_THREADS)        \
    {                                                                            \
        AH_SHARED_ARRAY(unsigned, shared, AH_COMPACT_ROUNDS * WARPS);            \
        each_true(a, shared, [&a](int64_t place, int64_t rank) {                 \
            ah_at<type>(a.to)[rank] = ah_at<const type>(a.from)[place];          \
        });                                                                      \
    }                                                                            \
    AH_KERNEL(compact_place_##suffix, ah_compact_args, AH_COMPACT_THREADS)       \
    {                                                                            \
        AH_SHARED_ARRAY(unsigned, shared, AH_COMPACT_ROUNDS * WARPS);            \
        each_true(a, shared, [&a](int64_t place, int64_t rank) {                 \
            if (rank < a.room)                                                   \
                ah_at<type>(a.to)[place] = ah_at<const type>(a.from)[rank];      \
        });                                                                      \
    }
MOVES(1, uint8_t)
MOVES(2, uint16_t)
MOVES(4, uint32_t)
MOVES(8, uint64_t)
