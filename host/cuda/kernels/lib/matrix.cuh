/* Products on tensor cores, for halves, and copies to shared memory that a thread does not wait for.
 *
 *     ah_mma<T>(c, a, b0, b1)             c += a b for a warp: c is 16 x 8 floats, a 16 x 16, b 16 x 8
 *     ah_load_matrices(to, row)           four 8 x 8 matrices of fp16 or bf16 from shared memory; lane i passes the
 *                                         address, a multiple of 16, of row i % 8 of matrix i / 8
 *     ah_load_matrices_turned(to, row)    the same, each transposed
 *     ah_pair<T>(low, high)               two halves as a register has them
 *     ah_copies                           copy16(to, from, there), zeros where not there; commit() ends a group;
 *                                         wait<N>() until all but the last N groups of this thread have arrived
 *
 * All lanes of a warp call. The places of the elements (PTX, mma.m16n8k16): with g = lane / 4 and t = lane % 4,
 *     a[0] (g, 2t) and (g, 2t + 1); a[1] row g + 8; a[2], a[3] the same 8 columns on
 *     b0 (2t, g) and (2t + 1, g); b1 8 rows on
 *     c[0], c[1] (g, 2t), (g, 2t + 1); c[2], c[3] row g + 8
 *     to[m] of a load (g, 2t) and (g, 2t + 1) of matrix m; turned (2t, g) and (2t + 1, g) */
#pragma once

#include "cuda/kernels/lib/kernel.cuh"

#ifdef __CUDACC__

template <typename T> __device__ __forceinline__ uint32_t ah_pair(float low, float high);
template <> __device__ __forceinline__ uint32_t ah_pair<half_t>(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}
template <> __device__ __forceinline__ uint32_t ah_pair<bf16_t>(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

template <typename T>
__device__ __forceinline__ void ah_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
#define AH_MMA(type, name)                                                                                      \
    template <>                                                                                                 \
    __device__ __forceinline__ void ah_mma<type>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) \
    {                                                                                                           \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "        \
            "{%8,%9}, {%0,%1,%2,%3};"                                                                           \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                    \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                    \
    }
AH_MMA(half_t, "f16")
AH_MMA(bf16_t, "bf16")
#undef AH_MMA

static __device__ __forceinline__ uint32_t ah_shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

static __device__ __forceinline__ void ah_load_matrices(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(ah_shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ah_load_matrices_turned(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(ah_shared_address(row))
                 : "memory");
}

struct ah_copies {
    __device__ __forceinline__ void copy16(void *to, const void *from, bool there)
    {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ah_shared_address(to)), "l"(from),
                     "r"(there ? 16 : 0)
                     : "memory");
    }
    __device__ __forceinline__ void commit()
    {
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    template <int N> __device__ __forceinline__ void wait()
    {
        asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
    }
};

#else

#include "sim/sim_matrix.h"

#endif
