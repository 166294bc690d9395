/* Attention forward (Dao et al., 2022): a block of queries loops over tiles of keys. Each query keeps a bound of its
 * scores and the sum of exponentials below it (Milakov and Gimelshein, 2018); its scores live in registers. A tile of
 * values is copied to shared memory while its keys are multiplied, and the next keys while its values are. */
#include "cuda/kernels/lib/philox.cuh"
#include "cuda/kernels/linear/attention.cuh"

/* Of a warp's queries: the bounds of their exponents, and each lane's part of the sums. */
template <typename T, int TALL> struct attention_sums {
    typedef ah_real<T> R;
    typedef ah_attention_base<T> base;
    R bound[TALL][2], total[TALL][2];

    __device__ __forceinline__ void clear()
    {
        AH_UNROLL
        for (int i = 0; i < 2 * TALL; i++) {
            bound[i / 2][i % 2] = base::lowest;
            total[i / 2][i % 2] = 0;
        }
    }

    /* Raise the bounds that scores exceed by more than the slack; earlier sums shrink. That seldom happens after the
     * first tile, so whole warps go without. */
    template <int COLUMNS, int PARTS>
    __device__ __forceinline__ void raise(const R (&s)[TALL][COLUMNS][4], R (&out)[TALL][PARTS][4], R factor)
    {
        R largest[TALL][2];
        bool above = false;
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int h = 0; h < 2; h++) {
                R m = base::larger(s[i][0][2 * h], s[i][0][2 * h + 1]);
                AH_UNROLL
                for (int n = 1; n < COLUMNS; n++)
                    m = base::larger(base::larger(m, s[i][n][2 * h]), s[i][n][2 * h + 1]);
                m = base::larger(m, __shfl_xor_sync(0xffffffff, m, 1));
                m = base::larger(m, __shfl_xor_sync(0xffffffff, m, 2)) * factor;
                largest[i][h] = m;
                above |= m > bound[i][h] + base::slack;
            }
        if (!__any_sync(0xffffffff, above))
            return;
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int h = 0; h < 2; h++) {
                const R next = largest[i][h] > bound[i][h] + base::slack ? largest[i][h] : bound[i][h];
                const R shrunk = base::power(bound[i][h] - next);
                bound[i][h] = next;
                total[i][h] *= shrunk;
                AH_UNROLL
                for (int d = 0; d < PARTS; d++) {
                    out[i][d][2 * h] *= shrunk;
                    out[i][d][2 * h + 1] *= shrunk;
                }
            }
    }

    /* Replace scores by exponentials, which are summed up, then by zeros where dropout removes them. */
    template <bool PLAIN, int COLUMNS>
    __device__ __forceinline__ void weigh(R (&s)[TALL][COLUMNS][4], R factor,
                                          const ah_attention_kept<false, TALL, COLUMNS> &kept)
    {
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int n = 0; n < COLUMNS; n++)
                AH_UNROLL
                for (int e = 0; e < 4; e++) {
                    s[i][n][e] = base::power(ah_fma(s[i][n][e], factor, -bound[i][e / 2]));
                    total[i][e / 2] += s[i][n][e];
                    s[i][n][e] = PLAIN || kept.at(i, n, e) ? s[i][n][e] : (R)0;
                }
    }

    /* Store the logarithms of the sums, and compute the factors of the results; a query that sees no key gets zeros. */
    __device__ __forceinline__ void finish(R (&factor)[TALL][2], R *lse, int64_t count, R keep)
    {
        const int lane = threadIdx.x % 32;
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int h = 0; h < 2; h++) {
                R sum = total[i][h];
                sum += __shfl_xor_sync(0xffffffff, sum, 1);
                sum += __shfl_xor_sync(0xffffffff, sum, 2);
                factor[i][h] = sum == 0 ? (R)0 : keep / sum;
                const int row = i * 16 + h * 8 + lane / 4;
                if (lane % 4 == 0 && row < count)
                    lse[row] = sum == 0 ? (R)INFINITY : (bound[i][h] + base::logarithm(sum)) / base::unit;
            }
    }
};

template <typename T, int WIDTH, int TALL, int OTHERS, int WARPS, bool HELD, bool PLAIN>
__device__ __forceinline__ void attention_forward(const ah_attention_args &a, T *shared)
{
    typedef ah_real<T> R;
    constexpr int MINE = TALL * 16, ROWS = WARPS * MINE, THREADS = WARPS * 32, PITCH = ah_pitch<T, WIDTH>;
    const int own_row = threadIdx.x / 32 * MINE;
    T *own = shared, *key_tile = shared + ROWS * PITCH, *value_tile = key_tile + OTHERS * PITCH;
    T *mine = own + own_row * PITCH;
    const ah_tile_parked<T, WIDTH, ah_attention_unit> parked(mine);
    const ah_tile_parked<T, WIDTH, ah_attention_sight<false>> parked_sight(mine + 3 * PITCH);
    const ah_attention_scale<T, PLAIN> scale(a);
    ah_copies copies;
    ah_attention_unit unit;
    if (!ah_attention_unit_at(&unit, a, a.first + blockIdx.x, false, ROWS))
        return;
    const int first = unit.block * ROWS, my_first = first + own_row, head = unit.head / a.group;
    const ah_attention_sight<false> block(a, unit, first, ROWS);
    const auto keys = ah_attention_loader<T, WIDTH, OTHERS, THREADS>(a.key, unit, unit.key, head);
    const auto values = ah_attention_loader<T, WIDTH, OTHERS, THREADS>(a.value, unit, unit.key, head);
    ah_tile_own<T, WIDTH, TALL, HELD> queries(mine);
    R out[TALL][WIDTH / 8][4];
    attention_sums<T, TALL> sums;
    ah_tile_clear(out);
    sums.clear();
    ah_attention_load<T, WIDTH, ROWS, THREADS>(copies, own, a.query, unit, unit.query, first, unit.queries,
                                               unit.head);
    parked.store(unit);
    parked_sight.store(ah_attention_sight<false>(a, unit, my_first, MINE));
    copies.commit();
    const int begin = block.begin / OTHERS * OTHERS;
    if (begin < block.end)
        keys.load(copies, key_tile, begin, unit.keys);
    copies.commit();
    copies.wait<1>();
    __syncthreads(); /* the queries are here */
    queries.load();
    for (int key = begin; key < block.end; key += OTHERS) {
        R s[TALL][OTHERS / 8][4];
        copies.wait<0>();
        __syncthreads(); /* the keys are here; no warp reads the values before any more */
        values.load(copies, value_tile, key, ah_attention_unit(parked).keys);
        copies.commit();
        ah_tile<T>::score(s, queries, key_tile);
        copies.wait<0>();
        __syncthreads(); /* the values are here; no warp reads the keys any more */
        if (key + OTHERS < block.end)
            keys.load(copies, key_tile, key + OTHERS, ah_attention_unit(parked).keys);
        copies.commit();
        const ah_attention_sight<false> sight = parked_sight;
        if (sight.some(key, OTHERS)) {
            const ah_attention_place<false> place = {my_first, key};
            const ah_attention_kept<false, TALL, OTHERS / 8> kept(a, parked, ah_attention_unit(parked).head, place);
            ah_attention_see<T>(s, a, parked, ah_attention_unit(parked).head, place, sight, scale);
            sums.raise(s, out, scale.factor);
            sums.template weigh<PLAIN>(s, scale.factor, kept);
            ah_tile<T>::template add<WIDTH>(out, s, value_tile);
        }
    }
    const ah_attention_unit done = parked;
    const int stored = done.block * ROWS + own_row, count = done.queries - stored;
    R factor[TALL][2];
    sums.finish(factor, ah_at<R>(a.lse) + done.head * a.rows + done.row + stored, count, scale.keep);
    ah_tile_store<T, WIDTH>(out, factor, mine,
                            ah_attention_row<T>(a.out, done, done.query + stored, done.head), a.out.token, count,
                            a.out.width, a.out.wide);
}

#define FORWARD_AS(name, plain, type, width, tall, others, warps, held)                               \
    AH_KERNEL_LARGE(name, ah_attention_args, warps * 32)                                              \
    {                                                                                                 \
        AH_SHARED_DYNAMIC(ah_pack<type>, shared);                                                     \
        attention_forward<type, width, tall, others, warps, held, plain>(a, reinterpret_cast<type *>(shared)); \
    }
#define FORWARD(dtype, type, width, tall, others, warps, held, full_others)                           \
    FORWARD_AS(attention_##dtype##_##width, true, type, width, tall, others, warps, held)             \
    FORWARD_AS(attention_##dtype##_##width##_full, false, type, width, tall, full_others, warps, false)
AH_ATTENTION_FORWARD(FORWARD)

/* Words of dropout, each from its own stream: bit i by the i-th number. */
AH_KERNEL(attention_draw, ah_attention_draw_args, AH_ATTENTION_KEEP_THREADS)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < a.count; at += step) {
        ah_philox stream = ah_philox_open(a.place, (uint64_t)at);
        uint64_t word = 0;
        for (int i = 0; i < AH_ATTENTION_WORD; i += 4) {
            const uint4 number = stream.next();
            const uint64_t bits = (uint64_t)(number.x < a.below) | (uint64_t)(number.y < a.below) << 1 |
                                  (uint64_t)(number.z < a.below) << 2 | (uint64_t)(number.w < a.below) << 3;
            word |= bits << i;
        }
        ah_at<uint64_t>(a.words)[at] = word;
    }
}

/* Write the factors of dropout for weights, one number after another. */
template <typename T> __device__ __forceinline__ void keep(const ah_attention_keep_args &a)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const int64_t blocks = ah_attention_blocks_of(a.queries, AH_ATTENTION_WORD);
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < a.count; at += step) {
        const int64_t key = at % a.keys, row = at / a.keys, query = row % a.queries, matrix = row / a.queries;
        const uint64_t word =
            ah_at<const uint64_t>(a.words)[(matrix * blocks + query / AH_ATTENTION_WORD) * a.keys + key];
        ah_at<T>(a.out)[at] = ah_put<T>(word >> query % AH_ATTENTION_WORD & 1 ? (ah_real<T>)a.kept : (ah_real<T>)0);
    }
}

#define KEEP(suffix, type) \
    AH_KERNEL_OF(attention_keep_##suffix, ah_attention_keep_args, AH_ATTENTION_KEEP_THREADS, keep<type>)
AH_FOR_REALS(KEEP)
