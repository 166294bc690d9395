/* Transposing blocks of 4-byte and 2-byte items, tile by tile so that both sides stay in cache. */
#include "tensor/transpose.h"

#include "tensor/interleave.h"

enum { TILE = 16, TILE_16 = 8 };

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

/* Interleave pairs of rows, then pairs of pairs, then halves: 64 items in 24 shuffles. */
static void transpose_tile_16(uint16_t *restrict to, const uint16_t *restrict from, int64_t rows, int64_t cols)
{
    ah_items_16 a[TILE_16], b[TILE_16];
    for (int i = 0; i < TILE_16; i++)
        a[i] = ah_items_load(from + i * cols);
    for (int i = 0; i < TILE_16; i += 2) {
        b[i] = ah_interleave_low_16(a[i], a[i + 1]);
        b[i + 1] = ah_interleave_high_16(a[i], a[i + 1]);
    }
    for (int i = 0; i < TILE_16; i += 4) {
        for (int k = 0; k < 2; k++) {
            a[i + 2 * k] = ah_interleave_low_32(b[i + k], b[i + k + 2]);
            a[i + 2 * k + 1] = ah_interleave_high_32(b[i + k], b[i + k + 2]);
        }
    }
    for (int j = 0; j < TILE_16 / 2; j++) {
        ah_items_store(to + 2 * j * rows, ah_interleave_low_64(a[j], a[j + 4]));
        ah_items_store(to + (2 * j + 1) * rows, ah_interleave_high_64(a[j], a[j + 4]));
    }
}

static void transpose_one_16(uint16_t *restrict to, const uint16_t *restrict from, int64_t rows, int64_t cols)
{
    int64_t full_rows = rows / TILE_16 * TILE_16, full_cols = cols / TILE_16 * TILE_16;
    for (int64_t j = 0; j < full_cols; j += TILE_16)
        for (int64_t i = 0; i < full_rows; i += TILE_16)
            transpose_tile_16(to + j * rows + i, from + i * cols + j, rows, cols);
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = j < full_cols ? full_rows : 0; i < rows; i++)
            to[j * rows + i] = from[i * cols + j];
}

void ah_transpose_f32(float *to, const float *from, int64_t count, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static) if (count * rows * cols > 32768)
    for (int64_t k = 0; k < count; k++)
        transpose_one(to + k * rows * cols, from + k * rows * cols, rows, cols);
}

void ah_transpose_16(uint16_t *to, const uint16_t *from, int64_t count, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static) if (count * rows * cols > 65536)
    for (int64_t k = 0; k < count; k++)
        transpose_one_16(to + k * rows * cols, from + k * rows * cols, rows, cols);
}
