/* Transposing matrices of 4-byte and 2-byte items: the step between the orders N, C, H, W and N, H, W, C. */
#pragma once

#include <stdint.h>

/* to[j, i] = from[i, j] for a rows x cols matrix of 4-byte items, one after another `count` times. Lua thread only. */
void ah_transpose_f32(float *to, const float *from, int64_t count, int64_t rows, int64_t cols);
/* The same for 2-byte items. */
void ah_transpose_16(uint16_t *to, const uint16_t *from, int64_t count, int64_t rows, int64_t cols);
