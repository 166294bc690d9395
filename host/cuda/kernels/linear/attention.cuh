/* Functions that forward and backward of attention share: the sequence, head and rows of a block, the keys that a query
 * sees, the weight of a score. */
#pragma once

#include "cuda/kernels/lib/fast.cuh"
#include "cuda/kernels/linear/attention.h"
#include "cuda/kernels/linear/attention_tile.cuh"

/* A sequence, a head, and a number of a block of rows. Sequences together are shorter than 2^31. */
struct ah_attention_unit {
    int number;              /* of the batch: the first stride of arrays and mask */
    int query, queries, key, keys, room;
    int row;                 /* the number of its first query among all */
    int block, head;
    int diagonal;            /* query i is aligned with key i + diagonal; 0 in a batch of equal lengths */
    int64_t words;           /* of dropout, of the sequences before */
};

__device__ __forceinline__ int64_t ah_attention_blocks_of(int64_t rows, int size)
{
    return (rows + size - 1) / size;
}

/* Under a causal mask the last queries see the most keys: their blocks begin first, as those of the first keys do. */
__device__ __forceinline__ void ah_attention_turn(ah_attention_unit *unit, const ah_attention_args &a, bool of_keys,
                                                  int64_t blocks)
{
    if (!of_keys && a.right >= 0)
        unit->block = (int)blocks - 1 - unit->block;
}

/* A block of all sequences' blocks; false when there are fewer. Whole warps call. */
__device__ __forceinline__ bool ah_attention_find(ah_attention_unit *unit, const ah_attention_args &a, int64_t index,
                                                  bool of_keys, int size)
{
    const int lane = threadIdx.x % 32;
    int64_t before = 0, words = 0;
    for (int64_t base = 0; base < a.batch; base += 32) {
        const bool there = base + lane < a.batch;
        const int64_t *span = ah_at<const int64_t>(a.spans) + 5 * (there ? base + lane : 0);
        const long long own = there ? ah_attention_blocks_of(span[of_keys ? 4 : 1], size) : 0;
        const long long own_words =
            there ? ah_attention_blocks_of(span[1], AH_ATTENTION_WORD) * span[3] * a.heads : 0;
        long long last = own, last_words = own_words;
        for (int by = 1; by < 32; by *= 2) {
            const long long more = __shfl_up_sync(0xffffffff, last, by);
            const long long more_words = __shfl_up_sync(0xffffffff, last_words, by);
            last += lane >= by ? more : 0;
            last_words += lane >= by ? more_words : 0;
        }
        const unsigned past = __ballot_sync(0xffffffff, before + last > index);
        if (past) {
            const int from = __ffs((int)past) - 1;
            const int64_t blocks = __shfl_sync(0xffffffff, own, from);
            span = ah_at<const int64_t>(a.spans) + 5 * (base + from);
            unit->number = 0; /* such have no batch stride */
            unit->query = unit->row = (int)span[0];
            unit->queries = (int)span[1];
            unit->key = (int)span[2];
            unit->keys = (int)span[3];
            unit->room = (int)span[4];
            unit->diagonal = (int)(span[3] - span[1]);
            unit->words = words + __shfl_sync(0xffffffff, last_words - own_words, from);
            unit->block = (int)(index - before - __shfl_sync(0xffffffff, last - own, from));
            ah_attention_turn(unit, a, of_keys, blocks);
            return true;
        }
        before += __shfl_sync(0xffffffff, last, 31);
        words += __shfl_sync(0xffffffff, last_words, 31);
    }
    return false;
}

/* Unit `index`: blocks of `size` queries of each head, or keys of each head of the key. */
__device__ __forceinline__ bool ah_attention_unit_at(ah_attention_unit *unit, const ah_attention_args &a, int64_t index,
                                                     bool of_keys, int size)
{
    const int heads = of_keys ? a.heads / a.group : a.heads;
    if (a.spans) {
        unit->head = (int)(index % heads);
        return ah_attention_find(unit, a, index / heads, of_keys, size);
    }
    /* Sections of heads one after another; in each the first blocks of all its heads, then their second ones. */
    const int64_t blocks = ah_attention_blocks_of(of_keys ? a.keys : a.queries, size), all = heads * a.batch;
    const int64_t first = index / (a.section * blocks) * a.section, in = index - first * blocks;
    const int64_t section = all - first < a.section ? all - first : a.section;
    const int64_t matrix = first + in % section;
    unit->block = (int)(in / section);
    unit->head = (int)(matrix % heads);
    unit->number = (int)(matrix / heads);
    unit->query = unit->key = unit->diagonal = 0;
    unit->queries = (int)a.queries;
    unit->keys = unit->room = (int)a.keys;
    unit->row = unit->number * unit->queries;
    unit->words = unit->number * ah_attention_blocks_of(a.queries, AH_ATTENTION_WORD) * a.keys * a.heads;
    ah_attention_turn(unit, a, of_keys, blocks);
    return true;
}

template <typename T>
__device__ __forceinline__ T *ah_attention_row(const ah_attention_rows &rows, const ah_attention_unit &unit,
                                               int64_t row, int head)
{
    return ah_at<T>(rows.at) + unit.number * rows.batch + row * rows.token + head * rows.head;
}

/* A loader of tiles of ROWS rows of an array's head; row 0 is the sequence's first, at `base`. */
template <typename T, int WIDTH, int ROWS, int THREADS>
__device__ __forceinline__ ah_tile_loader<T, WIDTH, ROWS, THREADS>
ah_attention_loader(const ah_attention_rows &rows, const ah_attention_unit &unit, int base, int head)
{
    return {rows, ah_attention_row<const T>(rows, unit, base, head)};
}

/* Copy ROWS rows of an array's head to shared memory, from row `first` of the sequence on. */
template <typename T, int WIDTH, int ROWS, int THREADS>
__device__ __forceinline__ void ah_attention_load(ah_copies &copies, T *to, const ah_attention_rows &rows,
                                                  const ah_attention_unit &unit, int base, int first, int count,
                                                  int head)
{
    ah_attention_loader<T, WIDTH, ROWS, THREADS>(rows, unit, base, head).load(copies, to, first, count);
}

/* Store a warp's gradients, times `scale`, to rows `first` and on of an array's head. */
template <typename T, int WIDTH, int TALL>
__device__ __forceinline__ void ah_attention_store(const ah_real<T> (&sum)[TALL][WIDTH / 8][4], ah_real<T> scale,
                                                   const ah_attention_rows &rows, const ah_attention_unit &unit,
                                                   int base, int first, int count, T *own)
{
    ah_real<T> factor[TALL][2];
    AH_UNROLL
    for (int i = 0; i < 2 * TALL; i++)
        factor[i / 2][i % 2] = scale;
    ah_tile_store<T, WIDTH>(sum, factor, own, ah_attention_row<T>(rows, unit, base + first, unit.head), rows.token,
                            count - first, rows.width, rows.wide);
}

template <typename T> __device__ __forceinline__ void ah_swap(T &a, T &b)
{
    const T before = a;
    a = b;
    b = before;
}

/* Exponentials: of halves' scores to the base 2, for which a card has an instruction. A row's scores are relative to
 * their maximum, or to an earlier one that is less than `slack` smaller. */
template <typename T> struct ah_attention_base {
    static constexpr float unit = 1.44269504f; /* log2(e) */
    static constexpr float slack = 8, lowest = -3.402823466e38f;
    static __device__ __forceinline__ float power(float x)
    {
        return ah_fast_exp2(x);
    }
    static __device__ __forceinline__ float logarithm(float x)
    {
        return log2f(x);
    }
    static __device__ __forceinline__ float larger(float x, float y)
    {
        return fmaxf(x, y);
    }
};
template <> struct ah_attention_base<float> {
    static constexpr float unit = 1, slack = 5, lowest = -3.402823466e38f;
    static __device__ __forceinline__ float power(float x)
    {
        return expf(x);
    }
    static __device__ __forceinline__ float logarithm(float x)
    {
        return logf(x);
    }
    static __device__ __forceinline__ float larger(float x, float y)
    {
        return fmaxf(x, y);
    }
};
template <> struct ah_attention_base<double> {
    static constexpr double unit = 1, slack = 5, lowest = -1.7976931348623157e308;
    static __device__ __forceinline__ double power(double x)
    {
        return exp(x);
    }
    static __device__ __forceinline__ double logarithm(double x)
    {
        return log(x);
    }
    static __device__ __forceinline__ double larger(double x, double y)
    {
        return fmax(x, y);
    }
};

/* A product times `before` and `factor` is an exponent in the base's unit; one of the two is 1. PLAIN kernels have
 * nothing to do between products and exponents: no mask, no dropout, and a positive scale, so that the largest product
 * has the largest exponent. */
template <typename T, bool PLAIN> struct ah_attention_scale {
    typedef ah_real<T> R;
    R scale, keep, before, factor;
    __device__ __forceinline__ ah_attention_scale(const ah_attention_args &a)
    {
        scale = sizeof(R) == 8 ? (R)a.scale : (R)a.scale_single;
        keep = PLAIN ? (R)1 : sizeof(R) == 8 ? (R)a.keep_scale : (R)a.keep_scale_single;
        before = scale * ah_attention_base<T>::unit;
        factor = PLAIN ? before : (R)1;
    }
};

/* The place of a warp's scores: its first row, and the first column. OF_KEYS: rows are keys, columns queries. */
template <bool OF_KEYS> struct ah_attention_place {
    int row, column;

    __device__ __forceinline__ int query() const
    {
        return OF_KEYS ? column : row;
    }
    __device__ __forceinline__ int key() const
    {
        return OF_KEYS ? row : column;
    }
    /* The distance of the row and the column of a lane's element from those. */
    static __device__ __forceinline__ int row_of(int i, int e)
    {
        return i * 16 + e / 2 * 8 + (int)threadIdx.x % 32 / 4;
    }
    static __device__ __forceinline__ int column_of(int n, int e)
    {
        return n * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
    }
};

/* The columns that `count` rows from `first` on see: some of the rows see [begin, end), all of them [from, to). */
template <bool OF_KEYS> struct ah_attention_sight {
    int begin, end, from, to;

    ah_attention_sight() = default;
    __device__ __forceinline__ ah_attention_sight(const ah_attention_args &a, const ah_attention_unit &unit, int first,
                                                  int count)
    {
        const int rows = OF_KEYS ? unit.keys : unit.queries, columns = OF_KEYS ? unit.queries : unit.keys;
        const int back = OF_KEYS ? a.right : a.left, ahead = OF_KEYS ? a.left : a.right;
        const int at = first + (OF_KEYS ? -unit.diagonal : unit.diagonal); /* among the columns */
        begin = back < 0 ? 0 : max(at - back, 0);
        end = ahead < 0 ? columns : min(at + count + ahead, columns);
        from = back < 0 ? 0 : max(at + count - 1 - back, 0);
        to = ahead < 0 ? columns : min(at + ahead + 1, columns);
        if (first >= rows)
            end = begin;
        /* A key past the last one has no weights; a query past it has no result. */
        if (OF_KEYS && first + count > rows)
            to = from;
    }
    __device__ __forceinline__ bool some(int column, int count) const
    {
        return column < end && column + count > begin;
    }
    __device__ __forceinline__ bool all(int column, int count) const
    {
        return column >= from && column + count <= to;
    }
};

template <typename T, bool BOOLEAN> struct ah_attention_mask_of {
    typedef T type;
};
template <typename T> struct ah_attention_mask_of<T, true> {
    typedef uint8_t type;
};

/* The mask, in the base's unit. Its keys are next to each other. Queries past the last one, whose results are not read,
 * have the last one's; keys past the last one, which no query sees, have none. */
template <typename T, bool BOOLEAN, bool OF_KEYS, int TALL, int COLUMNS>
__device__ __forceinline__ void ah_attention_mask(ah_real<T> (&s)[TALL][COLUMNS][4], const ah_attention_args &a,
                                                  const ah_attention_unit &unit, int head,
                                                  const ah_attention_place<OF_KEYS> &at)
{
    typedef typename ah_attention_mask_of<T, BOOLEAN>::type M;
    const int query = at.query() + (OF_KEYS ? at.column_of(0, 0) : at.row_of(0, 0));
    const int key = at.key() + (OF_KEYS ? at.row_of(0, 0) : at.column_of(0, 0)), keys = unit.keys - key;
    const M *mask = ah_at<const M>(a.mask) + unit.number * a.mask_batch + head * a.mask_head + key;
    AH_UNROLL
    for (int q = 0; q < 2 * (OF_KEYS ? COLUMNS : TALL); q++) {
        const int own = min(query + (OF_KEYS ? q / 2 * 8 + q % 2 : q * 8), unit.queries - 1);
        const M *row = mask + (int64_t)own * a.mask_query;
        AH_UNROLL
        for (int k = 0; k < 2 * (OF_KEYS ? TALL : COLUMNS); k++) {
            ah_real<T> &to = OF_KEYS ? s[k / 2][q / 2][k % 2 * 2 + q % 2] : s[q / 2][k / 2][q % 2 * 2 + k % 2];
            const int column = OF_KEYS ? k * 8 : k / 2 * 8 + k % 2;
            const M number = column < keys ? row[column] : M();
            if constexpr (BOOLEAN)
                to = number ? to : (ah_real<T>)-INFINITY;
            else
                to = ah_fma(ah_get(number), ah_attention_base<T>::unit, to);
        }
    }
}

/* -inf where a query does not see a key: rows 8 apart see as many columns, 8 further on. */
template <bool OF_KEYS, typename R, int TALL, int COLUMNS>
__device__ __forceinline__ void ah_attention_hide(R (&s)[TALL][COLUMNS][4], const ah_attention_args &a,
                                                  const ah_attention_unit &unit,
                                                  const ah_attention_place<OF_KEYS> &at)
{
    constexpr int FAR = 1 << 30;
    const int back = OF_KEYS ? a.right : a.left, ahead = OF_KEYS ? a.left : a.right;
    const int row = at.row + at.row_of(0, 0), column = at.column + at.column_of(0, 0);
    const int among = row + (OF_KEYS ? -unit.diagonal : unit.diagonal) - column;
    const int begin = back < 0 ? -FAR : among - back, end = ahead < 0 ? FAR : among + ahead + 1;
    const int columns = (OF_KEYS ? unit.queries : unit.keys) - column;
    AH_UNROLL
    for (int i = 0; i < 2 * TALL; i++) {
        const int last = OF_KEYS && row + 8 * i >= unit.keys ? -FAR : min(end + 8 * i, columns);
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n++)
            AH_UNROLL
            for (int e = 0; e < 2; e++)
                if (n * 8 + e - 8 * i < begin || n * 8 + e >= last)
                    s[i / 2][n][i % 2 * 2 + e] = (R)-INFINITY;
    }
}

/* Make scores of products: add the mask, and -inf where a query does not see a key. U: an ah_attention_unit, or one
 * that is parked in shared memory and read where it is needed. */
template <typename T, typename U, bool PLAIN, bool OF_KEYS, int TALL, int COLUMNS>
__device__ __forceinline__ void ah_attention_see(ah_real<T> (&s)[TALL][COLUMNS][4], const ah_attention_args &a,
                                                 const U &unit, int head,
                                                 const ah_attention_place<OF_KEYS> &at,
                                                 const ah_attention_sight<OF_KEYS> &sight,
                                                 const ah_attention_scale<T, PLAIN> &scale)
{
    if constexpr (!PLAIN) {
        AH_UNROLL
        for (int i = 0; i < TALL; i++)
            AH_UNROLL
            for (int n = 0; n < COLUMNS; n++)
                AH_UNROLL
                for (int e = 0; e < 4; e++)
                    s[i][n][e] *= scale.before;
        if (a.mask && a.boolean)
            ah_attention_mask<T, true>(s, a, unit, head, at);
        else if (a.mask)
            ah_attention_mask<T, false>(s, a, unit, head, at);
    }
    if (!sight.all(at.column, COLUMNS * 8))
        ah_attention_hide(s, a, unit, at);
}

/* The weights of a lane that dropout keeps, all without it. A bit for each: keys of one bit of their word differ by
 * lanes, queries by bits. */
template <bool OF_KEYS, int TALL, int COLUMNS> struct ah_attention_kept {
    static constexpr int COUNT = OF_KEYS ? 2 * TALL : (COLUMNS + 3) / 4;
    static_assert(OF_KEYS ? 32 % (COLUMNS * 8) == 0 : TALL <= 2, "the bits of the queries are in half a word");
    uint32_t bits[COUNT];

    template <typename U>
    __device__ __forceinline__ ah_attention_kept(const ah_attention_args &a, const U &parked, int head,
                                                 const ah_attention_place<OF_KEYS> &at)
    {
        AH_UNROLL
        for (int i = 0; i < COUNT; i++)
            bits[i] = a.keep ? 0 : 0xffffffff;
        if (!a.keep)
            return;
        const ah_attention_unit unit = parked;
        const int64_t blocks = ah_attention_blocks_of(unit.queries, AH_ATTENTION_WORD);
        const int query = at.query(), bit = query % 32 + (OF_KEYS ? at.column_of(0, 0) : at.row_of(0, 0));
        const uint32_t *words =
            ah_at<const uint32_t>(a.keep) +
            2 * (unit.words + (head * blocks + query / AH_ATTENTION_WORD) * unit.keys) + query % AH_ATTENTION_WORD / 32;
        /* Past the last key nothing is seen. */
        const int key = at.key() + (OF_KEYS ? at.row_of(0, 0) : at.column_of(0, 0)), keys = unit.keys - key;
        words += 2 * key;
        AH_UNROLL
        for (int k = 0; k < 2 * (OF_KEYS ? TALL : COLUMNS); k++) {
            const int column = OF_KEYS ? k * 8 : k / 2 * 8 + k % 2;
            const uint32_t word = column < keys ? words[2 * column] >> bit : 0;
            if constexpr (OF_KEYS)
                bits[k] = word;
            else
                bits[k / 8] |= (word & 0x01010101) << k % 8;
        }
    }
    /* Is weight s[i][n][e] kept? */
    __device__ __forceinline__ bool at(int i, int n, int e) const
    {
        const int column = 2 * n + e % 2, row = 2 * i + e / 2;
        return OF_KEYS ? bits[row] >> (n * 8 + e % 2) & 1 : bits[column / 8] >> (row * 8 + column % 8) & 1;
    }
};
