/* Small matrix products for one kind of factors (attention_factors.h, attention_pairs.h): C = A B or C + A B in REAL,
 * where a row of B and of C is a whole number of vectors and A is read one FACTOR at a time, so that it may have any
 * strides. Nothing is packed. */

struct KIND(product) {
    int64_t m, n, depth; /* the last in factors */
    const void *a;
    int64_t a_row, a_step; /* A(i, k) is i a_row + k a_step bytes behind a */
    const FACTOR *b;
    int64_t b_row;
    REAL *c;
    int64_t c_row;
    REAL scale; /* of products of pairs, which are not added */
    bool add;   /* to the present values */
    bool far; /* the rows of A are not in the first cache yet, and too far apart for the processor to expect them */
};

/* M rows of A and V vectors of B, both constant at every call so that the sums stay in registers. */
static inline __attribute__((always_inline)) void
KIND(tile)(const int M, const int V, const struct KIND(product) *p, int64_t row, int64_t column)
{
    SUFFIX(ah_lanes) sum[8][4];
    const char *a[8];
    const FACTOR *b = p->b + column;
    REAL *c = p->c + row * p->c_row + column;
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        a[i] = (const char *)p->a + (row + i) * p->a_row;
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            if (p->add)
                sum[i][v] = *SUFFIX(lanes)(c + i * p->c_row + v * SUFFIX(LANE));
            else
                sum[i][v] = SUFFIX(ah_spread)(0);
    }
    for (int i = 0; i < M && p->far; i++)
        for (int64_t k = 0; k < p->depth * (int64_t)sizeof(FACTOR); k += 64)
            __builtin_prefetch(a[i] + M * p->a_row + k);
#pragma GCC unroll 4
    for (int64_t k = 0, at = 0; k < p->depth; k++, at += p->a_step, b += p->b_row) {
        SUFFIX(ah_lanes) line[4];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            line[v] = *KIND(factors)(b + v * SUFFIX(LANE));
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            SUFFIX(ah_lanes) x = KIND(spread_factor)(a[i] + at);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++)
                sum[i][v] = KIND(add_product)(x, line[v], sum[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            *SUFFIX(lanes)(c + i * p->c_row + v * SUFFIX(LANE)) = KIND(scale_sum)(sum[i][v], p->scale);
}

#define TILE(m, v)                                                                                        \
    static void KIND(tile_##m##_##v)(const struct KIND(product) *p, int64_t row, int64_t column)          \
    {                                                                                                     \
        KIND(tile)(m, v, p, row, column);                                                                 \
    }
TILE(1, 1) TILE(2, 1) TILE(4, 1) TILE(8, 1)
TILE(1, 2) TILE(2, 2) TILE(4, 2)
#if AH_LANES_REGISTERS == 32
TILE(8, 2) TILE(1, 3) TILE(2, 3) TILE(4, 3) TILE(8, 3) TILE(1, 4) TILE(2, 4) TILE(4, 4) TILE(6, 4)
#else
TILE(6, 2)
#endif
#undef TILE

typedef void (*KIND(tile_fn))(const struct KIND(product) *p, int64_t row, int64_t column);
struct KIND(tiles) {
    int vectors;
    struct {
        int rows;
        KIND(tile_fn) run;
    } height[4];
};

/* The tiles that fit the registers, widest and highest first. */
static const struct KIND(tiles) KIND(tiles)[] = {
#if AH_LANES_REGISTERS == 32
    {4, {{6, KIND(tile_6_4)}, {4, KIND(tile_4_4)}, {2, KIND(tile_2_4)}, {1, KIND(tile_1_4)}}},
    {3, {{8, KIND(tile_8_3)}, {4, KIND(tile_4_3)}, {2, KIND(tile_2_3)}, {1, KIND(tile_1_3)}}},
    {2, {{8, KIND(tile_8_2)}, {4, KIND(tile_4_2)}, {2, KIND(tile_2_2)}, {1, KIND(tile_1_2)}}},
#else
    {2, {{6, KIND(tile_6_2)}, {4, KIND(tile_4_2)}, {2, KIND(tile_2_2)}, {1, KIND(tile_1_2)}}},
#endif
    {1, {{8, KIND(tile_8_1)}, {4, KIND(tile_4_1)}, {2, KIND(tile_2_1)}, {1, KIND(tile_1_1)}}},
};

static void KIND(multiply)(const struct KIND(product) *p)
{
    const struct KIND(tiles) *tiles = KIND(tiles);
    for (int64_t column = 0; column < p->n; column += tiles->vectors * SUFFIX(LANE)) {
        while (column + tiles->vectors * SUFFIX(LANE) > p->n)
            tiles++;
        for (int64_t row = 0, h = 0; row < p->m; row += tiles->height[h].rows) {
            while (row + tiles->height[h].rows > p->m)
                h++;
            tiles->height[h].run(p, row, column);
        }
    }
}
