/* Keys in the order of values, and sorting of a few of them by a block. */
#pragma once

#include "cuda/kernels/lib/reals.cuh"

/* The bits of a float of BITS bits whose infinity is INF: in the order of the values with the sign turned. */
template <typename U, int BITS, uint64_t INF> __device__ __forceinline__ U ah_float_key(U bits)
{
    const U sign = (U)((U)1 << (BITS - 1)), size = (U)(bits & (U)~sign);
    if (size > (U)INF)
        return (U)~(U)0;
    if (size == 0)
        return sign;
    return bits & sign ? (U)~bits : (U)(bits | sign);
}

__device__ __forceinline__ uint64_t ah_key_of(uint64_t base, int dtype, int64_t at)
{
    switch (dtype) {
    case AH_BOOL:
    case AH_U8: return ah_at<const uint8_t>(base)[at];
    case AH_I32: return ah_at<const uint32_t>(base)[at] ^ 0x80000000u;
    case AH_I64: return ah_at<const uint64_t>(base)[at] ^ 0x8000000000000000u;
    case AH_F16: return ah_float_key<uint16_t, 16, 0x7c00>(ah_at<const uint16_t>(base)[at]);
    case AH_BF16: return ah_float_key<uint16_t, 16, 0x7f80>(ah_at<const uint16_t>(base)[at]);
    case AH_F32: return ah_float_key<uint32_t, 32, 0x7f800000>(ah_at<const uint32_t>(base)[at]);
    default: return ah_float_key<uint64_t, 64, 0x7ff0000000000000>(ah_at<const uint64_t>(base)[at]);
    }
}

/* Element `from` of one array to place `to` of another. */
__device__ __forceinline__ void ah_move_item(uint64_t to_base, int64_t to, uint64_t from_base, int64_t from, int dtype)
{
    switch (dtype) {
    case AH_BOOL:
    case AH_U8: ah_at<uint8_t>(to_base)[to] = ah_at<const uint8_t>(from_base)[from]; break;
    case AH_F16:
    case AH_BF16: ah_at<uint16_t>(to_base)[to] = ah_at<const uint16_t>(from_base)[from]; break;
    case AH_I32:
    case AH_F32: ah_at<uint32_t>(to_base)[to] = ah_at<const uint32_t>(from_base)[from]; break;
    default: ah_at<uint64_t>(to_base)[to] = ah_at<const uint64_t>(from_base)[from]; break;
    }
}

/* Sort runs of `size` entries, a power of two, in shared memory by key, then by place: the places differ, so that the
 * order is the one of a stable sort. Bitonic; all threads of the block call. */
static __device__ __forceinline__ void ah_sort_runs(uint64_t *key, uint32_t *place, unsigned count, unsigned size)
{
    for (unsigned run = 1; 1u << run <= size; run++) {
        for (unsigned apart = run; apart-- > 0;) {
            __syncthreads();
            for (unsigned pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
                const unsigned low = pair >> apart << (apart + 1) | (pair & ((1u << apart) - 1));
                const unsigned high = low + (1u << apart);
                const bool down = low & (size - 1) & 1u << run;
                const uint64_t a = key[low], b = key[high];
                const uint32_t at = place[low], to = place[high];
                if ((a > b || (a == b && at > to)) != down) {
                    key[low] = b;
                    key[high] = a;
                    place[low] = to;
                    place[high] = at;
                }
            }
        }
    }
    __syncthreads();
}
