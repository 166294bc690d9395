/* Transposing blocks of floats, tile by tile so that both sides stay in cache. */
#include "tensor/transpose.h"

enum { TILE = 16 };

static void transpose_tile(float *restrict to, const float *restrict from, int64_t rows, int64_t cols)
{
    float tile[TILE][TILE];
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            tile[i][j] = from[i * cols + j];
    for (int j = 0; j < TILE; j++)
        for (int i = 0; i < TILE; i++)
            to[j * rows + i] = tile[i][j];
}

static void transpose_one(float *restrict to, const float *restrict from, int64_t rows, int64_t cols)
{
    int64_t full_rows = rows / TILE * TILE, full_cols = cols / TILE * TILE;
    for (int64_t j = 0; j < full_cols; j += TILE)
        for (int64_t i = 0; i < full_rows; i += TILE)
            transpose_tile(to + j * rows + i, from + i * cols + j, rows, cols);
    for (int64_t j = full_cols; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            to[j * rows + i] = from[i * cols + j];
    for (int64_t j = 0; j < full_cols; j++)
        for (int64_t i = full_rows; i < rows; i++)
            to[j * rows + i] = from[i * cols + j];
}

void ah_transpose_f32(float *to, const float *from, int64_t count, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static) if (count * rows * cols > 32768)
    for (int64_t k = 0; k < count; k++)
        transpose_one(to + k * rows * cols, from + k * rows * cols, rows, cols);
}
