/* Parts of a group: their members, that they do not disturb each other, and that their group blocks are freed. */
#include <stdlib.h>
#include <unistd.h>

#include "comm_ranks.h"

static int sum_over(struct ah_group *group, int64_t *value)
{
    return ah_group_run(group, ah_collective_all_reduce(value, 1, AH_I64, AH_REDUCE_SUM));
}

/* Odd and even ranks, counted from behind. */
static void odd_and_even(struct rank *me)
{
    struct ah_group *part;
    int64_t sum = me->rank, expected = 0, members = 0;
    RANK_CHECK(me, ah_group_split(&part, me->group, me->rank % 2, -me->rank, "?") == 0);
    for (int r = me->rank % 2; r < me->size; r += 2) {
        expected += r;
        members++;
    }
    RANK_CHECK(me, ah_group_size(part) == members);
    RANK_CHECK(me, ah_group_rank(part) == (me->size - 1 - me->rank) / 2);
    RANK_CHECK(me, sum_over(part, &sum) == 0 && sum == expected);
    int64_t first = me->rank;
    RANK_CHECK(me, ah_group_run(part, ah_collective_broadcast(&first, 1, AH_I64, 0)) == 0);
    RANK_CHECK(me, first == me->size - 1 - (me->size - 1 - me->rank) % 2);
    /* Large ones, through the stages, and works, while the whole group works too. */
    enum { N = 60000 };
    float *buffer = malloc(N * sizeof *buffer), *other = malloc(N * sizeof *other);
    struct ah_work *whole;
    for (int turn = 0; turn < 20; turn++) {
        int bad = 0;
        for (int i = 0; i < N; i++)
            buffer[i] = other[i] = (float)(me->rank + turn);
        RANK_CHECK(me, start(me, other, N, AH_F32, AH_REDUCE_MAX, &whole) == 0);
        if (turn % 3 == me->rank % 3)
            usleep(300);
        RANK_CHECK(me, ah_group_run(part, ah_collective_all_reduce(buffer, N, AH_F32, AH_REDUCE_SUM)) == 0);
        RANK_CHECK(me, ah_work_wait(whole) == 0);
        for (int i = 0; i < N; i++)
            bad += buffer[i] != (float)(expected + members * turn) || other[i] != (float)(me->size - 1 + turn);
        RANK_CHECK(me, bad == 0);
    }
    free(buffer);
    free(other);
    ah_group_close(part);
}

AH_TEST(ranks_of_one_color_are_a_group_ordered_by_key)
{
    CHECK(run_ranks(1, 0, odd_and_even));
    CHECK(run_ranks(2, 0, odd_and_even));
    CHECK(run_ranks(3, 0, odd_and_even));
    CHECK(run_ranks(5, 0, odd_and_even));
}

/* Rank 0 stays out; many in a row, also of different members, need no more group blocks than there are. */
static void again_and_again(struct rank *me)
{
    for (int turn = 0; turn < 60; turn++) {
        struct ah_group *part;
        int left_out = turn % me->size;
        RANK_CHECK(me, ah_group_split(&part, me->group, me->rank == left_out ? -1 : 3, 0, "?") == 0);
        RANK_CHECK(me, (part == NULL) == (me->rank == left_out));
        if (!part)
            continue;
        int64_t sum = me->rank;
        RANK_CHECK(me, sum_over(part, &sum) == 0 && sum == me->size * (me->size - 1) / 2 - left_out);
        for (int k = 0; k < turn % 5; k++)
            RANK_CHECK(me, ah_group_run(part, ah_collective_barrier()) == 0);
        ah_group_close(part);
    }
}

AH_TEST(subgroups_are_created_and_closed)
{
    CHECK(run_ranks(3, 0, again_and_again));
    CHECK(run_ranks(4, 0, again_and_again));
}

static void too_many(struct rank *me)
{
    struct ah_group *part[AH_MAX_GROUPS];
    for (int i = 1; i < AH_MAX_GROUPS; i++)
        RANK_CHECK(me, ah_group_split(&part[i], me->group, 0, 0, "?") == 0);
    RANK_FAILS(me, ah_group_split(&part[0], me->group, 0, 0, "?"), AH_EINVAL, "in 8 groups at once");
    RANK_CHECK(me, barrier(me) == 0); /* no harm done */
    for (int i = 1; i < AH_MAX_GROUPS; i++) {
        int64_t sum = i;
        RANK_CHECK(me, sum_over(part[i], &sum) == 0 && sum == i * me->size);
        ah_group_close(part[i]);
    }
    RANK_CHECK(me, barrier(me) == 0);
    RANK_CHECK(me, ah_group_split(&part[0], me->group, 0, 0, "?") == 0);
    ah_group_close(part[0]);
}

AH_TEST(a_rank_is_in_no_more_groups_than_it_has_channels)
{
    CHECK(run_ranks(2, 0, too_many));
}

/* A part of a part; its messages name the ranks of the job. */
static void parts_nested(struct rank *me)
{
    struct ah_group *upper, *pair;
    float buffer[4] = {0};
    RANK_CHECK(me, ah_group_split(&upper, me->group, me->rank > 0 ? 1 : -1, 0, "?") == 0);
    if (!upper)
        return;
    RANK_CHECK(me, ah_group_split(&pair, upper, me->rank > 1 ? 1 : -1, 0, "?") == 0);
    ah_group_close(upper);
    if (!pair)
        return;
    struct ah_collective call = me->rank == 2 ? ah_collective_barrier()
                                              : ah_collective_all_reduce(buffer, 4, AH_F32, AH_REDUCE_SUM);
    RANK_FAILS(me, ah_group_run(pair, call), AH_EMISMATCH,
               "collective #1 differs: rank 2 barrier at ?; rank 3 all_reduce float32 (4,) at ?");
    ah_group_close(pair);
}

AH_TEST(a_part_of_a_part_names_the_ranks_of_the_job)
{
    CHECK(run_ranks(4, 0, parts_nested));
}
