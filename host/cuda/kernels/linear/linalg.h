/* Arguments of the kernels around cuSOLVER's routines. Batches are `batch` matrices one after another, infos and flags
 * an int32 for each. */
#pragma once

#include <stdint.h>

enum { AH_LINALG_THREADS = 256 };

/* The part of a matrix that is copied; the rest of the destination becomes 0. */
enum ah_linalg_part { AH_LINALG_WHOLE, AH_LINALG_UPPER, AH_LINALG_LOWER };

/* Steps from one matrix, row and column to the next, in elements. `to` may be `from`, with the same steps. */
struct ah_linalg_copy_args {
    uint64_t to, from;
    int64_t batch, rows, columns;
    int64_t to_step[3], from_step[3];
    int32_t part;
};

/* to[i] = base + i * step, as addresses. */
struct ah_linalg_pointers_args {
    uint64_t to, base;
    int64_t count, step;
};

/* A matrix of `count` elements that has one that is not finite is filled with 0, and its flag becomes `code`; the
 * others become 0, unless they are kept. */
struct ah_linalg_screen_args {
    uint64_t at, flags;
    int64_t batch, count;
    int32_t code, keeps;
};

/* Where a flag is not 0 it becomes the info; where that is not 0 then, the `count` elements at `at` become nan. `flags`
 * may be 0. */
struct ah_linalg_spoil_args {
    uint64_t at, info, flags;
    int64_t batch, count;
};

/* From the factors and the pivots (int32, counted from 1) of n x n matrices: the determinant, or with `second` its sign
 * and the logarithm of its size. */
struct ah_linalg_det_args {
    uint64_t lu, pivots, first, second;
    int64_t batch, n;
};

/* Row i of P^T A is row to[i] (int64) of A, for `k` pivots of matrices of n rows. */
struct ah_linalg_permutation_args {
    uint64_t to, pivots;
    int64_t batch, n, k;
};

/* int64 to int32. */
struct ah_linalg_narrow_args {
    uint64_t to, from;
    int64_t count;
};

/* n x k matrices: to[i] = from[rows[i]], or with `scatters` to[rows[i]] = from[i]. Without `from` that of the
 * identity. */
struct ah_linalg_rows_args {
    uint64_t to, from, rows;
    int64_t batch, n, k;
    int32_t scatters;
};

/* Least squares by singular values: divides row i of y (n x k) by s[i], or multiplies it by 0 where s[i] counts as 0:
 * up to `least` times the first one. The others are the rank (int64). With `full` s[i] counts as 0 only if it is 0, and
 * is then an error, whose place, counted from 1, becomes the info. */
struct ah_linalg_divide_args {
    uint64_t y, s, rank, info;
    int64_t batch, n, k;
    double least;
    int32_t full;
};

/* Row n of x (m x k) becomes the norm of each column of b - product, the rows after it 0. */
struct ah_linalg_residual_args {
    uint64_t x, b, product;
    int64_t batch, m, n, k;
};
