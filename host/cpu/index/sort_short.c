/* Selection by keys of 32 bits, without places: a histogram of the highest 11 bits in which the keys differ yields the
 * rank's bucket, and in few keys the key is found bit by bit, by counting smaller ones, which vector instructions do.
 * The place is then that of the key's occurrence with the rest of the rank, as after a stable sort. */
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/index/sort.h"
#include "cpu/loop/f16_item.h"
#include "cpu/loop/lanes.h"

bool ah_sort_has_short_keys(enum ah_dtype dtype)
{
    return dtype != AH_I64 && dtype != AH_F64;
}

static inline uint32_t short_float_key(float value)
{
    union {
        float f;
        uint32_t u;
    } v = {value == 0 ? 0 : value};
    uint32_t key = v.u ^ ((uint32_t)-(int32_t)(v.u >> 31) | UINT32_C(1) << 31);
    return value != value ? UINT32_MAX : key;
}

void ah_sort_short_keys(uint32_t *key, int64_t n, const void *data, int64_t stride, enum ah_dtype dtype)
{
#define KEYS(type, to_key)                                       \
    if (stride == 1)                                             \
        for (int64_t i = 0; i < n; i++)                          \
            key[i] = to_key(((const type *)data)[i]);            \
    else                                                         \
        for (int64_t i = 0; i < n; i++)                          \
            key[i] = to_key(((const type *)data)[i * stride])
#define INT32_KEY(x) ((uint32_t)(x) ^ UINT32_C(1) << 31)
#define F16_KEY(x) short_float_key(ah_f16_item_to_f32(x))
#define BF16_KEY(x) short_float_key(ah_bf16_to_f32(x))
    switch (dtype) {
    case AH_BOOL:
    case AH_U8: KEYS(uint8_t, ); break;
    case AH_I32: KEYS(int32_t, INT32_KEY); break;
    case AH_F16: KEYS(uint16_t, F16_KEY); break;
    case AH_BF16: KEYS(uint16_t, BF16_KEY); break;
    case AH_F32: KEYS(float, short_float_key); break;
    default: break; /* has long keys, or is refused by the dispatcher */
    }
#undef KEYS
}

/* The digit of a selection; keys that are counted bit by bit. */
enum { BITS = 11, BUCKETS = 1 << BITS, FEW = 1024 };

static uint32_t short_difference(const uint32_t *key, int64_t n)
{
    uint32_t all_or = 0, all_and = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        all_or |= key[i];
        all_and &= key[i];
    }
    return all_or ^ all_and;
}

/* Of few keys, padded by the largest to a multiple of LANES. GCC 12 compares wider vectors than the level has one by
 * one. */
enum { LANES = AH_LANES_BYTES / 4 };
typedef ah_lane_bits_f32 key_lanes;

static int32_t short_count_below(const key_lanes *key, int32_t n, uint32_t limit)
{
    int32_t count = 0;
#ifdef __AVX512F__
    __m512i limits = _mm512_set1_epi32((int32_t)limit);
    for (int32_t i = 0; i < n / LANES; i++)
        count += __builtin_popcount(_mm512_cmplt_epu32_mask((__m512i)key[i], limits));
#else
    key_lanes limits = limit - (key_lanes){0}, sum = {0};
    for (int32_t i = 0; i < n / LANES; i++)
        sum -= (key_lanes)(key[i] < limits);
    for (int k = 0; k < LANES; k++)
        count += (int32_t)sum[k];
#endif
    return count;
}

static uint32_t short_least_from(const key_lanes *key, int32_t n, uint32_t limit)
{
    key_lanes limits = limit - (key_lanes){0}, least = ~(key_lanes){0};
    for (int32_t i = 0; i < n / LANES; i++) {
        key_lanes other = key[i] | (key_lanes)(key[i] < limits), less = (key_lanes)(other < least);
        least = (other & less) | (least & ~less);
    }
    uint32_t all = least[0];
    for (int k = 1; k < LANES; k++)
        all = least[k] < all ? least[k] : all;
    return all;
}

/* The key at `rank` of n <= FEW; *rank becomes its place among its equals. The keys from `below` to `above` in order
 * begin with the bits found so far. */
static uint32_t short_select_few(const uint32_t *from, int32_t n, int64_t *rank)
{
    uint32_t differing = short_difference(from, n), found = from[0];
    int32_t below = 0, above = n, wanted = (int32_t)*rank;
    key_lanes key[FEW / LANES];
    memset(key + (n - 1) / LANES, 0xff, sizeof *key);
    memcpy(key, from, (size_t)n * sizeof *from);
    uint32_t bit = differing ? UINT32_C(1) << (31 - __builtin_clz(differing)) : 0;
    found &= ~(bit | (bit - !!bit));
    for (; bit && above - below > 1; bit >>= 1) {
        int32_t count = short_count_below(key, n + LANES - 1, found | bit);
        bool is_set = count <= wanted;
        found |= is_set ? bit : 0;
        below = is_set ? count : below;
        above = is_set ? above : count;
    }
    *rank -= below;
    return bit ? short_least_from(key, n + LANES - 1, found) : found;
}

static void short_histogram(const uint32_t *key, int64_t n, int shift, int64_t count[BUCKETS])
{
    uint32_t part[2][BUCKETS]; /* of even and odd places: equal keys in a row do not wait for each other */
    for (int64_t begin = 0; begin < n; begin += INT32_MAX) {
        int64_t end = n - begin < INT32_MAX ? n : begin + INT32_MAX, i = begin;
        memset(part, 0, sizeof part);
        for (; i + 2 <= end; i += 2) {
            part[0][key[i] >> shift & (BUCKETS - 1)]++;
            part[1][key[i + 1] >> shift & (BUCKETS - 1)]++;
        }
        if (i < end)
            part[0][key[i] >> shift & (BUCKETS - 1)]++;
        for (int b = 0; b < BUCKETS; b++)
            count[b] += (int64_t)part[0][b] + part[1][b];
    }
}

/* Copy the keys of one bucket to `to`, which may be `from`; return their number. */
static int64_t short_take_bucket(const uint32_t *from, uint32_t *to, int64_t n, int shift, uint32_t which)
{
    int64_t i = 0, kept = 0;
#ifdef __AVX512F__
    const __m512i digit = _mm512_set1_epi32(BUCKETS - 1), wanted = _mm512_set1_epi32((int32_t)which);
    const __m128i by = _mm_cvtsi32_si128(shift);
    for (; i + LANES <= n; i += LANES) {
        __m512i key = _mm512_loadu_si512(from + i);
        __mmask16 taken = _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_srl_epi32(key, by), digit), wanted);
        _mm512_storeu_si512(to + kept, _mm512_maskz_compress_epi32(taken, key));
        kept += __builtin_popcount(taken);
    }
#endif
    for (; i < n; i++) {
        uint32_t moved = from[i];
        to[kept] = moved;
        kept += (moved >> shift & (BUCKETS - 1)) == which;
    }
    return kept;
}

static int64_t short_place(const uint32_t *key, int64_t n, uint32_t wanted, int64_t rank)
{
    int64_t at = 0;
    for (int64_t block = 256; block >= 16; block /= 16)
        for (; at + block <= n; at += block) {
            int32_t count = 0;
            for (int64_t i = at; i < at + block; i++)
                count += key[i] == wanted;
            if (count > rank)
                break;
            rank -= count;
        }
    for (;; at++)
        if (key[at] == wanted && rank-- == 0)
            return at;
}

int64_t ah_sort_select_short(const uint32_t *key, uint32_t *scratch, int64_t n, int64_t rank)
{
    const uint32_t *from = key;
    int64_t left = n, place = rank;
    uint32_t differing;
    while (left > FEW && (differing = short_difference(from, left))) {
        int top = 31 - __builtin_clz(differing), shift = top < BITS ? 0 : top - BITS + 1;
        int64_t count[BUCKETS] = {0};
        uint32_t which = 0;
        short_histogram(from, left, shift, count);
        for (; place >= count[which]; which++)
            place -= count[which];
        left = short_take_bucket(from, scratch, left, shift, which);
        from = scratch;
    }
    uint32_t found = left > FEW ? from[0] : short_select_few(from, (int32_t)left, &place);
    return short_place(key, n, found, place);
}

void ah_sort_smallest_short(uint32_t *key, uint32_t *scratch, int64_t n, int64_t keep, bool descending,
                            struct ah_sort_entry *entry)
{
    for (int64_t i = 0; descending && i < n; i++)
        key[i] = ~key[i];
    int64_t last = ah_sort_select_short(key, scratch, n, keep - 1), count = 0;
    for (int64_t i = 0; i < n; i += 64) {
        int64_t end = i + 64 < n ? i + 64 : n;
        int32_t hits = 0;
        for (int64_t j = i; j < end; j++)
            hits += key[j] <= key[last];
        for (int64_t j = i; hits > 0 && j < end; j++)
            if (key[j] < key[last] || (key[j] == key[last] && j <= last))
                entry[count++] = (struct ah_sort_entry){key[j], j};
    }
}
