/* A product of 16 x 16 by 16 x 8 on the tensor cores, by way of shared memory: from[0..255] by from[256..383]. */
#include "cuda/kernels/lib/matrix.cuh"
#include "sim/planted/planted.h"

/* SWAPPED: the matrices of A in the order of a wrong reading of PTX. */
template <bool SWAPPED> __device__ static void multiply(const planted_args &a, half_t (*rows)[16], half_t (*turned)[8])
{
    const int lane = (int)threadIdx.x;
    for (int i = lane; i < 256; i += 32)
        rows[i / 16][i % 16] = from_float<half_t>(a.from[i]);
    for (int i = lane; i < 128; i += 32)
        turned[i / 8][i % 8] = from_float<half_t>(a.from[256 + i]);
    __syncwarp();
    uint32_t left[4], right[4];
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int row = lane % 8 + lane / 8 % 2 * 8, column = lane / 16 * 8;
    ah_load_matrices(left, SWAPPED ? &rows[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8] : &rows[row][column]);
    ah_load_matrices_turned(right, turned[lane % 16]);
    ah_mma<half_t>(sum, left, right[0], right[1]);
    for (int i = 0; i < 4; i++)
        a.to[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

AH_KERNEL(product, planted_args, 32)
{
    AH_SHARED_ARRAY(ah_pack<half_t>, rows, 32);
    AH_SHARED_ARRAY(ah_pack<half_t>, turned, 16);
    multiply<false>(a, reinterpret_cast<half_t(*)[16]>(rows), reinterpret_cast<half_t(*)[8]>(turned));
}

AH_KERNEL(product_of_swapped, planted_args, 32)
{
    AH_SHARED_ARRAY(ah_pack<half_t>, rows, 32);
    AH_SHARED_ARRAY(ah_pack<half_t>, turned, 16);
    multiply<true>(a, reinterpret_cast<half_t(*)[16]>(rows), reinterpret_cast<half_t(*)[8]>(turned));
}

/* Only some lanes arrive. */
AH_KERNEL(product_of_some, planted_args, 32)
{
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const uint32_t left[4] = {0, 0, 0, 0};
    if ((int)threadIdx.x < a.n)
        ah_mma<bf16_t>(sum, left, 0, 0);
    a.to[threadIdx.x] = sum[0];
}

/* Numbers that are copied to shared memory while the threads continue, in two groups of which n are not waited for. */
template <int N> __device__ static void copy_around(const planted_args &a, float *rows)
{
    ah_copies copies;
    const int i = (int)threadIdx.x * 4;
    copies.copy16(rows + i, a.from + i, i < 64);
    copies.commit();
    copies.copy16(rows + 128 + i, a.from + i, i < 64);
    copies.commit();
    copies.wait<N>();
    __syncthreads();
    for (int j = 0; j < 8; j++)
        a.to[i * 2 + j] = rows[255 - i * 2 - j];
}

AH_KERNEL(copies, planted_args, 32)
{
    AH_SHARED_ARRAY(ah_pack<float>, rows, 64);
    copy_around<0>(a, &rows[0].at[0]);
}

AH_KERNEL(copies_not_waited_for, planted_args, 32)
{
    AH_SHARED_ARRAY(ah_pack<float>, rows, 64);
    copy_around<1>(a, &rows[0].at[0]);
}
