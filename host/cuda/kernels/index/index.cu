/* Picking and placing by index. */
#include "cuda/kernels/index/index.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/lib/wrap.cuh"

/* An index out of range results in zeros: it was refused before. */
template <typename T> __device__ __forceinline__ void pick(const ah_pick_args &a)
{
    const int64_t *at = ah_at<const int64_t>(a.at);
    const int64_t count = a.outer * a.count * a.width;
    for (int64_t i = ah_first_item(); i < count; i += ah_item_step()) {
        const int64_t row = i / a.width, column = i % a.width, k = row % a.count, outer = row / a.count;
        const int64_t from = at[k];
        ah_at<T>(a.to)[i] = from >= 0 && from < a.n ? ah_at<const T>(a.from)[(outer * a.n + from) * a.row + column]
                                                    : T();
    }
}

struct sixteen {
    uint4 bits;
};

#define PICK(suffix, type) AH_KERNEL_OF(pick_##suffix, ah_pick_args, AH_INDEX_THREADS, pick<type>)
PICK(1, uint8_t)
PICK(2, uint16_t)
PICK(4, uint32_t)
PICK(8, uint64_t)
PICK(16, sixteen)

AH_KERNEL(row_keys, ah_row_keys_args, AH_INDEX_THREADS)
{
    for (int64_t k = ah_first_item(); k < a.count; k += ah_item_step()) {
        const int64_t at = ah_at<const int64_t>(a.at)[k];
        ah_at<uint32_t>(a.keys)[k] = (uint32_t)(at < 0 || at >= a.n || at == a.skip ? a.n : at);
    }
}

/* Negative places count from the end. */
AH_KERNEL(index_wrap, ah_row_keys_args, AH_INDEX_THREADS)
{
    for (int64_t k = ah_first_item(); k < a.count; k += ah_item_step()) {
        const int64_t at = ah_at<const int64_t>(a.at)[k];
        ah_at<int64_t>(a.keys)[k] = at < 0 ? at + a.n : at;
    }
}

/* The types that elements are folded in: int64 for the whole numbers. */
struct bool_item {
    uint8_t byte;
};
template <typename T> struct sum_of {
    typedef ah_real<T> type;
};
template <> struct sum_of<bool_item> {
    typedef int64_t type;
};
template <> struct sum_of<uint8_t> {
    typedef int64_t type;
};
template <> struct sum_of<int32_t> {
    typedef int64_t type;
};
template <> struct sum_of<int64_t> {
    typedef int64_t type;
};
template <typename T> __device__ __forceinline__ typename sum_of<T>::type wide(T x)
{
    return ah_get(x);
}
template <> __device__ __forceinline__ int64_t wide<bool_item>(bool_item x)
{
    return x.byte;
}
template <> __device__ __forceinline__ int64_t wide<uint8_t>(uint8_t x)
{
    return x;
}
template <> __device__ __forceinline__ int64_t wide<int32_t>(int32_t x)
{
    return x;
}
template <> __device__ __forceinline__ int64_t wide<int64_t>(int64_t x)
{
    return x;
}
template <typename T> __device__ __forceinline__ T narrow(typename sum_of<T>::type x)
{
    return ah_put<T>(x);
}
template <> __device__ __forceinline__ bool_item narrow<bool_item>(int64_t x)
{
    return {(uint8_t)(x != 0)};
}
template <> __device__ __forceinline__ uint8_t narrow<uint8_t>(int64_t x)
{
    return (uint8_t)x;
}
template <> __device__ __forceinline__ int32_t narrow<int32_t>(int64_t x)
{
    return (int32_t)x;
}
template <> __device__ __forceinline__ int64_t narrow<int64_t>(int64_t x)
{
    return x;
}

template <typename S> __device__ __forceinline__ S folded(S held, S x, int fold)
{
    switch (fold) {
    case AH_INDEX_ADD:
        return ah_plus(held, x);
    case AH_INDEX_MULTIPLY:
        return ah_times(held, x);
    case AH_INDEX_LARGER:
        return x > held || x != x ? x : held;
    case AH_INDEX_SMALLER:
        return x < held || x != x ? x : held;
    default:
        return x;
    }
}

/* The first place behind `j` whose key is another one; `count` when there is none. */
static __device__ __forceinline__ int64_t run_end(const uint32_t *keys, int64_t j, int64_t count)
{
    int64_t low = j + 1, high = count;
    if (low >= count || keys[low] != keys[j])
        return low;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (keys[middle] == keys[j])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Is place j the first of its key? */
static __device__ __forceinline__ bool begins(const uint32_t *keys, int64_t j)
{
    return j == 0 || keys[j - 1] != keys[j];
}

/* A warp owns a destination row, of which it processes 32 columns at a time. */
template <typename T> __device__ __forceinline__ void rows_last(const ah_rows_fold_args &a)
{
    const uint32_t *keys = ah_at<const uint32_t>(a.keys), *order = ah_at<const uint32_t>(a.order);
    const int64_t strips = (a.inner + 31) / 32, items = a.outer * a.count * strips;
    for (int64_t item = ah_first_item() / 32; item < items; item += ah_item_step() / 32) {
        const int64_t j = item / strips % a.count, outer = item / strips / a.count;
        const int64_t column = item % strips * 32 + threadIdx.x % 32;
        if (keys[j] >= a.n || !begins(keys, j) || column >= a.inner)
            continue;
        const int64_t from = order[run_end(keys, j, a.count) - 1];
        ah_at<T>(a.to)[(outer * a.n + keys[j]) * a.inner + column] =
            ah_at<const T>(a.from)[(outer * a.count + from) * a.from_row + (a.from_row ? column : 0)];
    }
}

/* Fold x(i) for i of begin..end-1 in their order; AHEAD of them are on their way at once. */
template <int AHEAD, typename S, class X>
__device__ __forceinline__ S fold_up(S held, int64_t begin, int64_t end, int fold, const X &x)
{
    for (int64_t i = begin; i < end; i += AHEAD) {
        S next[AHEAD];
        AH_UNROLL
        for (int u = 0; u < AHEAD; u++)
            next[u] = i + u < end ? x(i + u) : (S)0;
        AH_UNROLL
        for (int u = 0; u < AHEAD; u++)
            if (i + u < end)
                held = folded(held, next[u], fold);
    }
    return held;
}

template <typename S, class X> __device__ __forceinline__ S add_up(S sum, int64_t begin, int64_t end, const X &x)
{
    return fold_up<8>(sum, begin, end, AH_INDEX_ADD, x);
}

/* Sums are made of pieces: the sources of a destination in one stretch of AH_INDEX_PIECE sorted places. A destination
 * of one piece is done; of several, each writes its sum to `parts`: [outer, stretches, 2, inner], the first if the
 * piece continues from the stretch before, the second if it continues in the next. */
template <typename T, class X> __device__ __forceinline__ void add_pieces(const ah_rows_fold_args &a, const X &x)
{
    typedef typename sum_of<T>::type S;
    const uint32_t *keys = ah_at<const uint32_t>(a.keys);
    const int64_t strips = (a.inner + 31) / 32, items = a.outer * a.count * strips;
    for (int64_t item = ah_first_item() / 32; item < items; item += ah_item_step() / 32) {
        const int64_t j = item / strips % a.count, outer = item / strips / a.count, stretch = j / AH_INDEX_PIECE;
        const int64_t column = item % strips * 32 + threadIdx.x % 32;
        const bool first = begins(keys, j);
        if (keys[j] >= a.n || (!first && j % AH_INDEX_PIECE) || column >= a.inner)
            continue;
        const int64_t limit = (stretch + 1) * AH_INDEX_PIECE < a.count ? (stretch + 1) * AH_INDEX_PIECE : a.count;
        const int64_t end = run_end(keys, j, limit);
        const bool whole = first && (end < limit || end == a.count || keys[end] != keys[j]);
        T *to = ah_at<T>(a.to) + (outer * a.n + keys[j]) * a.inner + column;
        const T *from = ah_at<const T>(a.from) + outer * a.count * a.from_row + column;
        const S sum = add_up(whole && !a.fresh ? wide(*to) : (S)0, j, end, [&](int64_t i) { return x(from, i); });
        if (whole)
            *to = narrow<T>(sum);
        else
            ah_at<S>(a.parts)[((outer * a.stretches + stretch) * 2 + first) * a.inner + column] = sum;
    }
}

template <typename T> __device__ __forceinline__ void rows_add(const ah_rows_fold_args &a)
{
    typedef typename sum_of<T>::type S;
    const uint32_t *order = ah_at<const uint32_t>(a.order);
    const S alpha = (S)a.alpha;
    add_pieces<T>(a, [&](const T *from, int64_t i) { return ah_times(alpha, wide(from[order[i] * a.from_row])); });
}

template <typename T> __device__ __forceinline__ void bag_add(const ah_rows_fold_args &a)
{
    typedef typename sum_of<T>::type S;
    const uint32_t *order = ah_at<const uint32_t>(a.order), *map = ah_at<const uint32_t>(a.map);
    const T *scale = ah_at<const T>(a.scale);
    add_pieces<T>(a, [&](const T *from, int64_t i) {
        const int64_t at = order ? order[i] : i, row = map[at];
        if (row >= a.sources)
            return (S)0;
        return (scale ? wide(scale[at]) : (S)1) * wide(from[row * a.inner]);
    });
}

AH_KERNEL(bag_places, ah_bag_args, AH_INDEX_THREADS)
{
    const int64_t *starts = ah_at<const int64_t>(a.starts);
    for (int64_t i = ah_first_item(); i < a.count; i += ah_item_step()) {
        const int64_t at = ah_at<const int64_t>(a.at)[i];
        int64_t low = 0, high = a.bags + 1; /* the first start behind i */
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (starts[middle] <= i)
                low = middle + 1;
            else
                high = middle;
        }
        const bool inside = low > 0 && low <= a.bags;
        ah_at<uint32_t>(a.bag)[i] = (uint32_t)(low > 0 ? low - 1 : 0);
        ah_at<uint32_t>(a.row)[i] =
            inside && at >= 0 && at < a.n && at != a.skip ? (uint32_t)at : AH_INDEX_NONE;
    }
}

/* The sums of destinations of several pieces, in the order of these. */
template <typename T> __device__ __forceinline__ void rows_join(const ah_rows_fold_args &a)
{
    typedef typename sum_of<T>::type S;
    const uint32_t *keys = ah_at<const uint32_t>(a.keys);
    const int64_t strips = (a.inner + 31) / 32, items = a.outer * (a.stretches - 1) * strips;
    for (int64_t item = ah_first_item() / 32; item < items; item += ah_item_step() / 32) {
        const int64_t stretch = item / strips % (a.stretches - 1), outer = item / strips / (a.stretches - 1);
        const int64_t column = item % strips * 32 + threadIdx.x % 32, begin = stretch * AH_INDEX_PIECE;
        const int64_t next = begin + AH_INDEX_PIECE;
        const uint32_t key = keys[next];
        const bool goes_on = keys[next - 1] == key, from_before = keys[begin] == key && !begins(keys, begin);
        if (!goes_on || from_before || key >= a.n || column >= a.inner)
            continue;
        const int64_t last = (run_end(keys, next, a.count) - 1) / AH_INDEX_PIECE;
        const S *parts = ah_at<const S>(a.parts) + outer * a.stretches * 2 * a.inner + column;
        T *to = ah_at<T>(a.to) + (outer * a.n + key) * a.inner + column;
        const S sum = ah_plus(a.fresh ? (S)0 : wide(*to), parts[(stretch * 2 + 1) * a.inner]);
        *to = narrow<T>(add_up(sum, stretch + 1, last + 1, [&](int64_t i) { return parts[i * 2 * a.inner]; }));
    }
}

/* The offset of an element of the index's shape, without its part along dim. */
static __device__ __forceinline__ void line_place(const ah_slices_args &a, int64_t i, int64_t *indexed, int64_t *other)
{
    *indexed = *other = 0;
    for (int d = a.ndim - 1; d >= 0; d--) {
        const int64_t at = i % a.size[d];
        i /= a.size[d];
        *indexed += d == a.dim ? 0 : at * a.indexed[d];
        *other += at * a.other[d];
    }
}

template <typename T> __device__ __forceinline__ void slices_gather(const ah_slices_args &a)
{
    for (int64_t i = ah_first_item(); i < a.count; i += ah_item_step()) {
        const int64_t at = ah_at<const int64_t>(a.at)[i];
        int64_t indexed, other;
        line_place(a, i, &indexed, &other);
        ah_at<T>(a.to)[other] = at >= 0 && at < a.n ? ah_at<const T>(a.from)[indexed + at * a.indexed[a.dim]] : T();
    }
}

#define GATHER(suffix, type) AH_KERNEL_OF(slices_gather_##suffix, ah_slices_args, AH_INDEX_THREADS, slices_gather<type>)
GATHER(1, uint8_t)
GATHER(2, uint16_t)
GATHER(4, uint32_t)
GATHER(8, uint64_t)

/* The indexed tensor is row-major here, so a place is its number. */
AH_KERNEL(line_keys, ah_slices_args, AH_INDEX_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.count; i += ah_item_step()) {
        const int64_t at = ah_at<const int64_t>(a.at)[i];
        int64_t indexed, other;
        line_place(a, i, &indexed, &other);
        ah_at<uint32_t>(a.keys)[i] =
            (uint32_t)(at >= 0 && at < a.n ? indexed + at * a.indexed[a.dim] : a.places);
    }
}

/* Folds go by pieces as the sums of rows do. */
template <typename T> __device__ __forceinline__ void slices_fold(const ah_slices_args &a)
{
    typedef typename sum_of<T>::type S;
    const uint32_t *keys = ah_at<const uint32_t>(a.keys), *order = ah_at<const uint32_t>(a.order);
    const auto source = [&](int64_t i) {
        int64_t indexed, other;
        line_place(a, order[i], &indexed, &other);
        return ah_at<const T>(a.from)[other];
    };
    const auto number = [&](int64_t i) { return wide(source(i)); };
    for (int64_t j = ah_first_item(); j < a.count; j += ah_item_step()) {
        const int64_t stretch = j / AH_INDEX_PIECE;
        const bool first = begins(keys, j);
        if (keys[j] >= a.places || (!first && (a.fold == AH_INDEX_LAST || j % AH_INDEX_PIECE)))
            continue;
        T *to = ah_at<T>(a.to) + keys[j];
        if (a.fold == AH_INDEX_LAST) {
            *to = source(run_end(keys, j, a.count) - 1);
            continue;
        }
        const int64_t limit = (stretch + 1) * AH_INDEX_PIECE < a.count ? (stretch + 1) * AH_INDEX_PIECE : a.count;
        const int64_t end = run_end(keys, j, limit);
        const bool whole = first && (end < limit || end == a.count || keys[end] != keys[j]);
        const S held = fold_up<4>(whole ? wide(*to) : number(j), whole ? j : j + 1, end, a.fold, number);
        if (whole)
            *to = narrow<T>(held);
        else
            ah_at<S>(a.parts)[stretch * 2 + first] = held;
    }
}

template <typename T> __device__ __forceinline__ void slices_join(const ah_slices_args &a)
{
    typedef typename sum_of<T>::type S;
    const uint32_t *keys = ah_at<const uint32_t>(a.keys);
    const S *parts = ah_at<const S>(a.parts);
    for (int64_t stretch = ah_first_item(); (stretch + 1) * AH_INDEX_PIECE < a.count; stretch += ah_item_step()) {
        const int64_t begin = stretch * AH_INDEX_PIECE, next = begin + AH_INDEX_PIECE;
        const uint32_t key = keys[next];
        const bool goes_on = keys[next - 1] == key, from_before = keys[begin] == key && !begins(keys, begin);
        if (!goes_on || from_before || key >= a.places)
            continue;
        const int64_t last = (run_end(keys, next, a.count) - 1) / AH_INDEX_PIECE;
        T *to = ah_at<T>(a.to) + key;
        const S held = folded(wide(*to), parts[stretch * 2 + 1], a.fold);
        *to = narrow<T>(fold_up<8>(held, stretch + 1, last + 1, a.fold, [&](int64_t i) { return parts[i * 2]; }));
    }
}

#define FOLDS(suffix, type)                                                                       \
    AH_KERNEL_OF(rows_last_##suffix, ah_rows_fold_args, AH_INDEX_THREADS, rows_last<type>)        \
    AH_KERNEL_OF(rows_add_##suffix, ah_rows_fold_args, AH_INDEX_THREADS, rows_add<type>)          \
    AH_KERNEL_OF(rows_join_##suffix, ah_rows_fold_args, AH_INDEX_THREADS, rows_join<type>)        \
    AH_KERNEL_LARGE_OF(slices_fold_##suffix, ah_slices_args, AH_INDEX_THREADS, slices_fold<type>) \
    AH_KERNEL_OF(slices_join_##suffix, ah_slices_args, AH_INDEX_THREADS, slices_join<type>)
FOLDS(b8, bool_item)
FOLDS(u8, uint8_t)
FOLDS(i32, int32_t)
FOLDS(i64, int64_t)
AH_FOR_REALS(FOLDS)

#define BAGS(suffix, type) AH_KERNEL_OF(bag_add_##suffix, ah_rows_fold_args, AH_INDEX_THREADS, bag_add<type>)
AH_FOR_REALS(BAGS)
