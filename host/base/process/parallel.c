/* Division of loops: borders follow from n, grain and the number of threads alone. */
#include "base/process/parallel.h"

#include "base/process/thread_pool.h"
#include "base/process/threads.h"

/* A loop that ah_parallel_for divides. */
struct loop {
    int64_t n, grain, blocks;
    int pieces;
    ah_range_fn body;
    void *context;
};

static void loop_piece(void *context, int piece)
{
    const struct loop *l = context;
    int64_t begin = l->blocks * piece / l->pieces * l->grain, end = l->blocks * (piece + 1) / l->pieces * l->grain;
    if (end > l->n)
        end = l->n;
    if (begin < end)
        l->body(l->context, begin, end);
}

void ah_parallel_for(int64_t n, int64_t grain, ah_range_fn body, void *context)
{
    struct loop l = {n, grain, grain > 0 ? (n + grain - 1) / grain : 1, 1, body, context};
    int threads = ah_num_threads();
    if (threads > 1 && l.blocks > 1) {
        int64_t most = AH_PIECES_PER_THREAD * threads;
        l.pieces = (int)(l.blocks < most ? l.blocks : most);
        ah_pool_run(l.pieces, loop_piece, &l);
    } else if (n > 0) {
        body(context, 0, n);
    }
}

void ah_parallel_units(int64_t n, int64_t elements, enum ah_share share, ah_range_fn body, void *context)
{
    int64_t grain = ah_grain(elements, share);
    if (n > grain)
        grain = grain < 8 ? 1 : grain / 8;
    ah_parallel_for(n, grain, body, context);
}
