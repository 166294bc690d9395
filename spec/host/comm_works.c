/* Asynchronous collectives: order, numbers, abandoned ones. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm_ranks.h"

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = 4 };

/* More works than the ring has entries, waited for in the opposite order, with blocking calls between. */
static void many_works(struct rank *me)
{
    enum { WORKS = 150, N = 1000 };
    float(*buffer)[N] = calloc(WORKS, sizeof *buffer);
    RANK_CHECK(me, buffer != NULL);
    struct ah_work *work[WORKS];
    for (int w = 0; w < WORKS; w++) {
        for (int i = 0; i < N; i++)
            buffer[w][i] = (float)(w + me->rank);
        RANK_CHECK(me, start(me, buffer[w], N, AH_F32, AH_REDUCE_SUM, &work[w]) == 0);
        if (w % 40 == 39) {
            double one = 1;
            RANK_CHECK(me, reduce(me, &one, 1, AH_F64, AH_REDUCE_SUM) == 0 && one == me->size);
        }
    }
    bool done = false;
    RANK_CHECK(me, ah_work_test(work[0], &done) == 0);
    for (int w = WORKS - 1; w >= 0; w--) {
        RANK_CHECK(me, ah_work_wait(work[w]) == 0);
        int bad = 0;
        for (int i = 0; i < N; i++)
            bad += buffer[w][i] != (float)(w * me->size + me->size * (me->size - 1) / 2);
        RANK_CHECK(me, bad == 0);
    }
    free(buffer);
}

AH_TEST(asynchronous_works_complete_in_any_order)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, many_works));
}

/* Thousands of works under way at once, far more than the ring has entries, while one rank is always behind. */
static void thousands_of_works(struct rank *me)
{
    enum { WORKS = 3000, N = 40 };
    float(*buffer)[N] = calloc(WORKS, sizeof *buffer);
    struct ah_work **work = calloc(WORKS, sizeof *work);
    RANK_CHECK(me, buffer && work);
    int bad = 0;
    for (int w = 0; w < WORKS; w++) {
        for (int i = 0; i < N; i++)
            buffer[w][i] = (float)(w % 100 + me->rank);
        bad += start(me, buffer[w], N, AH_F32, AH_REDUCE_SUM, &work[w]) != 0;
        if (me->rank == (w / 500) % me->size && w % 20 == 0)
            usleep(200);
    }
    for (int w = 0; w < WORKS && !bad; w++) {
        bad += ah_work_wait(work[w]) != 0;
        for (int i = 0; i < N; i++)
            bad += buffer[w][i] != (float)(w % 100 * me->size + me->size * (me->size - 1) / 2);
    }
    RANK_CHECK(me, bad == 0);
    free(work);
    free(buffer);
}

AH_TEST(thousands_of_works_are_right_on_ranks_of_unequal_speed)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 30 * 1000000000ll, thousands_of_works));
}

/* Every asynchronous form, in private memory and in the group's. */
static void all_forms(struct rank *me)
{
    enum { N = 700 };
    int size = me->size, rank = me->rank;
    float *from = malloc(sizeof(float) * N * (size_t)size), *all = malloc(sizeof(float) * N * (size_t)size), part[N];
    void *arena;
    RANK_CHECK(me, ah_group_alloc(me->group, sizeof(float) * N * (size_t)size, &arena) == 0);
    for (int way = 0; way < 2; way++) {
        float *in = way ? arena : from;
        struct ah_work *gather, *scatter, *sum;
        for (int i = 0; i < N * size; i++)
            in[i] = (float)(i % 13 + rank);
        RANK_CHECK(me, ah_group_start(me->group, ah_collective_all_gather(all, in, N, AH_F32), &gather) == 0);
        RANK_CHECK(me, ah_group_start(me->group, ah_collective_reduce_scatter(part, in, N, AH_F32, AH_REDUCE_SUM),
                                      &scatter) == 0);
        RANK_CHECK(me, ah_work_wait(scatter) == 0);
        RANK_CHECK(me, ah_work_wait(gather) == 0);
        int bad = 0;
        for (int r = 0; r < size; r++)
            for (int i = 0; i < N; i++)
                bad += all[r * N + i] != (float)(i % 13 + r);
        for (int i = 0; i < N; i++)
            bad += part[i] != (float)((rank * N + i) % 13 * size + size * (size - 1) / 2);
        RANK_CHECK(me, start(me, in, N, AH_F32, AH_REDUCE_MAX, &sum) == 0);
        RANK_CHECK(me, ah_work_wait(sum) == 0);
        for (int i = 0; i < N; i++)
            bad += in[i] != (float)(i % 13 + size - 1);
        RANK_CHECK(me, bad == 0);
        RANK_CHECK(me, barrier(me) == 0);
    }
    ah_group_free(me->group, arena, sizeof(float) * N * (size_t)size);
    free(from);
    free(all);
}

AH_TEST(gathers_and_scatters_have_asynchronous_forms)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, all_forms));
}

/* The forms with a root, and an exchange, all under way at once. */
static void rooted_forms(struct rank *me)
{
    enum { N = 3000 };
    int size = me->size, rank = me->rank;
    size_t bytes = sizeof(float) * N * (size_t)size;
    float *in = malloc(bytes), *gathered = calloc(1, bytes), *exchanged = malloc(bytes), sent[N], scattered[N], sum[N];
    for (int root = 0; root < size; root++) {
        struct ah_work *work[6];
        int bad = 0;
        for (int i = 0; i < N * size; i++)
            in[i] = (float)(i % 13 + rank);
        for (int i = 0; i < N; i++)
            sent[i] = (float)rank;
        struct ah_collective call[] = {
            ah_collective_broadcast(sent, N, AH_F32, root), ah_collective_gather(gathered, in, N, AH_F32, root),
            ah_collective_scatter(scattered, rank == root ? in : NULL, N, AH_F32, root),
            ah_collective_reduce(rank == root ? sum : NULL, in, N, AH_F32, AH_REDUCE_SUM, root),
            ah_collective_all_to_all(exchanged, in, N, AH_F32), ah_collective_barrier()};
        for (int w = 0; w < 6; w++)
            RANK_CHECK(me, ah_group_start(me->group, call[w], &work[w]) == 0);
        memset(in, 0xff, bytes); /* it was copied, since it is stored elsewhere */
        for (int w = 5; w >= 0; w--)
            RANK_CHECK(me, ah_work_wait(work[w]) == 0);
        for (int i = 0; i < N; i++)
            bad += sent[i] != (float)root || scattered[i] != (float)((rank * N + i) % 13 + root);
        for (int i = 0; i < N && rank == root; i++)
            bad += sum[i] != (float)(i % 13 * size + size * (size - 1) / 2);
        for (int i = 0; i < N * size; i++)
            bad += exchanged[i] != (float)((rank * N + i % N) % 13 + i / N) ||
                   (rank == root && gathered[i] != (float)(i % N % 13 + i / N));
        RANK_CHECK(me, bad == 0);
    }
    free(in);
    free(gathered);
    free(exchanged);
}

AH_TEST(forms_with_a_root_are_works_too)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, rooted_forms));
}

/* Works that are not waited for: their buffers are freed at once, the peers' results are right, no memory leaks. */
static void works_abandoned(struct rank *me)
{
    enum { WORKS = 300, N = 5000 };
    struct stat info;
    for (int w = 0; w < WORKS; w++) {
        struct ah_work *work;
        float *buffer = malloc(sizeof(float) * N * (size_t)me->size);
        for (int i = 0; i < N * me->size; i++)
            buffer[i] = 1;
        if (w % 3 == 0)
            RANK_CHECK(me, start(me, buffer, N, AH_F32, AH_REDUCE_SUM, &work) == 0);
        else if (w % 3 == 1)
            RANK_CHECK(me, ah_group_start(me->group, ah_collective_all_gather(buffer, buffer, N, AH_F32), &work) == 0);
        else
            RANK_CHECK(me, ah_group_start(me->group, ah_collective_reduce_scatter(buffer, buffer, N, AH_F32,
                                                                                  AH_REDUCE_SUM), &work) == 0);
        if (me->rank == w % me->size) {
            ah_work_abandon(work);
            memset(buffer, 0xff, sizeof(float) * N * (size_t)me->size);
        } else {
            RANK_CHECK(me, ah_work_wait(work) == 0);
            RANK_CHECK(me, buffer[N - 1] == (float)(w % 3 == 1 ? 1 : me->size));
        }
        free(buffer);
    }
    RANK_CHECK(me, barrier(me) == 0);
    for (int ms = 0; ms < 5000 && !ah_group_has_settled(me->group, me->group->issued); ms++)
        usleep(1000);
    RANK_CHECK(me, barrier(me) == 0);
    RANK_CHECK(me, me->group->abandoned == NULL && me->group->first == NULL);
    RANK_CHECK(me, fstat(me->control->segment_fd[me->rank], &info) == 0);
    RANK_CHECK(me, !has_segments(me) ||
                       info.st_size < 2 * AH_STAGE_BYTES + 20 * (long)sizeof(float) * N * me->size);
}

AH_TEST(abandoned_works_leave_nothing_behind)
{
    CHECK(run_ranks(2, 0, works_abandoned));
    CHECK(run_ranks(3, 0, works_abandoned));
}
