/* Arguments of attention's kernels, and the shapes of their tiles. */
#ifndef AH_CUDA_KERNELS_ATTENTION_H
#define AH_CUDA_KERNELS_ATTENTION_H

#include "cuda/kernels/philox.h"

/* Heads' rows: strides in elements. */
struct ah_attention_rows {
    uint64_t at;
    int64_t batch, token, head;
    int32_t width, wide; /* wide: rows begin at multiples of 16 bytes and are whole ones */
};

/* Lengths are those of every sequence of the batch; or those of `spans`, (batch, 5) integers: begin and count of
 * queries, begin, count and room of keys. */
struct ah_attention_args {
    struct ah_attention_rows query, key, value, out, grad, grad_query, grad_key, grad_value;
    uint64_t mask, spans, lse, delta, keep; /* 0: none. lse, delta: [heads, rows] */
    int64_t mask_batch, mask_head, mask_query, mask_key;
    int64_t batch, queries, keys, rows; /* rows: queries of all sequences */
    int64_t units;                      /* blocks of work, with spans maybe some too many */
    int32_t left, right;                /* keys that a query sees before and behind its own; -1: all */
    int32_t heads, group, boolean;      /* of the query; of these, how many share a head of the key */
    double scale, keep_scale;
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

/* A block has WARPS warps, a warp 16 TALL rows of its own in registers (queries; keys for the gradients of keys), and
 * goes along tiles of OTHERS rows of the other side, of which two are in shared memory. Backwards it computes 8 STEP of
 * those at a time, and the gradients of keys and values one after another where APART says that both would not fit
 * the registers. The shared memory is for sm_80's 163 KiB, up to a width of 128 for the 99 KiB of smaller cards.
 * MAKE(dtype, type, WIDTH, TALL, OTHERS, WARPS), with STEP and APART backwards. */
#define AH_ATTENTION_FORWARD(MAKE)                                                                              \
    MAKE(bf16, bf16_t, 32, 2, 32, 4)                                                                            \
    MAKE(bf16, bf16_t, 64, 2, 32, 4)                                                                            \
    MAKE(bf16, bf16_t, 128, 2, 32, 4)                                                                           \
    MAKE(bf16, bf16_t, 256, 1, 32, 4)                                                                           \
    MAKE(f16, half_t, 32, 2, 32, 4)                                                                             \
    MAKE(f16, half_t, 64, 2, 32, 4)                                                                             \
    MAKE(f16, half_t, 128, 2, 32, 4)                                                                            \
    MAKE(f16, half_t, 256, 1, 32, 4)                                                                            \
    MAKE(f32, float, 32, 1, 32, 4)                                                                              \
    MAKE(f32, float, 64, 1, 32, 4)                                                                              \
    MAKE(f32, float, 128, 1, 32, 4)                                                                             \
    MAKE(f32, float, 256, 1, 16, 4)                                                                             \
    MAKE(f64, double, 64, 1, 8, 4)                                                                              \
    MAKE(f64, double, 128, 1, 16, 4)
#define AH_ATTENTION_BACKWARD(MAKE)                                                                             \
    MAKE(bf16, bf16_t, 32, 2, 32, 4, 2, 0)                                                                      \
    MAKE(bf16, bf16_t, 64, 2, 32, 4, 2, 0)                                                                      \
    MAKE(bf16, bf16_t, 128, 1, 32, 4, 2, 0)                                                                     \
    MAKE(bf16, bf16_t, 256, 1, 16, 4, 2, 1)                                                                     \
    MAKE(f16, half_t, 32, 2, 32, 4, 2, 0)                                                                       \
    MAKE(f16, half_t, 64, 2, 32, 4, 2, 0)                                                                       \
    MAKE(f16, half_t, 128, 1, 32, 4, 2, 0)                                                                      \
    MAKE(f16, half_t, 256, 1, 16, 4, 2, 1)                                                                      \
    MAKE(f32, float, 32, 1, 32, 4, 4, 0)                                                                        \
    MAKE(f32, float, 64, 1, 32, 4, 4, 0)                                                                        \
    MAKE(f32, float, 128, 1, 16, 4, 2, 0)                                                                       \
    MAKE(f32, float, 256, 1, 16, 2, 2, 1)                                                                       \
    MAKE(f64, double, 64, 1, 16, 4, 1, 1)

/* Bytes of shared memory: `own` tensors of a block's rows, and twice a tile of two others. A row has 16 bytes more than
 * its width, so that rows below each other lie in different banks. */
#define AH_ATTENTION_SHARED(size, width, tall, others, warps, own) \
    (((width) * (size) + 16) * ((own) * (warps) * (tall) * 16 + 4 * (others)))

enum { AH_ATTENTION_KEEP_THREADS = 256, AH_ATTENTION_DELTA_THREADS = 256, AH_ATTENTION_WORD = 64 };

#endif
