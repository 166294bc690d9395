/* Attention backward, what keys and values get: a block of keys goes along tiles of the queries that see it, of all
 * heads that share it, one after another. Scores stand turned, a row for each key. */
#include "cuda/kernels/attention.cuh"

/* What a block gathers. */
enum what { BOTH, KEYS, VALUES };

/* Weights and the gradients of the scores, of a warp's keys against a few queries. */
template <typename T, int TALL, int STEP>
__device__ __forceinline__ void weigh_back(ah_real<T> (&s)[TALL][STEP][4], ah_real<T> (&step)[TALL][STEP][4],
                                           const ah_attention_args &a, const ah_attention_unit &unit, int head,
                                           const ah_attention_place<true> &place)
{
    typedef ah_real<T> R;
    typedef ah_attention_base<T> base;
    ah_attention_see<T>(s, a, unit, head, place);
    if (a.keep)
        ah_attention_drop(step, a, unit, head, place);
    AH_UNROLL
    for (int n = 0; n < STEP; n++) {
        R lse[2], delta[2];
        AH_UNROLL
        for (int e = 0; e < 2; e++) {
            const int query = place.column + place.column_of(n, e);
            const bool there = query < unit.queries;
            const int64_t at = head * a.rows + unit.row + (there ? query : 0);
            lse[e] = there ? ah_at<const R>(a.lse)[at] * base::unit : (R)INFINITY;
            delta[e] = there ? ah_at<const R>(a.delta)[at] : (R)0;
        }
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int e = 0; e < 4; e++) {
                s[i][n][e] = base::power(s[i][n][e] - lse[e % 2]);
                step[i][n][e] = s[i][n][e] * (step[i][n][e] - delta[e % 2]) * (R)a.scale;
            }
    }
    if (a.keep)
        ah_attention_drop(s, a, unit, head, place);
}

template <typename T, int WIDTH, int TALL, int OTHERS, int WARPS, int STEP, int WHAT>
__device__ __forceinline__ void attend_back(const ah_attention_args &a, T *shared)
{
    typedef ah_real<T> R;
    constexpr int ROWS = WARPS * TALL * 16, THREADS = WARPS * 32, PITCH = ah_pitch<T, WIDTH>, TILE = OTHERS * PITCH;
    const int own_row = threadIdx.x / 32 * TALL * 16;
    T *keys = shared, *values = keys + ROWS * PITCH, *tiles = values + ROWS * PITCH;
    T *my_keys = keys + own_row * PITCH, *my_values = values + own_row * PITCH;
    ah_copies copies;
    for (int64_t index = blockIdx.x; index < a.units; index += gridDim.x) {
        ah_attention_unit unit;
        if (!ah_attention_unit_at(&unit, a, index, true, ROWS))
            continue;
        const int first = unit.block * ROWS, mine = first + own_row;
        int begin, end;
        ah_attention_range(&begin, &end, first - unit.diagonal, ROWS, a.right, a.left, unit.queries, OTHERS);
        if (first >= unit.keys)
            end = begin;
        const int tiles_each = begin < end ? (end - begin + OTHERS - 1) / OTHERS : 0;
        const int count = tiles_each * a.group;
        const auto head_of = [&](int i) { return unit.head * a.group + i / tiles_each; };
        const auto query_of = [&](int i) { return begin + i % tiles_each * OTHERS; };
        const auto bring = [&](int i, T *to) {
            ah_attention_bring_both<T, WIDTH, OTHERS, THREADS>(copies, to, a.query, a.grad, unit, unit.query,
                                                               query_of(i), unit.queries, head_of(i));
        };
        R key_sum[TALL][WHAT == VALUES ? 1 : WIDTH / 8][4], value_sum[TALL][WHAT == KEYS ? 1 : WIDTH / 8][4];
        ah_tile_clear(key_sum);
        ah_tile_clear(value_sum);
        __syncthreads(); /* the unit before is done with shared memory */
        ah_attention_bring_both<T, WIDTH, ROWS, THREADS>(copies, keys, a.key, a.value, unit, unit.key, first, unit.keys,
                                                         unit.head);
        if (count > 0)
            bring(0, tiles);
        copies.commit();
        T *now = tiles, *next = tiles + 2 * TILE;
        for (int i = 0; i < count; i++) {
            copies.wait<0>();
            __syncthreads(); /* the tile is here; nobody reads the other one any more */
            if (i + 1 < count)
                bring(i + 1, next);
            copies.commit();
            for (int at = 0; at < OTHERS; at += 8 * STEP) {
                R s[TALL][STEP][4], step[TALL][STEP][4];
                const ah_attention_place<true> place = {mine, query_of(i) + at};
                ah_tile<T>::template score<WIDTH>(s, my_keys, now + at * PITCH);
                ah_tile<T>::template score<WIDTH>(step, my_values, now + TILE + at * PITCH);
                weigh_back<T>(s, step, a, unit, head_of(i), place);
                if constexpr (WHAT != KEYS)
                    ah_tile<T>::template add<WIDTH>(value_sum, s, now + TILE + at * PITCH);
                if constexpr (WHAT != VALUES)
                    ah_tile<T>::template add<WIDTH>(key_sum, step, now + at * PITCH);
            }
            ah_swap(now, next);
        }
        copies.wait<0>();
        __syncthreads(); /* what was brought has come before results take its place */
        if constexpr (WHAT != KEYS)
            ah_attention_take<T, WIDTH, TALL>(value_sum, a.grad_value, unit, unit.key, mine, unit.room, my_values);
        if constexpr (WHAT != VALUES)
            ah_attention_take<T, WIDTH, TALL>(key_sum, a.grad_key, unit, unit.key, mine, unit.room, my_keys);
    }
}

#define BACKWARD(dtype, type, width, tall, others, warps, step, apart)                                \
    AH_KERNEL_LARGE(attention_key_##dtype##_##width, ah_attention_args, warps * 32)                   \
    {                                                                                                 \
        AH_SHARED_DYNAMIC(ah_pack<type>, shared);                                                     \
        attend_back<type, width, tall, others, warps, step, apart ? KEYS : BOTH>(                     \
            a, reinterpret_cast<type *>(shared));                                                     \
    }                                                                                                 \
    AH_ATTENTION_APART_##apart(dtype, type, width, tall, others, warps, step)
#define AH_ATTENTION_APART_0(...)
#define AH_ATTENTION_APART_1(dtype, type, width, tall, others, warps, step)                           \
    AH_KERNEL_LARGE(attention_value_##dtype##_##width, ah_attention_args, warps * 32)                 \
    {                                                                                                 \
        AH_SHARED_DYNAMIC(ah_pack<type>, shared);                                                     \
        attend_back<type, width, tall, others, warps, step, VALUES>(a, reinterpret_cast<type *>(shared));\
    }
AH_ATTENTION_BACKWARD(BACKWARD)
