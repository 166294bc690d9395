/* Arguments of the kernels that draw random numbers. The iteration's operand 0 is filled, in any dtype; its numbers are
 * the distribution's. */
#pragma once

#include "cuda/kernels/lib/elementwise.h"
#include "cuda/kernels/lib/philox.h"

enum { AH_RANDOM_THREADS = 256, AH_SHARES_THREADS = 512, AH_PICK_THREADS = 128, AH_ISLAND_THREADS = 256 };

struct ah_random_args {
    struct ah_ew_args iter;
    struct ah_philox_place place;
    uint64_t range, mask; /* whole numbers: base + a draw modulo range, of which the bits of mask stay */
    int64_t base;
};

/* Operand 0: the mask, in whose order elements are counted; 1: the input, 2: the output. A thread processes `run`
 * consecutive elements, where `run` divides the number of all; 1: one from each of four rounds over the grid. numbers:
 * the probability to keep an element, the scale. */
struct ah_dropout_args {
    struct ah_ew_args iter;
    struct ah_philox_place place;
    int32_t run;
};

/* The class of each of `samples` draws per row. float32 or float64. */
struct ah_pick_args {
    uint64_t shares, sums; /* [rows, classes]: shares of 1, and their running sums */
    uint64_t out;          /* int64 [rows, samples] */
    struct ah_philox_place place;
    int64_t rows, classes, samples;
    int64_t across; /* blocks over the samples; the others are over rows */
};

/* Elements that sorting by random keys made adjacent: among places with equal keys the order is drawn. */
struct ah_island_args {
    uint64_t keys;  /* uint32 or, when wide, uint64 [n], sorted */
    uint64_t order; /* uint32 [n] */
    uint64_t out;   /* int64 [n] */
    struct ah_philox_place place;
    int64_t n;
    int32_t wide;
};
