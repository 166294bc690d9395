/* Matrices transposed through a tile in shared memory, so that both sides are read and written along their rows. */
#include "cuda/kernels/index/transpose.h"
#include "cuda/kernels/lib/kernel.cuh"

/* One column more than needed: threads of a warp that read a column of the tile then hit different banks. */
template <typename T> struct tile {
    T at[AH_TRANSPOSE_TILE][AH_TRANSPOSE_TILE + 1];
};

template <typename T> __device__ void transpose(const ah_transpose_args &a, tile<T> &shared)
{
    const int x = threadIdx.x % AH_TRANSPOSE_TILE, y = threadIdx.x / AH_TRANSPOSE_TILE;
    const int64_t tiles = a.batch * a.row_tiles * a.column_tiles;
    for (int64_t at = blockIdx.x; at < tiles; at += gridDim.x) {
        const int64_t column_tile = at % a.column_tiles, rest = at / a.column_tiles;
        const int64_t row0 = rest % a.row_tiles * AH_TRANSPOSE_TILE, column0 = column_tile * AH_TRANSPOSE_TILE;
        const int64_t matrix = rest / a.row_tiles * a.rows * a.columns;
        const T *from = reinterpret_cast<const T *>(a.from) + matrix;
        T *to = reinterpret_cast<T *>(a.to) + matrix;
        for (int i = y; i < AH_TRANSPOSE_TILE; i += AH_TRANSPOSE_ROWS)
            if (row0 + i < a.rows && column0 + x < a.columns)
                shared.at[i][x] = from[(row0 + i) * a.columns + column0 + x];
        __syncthreads();
        for (int i = y; i < AH_TRANSPOSE_TILE; i += AH_TRANSPOSE_ROWS)
            if (column0 + i < a.columns && row0 + x < a.rows)
                to[(column0 + i) * a.rows + row0 + x] = shared.at[x][i];
        __syncthreads();
    }
}

#define TRANSPOSE(name, type)                                                   \
    AH_KERNEL(name, ah_transpose_args, AH_TRANSPOSE_TILE * AH_TRANSPOSE_ROWS)   \
    {                                                                           \
        AH_SHARED(tile<type>, shared);                                          \
        transpose<type>(a, shared);                                             \
    }
TRANSPOSE(transpose_1, uint8_t)
TRANSPOSE(transpose_2, uint16_t)
TRANSPOSE(transpose_4, uint32_t)
TRANSPOSE(transpose_8, uint64_t)
