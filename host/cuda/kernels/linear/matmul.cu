/* Numbers that show the order in which a product adds up: the second half of the depth mirrors the first, in one of the
 * operands with the other sign, so that every sum is 0 but for rounding errors, in every bit of the result. (If it
 * repeated the first half, a product split in two would have exact zeros, whatever the order in its parts.) */
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/linear/matmul.h"

/* A number of 52 random bits in -256..-1 or 1..256 (splitmix64). */
static __device__ __forceinline__ double mixed(int64_t place)
{
    uint64_t x = ((uint64_t)place + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    const double size = (1 + (double)(x >> 12) / 4503599627370496.0) * (double)(1 << (x & 7));
    return x & 8 ? -size : size;
}

template <typename T> __device__ __forceinline__ void matmul_fill(const ah_matmul_fill_args &a)
{
    const int64_t depth = a.along ? a.line : a.lines, half = depth / 2;
    const int64_t matrix = a.lines * a.line, count = a.batch * matrix, step = (int64_t)gridDim.x * blockDim.x;
    T *to = ah_at<T>(a.to);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const int64_t first = i / matrix * a.stride, l = i % matrix / a.line, m = i % a.line;
        const int64_t k = a.along ? m : l;
        const bool mirrors = k >= half;
        const int64_t as = mirrors ? depth - 1 - k : k;
        const double x = mixed(first + (a.along ? l * a.ld + as : as * a.ld + m));
        const double value = mirrors && k == as ? 0 : mirrors && a.negates ? -x : x;
        to[first + l * a.ld + m] = ah_put<T>((ah_real<T>)value);
    }
}

#define FILL(suffix, type) \
    AH_KERNEL_OF(matmul_fill_##suffix, ah_matmul_fill_args, AH_MATMUL_THREADS, matmul_fill<type>)
AH_FOR_REALS(FILL)

AH_KERNEL(matmul_compare, ah_matmul_compare_args, AH_MATMUL_THREADS)
{
    const uint64_t *x = ah_at<const uint64_t>(a.a), *y = ah_at<const uint64_t>(a.b);
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint64_t differs = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += step) {
        const ah_pack<uint64_t> one = ah_load16(x + 2 * i), other = ah_load16(y + 2 * i);
        differs |= (one.at[0] ^ other.at[0]) | (one.at[1] ^ other.at[1]);
    }
    if (differs)
        atomicOr(ah_at<unsigned>(a.differ), 1u);
}

/* A block computes a tile of the result, a thread every AH_INTEGER_ROWS-th row of one column: it reads tiles of both
 * operands into shared memory. Sums wrap around, as the CPU's do, so they are made without a sign. */
template <typename T, typename U>
__device__ __forceinline__ void matmul_integer(const ah_matmul_integer_args &a, U (*left)[AH_INTEGER_TILE + 1],
                                               U (*right)[AH_INTEGER_TILE + 1])
{
    constexpr int TILE = AH_INTEGER_TILE, ROWS = AH_INTEGER_ROWS, EACH = TILE / ROWS;
    const int x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    const int64_t tiles = a.row_tiles * a.column_tiles;
    for (int64_t tile = blockIdx.x; tile < a.batch * tiles; tile += gridDim.x) {
        const int64_t matrix = tile / tiles, row = tile % tiles / a.column_tiles * TILE;
        const int64_t column = tile % tiles % a.column_tiles * TILE;
        const T *from = ah_at<const T>(a.a) + matrix * a.a_step[0], *by = ah_at<const T>(a.b) + matrix * a.b_step[0];
        U sum[EACH] = {};
        for (int64_t k = 0; k < a.depth; k += TILE) {
            for (int i = y; i < TILE; i += ROWS) {
                const bool within = row + i < a.rows && k + x < a.depth;
                left[i][x] = within ? (U)from[(row + i) * a.a_step[1] + (k + x) * a.a_step[2]] : (U)0;
                const bool inside = k + i < a.depth && column + x < a.columns;
                right[i][x] = inside ? (U)by[(k + i) * a.b_step[1] + (column + x) * a.b_step[2]] : (U)0;
            }
            __syncthreads();
            for (int i = 0; i < TILE; i++) {
                AH_UNROLL
                for (int j = 0; j < EACH; j++)
                    sum[j] += left[y + j * ROWS][i] * right[i][x];
            }
            __syncthreads();
        }
        AH_UNROLL
        for (int j = 0; j < EACH; j++) {
            const int64_t at = row + y + j * ROWS;
            if (at < a.rows && column + x < a.columns)
                ah_at<T>(a.out)[(matrix * a.rows + at) * a.columns + column + x] = (T)sum[j];
        }
    }
}

#define INTEGER(suffix, type, unsigned_type)                                                              \
    AH_KERNEL(matmul_##suffix, ah_matmul_integer_args, AH_INTEGER_TILE * AH_INTEGER_ROWS)                 \
    {                                                                                                     \
        typedef unsigned_type matmul_row[AH_INTEGER_TILE + 1];                                            \
        AH_SHARED_ARRAY(matmul_row, left, AH_INTEGER_TILE);                                               \
        AH_SHARED_ARRAY(matmul_row, right, AH_INTEGER_TILE);                                              \
        matmul_integer<type, unsigned_type>(a, left, right);                                              \
    }
INTEGER(u8, uint8_t, uint32_t)
INTEGER(i32, int32_t, uint32_t)
INTEGER(i64, int64_t, uint64_t)
