/* Attention backward, gradients of keys and values: a block of keys loops over tiles of the queries that see it, of all
 * heads that share it, one after another. Scores are transposed, a row for each key. */
#include "cuda/kernels/linear/attention.cuh"

/* The gradients that a block sums up. */
enum key_what { BOTH, KEYS, VALUES };

/* Logarithms of sums, in the base's unit, and deltas of a tile's queries, behind the queries' rows in shared memory,
 * where a row has 16 bytes more than its width. A thread has one of them on the way to the next tile. */
template <typename T, int WIDTH, int OTHERS> struct key_sums {
    typedef ah_real<T> R;
    typedef ah_attention_base<T> base;
    const R *from; /* the thread's of the first tile's */
    R number = 0;

    __device__ __forceinline__ key_sums(const ah_attention_args &a, const ah_attention_unit &unit, int head)
        : from(ah_at<const R>(threadIdx.x < OTHERS ? a.lse : a.delta) + head * a.rows + unit.row +
               threadIdx.x % OTHERS)
    {
    }
    /* Nothing is done with the number before store(), so that a thread does not wait for it. */
    __device__ __forceinline__ void load(int first, int queries)
    {
        number = threadIdx.x < OTHERS ? (R)INFINITY : (R)0;
        if (threadIdx.x < 2 * OTHERS && first + (int)threadIdx.x % OTHERS < queries)
            number = from[first];
    }
    __device__ __forceinline__ void store(T *tile) const
    {
        if (threadIdx.x < 2 * OTHERS)
            at(tile, threadIdx.x % OTHERS).at[threadIdx.x / OTHERS] =
                threadIdx.x < OTHERS ? number * base::unit : number;
    }
    /* The logarithm and the delta of a tile's query. */
    static __device__ __forceinline__ ah_two<R> &at(T *tile, int query)
    {
        return *reinterpret_cast<ah_two<R> *>(tile + query * ah_pitch<T, WIDTH> + WIDTH);
    }
};

/* Scores become weights and their gradients those of scores, but for the scale, of a warp's keys against a few queries
 * of the tile from row `tile` on. */
template <typename T, int WIDTH, int OTHERS, bool PLAIN, int TALL, int STEP>
__device__ __forceinline__ void key_descend(ah_real<T> (&s)[TALL][STEP][4], ah_real<T> (&step)[TALL][STEP][4], T *tile,
                                            const ah_attention_scale<T, PLAIN> &scale,
                                            const ah_attention_kept<true, TALL, STEP> &kept)
{
    typedef ah_real<T> R;
    typedef ah_attention_place<true> place;
    AH_UNROLL
    for (int n = 0; n < STEP; n++)
        AH_UNROLL
        for (int e = 0; e < 2; e++) {
            const ah_two<R> query = key_sums<T, WIDTH, OTHERS>::at(tile, place::column_of(n, e));
            AH_UNROLL
            for (int i = 0; i < TALL; i++)
                AH_UNROLL
                for (int h = e; h < 4; h += 2) {
                    const R weight = ah_attention_base<T>::power(ah_fma(s[i][n][h], scale.factor, -query.at[0]));
                    const bool stays = PLAIN || kept.at(i, n, h);
                    const R grad = PLAIN ? step[i][n][h] : stays ? step[i][n][h] * scale.keep : (R)0;
                    s[i][n][h] = stays ? weight : (R)0;
                    step[i][n][h] = weight * (grad - query.at[1]);
                }
        }
}

/* Add the gradients of a warp's keys and values from 8 STEP queries of the tile from row `tile` on. */
template <typename T, int WIDTH, int OTHERS, int STEP, int WHAT, typename K, typename V, typename U, int TALL,
          int PARTS, int VALUE_PARTS, bool PLAIN>
__device__ __forceinline__ void
key_step(ah_real<T> (&key_sum)[TALL][PARTS][4], ah_real<T> (&value_sum)[TALL][VALUE_PARTS][4], const K &keys,
         const V &values, T *tile, const ah_attention_args &a, const U &unit,
         const ah_attention_place<true> &place, int head, const ah_attention_sight<true> sight,
         const ah_attention_scale<T, PLAIN> &scale)
{
    constexpr int TILE = OTHERS * ah_pitch<T, WIDTH>;
    if (!sight.some(place.column, 8 * STEP))
        return;
    ah_real<T> s[TALL][STEP][4], step[TALL][STEP][4];
    const ah_attention_kept<true, TALL, STEP> kept(a, unit, head, place);
    ah_tile<T>::score(s, keys, tile);
    ah_tile<T>::score(step, values, tile + TILE);
    ah_attention_see<T>(s, a, unit, head, place, sight, scale);
    key_descend<T, WIDTH, OTHERS>(s, step, tile, scale, kept);
    if constexpr (WHAT != KEYS)
        ah_tile<T>::template add<WIDTH>(value_sum, s, tile + TILE);
    if constexpr (WHAT != VALUES)
        ah_tile<T>::template add<WIDTH>(key_sum, step, tile);
}

/* Copies tiles of the queries, with gradients, of one head after another. */
template <typename T, int WIDTH, int OTHERS, int THREADS> struct key_tiles {
    static constexpr int TILE = OTHERS * ah_pitch<T, WIDTH>;
    ah_tile_loader<T, WIDTH, OTHERS, THREADS> queries, grads;
    key_sums<T, WIDTH, OTHERS> sums;

    __device__ __forceinline__ key_tiles(const ah_attention_args &a, const ah_attention_unit &unit, int head)
        : queries(ah_attention_loader<T, WIDTH, OTHERS, THREADS>(a.query, unit, unit.query, head)),
          grads(ah_attention_loader<T, WIDTH, OTHERS, THREADS>(a.grad, unit, unit.query, head)),
          sums(a, unit, head)
    {
    }
    __device__ __forceinline__ void load(ah_copies &copies, T *to, int first, int count)
    {
        queries.load(copies, to, first, count);
        grads.load(copies, to + TILE, first, count);
        sums.load(first, count);
    }
    __device__ __forceinline__ void next_head(const ah_attention_args &a)
    {
        queries.from += a.query.head;
        grads.from += a.grad.head;
        sums.from += a.rows;
    }
};

template <typename T, int WIDTH, int TALL, int OTHERS, int WARPS, int STEP, int HELD, int WHAT, bool PLAIN>
__device__ __forceinline__ void key_backward(const ah_attention_args &a, T *shared)
{
    typedef ah_real<T> R;
    constexpr int MINE = TALL * 16, ROWS = WARPS * MINE, THREADS = WARPS * 32, PITCH = ah_pitch<T, WIDTH>;
    constexpr int TILE = OTHERS * PITCH;
    static_assert(2 * OTHERS <= THREADS, "a thread loads one logarithm or delta");
    const int own_row = threadIdx.x / 32 * MINE;
    T *keys = shared, *values = keys + ROWS * PITCH, *tiles = values + ROWS * PITCH;
    /* Parked in shared memory, since they would not fit the registers. */
    ah_attention_sight<true> *my_sight = reinterpret_cast<ah_attention_sight<true> *>(keys + own_row * PITCH + WIDTH);
    const ah_tile_parked<T, WIDTH, ah_attention_sight<true>> parked_block(keys + (own_row + 1) * PITCH);
    const ah_tile_parked<T, WIDTH, ah_attention_unit> parked(keys + (own_row + 2) * PITCH);
    const ah_attention_scale<T, PLAIN> scale(a);
    ah_copies copies;
    ah_attention_unit unit;
    if (!ah_attention_unit_at(&unit, a, a.first + blockIdx.x, true, ROWS))
        return;
    const int first = unit.block * ROWS, my_first = first + own_row, last_head = (unit.head + 1) * a.group;
    const ah_attention_sight<true> block(a, unit, first, ROWS);
    const int begin = block.begin / OTHERS * OTHERS;
    int query = begin, head = begin < block.end ? unit.head * a.group : last_head;
    key_tiles<T, WIDTH, OTHERS, THREADS> others(a, unit, head);
    ah_tile_own<T, WIDTH, TALL, (HELD > 0)> my_keys(keys + own_row * PITCH);
    ah_tile_own<T, WIDTH, TALL, (HELD > 1)> my_values(values + own_row * PITCH);
    R key_sum[TALL][WHAT == VALUES ? 1 : WIDTH / 8][4], value_sum[TALL][WHAT == KEYS ? 1 : WIDTH / 8][4];
    ah_tile_clear(key_sum);
    ah_tile_clear(value_sum);
    if (threadIdx.x % 32 == 0)
        *my_sight = ah_attention_sight<true>(a, unit, my_first, MINE);
    parked_block.store(block);
    parked.store(unit);
    ah_attention_load<T, WIDTH, ROWS, THREADS>(copies, keys, a.key, unit, unit.key, first, unit.keys, unit.head);
    ah_attention_load<T, WIDTH, ROWS, THREADS>(copies, values, a.value, unit, unit.key, first, unit.keys,
                                               unit.head);
    copies.commit();
    T *now = tiles, *next = tiles + 2 * TILE;
    if (head < last_head) {
        others.load(copies, now, query, unit.queries);
        others.sums.store(now);
    }
    copies.commit();
    copies.wait<1>();
    __syncthreads(); /* the keys are here */
    my_keys.load();
    my_values.load();
    for (bool more = head < last_head; more;) {
        const ah_attention_sight<true> all = parked_block;
        const bool same = query + OTHERS < all.end;
        const int past_head = (ah_attention_unit(parked).head + 1) * a.group;
        const int next_query = same ? query + OTHERS : all.begin / OTHERS * OTHERS, next_head = same ? head : head + 1;
        if (!same)
            others.next_head(a);
        copies.wait<0>();
        __syncthreads(); /* the tile is here; no warp reads the other one any more */
        more = next_head < past_head;
        if (more)
            others.load(copies, next, next_query, ah_attention_unit(parked).queries);
        copies.commit();
        AH_ROLLED
        for (int at = 0; at < OTHERS; at += 8 * STEP)
            key_step<T, WIDTH, OTHERS, STEP, WHAT>(key_sum, value_sum, my_keys, my_values, now + at * PITCH, a,
                                                   parked, {my_first, query + at}, head, *my_sight, scale);
        if (more)
            others.sums.store(next);
        ah_swap(now, next);
        query = next_query;
        head = next_head;
    }
    const ah_attention_unit done = parked;
    const int stored = done.block * ROWS + own_row;
    if constexpr (WHAT != KEYS)
        ah_attention_store<T, WIDTH>(value_sum, scale.keep, a.grad_value, done, done.key, stored, done.room,
                                     values + own_row * PITCH);
    if constexpr (WHAT != VALUES)
        ah_attention_store<T, WIDTH>(key_sum, scale.scale, a.grad_key, done, done.key, stored, done.room,
                                     keys + own_row * PITCH);
}

#define BACKWARD_AS(name, what, plain, type, width, tall, others, warps, step, held)                  \
    AH_KERNEL_LARGE(name, ah_attention_args, warps * 32)                                              \
    {                                                                                                 \
        AH_SHARED_DYNAMIC(ah_pack<type>, shared);                                                     \
        key_backward<type, width, tall, others, warps, step, held, what, plain>(                      \
            a, reinterpret_cast<type *>(shared));                                                     \
    }
#define BACKWARD_OF(name, what, type, width, tall, others, warps, step, held, full_step)              \
    BACKWARD_AS(name, what, true, type, width, tall, others, warps, step, held)                       \
    BACKWARD_AS(name##_full, what, false, type, width, tall, others, warps, full_step, 0)
#define BACKWARD(dtype, type, width, tall, others, warps, query_step, query_held, step, held, full_step, apart) \
    BACKWARD_##apart(dtype, width, type, width, tall, others, warps, step, held, full_step)
#define BACKWARD_0(dtype, width, ...) BACKWARD_OF(attention_key_##dtype##_##width, BOTH, __VA_ARGS__)
#define BACKWARD_1(dtype, width, ...)                                                                 \
    BACKWARD_OF(attention_key_##dtype##_##width, KEYS, __VA_ARGS__)                                   \
    BACKWARD_OF(attention_value_##dtype##_##width, VALUES, __VA_ARGS__)
AH_ATTENTION_BACKWARD(BACKWARD)
