/* Entries by an unsigned key that has the order of the values: a stable radix sort, and selection without sorting. To
 * select a rank of a long line, a histogram of the highest 11 bits in which keys differ yields its bucket, and only
 * that bucket is searched further; short ones are searched by quickselect. Invariants: nan is the largest, -0 equals 0,
 * equals keep their order. */
#include "cpu/index/sort.h"

#include <string.h>

#include "base/numeric/half.h"
#include "cpu/loop/f16_item.h"

static uint64_t float_key(double value)
{
    union { double f; uint64_t u; } v = {value == 0 ? 0 : value};
    if (value != value)
        return UINT64_MAX;
    return v.u >> 63 ? ~v.u : v.u | UINT64_C(1) << 63;
}

/* In 32 bits, so that the radix sort makes half the passes. */
static uint64_t float32_key(float value)
{
    union { float f; uint32_t u; } v = {value == 0 ? 0 : value};
    uint32_t key = v.u ^ ((uint32_t)-(int32_t)(v.u >> 31) | UINT32_C(1) << 31);
    return value != value ? UINT32_MAX : key;
}

void ah_sort_keys(struct ah_sort_entry *entry, int64_t n, const void *data, int64_t stride,
                      enum ah_dtype dtype, bool descending)
{
    const uint64_t flip = !descending ? 0 : dtype == AH_I64 || dtype == AH_F64 ? UINT64_MAX : UINT32_MAX;
#define KEYS(type, to_key)                                                \
    for (int64_t i = 0; i < n; i++) {                                     \
        entry[i].key = to_key(((const type *)data)[i * stride]) ^ flip;   \
        entry[i].at = i;                                                  \
    }
#define INT_KEY(x) ((uint64_t)(int64_t)(x) ^ UINT64_C(1) << 63)
#define INT32_KEY(x) ((uint32_t)(x) ^ UINT32_C(1) << 31)
#define F16_KEY(x) float32_key(ah_f16_item_to_f32(x))
#define BF16_KEY(x) float32_key(ah_bf16_to_f32(x))
    switch (dtype) {
    case AH_BOOL:
    case AH_U8: KEYS(uint8_t, ); break;
    case AH_I32: KEYS(int32_t, INT32_KEY); break;
    case AH_I64: KEYS(int64_t, INT_KEY); break;
    case AH_F16: KEYS(uint16_t, F16_KEY); break;
    case AH_BF16: KEYS(uint16_t, BF16_KEY); break;
    case AH_F32: KEYS(float, float32_key); break;
    case AH_F64: KEYS(double, float_key); break;
    case AH_I8:
    case AH_I16:
    case AH_U16:
    case AH_U32:
    case AH_U64: /* refused by the dispatcher */
    case AH_DTYPE_COUNT: break;
    }
#undef KEYS
}

static void insertion_sort(struct ah_sort_entry *entry, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        struct ah_sort_entry moved = entry[i];
        int64_t k = i;
        for (; k > 0 && entry[k - 1].key > moved.key; k--)
            entry[k] = entry[k - 1];
        entry[k] = moved;
    }
}

/* Stable; `scratch` has room for n. Bytes in which all keys agree cost no pass. */
void ah_sort_entries(struct ah_sort_entry *entry, struct ah_sort_entry *scratch, int64_t n)
{
    if (n <= 48) {
        insertion_sort(entry, n);
        return;
    }
    struct ah_sort_entry *from = entry, *to = scratch;
    uint64_t all_or = 0, all_and = UINT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        all_or |= entry[i].key;
        all_and &= entry[i].key;
    }
    for (int shift = 0; shift < 64; shift += 8) {
        int64_t place[256] = {0}, sum = 0;
        if (((all_or ^ all_and) >> shift & 0xff) == 0)
            continue;
        for (int64_t i = 0; i < n; i++)
            place[from[i].key >> shift & 0xff]++;
        for (int b = 0; b < 256; b++) {
            int64_t count = place[b];
            place[b] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++)
            to[place[from[i].key >> shift & 0xff]++] = from[i];
        struct ah_sort_entry *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != entry)
        memcpy(entry, from, (size_t)n * sizeof *entry);
}

/* The k smallest of n, sorted, into entry[0..k): a sorted window of the best so far; most values fail against its last.
 * Only for small k. */
static void smallest_few(struct ah_sort_entry *entry, int64_t n, int64_t k)
{
    insertion_sort(entry, k);
    for (int64_t i = k; i < n; i++) {
        if (entry[i].key >= entry[k - 1].key)
            continue;
        struct ah_sort_entry moved = entry[i];
        int64_t j = k - 1;
        for (; j > 0 && entry[j - 1].key > moved.key; j--)
            entry[j] = entry[j - 1];
        entry[j] = moved;
    }
}

/* The same for larger k: those below the k-th smallest so far are collected behind the k, and sorted with them when
 * they are as many. Stops after n entries have been sorted so; returns the number of entries that may be among the
 * smallest, at entry[0], or k. */
static int64_t smallest_many(struct ah_sort_entry *entry, struct ah_sort_entry *scratch, int64_t n, int64_t k)
{
    ah_sort_entries(entry, scratch, 2 * k);
    int64_t count = k, budget = n;
    for (int64_t i = 2 * k; i < n; i++) {
        if (entry[i].key >= entry[k - 1].key)
            continue;
        entry[count++] = entry[i];
        if (count < 2 * k)
            continue;
        ah_sort_entries(entry, scratch, count);
        count = k;
        budget -= 2 * k;
        if (budget < 0) {
            memmove(entry + k, entry + i + 1, (size_t)(n - i - 1) * sizeof *entry);
            return k + n - i - 1;
        }
    }
    ah_sort_entries(entry, scratch, count);
    return k;
}

/* The digit of a selection; lines without a histogram; numbers of smallest that are kept sorted during the search in
 * any case, and in a buffer where the line is MANY times as long. */
enum { BITS = 11, BUCKETS = 1 << BITS, SHORT = 512, WINDOW = 32, MANY = 64 };

/* The bits in which keys differ. */
static uint64_t sort_difference(const struct ah_sort_entry *entry, int64_t n)
{
    uint64_t all_or = 0, all_and = UINT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        all_or |= entry[i].key;
        all_and &= entry[i].key;
    }
    return all_or ^ all_and;
}

/* Copy the entries of one bucket to `to`, which may be `from`; return their number. */
static int64_t take_bucket(const struct ah_sort_entry *from, struct ah_sort_entry *to, int64_t n, int shift,
                           uint64_t which)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        struct ah_sort_entry moved = from[i];
        to[count] = moved;
        count += (moved.key >> shift & (BUCKETS - 1)) == which;
    }
    return count;
}

static bool is_before(struct ah_sort_entry a, struct ah_sort_entry b)
{
    return (a.key < b.key) | ((a.key == b.key) & (a.at < b.at));
}

static struct ah_sort_entry median_of_3(struct ah_sort_entry a, struct ah_sort_entry b, struct ah_sort_entry c)
{
    struct ah_sort_entry low = is_before(a, b) ? a : b, high = is_before(a, b) ? b : a;
    return is_before(c, low) ? low : is_before(high, c) ? high : c;
}

/* The entry at `rank` of n <= SHORT by quickselect: those before a pivot are copied to the start of a buffer, the
 * others to its end, without branches. */
static struct ah_sort_entry select_short(const struct ah_sort_entry *entry, int64_t n, int64_t rank)
{
    struct ah_sort_entry buffer[2][SHORT];
    for (int turn = 0; n > 2; turn ^= 1) {
        struct ah_sort_entry pivot = median_of_3(entry[0], entry[n / 2], entry[n - 1]), *to = buffer[turn];
        int64_t low = 0, high = n - 1;
        for (int64_t i = 0; i < n; i++) {
            bool before = is_before(entry[i], pivot);
            to[low] = to[high] = entry[i];
            low += before;
            high -= !before;
        }
        if (rank == low)
            return pivot;
        entry = rank < low ? to : to + low;
        n = rank < low ? low : n - low;
        rank -= rank < low ? 0 : low;
    }
    return n == 2 && is_before(entry[1], entry[0]) == (rank == 0) ? entry[1] : entry[0];
}

struct ah_sort_entry ah_sort_select(const struct ah_sort_entry *entry, struct ah_sort_entry *scratch, int64_t n,
                                    int64_t rank)
{
    uint64_t differing;
    while (n > SHORT && (differing = sort_difference(entry, n))) {
        int top = 63 - __builtin_clzll(differing), shift = top < BITS ? 0 : top - BITS + 1, which = 0;
        int64_t count[BUCKETS] = {0};
        for (int64_t i = 0; i < n; i++)
            count[entry[i].key >> shift & (BUCKETS - 1)]++;
        for (; rank >= count[which]; which++)
            rank -= count[which];
        n = take_bucket(entry, scratch, n, shift, (uint64_t)which);
        entry = scratch;
    }
    return n > SHORT ? entry[rank] : select_short(entry, n, rank);
}

void ah_sort_smallest(struct ah_sort_entry *entry, struct ah_sort_entry *scratch, int64_t n, int64_t keep)
{
    if (keep <= WINDOW) {
        smallest_few(entry, n, keep);
        return;
    }
    if (keep <= n / MANY) {
        n = smallest_many(entry, scratch, n, keep);
        if (n == keep)
            return;
    }
    struct ah_sort_entry last = ah_sort_select(entry, scratch, n, keep - 1);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        struct ah_sort_entry moved = entry[i];
        entry[count] = moved;
        count += !is_before(last, moved);
    }
    ah_sort_entries(entry, scratch, keep);
}
