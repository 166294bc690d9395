/* What forward and backward of attention share: which sequence, head and rows a block has, which keys a query sees,
 * what a score becomes. */
#ifndef AH_CUDA_ATTENTION_CUH
#define AH_CUDA_ATTENTION_CUH

#include "cuda/kernels/attention.h"
#include "cuda/kernels/attention_tile.cuh"

/* A sequence, a head, and a number of a block of rows. Sequences together are shorter than 2^31. */
struct ah_attention_unit {
    int number;              /* of the batch: the first stride of arrays and mask */
    int query, queries, key, keys, room;
    int row;                 /* the number of its first query among all */
    int block, head;
    int64_t words;           /* of dropout, of the sequences before */

    /* Query i stands over key i + diagonal; those of a batch over keys of their numbers. */
    int diagonal;
};

__device__ __forceinline__ int64_t ah_attention_blocks_of(int64_t rows, int size)
{
    return (rows + size - 1) / size;
}

/* A block of all sequences' blocks; false when there are not so many. Whole warps come. */
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
            return true;
        }
        before += __shfl_sync(0xffffffff, last, 31);
        words += __shfl_sync(0xffffffff, last_words, 31);
    }
    return false;
}

/* Number `index` of a.units: blocks of `size` queries of each head, or keys of each head that has some of its own. */
__device__ __forceinline__ bool ah_attention_unit_at(ah_attention_unit *unit, const ah_attention_args &a, int64_t index,
                                                     bool of_keys, int size)
{
    const int heads = of_keys ? a.heads / a.group : a.heads;
    if (a.spans) {
        unit->head = (int)(index % heads);
        return ah_attention_find(unit, a, index / heads, of_keys, size);
    }
    const int64_t blocks = ah_attention_blocks_of(of_keys ? a.keys : a.queries, size);
    unit->block = (int)(index % blocks);
    unit->head = (int)(index / blocks % heads);
    unit->number = (int)(index / blocks / heads);
    unit->query = unit->key = unit->diagonal = 0;
    unit->queries = (int)a.queries;
    unit->keys = unit->room = (int)a.keys;
    unit->row = unit->number * unit->queries;
    unit->words = unit->number * ah_attention_blocks_of(a.queries, AH_ATTENTION_WORD) * a.keys * a.heads;
    /* Under a causal mask later queries have more to do, so they begin first. */
    if (!of_keys && a.right >= 0)
        unit->block = (int)blocks - 1 - unit->block;
    return true;
}

template <typename T>
__device__ __forceinline__ T *ah_attention_row(const ah_attention_rows &rows, const ah_attention_unit &unit, int row,
                                               int head)
{
    return ah_at<T>(rows.at) + unit.number * rows.batch + row * rows.token + head * rows.head;
}

/* ROWS rows of an array's head to shared memory, from row `first` of the sequence on, which begins at `base` and has
 * `count`. */
template <typename T, int WIDTH, int ROWS, int THREADS>
__device__ __forceinline__ void ah_attention_bring(ah_copies &copies, T *to, const ah_attention_rows &rows,
                                                   const ah_attention_unit &unit, int base, int first, int count,
                                                   int head)
{
    ah_tile_bring<T, WIDTH, ROWS, THREADS>(copies, to, ah_attention_row<const T>(rows, unit, base + first, head),
                                           rows.token, count - first, rows.width, rows.wide);
}

/* Those of two arrays of the same rows, one behind the other. */
template <typename T, int WIDTH, int ROWS, int THREADS>
__device__ __forceinline__ void ah_attention_bring_both(ah_copies &copies, T *to, const ah_attention_rows &one,
                                                        const ah_attention_rows &other, const ah_attention_unit &unit,
                                                        int base, int first, int count, int head)
{
    ah_attention_bring<T, WIDTH, ROWS, THREADS>(copies, to, one, unit, base, first, count, head);
    ah_attention_bring<T, WIDTH, ROWS, THREADS>(copies, to + ROWS * ah_pitch<T, WIDTH>, other, unit, base, first, count,
                                                head);
}

/* A warp's gradients to rows `first` and on of an array's head. */
template <typename T, int WIDTH, int TALL>
__device__ __forceinline__ void ah_attention_take(const ah_real<T> (&sum)[TALL][WIDTH / 8][4],
                                                  const ah_attention_rows &rows, const ah_attention_unit &unit,
                                                  int base, int first, int count, T *own)
{
    ah_real<T> one[TALL][2];
    AH_UNROLL
    for (int i = 0; i < 2 * TALL; i++)
        one[i / 2][i % 2] = 1;
    ah_tile_take<T, WIDTH>(sum, one, own, ah_attention_row<T>(rows, unit, base + first, unit.head), rows.token,
                           count - first, rows.width, rows.wide);
}

template <typename T> __device__ __forceinline__ void ah_swap(T &a, T &b)
{
    const T before = a;
    a = b;
    b = before;
}

/* Rows [begin, end) of the other side that rows first .. first + count see, or are seen by; begin is a multiple of
 * `step`. */
__device__ __forceinline__ void ah_attention_range(int *begin, int *end, int first, int count, int64_t before,
                                                   int64_t behind, int others, int step)
{
    const int64_t last = first + count + behind;
    *end = behind < 0 || last > others ? others : last < 0 ? 0 : (int)last;
    *begin = before < 0 || first - before < 0 ? 0 : (int)((first - before) / step) * step;
}

/* Exponentials: of halves' scores to the base 2, which a card has an instruction for. */
template <typename T> struct ah_attention_base {
    static constexpr float unit = 1.44269504f; /* log2(e) */
    static __device__ __forceinline__ float power(float x)
    {
        return exp2f(x);
    }
    static __device__ __forceinline__ float logarithm(float x)
    {
        return log2f(x);
    }
};
template <typename R> struct ah_attention_base_e {
    static constexpr R unit = 1;
    static __device__ __forceinline__ R power(R x)
    {
        return ah_exp(x);
    }
    static __device__ __forceinline__ R logarithm(R x)
    {
        return ah_log(x);
    }
};
template <> struct ah_attention_base<float> : ah_attention_base_e<float> {
};
template <> struct ah_attention_base<double> : ah_attention_base_e<double> {
};

/* Where a warp's scores are: its first row, and the first column. OF_KEYS: rows are keys, columns queries. */
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
    /* How far the query and the key of an element are from those. */
    static __device__ __forceinline__ int row_of(int i, int e)
    {
        return i * 16 + e / 2 * 8 + (int)threadIdx.x % 32 / 4;
    }
    static __device__ __forceinline__ int column_of(int n, int e)
    {
        return n * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
    }
    static __device__ __forceinline__ int query_of(int i, int n, int e)
    {
        return OF_KEYS ? column_of(n, e) : row_of(i, e);
    }
    static __device__ __forceinline__ int key_of(int i, int n, int e)
    {
        return OF_KEYS ? row_of(i, e) : column_of(n, e);
    }
};

template <typename T, bool OF_KEYS, int TALL, int COLUMNS>
__device__ __forceinline__ void ah_attention_mask(ah_real<T> (&s)[TALL][COLUMNS][4], const ah_attention_args &a,
                                                  const ah_attention_unit &unit, int64_t mask, int queries, int keys)
{
    typedef ah_attention_place<OF_KEYS> place;
    AH_UNROLL
    for (int i = 0; i < TALL; i++)
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n++)
            AH_UNROLL
            for (int e = 0; e < 4; e++) {
                const int q = place::query_of(i, n, e), k = place::key_of(i, n, e);
                if (q >= queries || k >= keys)
                    continue;
                const int64_t at = mask + q * a.mask_query + k * a.mask_key;
                if (!a.boolean)
                    s[i][n][e] += ah_get(ah_at<const T>(a.mask)[at]) * ah_attention_base<T>::unit;
                else if (!ah_at<const uint8_t>(a.mask)[at])
                    s[i][n][e] = (ah_real<T>)-INFINITY;
            }
}

/* Scores times scale in the base's unit, the mask added; -inf where a query does not see a key. */
template <typename T, bool OF_KEYS, int TALL, int COLUMNS>
__device__ __forceinline__ void ah_attention_see(ah_real<T> (&s)[TALL][COLUMNS][4], const ah_attention_args &a,
                                                 const ah_attention_unit &unit, int head,
                                                 const ah_attention_place<OF_KEYS> &at)
{
    typedef ah_real<T> R;
    typedef ah_attention_place<OF_KEYS> place;
    constexpr int QUERIES = OF_KEYS ? COLUMNS * 8 : TALL * 16, KEYS = OF_KEYS ? TALL * 16 : COLUMNS * 8;
    const R scale = (R)a.scale * ah_attention_base<T>::unit;
    AH_UNROLL
    for (int i = 0; i < TALL; i++)
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n++)
            AH_UNROLL
            for (int e = 0; e < 4; e++)
                s[i][n][e] *= scale;
    const int queries = unit.queries - at.query(), keys = unit.keys - at.key();
    if (a.mask)
        ah_attention_mask<T, OF_KEYS>(s, a, unit,
                                      unit.number * a.mask_batch + head * a.mask_head + at.query() * a.mask_query +
                                          at.key() * a.mask_key,
                                      queries, keys);
    /* Query q sees key k where first <= k - q <= last. */
    const int own = at.query() + unit.diagonal - at.key();
    const int last = a.right < 0 ? KEYS : own + a.right, first = a.left < 0 ? -QUERIES : own - a.left;
    if (queries >= QUERIES && keys >= KEYS && last >= KEYS - 1 && first <= 1 - QUERIES)
        return;
    AH_UNROLL
    for (int i = 0; i < TALL; i++)
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n++)
            AH_UNROLL
            for (int e = 0; e < 4; e++) {
                const int q = place::query_of(i, n, e), k = place::key_of(i, n, e);
                if (q >= queries || k >= keys || k - q > last || k - q < first)
                    s[i][n][e] = (R)-INFINITY;
            }
}

/* Zeros where dropout takes a weight away, the others times what it keeps them with. */
template <bool OF_KEYS, typename R, int TALL, int COLUMNS>
__device__ __forceinline__ void ah_attention_drop(R (&s)[TALL][COLUMNS][4], const ah_attention_args &a,
                                                  const ah_attention_unit &unit, int head,
                                                  const ah_attention_place<OF_KEYS> &at)
{
    typedef ah_attention_place<OF_KEYS> place;
    const int64_t blocks = ah_attention_blocks_of(unit.queries, AH_ATTENTION_WORD);
    /* All queries here are of one word. */
    const uint64_t *words = ah_at<const uint64_t>(a.keep) + unit.words +
                            (head * blocks + at.query() / AH_ATTENTION_WORD) * unit.keys + at.key();
    const int queries = unit.queries - at.query(), keys = unit.keys - at.key();
    const int bit = at.query() % AH_ATTENTION_WORD;
    AH_UNROLL
    for (int i = 0; i < TALL; i++)
        AH_UNROLL
        for (int n = 0; n < COLUMNS; n++)
            AH_UNROLL
            for (int e = 0; e < 4; e++) {
                const int q = place::query_of(i, n, e), k = place::key_of(i, n, e);
                const bool stays = q < queries && k < keys && (words[k] >> (bit + q) & 1);
                s[i][n][e] = stays ? s[i][n][e] * (R)a.keep_scale : (R)0;
            }
}

#endif
