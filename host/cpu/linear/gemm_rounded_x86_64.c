/* AVX512-BF16 adds two products to each of 16 sums. 24 registers hold the sums of a tile, 8 rows by 48 columns: a pair
 * of items of a row of A, which is read where it is, is spread to all lanes; pairs of 16 columns of B are one register.
 * B is rounded and packed in parts of 48 columns: for each pair of depths those of all columns. Columns and depths
 * beyond the edges are zeros. */
#include "cpu/linear/gemm_rounded.h"

#include "cpu/loop/bf16.h"
#include "cpu/loop/lanes.h"

enum {
    LANES = 16,
    ROWS = 8,
    VECTORS = 3,
    COLUMNS = VECTORS * LANES,
    DEPTH = 2048,         /* of a part of B, which is in the second-level cache with the one that is packed next */
    SLICE = 2 * LANES,    /* depths that are packed at a time, at least */
    CHUNK = 32,           /* pairs of a tile between which memory is requested */
    PARTIAL_ROWS = 1024,  /* rows whose sums wait for the next part of the depth */
    CACHE_LINE = 64,
};

#ifdef AH_LANES_PAIRS
bool ah_gemm_rounded_found(void)
{
    return ah_bf16_native() && !ah_bf16_in_blocks(); /* AMX has other operands */
}

/* The order of a product: `rows` rows of A after one another, `depth` of the sums within them. */
struct rounded_plan {
    int64_t rows, depth;
};

static struct rounded_plan rounded_plan(const struct ah_gemm_rounded *p)
{
    int64_t depth = (p->k + 1) / 2 * 2;
    struct rounded_plan plan = {.rows = p->m, .depth = depth < DEPTH ? depth : DEPTH};
    if (p->k > plan.depth && plan.rows > PARTIAL_ROWS)
        plan.rows = PARTIAL_ROWS;
    return plan;
}

static size_t packed_bytes(const struct rounded_plan *plan)
{
    return (size_t)(plan->depth * COLUMNS) * sizeof(uint16_t);
}

size_t ah_gemm_rounded_scratch(const struct ah_gemm_rounded *p)
{
    struct rounded_plan plan = rounded_plan(p);
    int64_t sums = p->k > plan.depth ? (plan.rows + ROWS - 1) / ROWS * ROWS * COLUMNS : 0;
    return 2 * packed_bytes(&plan) + (size_t)sums * sizeof(float);
}

#pragma GCC push_options
AH_LANES_PAIRS
static inline __mmask16 first_lanes(int64_t count)
{
    return count >= LANES ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

/* A part of B: `count` columns from `column` on, `depth` items of each from `from` on. */
struct rounded_part {
    int64_t column, count, from, depth;
};

static const float *part_at(const struct ah_gemm_rounded *p, const struct rounded_part *part, int64_t depth)
{
    return p->b + part->column * p->b_column + (part->from + depth) * p->b_step;
}

/* Pack the depths [begin, end) of a part where the columns of a depth follow each other. */
static void pack_across(const struct ah_gemm_rounded *p, const struct rounded_part *part, uint32_t *to, int64_t begin,
                        int64_t end)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i pairs = _mm512_or_si512(low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(LANES)), 16));
    for (int64_t d = begin; d < end; d += 2)
        for (int64_t j = 0; j < part->count; j += LANES, to += LANES) {
            const float *at = part_at(p, part, d) + j;
            __mmask16 lanes = first_lanes(part->count - j);
            __m512 first = _mm512_maskz_loadu_ps(lanes, at);
            __m512 second = _mm512_maskz_loadu_ps(d + 1 < end ? lanes : 0, at + p->b_step);
            _mm512_storeu_si512(to, _mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
        }
}

/* Transpose 16 x 16 pairs. */
static inline __attribute__((always_inline)) void turn_pairs(__m512i row[LANES])
{
    __m512i half[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        half[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
        half[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        row[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
        row[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
        row[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
        row[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
    }
    /* row[4 i + j] has in its quarter q column 4 q + j of the rows 4 i to 4 i + 3. */
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        half[j] = _mm512_shuffle_i32x4(row[j], row[4 + j], 0x88);
        half[4 + j] = _mm512_shuffle_i32x4(row[8 + j], row[12 + j], 0x88);
        half[8 + j] = _mm512_shuffle_i32x4(row[j], row[4 + j], 0xdd);
        half[12 + j] = _mm512_shuffle_i32x4(row[8 + j], row[12 + j], 0xdd);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        row[j] = _mm512_shuffle_i32x4(half[j], half[4 + j], 0x88);
        row[4 + j] = _mm512_shuffle_i32x4(half[8 + j], half[12 + j], 0x88);
        row[8 + j] = _mm512_shuffle_i32x4(half[j], half[4 + j], 0xdd);
        row[12 + j] = _mm512_shuffle_i32x4(half[8 + j], half[12 + j], 0xdd);
    }
}

/* Pack them where the depths of a column follow each other. */
static void pack_along(const struct ah_gemm_rounded *p, const struct rounded_part *part, uint32_t *to, int64_t begin,
                       int64_t end)
{
    int64_t vectors = (part->count + LANES - 1) / LANES;
    for (int64_t d = begin; d < end; d += SLICE, to += LANES * vectors * LANES) {
        __mmask16 low = first_lanes(end - d), high = first_lanes(end - d - LANES);
        int64_t pairs = (end - d + 1) / 2;
        for (int64_t v = 0; v < vectors; v++) {
            const float *at = part_at(p, part, d) + v * LANES * p->b_column;
            __m512i row[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                bool here = v * LANES + i < part->count;
                __m512 first = _mm512_maskz_loadu_ps(here ? low : 0, at + i * p->b_column);
                __m512 second = _mm512_maskz_loadu_ps(here ? high : 0, at + i * p->b_column + LANES);
                row[i] = (__m512i)_mm512_cvtne2ps_pbh(second, first);
            }
            turn_pairs(row);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                if (i < pairs)
                    _mm512_storeu_si512(to + (i * vectors + v) * LANES, row[i]);
        }
    }
}

/* Pack the depths [begin, end) of a part; `begin` is a multiple of SLICE. */
static void pack_columns(const struct ah_gemm_rounded *p, const struct rounded_part *part, uint32_t *to, int64_t begin,
                         int64_t end)
{
    to += begin / 2 * ((part->count + LANES - 1) / LANES) * LANES;
    if (p->b_step == 1)
        pack_along(p, part, to, begin, end);
    else
        pack_across(p, part, to, begin, end);
}

/* Memory to be requested: `lines` pieces of `bytes` bytes, `stride` apart, the first of them from `offset` on. */
struct rounded_request {
    const char *at;
    int64_t stride, bytes, lines, offset;
};

static struct rounded_request request_of(const struct ah_gemm_rounded *p, const struct rounded_part *part,
                                         int64_t begin, int64_t end)
{
    int64_t item = (int64_t)sizeof *p->b, depths = end - begin;
    struct rounded_request request = {.at = (const char *)part_at(p, part, begin)};
    request.stride = (p->b_step == 1 ? p->b_column : p->b_step) * item;
    request.bytes = (p->b_step == 1 ? depths : part->count) * item;
    request.lines = p->b_step == 1 ? part->count : depths;
    return request;
}

/* Requests for each of `chunks` chunks that are enough for all. */
static int64_t requests_per_chunk(const struct rounded_request *request, int64_t chunks)
{
    int64_t count = request->lines * ((request->bytes + 2 * CACHE_LINE - 2) / CACHE_LINE);
    return (count + chunks - 1) / chunks;
}

static inline void request_some(struct rounded_request *request, int64_t count)
{
    for (; count > 0 && request->lines > 0; count--) {
        _mm_prefetch(request->at + request->offset, _MM_HINT_T0);
        request->offset += CACHE_LINE;
        if (request->offset >= request->bytes) {
            request->offset = 0;
            request->at += request->stride;
            request->lines--;
        }
    }
}

/* One tile of C. The sums begin as zeros or, but for the `first` part of the depth, as those in `sums`; those of the
 * `last` part go to C, others back. */
struct rounded_tile {
    const uint16_t *row[ROWS]; /* missing ones are another row */
    const uint32_t *columns;   /* packed */
    float *sums;               /* rows of COLUMNS */
    int64_t at_row, at_column, rows, count, depth;
    bool first, last;
    struct rounded_request next; /* memory of the next part of B */
    int64_t requests;            /* for each chunk; 0: no chunks */
};

typedef int32_t rounded_pair __attribute__((aligned(2), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE void tile_write(const struct ah_gemm_rounded *p, const struct rounded_tile *t, int r, int v, __m512 sum)
{
    __mmask16 lanes = first_lanes(t->count - v * LANES);
    int64_t column = t->at_column + v * LANES;
    if (p->bias) {
        __m512i bias = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p->bias + column));
        sum = _mm512_add_ps(sum, (__m512)_mm512_slli_epi32(bias, 16));
    }
    _mm256_mask_storeu_epi16(p->c + (t->at_row + r) * p->ldc + column, lanes, (__m256i)_mm512_cvtneps_pbh(sum));
}

/* Request the tile's part of C, which is written at its end. */
static void tile_request(const struct ah_gemm_rounded *p, const struct rounded_tile *t)
{
    int64_t step = CACHE_LINE / (int64_t)sizeof *p->c;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t i = 0; i < t->count; i += step)
            _mm_prefetch(p->c + (t->at_row + r) * p->ldc + t->at_column + i, _MM_HINT_T0);
}

/* Add the pairs [from, to) of the rows; an item without a second one is `odd`. */
INLINE void tile_add(const struct rounded_tile *t, __m512 sum[ROWS][VECTORS], int vectors, int64_t from, int64_t to,
                     bool odd)
{
    const uint32_t *columns = t->columns + from * vectors * LANES;
    const uint16_t *row0 = t->row[0], *row1 = t->row[1], *row2 = t->row[2], *row3 = t->row[3], *row4 = t->row[4],
                   *row5 = t->row[5], *row6 = t->row[6], *row7 = t->row[7];
    for (int64_t i = 2 * from; i < 2 * to; i += 2, columns += vectors * LANES) {
        __m512bh column[VECTORS];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            column[v] = (__m512bh)_mm512_loadu_si512(columns + v * LANES);
#define ADD_ROW(r)                                                                                 \
    do {                                                                                           \
        int32_t pair = odd ? row##r[i] : *(const rounded_pair *)(row##r + i);                      \
        _Pragma("GCC unroll 3") for (int v = 0; v < vectors; v++)                                  \
            sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)_mm512_set1_epi32(pair), column[v]); \
    } while (0)
        ADD_ROW(0);
        ADD_ROW(1);
        ADD_ROW(2);
        ADD_ROW(3);
        ADD_ROW(4);
        ADD_ROW(5);
        ADD_ROW(6);
        ADD_ROW(7);
    }
}

INLINE void tile_run(const struct ah_gemm_rounded *p, struct rounded_tile *t, int vectors)
{
    __m512 sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            sum[r][v] = t->first ? _mm512_setzero_ps() : _mm512_loadu_ps(t->sums + r * COLUMNS + v * LANES);
    int64_t pairs = t->depth / 2, chunk = t->requests ? CHUNK : pairs;
    for (int64_t from = 0; from < pairs; from += chunk) {
        request_some(&t->next, t->requests);
        tile_add(t, sum, vectors, from, pairs - from < chunk ? pairs : from + chunk, false);
    }
    if (t->depth % 2)
        tile_add(t, sum, vectors, pairs, pairs + 1, true);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            if (!t->last)
                _mm512_storeu_ps(t->sums + r * COLUMNS + v * LANES, sum[r][v]);
            else if (r < t->rows)
                tile_write(p, t, r, v, sum[r][v]);
}

static void tile_choose(const struct ah_gemm_rounded *p, struct rounded_tile *t)
{
    if (t->last)
        tile_request(p, t);
    if (t->count > 2 * LANES)
        tile_run(p, t, 3);
    else if (t->count > LANES)
        tile_run(p, t, 2);
    else
        tile_run(p, t, 1);
}

/* Part `index` of B; the parts of the depth of some columns follow each other. */
static struct rounded_part numbered_part(const struct ah_gemm_rounded *p, const struct rounded_plan *plan,
                                         int64_t index)
{
    int64_t depths = (p->k + plan->depth - 1) / plan->depth;
    struct rounded_part part = {.column = index / depths * COLUMNS, .from = index % depths * plan->depth};
    part.count = p->n - part.column < COLUMNS ? p->n - part.column : COLUMNS;
    part.depth = p->k - part.from < plan->depth ? p->k - part.from : plan->depth;
    return part;
}

/* The rows [row, row + count) of one part of B. The part after it is packed between the tiles, slice by slice; the
 * memory of a slice is requested during the tile before. */
static void run_part(const struct ah_gemm_rounded *p, float *sums, int64_t row, int64_t count,
                     const struct rounded_part *part, const uint32_t *columns, const struct rounded_part *next,
                     uint32_t *next_columns)
{
    struct rounded_tile t = {.columns = columns, .at_column = part->column, .count = part->count,
                             .depth = part->depth, .first = part->from == 0,
                             .last = part->from + part->depth == p->k};
    int64_t tiles = (count + ROWS - 1) / ROWS, each = (next->depth + tiles * SLICE - 1) / (tiles * SLICE) * SLICE;
    for (int64_t i = 0, begin = 0, end; i < count; i += ROWS, begin = end) {
        end = next->depth - begin < each ? next->depth : begin + each;
        t.requests = 0;
        if (end > begin) {
            t.next = request_of(p, next, begin, end);
            t.requests = requests_per_chunk(&t.next, t.depth / 2 / CHUNK + 1);
        }
        t.at_row = row + i;
        t.rows = count - i < ROWS ? count - i : ROWS;
        t.sums = sums + i * COLUMNS;
        for (int64_t r = 0; r < ROWS; r++)
            t.row[r] = p->a + (t.at_row + (r < t.rows ? r : 0)) * p->lda + part->from;
        tile_choose(p, &t);
        if (end > begin)
            pack_columns(p, next, next_columns, begin, end);
    }
}

void ah_gemm_rounded_run(const struct ah_gemm_rounded *p, void *scratch)
{
    struct rounded_plan plan = rounded_plan(p);
    uint32_t *columns[2] = {scratch, (uint32_t *)scratch + packed_bytes(&plan) / sizeof(uint32_t)};
    float *sums = (float *)(void *)(columns[1] + packed_bytes(&plan) / sizeof(uint32_t));
    int64_t parts = (p->n + COLUMNS - 1) / COLUMNS * ((p->k + plan.depth - 1) / plan.depth);
    for (int64_t row = 0; row < p->m; row += plan.rows) {
        struct rounded_part part = numbered_part(p, &plan, 0), next;
        int64_t count = p->m - row < plan.rows ? p->m - row : plan.rows;
        pack_columns(p, &part, columns[0], 0, part.depth);
        for (int64_t index = 0; index < parts; index++, part = next) {
            next = index + 1 < parts ? numbered_part(p, &plan, index + 1) : (struct rounded_part){0};
            run_part(p, sums, row, count, &part, columns[index % 2], &next, columns[(index + 1) % 2]);
        }
    }
}
#pragma GCC pop_options
#else
bool ah_gemm_rounded_found(void)
{
    return false;
}

size_t ah_gemm_rounded_scratch(const struct ah_gemm_rounded *p)
{
    return 0;
}

void ah_gemm_rounded_run(const struct ah_gemm_rounded *p, void *scratch)
{
}
#endif
