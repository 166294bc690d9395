/* The loops of gather and scatter over the elements of lines (index_lines.c). */
#include "cpu/index/index.h"

/* Fold src into the places of dst, for actions that read the present value: s becomes `step` of itself and x. */
static void moves_fold(const struct ah_line_move *m)
{
#define FOLD(type, load, store, step)                                                              \
    do {                                                                                           \
        type *dst = m->dst;                                                                        \
        const type *src = m->src;                                                                  \
        for (int64_t k = 0; k < n; k++) {                                                          \
            const int64_t *to = m->at + k * m->at_step;                                            \
            for (int64_t j = 0; j < width; j++) {                                                  \
                type *place = plain ? dst + to[j] : dst + to[j] * dd + j * da;                     \
                __auto_type s = load(*place);                                                      \
                __auto_type x = load(src[plain ? j : k * sd + j * sa]);                            \
                *place = store(step);                                                              \
            }                                                                                      \
        }                                                                                          \
    } while (0)
#define ADD(type, load, store) FOLD(type, load, store, AH_WRAPPING(s) + AH_WRAPPING(x))
#define MULTIPLY(type, load, store) FOLD(type, load, store, AH_WRAPPING(s) * AH_WRAPPING(x))
#define LARGER(type, load, store) FOLD(type, load, store, x > s || x != x ? x : s)
#define SMALLER(type, load, store) FOLD(type, load, store, x < s || x != x ? x : s)
    int64_t n = m->n, width = m->width, dd = m->dst_step, sd = m->src_step, da = m->dst_across, sa = m->src_across;
    bool plain = m->plain;
    if (m->action == AH_SCATTER_ADD)
        AH_SUM_DTYPES(m->dtype, ADD)
    else if (m->action == AH_SCATTER_PROD)
        AH_SUM_DTYPES(m->dtype, MULTIPLY)
    else if (m->action == AH_SCATTER_MAX)
        AH_SUM_DTYPES(m->dtype, LARGER)
    else
        AH_SUM_DTYPES(m->dtype, SMALLER)
#undef ADD
#undef MULTIPLY
#undef LARGER
#undef SMALLER
#undef FOLD
}

bool ah_line_scatter(const struct ah_line_move *m, int64_t places)
{
    const int64_t *to = m->at, width = m->width;
#define SCATTER(type)                                \
    do {                                             \
        type *dst = m->dst;                          \
        const type *src = m->src;                    \
        _Pragma("GCC unroll 4")                      \
        for (int64_t j = 0; j < width; j++) {        \
            if ((uint64_t)to[j] >= (uint64_t)places) \
                return false;                        \
            dst[to[j]] = src[j];                     \
        }                                            \
    } while (0)
    AH_ITEM_TYPES(ah_dtype_size(m->dtype), SCATTER)
#undef SCATTER
    return true;
}

void ah_line_move(const struct ah_line_move *m)
{
    int64_t n = m->n, width = m->width, dd = m->dst_step, sd = m->src_step, da = m->dst_across, sa = m->src_across;
    bool plain = m->plain;
#define MOVE(type)                                                   \
    do {                                                             \
        type *dst = m->dst;                                          \
        const type *src = m->src;                                    \
        for (int64_t k = 0; k < n; k++) {                            \
            const int64_t *to = m->at + k * m->at_step;              \
            if (plain && m->action == AH_GATHER)                     \
                _Pragma("GCC unroll 4")                              \
                for (int64_t j = 0; j < width; j++)                  \
                    dst[j] = src[to[j]];                             \
            else if (m->action == AH_GATHER)                         \
                for (int64_t j = 0; j < width; j++)                  \
                    dst[k * dd + j * da] = src[to[j] * sd + j * sa]; \
            else if (plain)                                          \
                for (int64_t j = 0; j < width; j++)                  \
                    dst[to[j]] = src[j];                             \
            else                                                     \
                for (int64_t j = 0; j < width; j++)                  \
                    dst[to[j] * dd + j * da] = src[k * sd + j * sa]; \
        }                                                            \
    } while (0)
    if (m->action >= AH_SCATTER_ADD)
        moves_fold(m);
    else
        AH_ITEM_TYPES(ah_dtype_size(m->dtype), MOVE)
#undef MOVE
}
