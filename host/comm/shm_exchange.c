/* Collectives that move elements from rank to rank, through the staging areas: each round every rank stages a piece of
 * what it gives, and takes what concerns it from its peers' stages. Kinds whose input has a part for each rank stage
 * a piece of every part, side by side. */
#include <string.h>

#include "comm/combine.h"
#include "comm/shm.h"

struct exchange {
    struct shm_group *shm;
    const struct ah_collective *call;
    int64_t width, piece; /* bytes of an element, elements of a round */
    bool split;           /* the input has a part per rank */
};

static int64_t count_of(const struct ah_collective *call, int rank)
{
    return call->counts ? call->counts[rank] : call->count;
}

static void copy(void *to, const void *from, int64_t elements, int64_t width)
{
    if (elements > 0)
        memcpy(to, from, (size_t)(elements * width));
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void give(const struct exchange *x, int64_t at, int64_t n)
{
    const struct ah_collective *call = x->call;
    const char *in = call->in;
    unsigned char *stage = shm_stage(x->shm, x->shm->base.rank, x->shm->round);
    if (!x->split) {
        copy(stage, in + at * x->width, lesser(call->count - at, n), x->width);
        return;
    }
    for (int r = 0; r < x->shm->base.size; r++)
        copy(stage + r * x->piece * x->width, in + (r * call->count + at) * x->width, n, x->width);
}

static void take(const struct exchange *x, int64_t at, int64_t n, uint32_t round)
{
    const struct ah_collective *call = x->call;
    int size = x->shm->base.size, rank = x->shm->base.rank;
    int64_t width = x->width, first = 0, own = rank * x->piece * width;
    const void *from[AH_BOARD_MAX_RANKS];
    char *out = call->out;
    void *to = out + at * width;
    switch (call->kind) {
    case AH_REDUCE_SCATTER:
        for (int r = 0; r < size; r++)
            from[r] = shm_stage(x->shm, r, round) + own;
        ah_combine(call->dtype, call->reduce, &to, 1, from, size, n, shm_divisor(x->shm, x->shm->base.posted));
        break;
    case AH_BROADCAST: copy(to, shm_stage(x->shm, call->root, round), n, width); break;
    case AH_SCATTER: copy(to, shm_stage(x->shm, call->root, round) + own, n, width); break;
    case AH_ALL_TO_ALL:
        for (int r = 0; r < size; r++)
            copy(out + (r * call->count + at) * width, shm_stage(x->shm, r, round) + own, n, width);
        break;
    default: /* the gathers */
        for (int r = 0; r < size; r++) {
            copy(out + (first + at) * width, shm_stage(x->shm, r, round), lesser(count_of(call, r) - at, n), width);
            first += count_of(call, r);
        }
    }
}

int shm_exchange(struct shm_group *shm, const struct ah_collective *call)
{
    int rank = shm->base.rank;
    enum ah_collective_kind kind = call->kind;
    bool rooted = kind == AH_BROADCAST || kind == AH_SCATTER;
    bool gives = !rooted || rank == call->root;
    bool takes = kind == AH_BROADCAST ? rank != call->root : kind != AH_GATHER || rank == call->root;
    struct exchange x = {.shm = shm, .call = call, .width = (int64_t)ah_dtype_size(call->dtype)};
    x.split = kind == AH_REDUCE_SCATTER || kind == AH_SCATTER || kind == AH_ALL_TO_ALL;
    x.piece = AH_STAGE_BYTES / x.width / (x.split ? shm->base.size : 1) / 64 * 64;
    int64_t longest = 0;
    for (int r = 0; r < shm->base.size; r++)
        longest = count_of(call, r) > longest ? count_of(call, r) : longest;
    for (int64_t at = 0; at < longest; at += x.piece) {
        uint32_t round = shm->round;
        int64_t n = lesser(longest - at, x.piece);
        if (gives)
            give(&x, at, n);
        shm_enter_round(shm);
        shm_count_round(shm, AH_SLICED);
        AH_TRY(ah_watch_wait(&shm->base, AH_ROUND, shm->round));
        if (takes)
            take(&x, at, n, round);
    }
    return 0;
}
