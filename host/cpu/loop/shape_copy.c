/* The strided copy of bits: dims are merged, a transpose goes by tiles, the rest by rows. The two sides must not
 * overlap. */
#include "cpu/loop/shape_copy.h"

#include <string.h>

#include "base/process/parallel.h"

enum {
    TILE = 32,
    BLOCK = 16,
    SHORT = 8,
    FEW = 4,
};

struct copy {
    char *dst;
    const char *src;
    int64_t size[AH_COPY_DIMS], ds[AH_COPY_DIMS], ss[AH_COPY_DIMS];
    int ndim;
    size_t item;
};

static void copy_row(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n, size_t item)
{
    if (ds == 1 && ss == 1) {
        ah_copy_bytes(dst, src, (size_t)n * item);
        return;
    }
#define ROW(type)                                      \
    do {                                               \
        type *restrict to = (type *)dst;               \
        const type *restrict from = (const type *)src; \
        if (ds == 1 && ss == 0) {                      \
            type value = *from;                        \
            for (int64_t i = 0; i < n; i++)            \
                to[i] = value;                         \
        } else if (ds == 1 && ss == -1) {              \
            for (int64_t i = 0; i < n; i++)            \
                to[i] = from[-i];                      \
        } else if (ds == 1) {                          \
            for (int64_t i = 0; i < n; i++)            \
                to[i] = from[i * ss];                  \
        } else {                                       \
            for (int64_t i = 0; i < n; i++)            \
                to[i * ds] = from[i * ss];             \
        }                                              \
    } while (0)
    switch (item) {
    case 1: ROW(uint8_t); break;
    case 2: ROW(uint16_t); break;
    case 4: ROW(uint32_t); break;
    default: ROW(uint64_t); break;
    }
#undef ROW
}

/* One plane with dst contiguous along j and src contiguous along i. Squares of BLOCK go through a
 * buffer, so that both sides see whole cache lines, read and written once, even when the rows are a
 * power of two apart. */
static void copy_tiles(char *dst, int64_t di, const char *src, int64_t sj, int64_t ni, int64_t nj,
                       size_t item)
{
#define TILES(type)                                                                            \
    do {                                                                                       \
        type *restrict to = (type *)dst;                                                       \
        const type *restrict from = (const type *)src;                                         \
        type square[BLOCK * BLOCK];                                                            \
        for (int64_t j0 = 0; j0 < nj; j0 += BLOCK) {                                           \
            for (int64_t i0 = 0; i0 < ni; i0 += BLOCK) {                                       \
                int64_t rows = ni - i0 < BLOCK ? ni - i0 : BLOCK;                              \
                if (rows < BLOCK || nj - j0 < BLOCK) {                                         \
                    for (int64_t i = i0; i < i0 + rows; i++)                                   \
                        for (int64_t j = j0; j < nj && j < j0 + BLOCK; j++)                    \
                            to[i * di + j] = from[i + j * sj];                                 \
                    continue;                                                                  \
                }                                                                              \
                for (int j = 0; j < BLOCK; j++)                                                \
                    for (int i = 0; i < BLOCK; i++)                                            \
                        square[i * BLOCK + j] = from[i0 + i + (j0 + j) * sj];                  \
                for (int i = 0; i < BLOCK; i++)                                                \
                    memcpy(to + (i0 + i) * di + j0, square + i * BLOCK, BLOCK * sizeof(type)); \
            }                                                                                  \
        }                                                                                      \
    } while (0)
    switch (item) {
    case 1: TILES(uint8_t); break;
    case 2: TILES(uint16_t); break;
    case 4: TILES(uint32_t); break;
    default: TILES(uint64_t); break;
    }
#undef TILES
}

/* Positions of flat index `flat` over the first `dims` dims, and its offsets. */
struct iter {
    int64_t at[AH_COPY_DIMS];
    int64_t dst, src;
};

static void iter_start(struct iter *iter, const struct copy *c, int dims, int64_t flat)
{
    iter->dst = iter->src = 0;
    for (int d = dims - 1; d >= 0; d--) {
        iter->at[d] = flat % c->size[d];
        flat /= c->size[d];
        iter->dst += iter->at[d] * c->ds[d];
        iter->src += iter->at[d] * c->ss[d];
    }
}

static void iter_next(struct iter *iter, const struct copy *c, int dims)
{
    for (int d = dims - 1; d >= 0; d--) {
        iter->dst += c->ds[d];
        iter->src += c->ss[d];
        if (++iter->at[d] < c->size[d])
            return;
        iter->dst -= c->size[d] * c->ds[d];
        iter->src -= c->size[d] * c->ss[d];
        iter->at[d] = 0;
    }
}

static void flat_range(void *context, int64_t begin, int64_t end)
{
    const struct copy *c = context;
    int64_t item = (int64_t)c->item;
    copy_row(c->dst + begin * c->ds[0] * item, c->ds[0], c->src + begin * c->ss[0] * item, c->ss[0],
             end - begin, c->item);
}

static void rows_range(void *context, int64_t begin, int64_t end)
{
    const struct copy *c = context;
    int inner = c->ndim - 1;
    struct iter iter;
    iter_start(&iter, c, inner, begin);
    for (int64_t row = begin; row < end; row++) {
        copy_row(c->dst + iter.dst * (int64_t)c->item, c->ds[inner],
                 c->src + iter.src * (int64_t)c->item, c->ss[inner], c->size[inner], c->item);
        iter_next(&iter, c, inner);
    }
}

/* As rows_range, but the last two dims are planes to transpose, and the unit is a strip of TILE
 * rows of a plane. */
static void strips_range(void *context, int64_t begin, int64_t end)
{
    const struct copy *c = context;
    int outer = c->ndim - 2;
    int64_t ni = c->size[outer], nj = c->size[outer + 1], item = (int64_t)c->item;
    int64_t strips = (ni + TILE - 1) / TILE;
    struct iter iter;
    iter_start(&iter, c, outer, begin / strips);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t i0 = unit % strips * TILE, rows = ni - i0 < TILE ? ni - i0 : TILE;
        copy_tiles(c->dst + (iter.dst + i0 * c->ds[outer]) * item, c->ds[outer],
                   c->src + (iter.src + i0) * item, c->ss[outer + 1], rows, nj, c->item);
        if (unit % strips == strips - 1)
            iter_next(&iter, c, outer);
    }
}

static void swap_dims(struct copy *c, int a, int b)
{
    int64_t size = c->size[a], ds = c->ds[a], ss = c->ss[a];
    c->size[a] = c->size[b], c->ds[a] = c->ds[b], c->ss[a] = c->ss[b];
    c->size[b] = size, c->ds[b] = ds, c->ss[b] = ss;
}

void ah_strided_copy(void *dst, const int64_t *dst_stride, const void *src,
                     const int64_t *src_stride, const int64_t *size, int ndim, size_t item)
{
    struct copy c = {.dst = dst, .src = src, .item = item};
    int64_t total = 1;
    for (int d = 0; d < ndim; d++) {
        total *= size[d];
        if (size[d] == 1)
            continue;
        int last = c.ndim - 1;
        if (last >= 0 && c.ds[last] == dst_stride[d] * size[d] &&
            c.ss[last] == src_stride[d] * size[d]) {
            c.size[last] *= size[d];
        } else {
            c.size[++last] = size[d];
            c.ndim++;
        }
        c.ds[last] = dst_stride[d];
        c.ss[last] = src_stride[d];
    }
    if (total == 0)
        return;
    if (c.ndim == 0) {
        memcpy(dst, src, item);
        return;
    }
    if (c.ndim == 1) {
        ah_parallel_units(total, 1, AH_SHARE_COPY, flat_range, &c);
        return;
    }
    int inner = c.ndim - 1;
    if (c.ds[inner] == 1 && c.ss[inner] > 1 && c.size[inner] >= 8) {
        for (int d = 0; d < inner; d++) {
            if (c.ss[d] != 1 || c.size[d] < 8)
                continue;
            for (int k = d; k + 1 < inner; k++) /* keep the order of the others */
                swap_dims(&c, k, k + 1);
            int64_t strips = (c.size[inner - 1] + TILE - 1) / TILE, units = strips;
            for (int k = 0; k < inner - 1; k++)
                units *= c.size[k];
            int64_t per_unit = total / units;
            ah_parallel_units(units, per_unit, AH_SHARE_COPY, strips_range, &c);
            return;
        }
    }
    /* Rows of a few elements, or of a few copies of one: a column at a time instead. */
    if (c.size[inner] < (c.ss[inner] == 0 ? SHORT : FEW) && c.size[inner - 1] > SHORT)
        swap_dims(&c, inner, inner - 1);
    int64_t rows = total / c.size[inner];
    ah_parallel_units(rows, c.size[inner], AH_SHARE_COPY, rows_range, &c);
}

static void zero_range(void *context, int64_t begin, int64_t end)
{
    memset((char *)context + begin, 0, (size_t)(end - begin));
}

void ah_zero_fill(void *dst, size_t bytes)
{
    ah_parallel_for((int64_t)bytes, AH_SHARE_COPY * (int64_t)sizeof(float), zero_range, dst);
}
