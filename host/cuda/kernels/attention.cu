/* Attention forward (Dao et al., 2022): a block of queries goes along tiles of keys. Each query keeps its largest score
 * so far and the sum of exponentials below it (Milakov and Gimelshein, 2018); its scores live in registers. While a
 * tile is computed with, the next one comes to shared memory. */
#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/philox.cuh"

/* Of a warp's queries: the largest scores, and each lane's part of the sums. */
template <typename R, int TALL> struct sums {
    R largest[TALL][2], total[TALL][2];
    __device__ __forceinline__ void clear()
    {
        AH_UNROLL
        for (int i = 0; i < 2 * TALL; i++) {
            largest[i / 2][i % 2] = (R)-INFINITY;
            total[i / 2][i % 2] = 0;
        }
    }
};

/* Scores become exponentials; what was summed up shrinks to the new maximum. */
template <typename T, int TALL, int COLUMNS, int PARTS>
__device__ __forceinline__ void weigh(ah_real<T> (&s)[TALL][COLUMNS][4], sums<ah_real<T>, TALL> &own,
                                      ah_real<T> (&out)[TALL][PARTS][4])
{
    typedef ah_real<T> R;
    typedef ah_attention_base<T> base;
    AH_UNROLL
    for (int i = 0; i < TALL; i++) {
        AH_UNROLL
        for (int h = 0; h < 2; h++) {
            R m = own.largest[i][h];
            AH_UNROLL
            for (int n = 0; n < COLUMNS; n++)
                AH_UNROLL
                for (int e = 2 * h; e < 2 * h + 2; e++)
                    m = s[i][n][e] > m ? s[i][n][e] : m;
            AH_UNROLL
            for (int by = 1; by < 4; by *= 2) {
                const R other = __shfl_xor_sync(0xffffffff, m, by);
                m = other > m ? other : m;
            }
            const R from = m == (R)-INFINITY ? (R)0 : m, factor = base::power(own.largest[i][h] - from);
            R total = own.total[i][h] * factor;
            AH_UNROLL
            for (int n = 0; n < COLUMNS; n++)
                AH_UNROLL
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[i][n][e] = base::power(s[i][n][e] - from);
                    total += s[i][n][e];
                }
            own.largest[i][h] = m;
            own.total[i][h] = total;
            AH_UNROLL
            for (int d = 0; d < PARTS; d++)
                AH_UNROLL
                for (int e = 2 * h; e < 2 * h + 2; e++)
                    out[i][d][e] *= factor;
        }
    }
}

/* The logarithms of the sums, and what results are multiplied with; a query that sees nothing gives zeros. */
template <typename T, int TALL>
__device__ __forceinline__ void finish(ah_real<T> (&factor)[TALL][2], sums<ah_real<T>, TALL> &own, ah_real<T> *lse,
                                       int64_t count)
{
    typedef ah_real<T> R;
    typedef ah_attention_base<T> base;
    const int lane = threadIdx.x % 32;
    AH_UNROLL
    for (int i = 0; i < TALL; i++) {
        AH_UNROLL
        for (int h = 0; h < 2; h++) {
            R total = own.total[i][h];
            total += __shfl_xor_sync(0xffffffff, total, 1);
            total += __shfl_xor_sync(0xffffffff, total, 2);
            factor[i][h] = total == 0 ? (R)0 : 1 / total;
            const int row = i * 16 + h * 8 + lane / 4;
            if (lane % 4 == 0 && row < count)
                lse[row] = total == 0 ? (R)INFINITY : (own.largest[i][h] + base::logarithm(total)) / base::unit;
        }
    }
}

template <typename T, int WIDTH, int TALL, int OTHERS, int WARPS>
__device__ __forceinline__ void attend(const ah_attention_args &a, T *shared)
{
    typedef ah_real<T> R;
    constexpr int ROWS = WARPS * TALL * 16, THREADS = WARPS * 32, PITCH = ah_pitch<T, WIDTH>, TILE = OTHERS * PITCH;
    const int own_row = threadIdx.x / 32 * TALL * 16;
    T *own = shared, *tiles = shared + ROWS * PITCH, *mine = own + own_row * PITCH;
    ah_copies copies;
    for (int64_t index = blockIdx.x; index < a.units; index += gridDim.x) {
        ah_attention_unit unit;
        if (!ah_attention_unit_at(&unit, a, index, false, ROWS))
            continue;
        const int first = unit.block * ROWS;
        int begin, end;
        ah_attention_range(&begin, &end, first + unit.diagonal, ROWS, a.left, a.right, unit.keys, OTHERS);
        const auto bring = [&](int key, T *to) {
            ah_attention_bring_both<T, WIDTH, OTHERS, THREADS>(copies, to, a.key, a.value, unit, unit.key, key,
                                                               unit.keys, unit.head / a.group);
        };
        R out[TALL][WIDTH / 8][4];
        sums<R, TALL> own_sums;
        ah_tile_clear(out);
        own_sums.clear();
        __syncthreads(); /* the unit before is done with shared memory */
        ah_attention_bring<T, WIDTH, ROWS, THREADS>(copies, own, a.query, unit, unit.query, first, unit.queries,
                                                    unit.head);
        if (begin < end)
            bring(begin, tiles);
        copies.commit();
        T *now = tiles, *next = tiles + 2 * TILE;
        for (int key = begin; key < end; key += OTHERS) {
            copies.wait<0>();
            __syncthreads(); /* the tile is here; nobody reads the other one any more */
            if (key + OTHERS < end)
                bring(key + OTHERS, next);
            copies.commit();
            R s[TALL][OTHERS / 8][4];
            const ah_attention_place<false> place = {first + own_row, key};
            ah_tile<T>::template score<WIDTH>(s, mine, now);
            ah_attention_see<T>(s, a, unit, unit.head, place);
            weigh<T>(s, own_sums, out);
            if (a.keep)
                ah_attention_drop(s, a, unit, unit.head, place);
            ah_tile<T>::template add<WIDTH>(out, s, now + TILE);
            ah_swap(now, next);
        }
        copies.wait<0>();
        __syncthreads(); /* what was brought has come before results take its place */
        const int count = unit.queries - first - own_row;
        R factor[TALL][2];
        finish<T>(factor, own_sums, ah_at<R>(a.lse) + unit.head * a.rows + unit.row + first + own_row, count);
        ah_tile_take<T, WIDTH>(out, factor, mine,
                               ah_attention_row<T>(a.out, unit, unit.query + first + own_row, unit.head), a.out.token,
                               count, a.out.width, a.out.wide);
    }
}

#define FORWARD(dtype, type, width, tall, others, warps)                                    \
    AH_KERNEL_LARGE(attention_##dtype##_##width, ah_attention_args, warps * 32)                   \
    {                                                                                       \
        AH_SHARED_DYNAMIC(ah_pack<type>, shared);                                           \
        attend<type, width, tall, others, warps>(a, reinterpret_cast<type *>(shared));      \
    }
AH_ATTENTION_FORWARD(FORWARD)

/* Words of dropout, each from a stream of its own: bit i by the i-th number. */
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

/* What dropout multiplied weights with, one number after another. */
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

#define KEEP(suffix, type)                                                                       \
    AH_KERNEL(attention_keep_##suffix, ah_attention_keep_args, AH_ATTENTION_KEEP_THREADS)        \
    {                                                                                            \
        keep<type>(a);                                                                           \
    }
AH_FOR_REALS(KEEP)
