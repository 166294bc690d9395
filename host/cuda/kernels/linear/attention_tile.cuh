/* Products of a warp for attention: 16 TALL own rows against rows of a tile, all in shared memory, with the results in
 * registers where ah_mma has them (matrix.cuh): s[i][n][e] is of row 16 i + e / 2 * 8 + lane / 4 and column 8 n + lane
 * % 4 * 2 + e % 2. Halves are multiplied on tensor cores, float and double by their lanes,
 * which then have one `TALL` only. */
#pragma once

#include "cuda/kernels/lib/matrix.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/linear/attention.h"

/* From one row in shared memory to the next. */
template <typename T, int WIDTH> constexpr int ah_pitch = WIDTH + ah_pack<T>::count;

/* A warp's copy of an X in shared memory, so that it occupies no registers: in the 16 bytes after the width of each row
 * from `rows` on. */
template <typename T, int WIDTH, typename X> struct ah_tile_parked {
    static constexpr int COUNT = sizeof(X) / 16;
    static_assert(sizeof(X) % 16 == 0 && COUNT <= 16, "a row has 16 bytes");
    T *at;

    __device__ __forceinline__ explicit ah_tile_parked(T *rows) : at(rows + WIDTH)
    {
    }
    /* Called by whole warps; readable after the next barrier. */
    __device__ __forceinline__ void store(const X &x) const
    {
        ah_pack<T> packs[COUNT];
        memcpy(packs, &x, sizeof x);
        if (threadIdx.x % 32 != 0)
            return;
        AH_UNROLL
        for (int i = 0; i < COUNT; i++)
            ah_store16(at + i * ah_pitch<T, WIDTH>, packs[i]);
    }
    __device__ __forceinline__ operator X() const
    {
        ah_pack<T> packs[COUNT];
        AH_UNROLL
        for (int i = 0; i < COUNT; i++)
            packs[i] = ah_load16(at + i * ah_pitch<T, WIDTH>);
        X x;
        memcpy(&x, packs, sizeof x);
        return x;
    }
};

template <typename R, int TALL, int COLUMNS> __device__ __forceinline__ void ah_tile_clear(R (&s)[TALL][COLUMNS][4])
{
    AH_UNROLL
    for (int i = 0; i < TALL; i++)
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n++)
            AH_UNROLL
            for (int e = 0; e < 4; e++)
                s[i][n][e] = 0;
}

/* A warp's own rows as the left side of products, read from shared memory for each, or HELD in registers. load() is
 * called after the rows have been copied there. Of fp16 and bf16 first. */
template <typename T, int WIDTH, int TALL, bool HELD> struct ah_tile_own {
    static constexpr int PITCH = ah_pitch<T, WIDTH>;
    const T *at;

    __device__ __forceinline__ ah_tile_own(const T *own)
    {
        const int lane = threadIdx.x % 32;
        at = own + (lane % 8 + lane / 8 % 2 * 8) * PITCH + lane / 16 * 8;
    }
    __device__ __forceinline__ void load()
    {
    }
    __device__ __forceinline__ void part(uint32_t (&a)[TALL][4], int k) const
    {
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            ah_load_matrices(a[i], at + i * 16 * PITCH + k * 16);
    }
};
template <typename T, int WIDTH, int TALL>
struct ah_tile_own<T, WIDTH, TALL, true> : ah_tile_own<T, WIDTH, TALL, false> {
    uint32_t held[WIDTH / 16][TALL][4];

    __device__ __forceinline__ ah_tile_own(const T *own) : ah_tile_own<T, WIDTH, TALL, false>(own)
    {
    }
    __device__ __forceinline__ void load()
    {
        AH_UNROLL
        for (int k = 0; k < WIDTH / 16; k++)
            ah_tile_own<T, WIDTH, TALL, false>::part(held[k], k);
    }
    __device__ __forceinline__ void part(uint32_t (&a)[TALL][4], int k) const
    {
        AH_UNROLL
        for (int i = 0; i < 4 * TALL; i++)
            a[i / 4][i % 4] = held[k][i / 4][i % 4];
    }
};
/* float and double. */
template <typename T, int WIDTH> struct ah_tile_own_by_lanes {
    const T *at;
    __device__ __forceinline__ ah_tile_own_by_lanes(const T *own) : at(own + threadIdx.x % 32 / 4 * ah_pitch<T, WIDTH>)
    {
    }
    __device__ __forceinline__ void load()
    {
    }
};
template <int WIDTH, int TALL> struct ah_tile_own<float, WIDTH, TALL, false> : ah_tile_own_by_lanes<float, WIDTH> {
    using ah_tile_own_by_lanes<float, WIDTH>::ah_tile_own_by_lanes;
};
template <int WIDTH, int TALL> struct ah_tile_own<double, WIDTH, TALL, false> : ah_tile_own_by_lanes<double, WIDTH> {
    using ah_tile_own_by_lanes<double, WIDTH>::ah_tile_own_by_lanes;
};

/* Products of the type T; halves first. */
template <typename T> struct ah_tile {
    /* s = own other^T */
    template <int WIDTH, int TALL, int COLUMNS, bool HELD>
    static __device__ __forceinline__ void score(float (&s)[TALL][COLUMNS][4],
                                                 const ah_tile_own<T, WIDTH, TALL, HELD> &own, const T *other)
    {
        constexpr int PITCH = ah_pitch<T, WIDTH>;
        const int lane = threadIdx.x % 32;
        other += (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8;
        ah_tile_clear(s);
        AH_UNROLL
        for (int k = 0; k < WIDTH / 16; k++) {
            uint32_t a[TALL][4];
            own.part(a, k);
            AH_UNROLL
            for (int n = 0; n < COLUMNS; n += 2) {
                uint32_t b[4];
                ah_load_matrices(b, other + n * 8 * PITCH + k * 16);
                AH_UNROLL
                for (int i = 0; i < TALL; i++) {
                    ah_mma<T>(s[i][n], a[i], b[0], b[1]);
                    ah_mma<T>(s[i][n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }

    /* sum += p other, p rounded to T */
    template <int WIDTH, int TALL, int COLUMNS>
    static __device__ __forceinline__ void add(float (&sum)[TALL][WIDTH / 8][4], const float (&p)[TALL][COLUMNS][4],
                                               const T *other)
    {
        constexpr int PITCH = ah_pitch<T, WIDTH>;
        const int lane = threadIdx.x % 32;
        other += lane % 16 * PITCH + lane / 16 * 8;
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n += 2) {
            uint32_t a[TALL][4];
            AH_UNROLL
            for (int i = 0; i < TALL; i++)
                AH_UNROLL
                for (int e = 0; e < 4; e++)
                    a[i][e] = ah_pair<T>(p[i][n + e / 2][e % 2 * 2], p[i][n + e / 2][e % 2 * 2 + 1]);
            AH_UNROLL
            for (int d = 0; d < WIDTH; d += 16) {
                uint32_t b[4];
                ah_load_matrices_turned(b, other + n * 8 * PITCH + d);
                AH_UNROLL
                for (int i = 0; i < TALL; i++) {
                    ah_mma<T>(sum[i][d / 8], a[i], b[0], b[1]);
                    ah_mma<T>(sum[i][d / 8 + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
};

template <typename T> struct alignas(2 * sizeof(T)) ah_two {
    T at[2];
};

/* float and double. */
template <typename T> struct ah_tile_by_lanes {
    template <int WIDTH, int TALL, int COLUMNS>
    static __device__ __forceinline__ void score(T (&s)[TALL][COLUMNS][4],
                                                 const ah_tile_own<T, WIDTH, TALL, false> &own, const T *other)
    {
        static_assert(TALL == 1, "lanes have two rows");
        constexpr int PITCH = ah_pitch<T, WIDTH>, N = ah_pack<T>::count;
        other += threadIdx.x % 4 * 2 * PITCH;
        ah_tile_clear(s);
        AH_UNROLL_BY(2)
        for (int k = 0; k < WIDTH; k += N) {
            const ah_pack<T> a[2] = {ah_load16(own.at + k), ah_load16(own.at + 8 * PITCH + k)};
            AH_UNROLL
            for (int n = 0; n < COLUMNS; n++) {
                const T *at = other + n * 8 * PITCH + k;
                const ah_pack<T> b[2] = {ah_load16(at), ah_load16(at + PITCH)};
                AH_UNROLL
                for (int e = 0; e < 4; e++)
                    AH_UNROLL
                    for (int j = 0; j < N; j++)
                        s[0][n][e] = ah_fma(a[e / 2].at[j], b[e % 2].at[j], s[0][n][e]);
            }
        }
    }

    template <int WIDTH, int TALL, int COLUMNS>
    static __device__ __forceinline__ void add(T (&sum)[TALL][WIDTH / 8][4], const T (&p)[TALL][COLUMNS][4],
                                               const T *other)
    {
        constexpr int PITCH = ah_pitch<T, WIDTH>;
        const int lane = threadIdx.x % 32;
        other += lane % 4 * 2;
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n++) {
            AH_UNROLL
            for (int j = 0; j < 8; j++) {
                const int from = lane / 4 * 4 + j / 2;
                const T upper = __shfl_sync(0xffffffff, p[0][n][j % 2], from);
                const T lower = __shfl_sync(0xffffffff, p[0][n][2 + j % 2], from);
                AH_UNROLL
                for (int d = 0; d < WIDTH / 8; d++) {
                    const ah_two<T> v = *reinterpret_cast<const ah_two<T> *>(other + (n * 8 + j) * PITCH + d * 8);
                    AH_UNROLL
                    for (int e = 0; e < 4; e++)
                        sum[0][d][e] = ah_fma(e < 2 ? upper : lower, v.at[e % 2], sum[0][d][e]);
                }
            }
        }
    }
};
template <> struct ah_tile<float> : ah_tile_by_lanes<float> {
};
template <> struct ah_tile<double> : ah_tile_by_lanes<double> {
};

/* Copies tiles of ROWS rows to shared memory: a thread its part of a row, and the same part of every APART-th row after
 * it. Zeros are stored past the last of `count` rows and past the width. Lengths are read from the arguments at each
 * tile, so that they occupy no registers between tiles. */
template <typename T, int WIDTH, int ROWS, int THREADS> struct ah_tile_loader {
    static constexpr int N = ah_pack<T>::count, PER_ROW = WIDTH / N, APART = THREADS / PER_ROW;
    static_assert(THREADS % PER_ROW == 0 && ROWS % APART == 0, "threads have as many parts each");
    const ah_attention_rows &rows;
    const T *from; /* the thread's part of row 0 */

    __device__ __forceinline__ ah_tile_loader(const ah_attention_rows &given, const T *row)
        : rows(given), from(row + threadIdx.x % PER_ROW * N)
    {
    }
    __device__ __forceinline__ void load(ah_copies &copies, T *to, int first, int there) const
    {
        const int row = first + threadIdx.x / PER_ROW, width = rows.width - (int)threadIdx.x % PER_ROW * N;
        const int count = width > 0 ? there : 0;
        to += threadIdx.x / PER_ROW * ah_pitch<T, WIDTH> + threadIdx.x % PER_ROW * N;
        if (rows.wide) {
            AH_UNROLL
            for (int i = 0; i < ROWS / APART; i++)
                copies.copy16(to + i * APART * ah_pitch<T, WIDTH>, at(row + i * APART), row + i * APART < count);
        } else {
            AH_ROLLED
            for (int i = 0; i < ROWS / APART; i++)
                AH_UNROLL
                for (int j = 0; j < N; j++)
                    to[i * APART * ah_pitch<T, WIDTH> + j] =
                        row + i * APART < count && j < width ? at(row + i * APART)[j] : ah_put<T>(0);
        }
    }
    __device__ __forceinline__ const T *at(int row) const
    {
        const uint32_t step = (uint32_t)rows.token * (uint32_t)sizeof(T); /* bytes from row to row */
        return reinterpret_cast<const T *>(reinterpret_cast<const char *>(from) + (uint64_t)(uint32_t)row * step);
    }
};

/* Store a warp's results, times a factor for each row, by way of its rows in shared memory. */
template <typename T, int WIDTH, int TALL>
__device__ __forceinline__ void ah_tile_store(const ah_real<T> (&sum)[TALL][WIDTH / 8][4],
                                              const ah_real<T> (&factor)[TALL][2], T *own, T *to, int64_t step,
                                              int count, int width, bool wide)
{
    constexpr int N = ah_pack<T>::count, PER_ROW = WIDTH / N, PITCH = ah_pitch<T, WIDTH>;
    const int lane = threadIdx.x % 32;
    __syncwarp();
    AH_UNROLL
    for (int i = 0; i < TALL; i++)
        AH_UNROLL
        for (int d = 0; d < WIDTH / 8; d++)
            AH_UNROLL
            for (int e = 0; e < 4; e++)
                own[(i * 16 + e / 2 * 8 + lane / 4) * PITCH + d * 8 + lane % 4 * 2 + e % 2] =
                    ah_put<T>(sum[i][d][e] * factor[i][e / 2]);
    __syncwarp();
    for (int at = lane; at < TALL * 16 * PER_ROW; at += 32) {
        const int row = at / PER_ROW, column = at % PER_ROW * N;
        const T *from = own + row * PITCH + column;
        if (row >= count || column >= width)
            continue;
        if (wide) {
            ah_store16(to + row * step + column, ah_load16(from));
        } else {
            for (int j = 0; j < N && column + j < width; j++)
                to[row * step + column + j] = from[j];
        }
    }
}
