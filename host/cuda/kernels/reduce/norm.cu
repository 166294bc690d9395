/* Layer norm and RMS norm by rows: the mean first, then the squares about it, so that nothing cancels; a row is read
 * again out of a cache. The gradients of weight and bias are summed over chunks of rows, then over the chunks, in their
 * order. */
#include "cuda/kernels/lib/elementwise.cuh"
#include "cuda/kernels/lib/rows.cuh"
#include "cuda/kernels/reduce/norm.h"

/* A pack of fp16 or bf16 and one of floats, from element i on. */
template <typename H, int N>
__device__ __forceinline__ void get_halves(float (&v)[N], uint64_t from, int64_t i, bool full, int64_t left)
{
    const H *p = ah_at<const H>(from) + i;
    if (full) {
        ah_read_run<H, float, N>(p, v);
    } else {
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (j < left)
                v[j] = to_float(p[j]);
    }
}

template <typename H, int N>
__device__ __forceinline__ void put_halves(uint64_t to, int64_t i, const float (&v)[N], bool full, int64_t left)
{
    H *p = ah_at<H>(to) + i;
    if (full) {
        ah_write_run<H, float, N>(p, v);
    } else {
        AH_UNROLL
        for (int j = 0; j < N; j++)
            if (j < left)
                p[j] = from_float<H>(v[j]);
    }
}

/* A pack of a tensor of dtype `kind`, where others are of T. */
template <typename T, int N>
__device__ __forceinline__ void get_kind(ah_real<T> (&v)[N], uint64_t from, int kind, int64_t i, bool full,
                                         int64_t left)
{
    if constexpr (sizeof(T) == sizeof(float)) {
        if (kind == AH_NORM_F16)
            return get_halves<half_t>(v, from, i, full, left);
        if (kind == AH_NORM_BF16)
            return get_halves<bf16_t>(v, from, i, full, left);
    }
    ah_get_pack(v, ah_at<const T>(from) + i, full, left);
}

template <typename T, int N>
__device__ __forceinline__ void put_kind(uint64_t to, int kind, int64_t i, const ah_real<T> (&v)[N], bool full,
                                         int64_t left)
{
    if constexpr (sizeof(T) == sizeof(float)) {
        if (kind == AH_NORM_F16)
            return put_halves<half_t>(to, i, v, full, left);
        if (kind == AH_NORM_BF16)
            return put_halves<bf16_t>(to, i, v, full, left);
    }
    ah_put_pack(ah_at<T>(to) + i, v, full, left);
}

/* The row x about its mean m. */
template <typename T, typename ROWS>
__device__ __forceinline__ void norm_row(const ah_norm_rows_args &a, ROWS rows, int64_t row, const T *x, ah_real<T> m)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    const T *weight = ah_at<const T>(a.weight), *bias = ah_at<const T>(a.bias);
    R squares = 0;
    ah_each_pack<T, ROWS>(a.width, a.wide, [&](int64_t i, int64_t left, bool full) {
        R v[N] = {0};
        ah_get_pack(v, x + i, full, left);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            squares += j < left ? (v[j] - m) * (v[j] - m) : (R)0;
    });
    const R inverse = 1 / ah_sqrt(rows.fold(squares, ah_add()) / (R)a.width + (R)a.eps);
    if (ROWS::lane() == 0) {
        if (a.mean)
            ah_at<R>(a.mean)[row] = m;
        ah_at<R>(a.inverse)[row] = inverse;
    }
    ah_each_pack<T, ROWS>(a.width, a.wide, [&](int64_t i, int64_t left, bool full) {
        R v[N] = {0}, w[N], b[N] = {0};
        AH_UNROLL
        for (int j = 0; j < N; j++)
            w[j] = 1;
        ah_get_pack(v, x + i, full, left);
        if (weight)
            ah_get_pack(w, weight + i, full, left);
        if (bias)
            ah_get_pack(b, bias + i, full, left);
        AH_UNROLL
        for (int j = 0; j < N; j++)
            v[j] = (v[j] - m) * inverse * w[j] + b[j];
        put_kind<T>(a.y, a.y_kind, row * a.width + i, v, full, left);
    });
}

template <typename T, typename ROWS> __device__ __forceinline__ void norm(const ah_norm_rows_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    for (int64_t row = ROWS::first(); row < a.rows; row += ROWS::step()) {
        const T *x = ah_at<const T>(a.x) + row * a.width;
        R m = 0;
        if (a.mean) {
            R sum = 0;
            ah_each_pack<T, ROWS>(a.width, a.wide, [&](int64_t i, int64_t left, bool full) {
                R v[N] = {0};
                ah_get_pack(v, x + i, full, left);
                AH_UNROLL
                for (int j = 0; j < N; j++)
                    sum += v[j];
            });
            m = rows.fold(sum, ah_add()) / (R)a.width;
        }
        norm_row(a, rows, row, x, m);
    }
}

/* A thread reads only its own elements of the sum, so there is no synchronisation. */
template <typename T, typename ROWS> __device__ __forceinline__ void add_norm(const ah_add_norm_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    const int64_t width = a.norm.width;
    for (int64_t row = ROWS::first(); row < a.norm.rows; row += ROWS::step()) {
        const int64_t first = row * width;
        const T *x = ah_at<const T>(a.norm.x) + first;
        T *to = ah_at<T>(a.sum) + first;
        R sum = 0;
        ah_each_pack<T, ROWS>(width, a.norm.wide, [&](int64_t i, int64_t left, bool full) {
            R v[N] = {0}, u[N] = {0};
            ah_get_pack(v, x + i, full, left);
            get_kind<T>(u, a.other, a.kind, first + i, full, left);
            AH_UNROLL
            for (int j = 0; j < N; j++) {
                v[j] = ah_get(ah_put<T>(v[j] + u[j])); /* as it is stored */
                sum += v[j];
            }
            ah_put_pack(to + i, v, full, left);
        });
        norm_row<T>(a.norm, rows, row, to, rows.fold(sum, ah_add()) / (R)width);
    }
}

/* gx = inverse (gw - mean(gw) - n mean(gw n)), n = (x - m) inverse, gw = g w; RMS norm has m = 0 and no mean(gw). */
template <typename T, typename ROWS>
__device__ __forceinline__ void norm_backward(const ah_norm_backward_args &a, ROWS rows)
{
    typedef ah_real<T> R;
    constexpr int N = ah_pack<T>::count;
    const R width = (R)a.width;
    const T *weight = ah_at<const T>(a.weight);
    for (int64_t row = ROWS::first(); row < a.rows; row += ROWS::step()) {
        const T *x = ah_at<const T>(a.x) + row * a.width;
        T *gx = ah_at<T>(a.gx) + row * a.width;
        const R m = a.mean ? ah_at<const R>(a.mean)[row] : (R)0, inverse = ah_at<const R>(a.inverse)[row];
        const auto read = [&](R (&u)[N], R (&v)[N], int64_t i, int64_t left, bool full) {
            R w[N] = {0};
            get_kind<T>(u, a.g, a.g_kind, row * a.width + i, full, left);
            ah_get_pack(v, x + i, full, left);
            if (weight) {
                ah_get_pack(w, weight + i, full, left);
                AH_UNROLL
                for (int j = 0; j < N; j++)
                    u[j] = j < left ? u[j] * w[j] : (R)0;
            }
            AH_UNROLL
            for (int j = 0; j < N; j++)
                v[j] = (v[j] - m) * inverse;
        };
        R sum = 0, along = 0;
        ah_each_pack<T, ROWS>(a.width, a.wide, [&](int64_t i, int64_t left, bool full) {
            R u[N] = {0}, v[N] = {0};
            read(u, v, i, left, full);
            AH_UNROLL
            for (int j = 0; j < N; j++) {
                sum += u[j];
                along += j < left ? u[j] * v[j] : (R)0;
            }
        });
        sum = a.mean ? rows.fold(sum, ah_add()) / width : (R)0;
        along = rows.fold(along, ah_add()) / width;
        ah_each_pack<T, ROWS>(a.width, a.wide, [&](int64_t i, int64_t left, bool full) {
            R u[N] = {0}, v[N] = {0};
            read(u, v, i, left, full);
            AH_UNROLL
            for (int j = 0; j < N; j++)
                u[j] = inverse * (u[j] - sum - v[j] * along);
            if (a.more) {
                ah_get_pack(v, ah_at<const T>(a.more) + row * a.width + i, full, left);
                AH_UNROLL
                for (int j = 0; j < N; j++)
                    u[j] += v[j];
            }
            ah_put_pack(gx + i, u, full, left);
            if (a.also)
                put_kind<T>(a.also, a.also_kind, row * a.width + i, u, full, left);
        });
    }
}

/* One column of a chunk of rows a thread; gradients are of type G. */
template <typename T, typename G> __device__ __forceinline__ void norm_affine_of(const ah_norm_affine_args &a)
{
    typedef ah_real<T> R;
    const int64_t strips = (a.width + AH_ROW_THREADS - 1) / AH_ROW_THREADS, count = strips * a.chunks;
    for (int64_t at = blockIdx.x; at < count; at += gridDim.x) {
        const int64_t chunk = at / strips, column = at % strips * AH_ROW_THREADS + threadIdx.x;
        if (column >= a.width)
            continue;
        const int64_t end = (chunk + 1) * AH_NORM_CHUNK < a.rows ? (chunk + 1) * AH_NORM_CHUNK : a.rows;
        R weight = 0, bias = 0;
        for (int64_t row = chunk * AH_NORM_CHUNK; row < end; row++) {
            const R g = ah_get(ah_at<const G>(a.g)[row * a.width + column]);
            const R m = a.mean ? ah_at<const R>(a.mean)[row] : (R)0;
            weight += g * ((ah_get(ah_at<const T>(a.x)[row * a.width + column]) - m) *
                           ah_at<const R>(a.inverse)[row]);
            bias += g;
        }
        ah_at<R>(a.weight_parts)[chunk * a.width + column] = weight;
        if (a.bias_parts)
            ah_at<R>(a.bias_parts)[chunk * a.width + column] = bias;
    }
}

template <typename T> __device__ __forceinline__ void norm_affine(const ah_norm_affine_args &a)
{
    if constexpr (sizeof(T) == sizeof(float)) {
        if (a.g_kind == AH_NORM_F16)
            return norm_affine_of<T, half_t>(a);
        if (a.g_kind == AH_NORM_BF16)
            return norm_affine_of<T, bf16_t>(a);
    }
    norm_affine_of<T, T>(a);
}

/* A strip of columns a block: its warps process the chunks in turn, then the first one adds their sums. */
template <typename T>
__device__ __forceinline__ void column_total(const ah_column_total_args &a, ah_real<T> (*shared)[AH_NORM_COLUMNS])
{
    typedef ah_real<T> R;
    constexpr int WARPS = AH_ROW_THREADS / 32;
    const int x = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t first = (int64_t)blockIdx.x * 32; first < a.width; first += (int64_t)gridDim.x * 32) {
        const int64_t column = first + x;
        R sum = 0;
        if (column < a.width)
            for (int64_t chunk = warp; chunk < a.chunks; chunk += WARPS)
                sum += ah_at<const R>(a.parts)[chunk * a.width + column];
        __syncthreads();
        shared[warp][x] = sum;
        __syncthreads();
        if (warp == 0 && column < a.width) {
            for (int i = 1; i < WARPS; i++)
                sum += shared[i][x];
            ah_at<T>(a.total)[column] = ah_put<T>(sum);
        }
    }
}

#define NORM(suffix, type)                                                                     \
    AH_ROW_KERNEL(norm, ah_norm_rows_args, norm, suffix, type)                                 \
    AH_ROW_KERNEL(add_norm, ah_add_norm_args, add_norm, suffix, type)                          \
    AH_ROW_KERNEL(norm_backward, ah_norm_backward_args, norm_backward, suffix, type)           \
    AH_KERNEL_OF(norm_affine_##suffix, ah_norm_affine_args, AH_ROW_THREADS, norm_affine<type>) \
    AH_KERNEL(column_total_##suffix, ah_column_total_args, AH_ROW_THREADS)                     \
    {                                                                                          \
        typedef ah_real<type> strip[AH_NORM_COLUMNS];                                          \
        AH_SHARED_ARRAY(strip, shared, AH_ROW_THREADS / 32);                                   \
        column_total<type>(a, shared);                                                         \
    }
AH_FOR_REALS(NORM)
