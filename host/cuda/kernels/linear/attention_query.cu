/* Attention backward, gradients of queries: their weights are computed again from the logarithms of the sums, tile by
 * tile of keys. With weights P, dropped ones D P, and delta the sum of output times gradient of each query, the
 * gradient of the scores is P (D (g v^T) - delta). */
#include "cuda/kernels/lib/block.cuh"
#include "cuda/kernels/linear/attention.cuh"

/* delta, by a warp for each row. */
template <typename T> __device__ __forceinline__ void query_delta(const ah_attention_args &a)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count, WARPS = AH_ATTENTION_DELTA_THREADS / 32;
    const int64_t count = a.rows * a.heads, lane = threadIdx.x % 32;
    for (int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; at < count; at += (int64_t)gridDim.x * WARPS) {
        const int64_t row = at / a.heads, head = at % a.heads;
        const int64_t number = a.spans ? 0 : row / a.queries, token = a.spans ? row : row % a.queries;
        const T *out = ah_at<const T>(a.out.at) + number * a.out.batch + token * a.out.token + head * a.out.head;
        const T *grad = ah_at<const T>(a.grad.at) + number * a.grad.batch + token * a.grad.token + head * a.grad.head;
        R sum = 0;
        for (int64_t i = lane * N; i < a.out.width; i += 32 * N) {
            R x[N] = {0}, g[N] = {0};
            ah_get_pack(x, out + i, a.out.wide, a.out.width - i);
            ah_get_pack(g, grad + i, a.grad.wide, a.out.width - i);
            AH_UNROLL
            for (int j = 0; j < N; j++)
                sum = ah_fma(x[j], g[j], sum);
        }
        sum = ah_warp_fold(sum, ah_add());
        if (lane == 0)
            ah_at<R>(a.delta)[head * a.rows + row] = sum;
    }
}

#define DELTA(suffix, type) \
    AH_KERNEL_OF(attention_delta_##suffix, ah_attention_args, AH_ATTENTION_DELTA_THREADS, query_delta<type>)
AH_FOR_REALS(DELTA)

/* Of a warp's queries: the logarithms of the sums, in the base's unit, and the deltas. */
template <typename T, int TALL> struct query_sums {
    typedef ah_real<T> R;
    typedef ah_attention_base<T> base;
    R lse[TALL][2], delta[TALL][2];

    __device__ __forceinline__ query_sums(const ah_attention_args &a, const ah_attention_unit &unit, int first)
    {
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int h = 0; h < 2; h++) {
                const int query = first + i * 16 + h * 8 + threadIdx.x % 32 / 4;
                const bool there = query < unit.queries;
                const int64_t at = unit.head * a.rows + unit.row + (there ? query : 0);
                lse[i][h] = there ? ah_at<const R>(a.lse)[at] * base::unit : (R)INFINITY;
                delta[i][h] = there ? ah_at<const R>(a.delta)[at] : (R)0;
            }
    }
    /* Gradients of weights become those of scores, but for the scale. */
    template <bool PLAIN, int STEP>
    __device__ __forceinline__ void descend(R (&step)[TALL][STEP][4], const R (&s)[TALL][STEP][4],
                                            const ah_attention_scale<T, PLAIN> &scale,
                                            const ah_attention_kept<false, TALL, STEP> &kept) const
    {
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int n = 0; n < STEP; n++)
                AH_UNROLL
                for (int e = 0; e < 4; e++) {
                    const R weight = base::power(ah_fma(s[i][n][e], scale.factor, -lse[i][e / 2]));
                    const R kept_grad = kept.at(i, n, e) ? step[i][n][e] * scale.keep : (R)0;
                    const R grad = PLAIN ? step[i][n][e] : kept_grad;
                    step[i][n][e] = weight * (grad - delta[i][e / 2]);
                }
    }
};

/* Add the gradients of a warp's queries from 8 STEP keys of the tile from row `tile` on. */
template <typename T, int WIDTH, int OTHERS, int STEP, typename Q, typename G, typename U, int TALL, bool PLAIN>
__device__ __forceinline__ void
query_step(ah_real<T> (&sum)[TALL][WIDTH / 8][4], const Q &queries, const G &grads, const T *tile,
           const ah_attention_args &a, const U &unit, const ah_attention_place<false> &place,
           const ah_attention_sight<false> &sight, const ah_attention_scale<T, PLAIN> &scale,
           const query_sums<T, TALL> &sums)
{
    if (!sight.some(place.column, 8 * STEP))
        return;
    ah_real<T> s[TALL][STEP][4], step[TALL][STEP][4];
    const ah_attention_kept<false, TALL, STEP> kept(a, unit, ah_attention_unit(unit).head, place);
    ah_tile<T>::score(s, queries, tile);
    ah_tile<T>::score(step, grads, tile + OTHERS * ah_pitch<T, WIDTH>);
    ah_attention_see<T>(s, a, unit, ah_attention_unit(unit).head, place, sight, scale);
    sums.descend(step, s, scale, kept);
    ah_tile<T>::template add<WIDTH>(sum, step, tile);
}

template <typename T, int WIDTH, int TALL, int OTHERS, int WARPS, int STEP, int HELD, bool PLAIN>
__device__ __forceinline__ void query_backward(const ah_attention_args &a, T *shared)
{
    typedef ah_real<T> R;
    constexpr int MINE = TALL * 16, ROWS = WARPS * MINE, THREADS = WARPS * 32, PITCH = ah_pitch<T, WIDTH>;
    constexpr int TILE = OTHERS * PITCH;
    const int own_row = threadIdx.x / 32 * MINE;
    T *queries = shared, *grads = queries + ROWS * PITCH, *tiles = grads + ROWS * PITCH;
    const ah_tile_parked<T, WIDTH, ah_attention_unit> parked(queries + own_row * PITCH);
    const ah_attention_scale<T, PLAIN> scale(a);
    ah_copies copies;
    ah_attention_unit unit;
    if (!ah_attention_unit_at(&unit, a, a.first + blockIdx.x, false, ROWS))
        return;
    const int first = unit.block * ROWS, my_first = first + own_row, head = unit.head / a.group;
    const ah_attention_sight<false> block(a, unit, first, ROWS), sight(a, unit, my_first, MINE);
    const auto keys = ah_attention_loader<T, WIDTH, OTHERS, THREADS>(a.key, unit, unit.key, head);
    const auto values = ah_attention_loader<T, WIDTH, OTHERS, THREADS>(a.value, unit, unit.key, head);
    const auto load = [&](int key, int count, T *to) {
        keys.load(copies, to, key, count);
        values.load(copies, to + TILE, key, count);
    };
    ah_tile_own<T, WIDTH, TALL, (HELD > 0)> my_queries(queries + own_row * PITCH);
    ah_tile_own<T, WIDTH, TALL, (HELD > 1)> my_grads(grads + own_row * PITCH);
    R sum[TALL][WIDTH / 8][4];
    ah_tile_clear(sum);
    const query_sums<T, TALL> sums(a, unit, my_first);
    ah_attention_load<T, WIDTH, ROWS, THREADS>(copies, queries, a.query, unit, unit.query, first, unit.queries,
                                               unit.head);
    ah_attention_load<T, WIDTH, ROWS, THREADS>(copies, grads, a.grad, unit, unit.query, first, unit.queries,
                                               unit.head);
    parked.store(unit);
    copies.commit();
    const int begin = block.begin / OTHERS * OTHERS;
    if (begin < block.end)
        load(begin, unit.keys, tiles);
    copies.commit();
    copies.wait<1>();
    __syncthreads(); /* the queries are here */
    my_queries.load();
    my_grads.load();
    T *now = tiles, *next = tiles + 2 * TILE;
    for (int key = begin; key < block.end; key += OTHERS) {
        copies.wait<0>();
        __syncthreads(); /* the tile is here; no warp reads the other one any more */
        if (key + OTHERS < block.end)
            load(key + OTHERS, ah_attention_unit(parked).keys, next);
        copies.commit();
        AH_ROLLED
        for (int at = 0; at < OTHERS; at += 8 * STEP)
            query_step<T, WIDTH, OTHERS, STEP>(sum, my_queries, my_grads, now + at * PITCH, a, parked,
                                               {my_first, key + at}, sight, scale, sums);
        ah_swap(now, next);
    }
    const ah_attention_unit done = parked;
    ah_attention_store<T, WIDTH>(sum, scale.scale, a.grad_query, done, done.query,
                                 done.block * ROWS + own_row, done.queries,
                                 queries + own_row * PITCH);
}

#define BACKWARD_AS(name, plain, type, width, tall, others, warps, step, held)                        \
    AH_KERNEL_LARGE(name, ah_attention_args, warps * 32)                                              \
    {                                                                                                 \
        AH_SHARED_DYNAMIC(ah_pack<type>, shared);                                                     \
        query_backward<type, width, tall, others, warps, step, held, plain>(a, reinterpret_cast<type *>(shared)); \
    }
#define BACKWARD(dtype, type, width, tall, others, warps, step, held, key_step, key_held, full_step, apart) \
    BACKWARD_AS(attention_query_##dtype##_##width, true, type, width, tall, others, warps, step, held) \
    BACKWARD_AS(attention_query_##dtype##_##width##_full, false, type, width, tall, others, warps, full_step, 0)
AH_ATTENTION_BACKWARD(BACKWARD)
