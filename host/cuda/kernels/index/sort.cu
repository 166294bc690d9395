/* Keys to be sorted, lines that a block sorts by itself, and the first few of a line without sorting it. */
#include "cuda/kernels/index/sort.h"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/order.cuh"

template <typename K> __device__ __forceinline__ void sort_keys(const ah_sort_args &a)
{
    for (int64_t i = ah_first_item(); i < a.lines * a.n; i += ah_item_step()) {
        const uint64_t key = ah_key_of(a.x, a.dtype, i) ^ a.flip;
        ah_at<K>(a.keys)[i] = (K)(a.with_line ? key | (uint64_t)(i / a.n) << a.bits : key);
    }
}

AH_KERNEL_OF(sort_keys_32, ah_sort_args, AH_SORT_THREADS, sort_keys<uint32_t>)
AH_KERNEL_OF(sort_keys_64, ah_sort_args, AH_SORT_THREADS, sort_keys<uint64_t>)

/* The line of each element of an order, as the key of another sort. */
AH_KERNEL(sort_slices, ah_sort_args, AH_SORT_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.lines * a.n; i += ah_item_step())
        ah_at<uint32_t>(a.keys)[i] = (uint32_t)(ah_at<const uint32_t>(a.order)[i] / a.n);
}

/* The first of each line of the order. */
AH_KERNEL(sort_take, ah_sort_args, AH_SORT_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.lines * a.keep; i += ah_item_step()) {
        const int64_t line = i / a.keep, from = ah_at<const uint32_t>(a.order)[line * a.n + i - line * a.keep];
        ah_at<int64_t>(a.indices)[i] = from - line * a.n;
        if (a.values)
            ah_move_item(a.values, i, a.x, from, a.dtype);
    }
}

static __device__ __forceinline__ void put(const ah_sort_args &a, int64_t line, int64_t rank, uint32_t place)
{
    ah_at<int64_t>(a.indices)[line * a.keep + rank] = place;
    if (a.values)
        ah_move_item(a.values, line * a.keep + rank, a.x, line * a.n + place, a.dtype);
}

/* A tile of whole lines: padding is sorted to the end. */
AH_KERNEL(sort_tile, ah_sort_args, AH_SORT_THREADS)
{
    AH_SHARED_ARRAY(uint64_t, key, AH_SORT_TILE);
    AH_SHARED_ARRAY(uint32_t, place, AH_SORT_TILE);
    const unsigned padded = (unsigned)a.padded, each = AH_SORT_TILE / padded;
    for (int64_t tile = blockIdx.x; tile * each < a.lines; tile += gridDim.x) {
        const int64_t first = tile * each;
        const unsigned lines = a.lines - first < each ? (unsigned)(a.lines - first) : each, count = lines * padded;
        for (unsigned e = threadIdx.x; e < count; e += AH_SORT_THREADS) {
            const unsigned k = e % padded;
            const bool there = k < a.n;
            key[e] = there ? ah_key_of(a.x, a.dtype, (first + e / padded) * a.n + k) ^ a.flip : ~(uint64_t)0;
            place[e] = there ? k : ~0u - (padded - k);
        }
        ah_sort_runs(key, place, count, padded);
        for (unsigned e = threadIdx.x; e < count; e += AH_SORT_THREADS)
            if (e % padded < a.keep)
                put(a, first + e / padded, e % padded, place[e]);
        __syncthreads();
    }
}

/* The known bits of the last entry that is kept: it has this key and place down to bit `shift` of `key_left` and
 * `place_left` bits that are open, and `wanted` entries of those that agree with it are kept. */
struct selection {
    uint64_t key;
    uint32_t place;
    int key_left, place_left;
    unsigned wanted;
};

static __device__ __forceinline__ uint64_t upper(uint64_t x, int left)
{
    return left < 64 ? x >> left : 0;
}

static __device__ __forceinline__ bool agrees(const selection &s, uint64_t key, uint32_t place)
{
    return upper(key ^ s.key, s.key_left) == 0 && upper(place ^ s.place, s.place_left) == 0;
}

/* Is the entry before all that agree, or one of them? */
static __device__ __forceinline__ bool is_kept(const selection &s, uint64_t key, uint32_t place)
{
    const uint64_t mine = upper(key, s.key_left), last = upper(s.key, s.key_left);
    return mine < last || (mine == last && upper(place, s.place_left) <= upper(s.place, s.place_left));
}

struct bucket {
    unsigned digit, before, count;
};

/* The bucket of 256 that contains entry number `wanted` (from 1); one warp. */
static __device__ __forceinline__ void find_bucket(const unsigned *count, unsigned wanted, bucket *found)
{
    enum { EACH = 8 };
    const unsigned lane = threadIdx.x % 32;
    unsigned own = 0;
    for (unsigned j = 0; j < EACH; j++)
        own += count[lane * EACH + j];
    unsigned sum = own;
    for (unsigned by = 1; by < 32; by *= 2) {
        const unsigned other = __shfl_up_sync(0xffffffff, sum, by);
        sum += lane >= by ? other : 0;
    }
    unsigned before = sum - own;
    for (unsigned j = 0; j < EACH; j++) {
        const unsigned here = count[lane * EACH + j];
        if (before < wanted && wanted <= before + here) {
            found->digit = lane * EACH + j;
            found->before = before;
            found->count = here;
        }
        before += here;
    }
}

/* Narrow down the last entry that is kept of a line, 8 bits at a time, until all that agree with it are kept. */
static __device__ __forceinline__ selection select_last(const ah_sort_args &a, int64_t line, unsigned *count,
                                                        bucket *found)
{
    selection s = {0, 0, a.bits, a.place_bits, (unsigned)a.keep};
    for (unsigned agreeing = ~0u; agreeing != s.wanted && s.key_left + s.place_left > 0; agreeing = found->count) {
        const bool by_key = s.key_left > 0;
        const int shift = (by_key ? s.key_left : s.place_left) - 8;
        for (unsigned digit = threadIdx.x; digit < 256; digit += AH_SELECT_THREADS)
            count[digit] = 0;
        __syncthreads();
        for (int64_t k = threadIdx.x; k < a.n; k += AH_SELECT_THREADS) {
            const uint64_t key = ah_key_of(a.x, a.dtype, line * a.n + k) ^ a.flip;
            if (agrees(s, key, (uint32_t)k))
                atomicAdd(&count[(by_key ? key >> shift : (uint64_t)k >> shift) & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x < 32)
            find_bucket(count, s.wanted, found);
        __syncthreads();
        if (by_key) {
            s.key |= (uint64_t)found->digit << shift;
            s.key_left = shift;
        } else {
            s.place |= found->digit << shift;
            s.place_left = shift;
        }
        s.wanted -= found->before;
    }
    return s;
}

/* The first few of a line by a block: those kept, in whatever order they are found, and then sorted. */
AH_KERNEL(sort_select, ah_sort_args, AH_SELECT_THREADS)
{
    AH_SHARED_ARRAY(uint64_t, key, AH_SORT_TILE);
    AH_SHARED_ARRAY(uint32_t, place, AH_SORT_TILE);
    AH_SHARED_ARRAY(unsigned, count, 256);
    AH_SHARED(bucket, found);
    AH_SHARED(unsigned, taken);
    const unsigned padded = (unsigned)a.padded;
    for (int64_t line = blockIdx.x; line < a.lines; line += gridDim.x) {
        const selection s = select_last(a, line, count, &found);
        if (threadIdx.x == 0)
            taken = 0;
        __syncthreads();
        for (int64_t k = threadIdx.x; k < a.n; k += AH_SELECT_THREADS) {
            const uint64_t own = ah_key_of(a.x, a.dtype, line * a.n + k) ^ a.flip;
            if (is_kept(s, own, (uint32_t)k)) {
                const unsigned to = atomicAdd(&taken, 1u);
                key[to] = own;
                place[to] = (uint32_t)k;
            }
        }
        for (unsigned e = (unsigned)a.keep + threadIdx.x; e < padded; e += AH_SELECT_THREADS) {
            key[e] = ~(uint64_t)0;
            place[e] = ~0u - (padded - e);
        }
        ah_sort_runs(key, place, padded, padded);
        for (unsigned e = threadIdx.x; e < a.keep; e += AH_SELECT_THREADS)
            put(a, line, e, place[e]);
        __syncthreads();
    }
}

/* unique. */

static __device__ __forceinline__ uint64_t key_at(const ah_unique_args &a, int64_t i)
{
    return a.item == 8 ? ah_at<const uint64_t>(a.keys)[i] : ah_at<const uint32_t>(a.keys)[i];
}

AH_KERNEL(unique_marks, ah_unique_args, AH_SORT_THREADS)
{
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step()) {
        const uint64_t key = key_at(a, i);
        ah_at<uint8_t>(a.marks)[i] = i == 0 || key != key_at(a, i - 1) || (a.nan && key == a.nan);
    }
}

AH_KERNEL(unique_groups, ah_unique_args, AH_SORT_THREADS)
{
    const int64_t *starts = ah_at<const int64_t>(a.starts);
    for (int64_t group = ah_first_item(); group < a.groups; group += ah_item_step()) {
        const int64_t start = starts[group];
        ah_move_item(a.values, group, a.x, ah_at<const uint32_t>(a.order)[start], a.dtype);
        if (a.counts)
            ah_at<int64_t>(a.counts)[group] = (group + 1 < a.groups ? starts[group + 1] : a.n) - start;
    }
}

/* Each element's group: the last that does not start behind it. */
AH_KERNEL(unique_inverse, ah_unique_args, AH_SORT_THREADS)
{
    const int64_t *starts = ah_at<const int64_t>(a.starts);
    for (int64_t i = ah_first_item(); i < a.n; i += ah_item_step()) {
        int64_t low = 0, high = a.groups;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (starts[middle] <= i)
                low = middle + 1;
            else
                high = middle;
        }
        ah_at<int64_t>(a.inverse)[ah_at<const uint32_t>(a.order)[i]] = low - 1;
    }
}
