/* Shares of a model: the cut by rank, gradients reduced into slices, steps over pieces, parameters in common. */
#include <stdlib.h>

#include "comm_ranks.h"
#include "sync/layout.h"
#include "sync/shard.h"

enum { PARAMS = 4 };
/* Of one element, of some pages, of a few. */
static const int64_t lengths[PARAMS] = {7, 5000, 1, 1300};

struct model {
    struct ah_tensor *param[PARAMS];
    struct ah_reducer *reducer;
};

static int shard_make(struct rank *me, struct model *m, enum ah_sharding sharding)
{
    static const int unit[PARAMS] = {0, 1, 1, 2};
    for (int i = 0; i < PARAMS; i++) {
        AH_TRY(ah_tensor_empty(&m->param[i], &lengths[i], 1, AH_F64, &ah_cpu));
        for (int64_t k = 0; k < lengths[i]; k++)
            ah_tensor_set(m->param[i], k, 100 * i + (double)(k % 9) + 1000 * me->rank);
    }
    return ah_reducer_new(&m->reducer, me->group, m->param, PARAMS, NULL, 0,
                          (struct ah_reducer_options){.sharding = sharding, .unit = unit, .where = "?"});
}

static void shard_unmake(struct model *m)
{
    ah_reducer_free(m->reducer);
    for (int i = 0; i < PARAMS; i++)
        ah_tensor_release(m->param[i]);
}

/* Every element is in one rank's shard. */
static void check_cut(struct rank *me, struct model *m)
{
    for (int i = 0; i < PARAMS; i++) {
        int64_t at = 0;
        for (int r = 0; r < me->size; r++) {
            struct ah_run run = ah_shard_of_param(m->reducer, i, r);
            RANK_CHECK(me, run.count == 0 || run.first == at);
            at += run.count;
        }
        RANK_CHECK(me, at == lengths[i]);
    }
}

static void shard_backward(struct rank *me, struct model *m, int shard_step)
{
    RANK_CHECK(me, ah_shard_weigh(m->reducer) == 0 && ah_reducer_begin(m->reducer, 1, "?") == 0);
    for (int i = PARAMS - 1; i >= 0; i--) {
        struct ah_tensor *grad = ah_reducer_grad(m->reducer, i);
        bool *has = ah_reducer_has_grad(m->reducer, i);
        for (int64_t k = 0; k < lengths[i]; k++)
            ah_tensor_set(grad, k, (*has ? ah_tensor_get(grad, k) : 0) + shard_step + i + 2 * me->rank);
        *has = true;
        ah_reducer_param_ready(m->reducer, i);
        ah_reducer_progress(m->reducer);
    }
    RANK_CHECK(me, ah_reducer_finish(m->reducer, "?") == 0 && ah_shard_find_sum(m->reducer) == -1);
}

/* The mean where it is this rank's; elsewhere the mean too, or zeros. */
static void check_gradients(struct rank *me, struct model *m, double sum, int backwards, bool slices)
{
    for (int i = 0; i < PARAMS; i++) {
        struct ah_run own = ah_shard_of_param(m->reducer, i, me->rank);
        int bad = 0;
        for (int64_t k = 0; k < lengths[i]; k++) {
            bool mine = k >= own.first && k < own.first + own.count;
            double expected = mine || !slices ? sum + backwards * (i + me->size - 1) : 0;
            bad += ah_tensor_get(ah_reducer_grad(m->reducer, i), k) != expected;
        }
        RANK_CHECK(me, bad == 0);
    }
}

/* SGD with a rate of 1/2 over the pieces. */
static void shard_step(struct rank *me, struct model *m)
{
    RANK_CHECK(me, ah_shard_hold(m->reducer, "?") == 0);
    for (int i = 0; i < PARAMS; i++) {
        struct ah_tensor *value, *grad;
        RANK_CHECK(me, ah_shard_piece(&value, m->reducer, i, false) == 0);
        RANK_CHECK(me, ah_shard_piece(&grad, m->reducer, i, true) == 0);
        for (int64_t k = 0; k < value->numel; k++)
            ah_tensor_set(value, k, ah_tensor_get(value, k) - ah_tensor_get(grad, k) / 2);
        ah_tensor_release(value);
        ah_tensor_release(grad);
        *ah_reducer_has_grad(m->reducer, i) = false;
    }
    RANK_CHECK(me, ah_shard_spread(m->reducer, "?") == 0);
}

static void shard_train(struct rank *me, enum ah_sharding sharding)
{
    struct model m = {.reducer = NULL};
    int status = shard_make(me, &m, sharding);
    if (sharding == AH_SHARD_FULL && status == AH_ENOTIMPL) {
        RANK_CHECK(me, strstr(ah_error_text(), "no memory in common") && !me->group->backend->lend);
        shard_unmake(&m);
        return;
    }
    RANK_CHECK(me, status == 0);
    check_cut(me, &m);
    bool slices = sharding >= AH_SHARD_GRADIENTS && me->size > 1;
    double moved = 0;
    for (int round = 0; round < 3; round++) {
        shard_backward(me, &m, round);
        check_gradients(me, &m, round, 1, slices);
        if (round == 1) {
            shard_backward(me, &m, 5); /* adds to the mean */
            check_gradients(me, &m, round + 5, 2, slices);
        }
        shard_step(me, &m);
        moved += (round + me->size - 1) / 2.0 + (round == 1 ? (5 + me->size - 1) / 2.0 : 0);
        for (int i = 0; i < PARAMS; i++) {
            int bad = 0, times = round + 1 + (round >= 1);
            for (int64_t k = 0; k < lengths[i]; k++)
                bad += ah_tensor_get(m.param[i], k) != 100 * i + (double)(k % 9) - moved - times * i / 2.0;
            RANK_CHECK(me, bad == 0);
        }
    }
    RANK_CHECK(me, barrier(me) == 0);
    shard_unmake(&m);
}

static void all_kinds(struct rank *me)
{
    for (int twice = 0; twice < 2; twice++)
        for (int sharding = AH_SHARD_OPTIMIZER; sharding <= AH_SHARD_FULL; sharding++)
            shard_train(me, (enum ah_sharding)sharding);
}

AH_TEST(shards_are_stepped_and_spread_on_any_backend)
{
    for (int size = 1; size <= 4; size++)
        CHECK(run_ranks_mortal(size, 0, 0, all_kinds));
}

static void common_memory(struct rank *me)
{
    enum { N = 40000 };
    unsigned char *memory;
    int host = ah_group_host(me->group, me->rank);
    for (int round = 0; round < 3; round++) {
        int status = ah_group_share(me->group, N, "?", (void **)&memory);
        if (status == AH_ENOTIMPL)
            return;
        RANK_CHECK(me, status == 0 && memory[N - 1] == 0 && memory[round * 100 + me->rank] == 0);
        RANK_CHECK(me, barrier(me) == 0);
        memory[round * 100 + me->rank] = (unsigned char)(1 + me->rank);
        RANK_CHECK(me, barrier(me) == 0);
        for (int r = 0; r < me->size; r++)
            RANK_CHECK(me, memory[round * 100 + r] == (ah_group_host(me->group, r) == host ? 1 + r : 0));
        RANK_CHECK(me, barrier(me) == 0);
        ah_group_unshare(me->group, memory, N);
    }
}

AH_TEST(ranks_of_a_host_have_memory_in_common)
{
    CHECK(run_ranks_mortal(1, 0, 0, common_memory));
    CHECK(run_ranks_mortal(4, 0, 0, common_memory));
}

static void shard_discarded(struct rank *me)
{
    enum { N = 40000 };
    unsigned char *memory;
    int bad = 0;
    RANK_CHECK(me, ah_group_alloc(me->group, N, (void **)&memory) == 0);
    memset(memory, 7, N);
    ah_group_discard(me->group, memory + 5, N - 12);
    for (int i = 0; i < N; i++)
        bad += memory[i] != (i < 5 || i >= N - 7 ? 7 : 0);
    RANK_CHECK(me, bad == 0);
    ah_group_free(me->group, memory, N);
}

AH_TEST(discarded_memory_is_zero)
{
    CHECK(run_ranks_mortal(1, 0, 0, shard_discarded));
    CHECK(run_ranks_mortal(2, 0, 0, shard_discarded));
}
