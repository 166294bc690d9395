/* Calls of ranks that disagree, die, end or stall. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm_ranks.h"

/* Disagreement. */

static void failure_disagree(struct rank *me)
{
    float buffer[10] = {0};
    RANK_CHECK(me, barrier(me) == 0);
    struct ah_collective call = ah_collective_all_reduce(buffer, 10, AH_F32, AH_REDUCE_SUM);
    call.where = "train.lua:12";
    if (me->rank == me->size - 1) {
        call = ah_collective_broadcast(buffer, 10, AH_F32, 0);
        call.where = "train.lua:15";
    }
    call.ndim = 1;
    call.size = (int64_t[]){10};
    int status = ah_group_run(me->group, call);
    char expected[200];
    snprintf(expected, sizeof expected,
             "collective #2 differs: rank 0 all_reduce float32 (10,) at train.lua:12; rank %d broadcast float32 (10,) "
             "at train.lua:15", me->size - 1);
    RANK_CHECK(me, status == AH_EMISMATCH && !strcmp(ah_error_text(), expected));
    RANK_FAILS(me, barrier(me), AH_EMISMATCH, "failed before");
}

AH_TEST(a_mismatch_raises_on_every_rank_with_both_call_sites)
{
    CHECK(run_ranks(2, 0, failure_disagree));
    CHECK(run_ranks(3, 0, failure_disagree));
}

static void disagree_on(struct rank *me)
{
    static const struct {
        int64_t count;
        enum ah_dtype dtype;
        enum ah_reduce_op op;
    } other[] = {{9, AH_F32, AH_REDUCE_SUM}, {10, AH_F64, AH_REDUCE_SUM}, {10, AH_F32, AH_REDUCE_MEAN}};
    int which = getenv("COMM_TEST_CASE")[0] - '0';
    double buffer[10] = {0};
    int status = me->rank == 0 ? reduce(me, buffer, 10, AH_F32, AH_REDUCE_SUM)
                               : reduce(me, buffer, other[which].count, other[which].dtype, other[which].op);
    RANK_CHECK(me, status == AH_EMISMATCH);
}

AH_TEST(count_dtype_and_reduction_must_agree)
{
    for (int i = 0; i < 3; i++) {
        setenv("COMM_TEST_CASE", i == 0 ? "0" : i == 1 ? "1" : "2", 1);
        CHECK(run_ranks(2, 0, disagree_on));
    }
    unsetenv("COMM_TEST_CASE");
}

/* Rank 0 and 1 differ while rank 2 is late: no rank waits for it, and it raises as well when it arrives. */
static void late_witness(struct rank *me)
{
    float buffer[4] = {0};
    for (int r = 0; me->rank == 2 && r < 2; r++)
        until_marked(me, r);
    int status = me->rank == 1 ? barrier(me)
                               : reduce(me, buffer, 4, AH_F32, AH_REDUCE_SUM);
    set_mark(me, me->rank);
    RANK_CHECK(me, status == AH_EMISMATCH && strstr(ah_error_text(), "rank 0 all_reduce") &&
                       strstr(ah_error_text(), "rank 1 barrier"));
}

AH_TEST(a_late_rank_learns_of_a_mismatch_too)
{
    CHECK(run_ranks(3, 0, late_witness));
}

/* Death, end, stall. */

static void die_at_two(struct rank *me)
{
    float buffer[4] = {0};
    me->where = "train.lua:7";
    RANK_CHECK(me, reduce(me, buffer, 4, AH_F32, AH_REDUCE_SUM) == 0);
    if (me->rank == me->size - 1) {
        usleep(20000);
        kill(getpid(), SIGKILL);
    }
    int64_t start = ah_now_ns();
    RANK_FAILS(me, reduce(me, buffer, 4, AH_F32, AH_REDUCE_SUM), AH_EPEER, "which died");
    RANK_CHECK(me, strstr(ah_error_text(), "all_reduce #2 at train.lua:7: lost rank"));
    RANK_CHECK(me, ah_now_ns() - start < INT64_C(10000000000));
    RANK_FAILS(me, barrier(me), AH_EPEER, "failed before");
}

AH_TEST(a_killed_peer_raises_at_once)
{
    CHECK(run_ranks_mortal(2, 0, 1u << 1, die_at_two));
    CHECK(run_ranks_mortal(3, 0, 1u << 2, die_at_two));
}

static void end_early(struct rank *me)
{
    RANK_CHECK(me, barrier(me) == 0);
    if (me->rank == 1)
        return;
    usleep(10000);
    RANK_FAILS(me, barrier(me), AH_EPEER, "rank 1 ended without it");
}

AH_TEST(a_peer_that_ended_raises)
{
    CHECK(run_ranks(2, 0, end_early));
}

/* Rank 1 times out waiting for the others; rank 0 arrives later and raises too, although rank 1 had issued the call. */
static void give_up(struct rank *me)
{
    if (me->rank == 0) {
        until_marked(me, 1);
        RANK_FAILS(me, barrier(me), AH_EPEER, "rank 1 left the group: barrier #1 at ?: timed out after 0.05 s");
    } else if (me->rank == 1) {
        me->group->timeout_ns = 50 * 1000000;
        RANK_FAILS(me, barrier(me), AH_ETIMEOUT, "timed out");
        set_mark(me, 1);
        until_ended(me, 0);
    } else {
        until_ended(me, 0);
    }
}

AH_TEST(a_peer_whose_group_is_poisoned_raises)
{
    CHECK(run_ranks(3, 0, give_up));
}

static void failure_stall(struct rank *me)
{
    float buffer[4] = {0};
    me->where = "train.lua:12";
    RANK_CHECK(me, reduce(me, buffer, 4, AH_F32, AH_REDUCE_SUM) == 0);
    if (me->rank == 1) {
        until_ended(me, 0);
        return;
    }
    me->group->timeout_ns = 150 * 1000000;
    RANK_FAILS(me, barrier(me), AH_ETIMEOUT,
               "barrier #2 at train.lua:12: timed out after 0.15 s: rank 1 was last seen at train.lua:12, all_reduce "
               "#1");
}

AH_TEST(a_timeout_names_the_rank_that_is_missing)
{
    CHECK(run_ranks(2, 0, failure_stall));
}

static void failure_monitored(struct rank *me)
{
    bool all = getenv("COMM_TEST_CASE")[0] == '1';
    if (me->rank > 0 && me->rank < 3) {
        until_ended(me, 0);
        until_ended(me, 3);
        return;
    }
    set_mark(me, me->rank);
    until_marked(me, 3 - me->rank);
    struct ah_collective call = ah_collective_monitored_barrier(150 * 1000000, all);
    call.where = "train.lua:12";
    int status = ah_group_run(me->group, call); /* one may fail because the other did */
    RANK_CHECK(me, status == AH_ETIMEOUT || status == AH_EPEER);
    RANK_CHECK(me, strstr(ah_error_text(), all ? "monitored_barrier #1 at train.lua:12: ranks 1, 2 did not arrive "
                                                 "within 0.15 s: rank 1 has not reached its first collective"
                                               : "rank 1 did not arrive within 0.15 s"));
    RANK_CHECK(me, me->group->timeout_ns > 1000000000);
}

AH_TEST(a_monitored_barrier_names_the_first_or_all_that_are_missing)
{
    setenv("COMM_TEST_CASE", "0", 1);
    CHECK(run_ranks(4, 0, failure_monitored));
    setenv("COMM_TEST_CASE", "1", 1);
    CHECK(run_ranks(4, 0, failure_monitored));
    unsetenv("COMM_TEST_CASE");
}

static char reported[4][256];
static int notices;
static struct rank *listener;

static void listen_to(const char *line)
{
    if (notices < 4)
        snprintf(reported[notices], sizeof reported[0], "%s", line);
    notices++;
    set_mark(listener, 0);
}

/* One rank waits long, is reported once, and its peer arrives in the end. */
static void failure_notice(struct rank *me)
{
    me->where = "train.lua:12";
    RANK_CHECK(me, barrier(me) == 0);
    me->where = "train.lua:20";
    listener = me;
    if (me->rank == 1)
        until_marked(me, 0);
    else
        ah_notice_set_output(listen_to);
    me->group->stall_warning_ns = 150 * 1000000;
    RANK_CHECK(me, barrier(me) == 0);
    ah_notice_set_output(NULL);
    if (me->rank == 0) {
        RANK_CHECK(me, notices == 1);
        static const char expected[] = "barrier #2 at train.lua:20: rank 0 has waited 0.15 s: rank 1 was last seen at "
                                       "train.lua:12, barrier #1";
        RANK_CHECK(me, !strncmp(reported[0], expected, strlen(expected)));
        if (!me->hosts)
            RANK_CHECK(me, !strncmp(reported[0] + strlen(expected), "; now it ", 9));
    }
}

AH_TEST(a_long_wait_is_reported_once_and_names_the_missing_ranks)
{
    CHECK(run_ranks_mortal(2, 0, 0, failure_notice));
}

static void stall_of_two(struct rank *me)
{
    float buffer[4] = {0};
    /* Rank 1 is a call further than rank 2, which no other rank has reached: it is the one to be named. */
    me->where = "train.lua:12";
    if (me->rank == 2) {
        until_ended(me, 0);
        until_ended(me, 1);
        return;
    }
    set_mark(me, me->rank);
    until_marked(me, !me->rank);
    if (me->rank == 1)
        usleep(20000);
    int status = reduce(me, buffer, 4, AH_F32, AH_REDUCE_SUM); /* one may fail because the other did */
    RANK_CHECK(me, status == AH_ETIMEOUT || status == AH_EPEER);
    RANK_CHECK(me, strstr(ah_error_text(), "rank 2 has not reached its first collective"));
    if (status == AH_ETIMEOUT)
        RANK_CHECK(me, atomic_load(&ah_rank_entry(me->control, me->rank)->blamed) == 2);
}

AH_TEST(a_timeout_names_the_rank_that_all_wait_for)
{
    CHECK(run_ranks(3, 500 * 1000000, stall_of_two));
}

/* Rank 0 waits while the whole job is stopped for longer than the timeout; a shell stops and continues it. */
static void failure_suspended(struct rank *me)
{
    if (me->rank == 1)
        atomic_store(&me->marks[1], (int)getpid());
    RANK_CHECK(me, barrier(me) == 0);
    if (me->rank == 0) {
        pid_t peer = (pid_t)atomic_load(&me->marks[1]), self = getpid();
        if (fork() == 0) {
            usleep(50000);
            kill(peer, SIGSTOP);
            kill(self, SIGSTOP);
            usleep(1400000);
            kill(self, SIGCONT);
            usleep(100000);
            set_mark(me, 0);
            kill(peer, SIGCONT);
            _exit(0);
        }
    } else {
        until_marked(me, 0);
    }
    RANK_CHECK(me, barrier(me) == 0);
}

AH_TEST(a_suspended_job_continues)
{
    CHECK(run_ranks_mortal(2, 1000 * 1000000, 0, failure_suspended));
}

/* Arguments are this rank's error only. */
static void bad_arguments(struct rank *me)
{
    int64_t buffer[4] = {0};
    RANK_FAILS(me, reduce(me, buffer, 4, AH_I64, AH_REDUCE_MEAN), AH_EINVAL,
               "mean needs a floating");
    RANK_FAILS(me, reduce(me, buffer, 4, AH_BOOL, AH_REDUCE_SUM), AH_EINVAL,
               "bool has max, min, and, or and xor");
    RANK_FAILS(me, ah_group_run(me->group, ah_collective_broadcast(buffer, 4, AH_I64, 2)), AH_EINVAL,
               "expected a root in 0..1, got 2");
    RANK_FAILS(me, reduce(me, buffer, -1, AH_I64, AH_REDUCE_SUM), AH_EINVAL, "count from 0");
    RANK_CHECK(me, barrier(me) == 0);
}

AH_TEST(wrong_arguments_do_not_poison)
{
    CHECK(run_ranks(2, 0, bad_arguments));
}
