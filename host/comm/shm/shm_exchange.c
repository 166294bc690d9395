/* Collectives that move elements from rank to rank, through the staging areas: each round every rank stages a piece of
 * its input, and copies its parts of the result from its peers' stages. Kinds whose input has a part for each rank
 * stage
 * a piece of every part, side by side. */
#include <string.h>

#include "comm/control/combine.h"
#include "comm/shm/shm.h"

struct exchange {
    struct shm_group *shm;
    const struct ah_collective *call;
    int64_t width, piece; /* bytes of an element, elements of a part in a round */
    bool splits;          /* the input has a part per rank */
    struct ah_part given[AH_MAX_RANKS], taken[AH_MAX_RANKS]; /* by peer */
};

static int64_t exchange_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* An input that is not split is staged once, for all its receivers. */
static void exchange_give(const struct exchange *x, int64_t at)
{
    const char *in = x->call->in;
    int rank = x->shm->base.rank, parts = x->splits ? x->shm->base.size : 1;
    unsigned char *stage = shm_stage(x->shm, rank, x->shm->round);
    int64_t whole = ah_collective_input(x->call, x->shm->base.size, rank);
    for (int r = 0; r < parts; r++) {
        struct ah_part part = x->splits ? x->given[r] : (struct ah_part){.count = whole};
        int64_t n = exchange_least(part.count - at, x->piece);
        if (n > 0)
            memcpy(stage + r * x->piece * x->width, in + (part.first + at) * x->width, (size_t)(n * x->width));
    }
}

static void exchange_take(const struct exchange *x, int64_t at, uint32_t round)
{
    const struct ah_collective *call = x->call;
    int size = x->shm->base.size;
    int64_t width = x->width, own = x->splits ? x->shm->base.rank * x->piece * width : 0;
    const void *from[AH_MAX_RANKS];
    char *out = call->out;
    for (int r = 0; r < size; r++) {
        int64_t n = exchange_least(x->taken[r].count - at, x->piece);
        from[r] = shm_stage(x->shm, r, round) + own;
        if (!ah_collective_reduces(call) && n > 0)
            memcpy(out + (x->taken[r].place + at) * width, from[r], (size_t)(n * width));
    }
    int64_t n = exchange_least(x->taken[0].count - at, x->piece);
    if (ah_collective_reduces(call) && n > 0)
        ah_combine(call->dtype, call->reduce, (void *[]){out + at * width}, 1, from, size, n,
                   shm_divisor(x->shm, x->shm->base.issued));
}

/* The longest part that goes from any rank to any: all go through as many rounds. */
static int64_t longest_part(const struct ah_collective *call, int size)
{
    int64_t longest = call->counts ? 0 : call->count;
    int n = call->kind == AH_ALL_TO_ALL_V ? size * size : size;
    for (int i = 0; call->counts && i < n; i++)
        longest = call->counts[i] > longest ? call->counts[i] : longest;
    return longest;
}

int shm_exchange(struct shm_group *shm, const struct ah_collective *call)
{
    int rank = shm->base.rank, size = shm->base.size;
    struct exchange x = {.shm = shm, .call = call, .width = (int64_t)ah_dtype_size(call->dtype)};
    x.splits = ah_collective_splits(call);
    x.piece = AH_STAGE_BYTES / x.width / (x.splits ? size : 1) / 64 * 64;
    for (int r = 0; r < size; r++) {
        x.given[r] = ah_collective_part(call, size, rank, r);
        x.taken[r] = ah_collective_part(call, size, r, rank);
    }
    if (call->kind == AH_BROADCAST && rank == call->root)
        x.taken[rank].count = 0; /* it has its own input */
    int64_t longest = longest_part(call, size);
    for (int64_t at = 0; at < longest; at += x.piece) {
        uint32_t round = shm->round;
        exchange_give(&x, at);
        shm_enter_round(shm);
        shm_count_round(shm, AH_SLICED);
        AH_TRY(ah_watch_wait(&shm->base, AH_ROUND, shm->round));
        exchange_take(&x, at, round);
    }
    return 0;
}
