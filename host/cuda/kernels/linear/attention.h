/* Arguments of attention's kernels, and the shapes of their tiles. */
#pragma once

#include "cuda/kernels/lib/philox.h"

/* Rows of heads: strides in elements. `token` times the size of an element fits 31 bits. wide: each row begins at a
 * multiple of 16 bytes and its length is one. */
struct ah_attention_rows {
    uint64_t at;
    int64_t batch, head;
    int32_t token, width, wide;
};

/* Lengths are those of every sequence of the batch; or those of `spans`, (batch, 5) integers: begin and count of
 * queries, begin, count and room of keys. */
struct ah_attention_args {
    struct ah_attention_rows query, key, value, out, grad, grad_query, grad_key, grad_value;
    uint64_t mask, spans, lse, delta, keep; /* 0: none. lse, delta: [heads, rows] */
    int64_t mask_batch, mask_head, mask_query;
    int64_t batch, queries, keys, rows; /* rows: queries of all sequences */
    int64_t first;                      /* the grid's first unit of work; a block computes one */
    int64_t section;                    /* heads of all sequences whose blocks are interleaved; 1: none */
    int32_t left, right;                /* keys that a query sees before and after its own; -1: all */
    int32_t heads, group, boolean;      /* of the query; number of these that share a head of the key */
    double scale, keep_scale; /* keep_scale: 1 without dropout */
    float scale_single, keep_scale_single;
};

struct ah_attention_keep_args {
    uint64_t words, out;
    int64_t count, queries, keys;
    double kept;
};

/* `count` words of which each bit is 1 where a number of 32 bits is below `below`. */
struct ah_attention_draw_args {
    uint64_t words;
    int64_t count;
    uint64_t below;
    struct ah_philox_place place;
};

/* A block has WARPS warps; each owns 16 TALL rows (queries; keys in the kernel of the gradients of keys), whose results
 * are in registers, and loops over tiles of OTHERS rows of the other side. Forward has one tile of keys and one of
 * values in shared memory, backward two of each; there the scores of 8 STEP rows are computed at a time. HELD: number
 * of arrays of own rows that are held in registers instead of read from shared memory for each tile: of the query, then
 * of the gradient; of the key, then of the value. Kernels for masks, dropout and scales that are not positive (_full)
 * hold none and have FULL_OTHERS and FULL_STEP. APART: gradients of keys and of values are computed one after the
 * other, since both do not fit the registers. The shared memory fits the 99 KiB of a block on sm_86 and sm_89.
 * MAKE(dtype, type, WIDTH, TALL, OTHERS, WARPS, HELD, FULL_OTHERS) and, backward,
 * MAKE(dtype, type, WIDTH, TALL, OTHERS, WARPS, QUERY_STEP, QUERY_HELD, KEY_STEP, KEY_HELD, FULL_STEP, APART). */
#define AH_ATTENTION_FORWARD(MAKE)                                                                              \
    MAKE(bf16, bf16_t, 32, 2, 64, 4, 1, 64)                                                                     \
    MAKE(bf16, bf16_t, 64, 2, 64, 4, 1, 64)                                                                     \
    MAKE(bf16, bf16_t, 128, 2, 64, 4, 0, 32)                                                                    \
    MAKE(bf16, bf16_t, 256, 1, 64, 4, 0, 32)                                                                    \
    MAKE(f16, half_t, 32, 2, 64, 4, 1, 64)                                                                      \
    MAKE(f16, half_t, 64, 2, 64, 4, 1, 64)                                                                      \
    MAKE(f16, half_t, 128, 2, 64, 4, 0, 32)                                                                     \
    MAKE(f16, half_t, 256, 1, 64, 4, 0, 32)                                                                     \
    MAKE(f32, float, 32, 1, 32, 4, 0, 32)                                                                       \
    MAKE(f32, float, 64, 1, 32, 4, 0, 32)                                                                       \
    MAKE(f32, float, 128, 1, 32, 4, 0, 32)                                                                      \
    MAKE(f32, float, 256, 1, 16, 4, 0, 16)                                                                      \
    MAKE(f64, double, 64, 1, 8, 4, 0, 8)                                                                        \
    MAKE(f64, double, 128, 1, 16, 4, 0, 16)
#define AH_ATTENTION_BACKWARD(MAKE)                                                                             \
    MAKE(bf16, bf16_t, 32, 2, 64, 4, 4, 2, 4, 2, 4, 0)                                                          \
    MAKE(bf16, bf16_t, 64, 2, 64, 4, 4, 1, 2, 1, 2, 0)                                                          \
    MAKE(bf16, bf16_t, 128, 1, 32, 4, 4, 2, 4, 1, 2, 0)                                                         \
    MAKE(bf16, bf16_t, 256, 1, 16, 4, 2, 0, 2, 0, 2, 1)                                                         \
    MAKE(f16, half_t, 32, 2, 64, 4, 4, 2, 4, 2, 4, 0)                                                           \
    MAKE(f16, half_t, 64, 2, 64, 4, 4, 1, 2, 1, 2, 0)                                                           \
    MAKE(f16, half_t, 128, 1, 32, 4, 4, 2, 4, 1, 2, 0)                                                          \
    MAKE(f16, half_t, 256, 1, 16, 4, 2, 0, 2, 0, 2, 1)                                                          \
    MAKE(f32, float, 32, 1, 32, 4, 4, 0, 4, 0, 4, 0)                                                            \
    MAKE(f32, float, 64, 1, 32, 4, 4, 0, 4, 0, 4, 0)                                                            \
    MAKE(f32, float, 128, 1, 16, 4, 2, 0, 2, 0, 2, 0)                                                           \
    MAKE(f32, float, 256, 1, 8, 2, 1, 0, 1, 0, 1, 1)                                                            \
    MAKE(f64, double, 64, 1, 16, 4, 1, 0, 1, 0, 1, 1)                                                           \
    MAKE(f64, double, 128, 1, 8, 2, 1, 0, 1, 0, 1, 1)

/* Bytes of shared memory, for `own` arrays of a block's rows and tiles of as many arrays: forward has two of one array,
 * backward two of each. A row has 16 bytes more than its width, so that rows below each other are in different
 * banks. */
#define AH_ATTENTION_SHARED(size, width, tall, others, warps, own) \
    (((width) * (size) + 16) * (own) * ((warps) * (tall) * 16 + 2 * (others)))

enum { AH_ATTENTION_KEEP_THREADS = 256, AH_ATTENTION_DELTA_THREADS = 256, AH_ATTENTION_WORD = 64 };
