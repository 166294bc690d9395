/* Attention backward, what queries get: their weights are computed again from the logarithms of the sums, tile by tile
 * of keys. With weights P, dropped ones D P, and delta the sum of output times gradient of each query, the gradient of
 * the scores is P (D (g v^T) - delta). */
#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/block.cuh"

/* delta, by a warp for each row. */
template <typename T> __device__ __forceinline__ void delta(const ah_attention_args &a)
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

#define DELTA(suffix, type)                                                            \
    AH_KERNEL(attention_delta_##suffix, ah_attention_args, AH_ATTENTION_DELTA_THREADS) \
    {                                                                                  \
        delta<type>(a);                                                                \
    }
AH_FOR_REALS(DELTA)

/* Of a warp's queries: the logarithms of the sums, in the base's unit, and the deltas. */
template <typename T, int TALL> struct known {
    typedef ah_real<T> R;
    typedef ah_attention_base<T> base;
    R lse[TALL][2], delta[TALL][2];
    __device__ __forceinline__ known(const ah_attention_args &a, const ah_attention_unit &unit, int first)
    {
        AH_UNROLL
        for (int i = 0; i < TALL; i++) {
            AH_UNROLL
            for (int h = 0; h < 2; h++) {
                const int query = first + i * 16 + h * 8 + threadIdx.x % 32 / 4;
                const bool there = query < unit.queries;
                const int64_t at = unit.head * a.rows + unit.row + (there ? query : 0);
                lse[i][h] = there ? ah_at<const R>(a.lse)[at] * base::unit : (R)INFINITY;
                delta[i][h] = there ? ah_at<const R>(a.delta)[at] : (R)0;
            }
        }
    }
    /* Gradients of weights become those of scores. */
    template <int STEP>
    __device__ __forceinline__ void descend(R (&step)[TALL][STEP][4], const R (&s)[TALL][STEP][4], R scale) const
    {
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int n = 0; n < STEP; n++)
                AH_UNROLL
                for (int e = 0; e < 4; e++)
                    step[i][n][e] = base::power(s[i][n][e] - lse[i][e / 2]) * (step[i][n][e] - delta[i][e / 2]) * scale;
    }
};

template <typename T, int WIDTH, int TALL, int OTHERS, int WARPS, int STEP>
__device__ __forceinline__ void attend_back(const ah_attention_args &a, T *shared)
{
    typedef ah_real<T> R;
    constexpr int ROWS = WARPS * TALL * 16, THREADS = WARPS * 32, PITCH = ah_pitch<T, WIDTH>, TILE = OTHERS * PITCH;
    const int own_row = threadIdx.x / 32 * TALL * 16;
    T *queries = shared, *grads = queries + ROWS * PITCH, *tiles = grads + ROWS * PITCH;
    T *my_queries = queries + own_row * PITCH, *my_grads = grads + own_row * PITCH;
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
        R sum[TALL][WIDTH / 8][4];
        ah_tile_clear(sum);
        const known<T, TALL> own(a, unit, first + own_row);
        __syncthreads(); /* the unit before is done with shared memory */
        ah_attention_bring_both<T, WIDTH, ROWS, THREADS>(copies, queries, a.query, a.grad, unit, unit.query, first,
                                                         unit.queries, unit.head);
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
            for (int at = 0; at < OTHERS; at += 8 * STEP) {
                R s[TALL][STEP][4], step[TALL][STEP][4];
                const ah_attention_place<false> place = {first + own_row, key + at};
                ah_tile<T>::template score<WIDTH>(s, my_queries, now + at * PITCH);
                ah_tile<T>::template score<WIDTH>(step, my_grads, now + TILE + at * PITCH);
                ah_attention_see<T>(s, a, unit, unit.head, place);
                if (a.keep)
                    ah_attention_drop(step, a, unit, unit.head, place);
                own.descend(step, s, (R)a.scale);
                ah_tile<T>::template add<WIDTH>(sum, step, now + at * PITCH);
            }
            ah_swap(now, next);
        }
        copies.wait<0>();
        __syncthreads(); /* what was brought has come before results take its place */
        ah_attention_take<T, WIDTH, TALL>(sum, a.grad_query, unit, unit.query, first + own_row, unit.queries,
                                          my_queries);
    }
}

#define BACKWARD(dtype, type, width, tall, others, warps, step, apart)                                \
    AH_KERNEL_LARGE(attention_query_##dtype##_##width, ah_attention_args, warps * 32)                       \
    {                                                                                                 \
        AH_SHARED_DYNAMIC(ah_pack<type>, shared);                                                     \
        attend_back<type, width, tall, others, warps, step>(a, reinterpret_cast<type *>(shared));     \
    }
AH_ATTENTION_BACKWARD(BACKWARD)
