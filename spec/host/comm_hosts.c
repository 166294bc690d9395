/* Failures of one of several hosts, or of a rank there: every other rank ends in bounded time, and
 * its error names the rank and the host. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "comm/net/replica.h"
#include "comm_ranks.h"

enum { SHORT = 4, LONG = 3000000, PID = 3 };

static bool is_long(void)
{
    return getenv("COMM_TEST_CASE")[0] == '1';
}

/* Calls until one fails; false when none does. */
static bool reduce_until_it_fails(struct rank *me)
{
    int64_t begin = ah_now_ns();
    float *buffer;
    bool failed = false;
    RANK_CHECK(me, ah_group_alloc(me->group, LONG * sizeof *buffer, (void **)&buffer) == 0);
    for (int i = 0; i < 200000 && !failed && ah_now_ns() - begin < INT64_C(30000000000); i++) {
        failed = reduce(me, buffer, is_long() ? LONG : SHORT, AH_F32, AH_REDUCE_SUM) < 0;
        if (i == 5)
            set_mark(me, me->rank == 0 ? 0 : 1);
    }
    return failed;
}

/* A process that does something to a rank that is in the middle of its calls. */
static void send_signal(struct rank *me, int number)
{
    pid_t self = getpid();
    if (fork() == 0) {
        until_marked(me, 0);
        usleep(20000);
        kill(self, number);
        _exit(0);
    }
}

static void hosts_die(struct rank *me, int victim)
{
    char rank[40];
    snprintf(rank, sizeof rank, "lost rank %d, which died", victim);
    if (me->rank == victim)
        send_signal(me, SIGKILL);
    RANK_CHECK(me, reduce_until_it_fails(me));
    RANK_CHECK(me, strstr(ah_error_text(), rank));
    if (me->hosts && victim == me->hosts->first[1] && me->rank < victim)
        RANK_CHECK(me, strstr(ah_error_text(), "host node1 is gone"));
}

static void first_rank_dies(struct rank *me)
{
    hosts_die(me, 2);
}

static void other_rank_dies(struct rank *me)
{
    hosts_die(me, 3);
}

AH_TEST(a_killed_rank_of_another_host_is_named_with_its_host)
{
    for (int i = 0; i < 2; i++) {
        setenv("COMM_TEST_CASE", i ? "1" : "0", 1);
        CHECK(run_hosts(4, 2, 0, 1u << 2, first_rank_dies));
        CHECK(run_hosts(4, 2, 0, 1u << 3, other_rank_dies));
    }
    unsetenv("COMM_TEST_CASE");
}

/* Rank 2 leads its host, and is stopped: the other host hears no more of it. */
static void leader_stops(struct rank *me)
{
    if (me->rank == 2) {
        atomic_store(&me->marks[PID], (int)getpid());
        send_signal(me, SIGSTOP);
    }
    bool failed = reduce_until_it_fails(me);
    if (me->rank == 2)
        return;
    RANK_CHECK(me, failed);
    if (me->rank < 2)
        RANK_CHECK(me, strstr(ah_error_text(), "lost rank 2, which died: host node1 is gone: it has been silent"));
    else
        RANK_CHECK(me, strstr(ah_error_text(), "rank 2, which speaks for host node1, has been silent for 0.5 s"));
    set_mark(me, 4 + me->rank);
    if (me->rank < 3)
        return;
    until_marked(me, 4);
    until_marked(me, 5);
    kill(atomic_load(&me->marks[PID]), SIGKILL);
}

AH_TEST(a_host_whose_first_rank_is_stopped_is_gone)
{
    setenv("ACCELHOST_HEARTBEAT", "0.5", 1);
    setenv("COMM_TEST_CASE", "0", 1);
    CHECK(run_hosts(4, 2, 0, 1u << 2, leader_stops));
    unsetenv("COMM_TEST_CASE");
    unsetenv("ACCELHOST_HEARTBEAT");
}

/* A rank of the second host is stopped, and all others run out of time before its host is considered lost. */
static void hosts_stop(struct rank *me, int victim, const char *blame)
{
    me->group->timeout_ns = 1500000000;
    if (me->rank == victim) {
        atomic_store(&me->marks[PID], (int)getpid());
        send_signal(me, SIGSTOP);
    }
    bool failed = reduce_until_it_fails(me);
    if (me->rank == victim)
        return;
    RANK_CHECK(me, failed && strstr(ah_error_text(), "timed out after 1.5 s: "));
    /* One that timed out later may report another rank's finding. */
    bool relays = strstr(ah_error_text(), " left the group: ") &&
                  strstr(ah_error_text(), victim == 2 ? "rank 2" : "rank 3");
    RANK_CHECK(me, relays || strstr(ah_error_text(), blame));
    set_mark(me, 4 + me->rank);
    if (me->rank != 5 - victim)
        return;
    until_marked(me, 4);
    until_marked(me, 5);
    kill(atomic_load(&me->marks[PID]), SIGKILL);
}

static void leader_is_late(struct rank *me)
{
    hosts_stop(me, 2, "rank 2, which speaks for host node1, has been silent for");
}

static void other_is_late(struct rank *me)
{
    hosts_stop(me, 3, me->rank < 2 ? "rank 3" : "now it is stopped by a signal");
}

AH_TEST(a_timeout_names_a_stopped_rank_of_another_host)
{
    setenv("ACCELHOST_HEARTBEAT", "3", 1);
    for (int i = 0; i < 2; i++) {
        setenv("COMM_TEST_CASE", i ? "1" : "0", 1);
        CHECK(run_hosts(4, 2, 0, 1u << 2, leader_is_late));
        CHECK(run_hosts(4, 2, 0, 1u << 3, other_is_late));
    }
    unsetenv("COMM_TEST_CASE");
    unsetenv("ACCELHOST_HEARTBEAT");
}

/* Two of three hosts lose each other: none continues alone. */
static void cable_is_cut(struct rank *me)
{
    if (me->rank == 0) {
        float buffer[1] = {0};
        for (int i = 0; i < 5; i++)
            RANK_CHECK(me, reduce(me, buffer, 1, AH_F32, AH_REDUCE_SUM) == 0);
        ah_replica_lose(me->control->replica, 1, "its cable was cut");
        /* All that was issued before completes. */
        RANK_CHECK(me, reduce(me, buffer, 1, AH_F32, AH_REDUCE_SUM) < 0 ||
                           reduce(me, buffer, 1, AH_F32, AH_REDUCE_SUM) < 0);
        RANK_CHECK(me, strstr(ah_error_text(), "lost rank 2, which died: host node1 is gone: its cable was cut"));
        return;
    }
    float buffer[1] = {0};
    int status = 0;
    for (int i = 0; i < 7 && status == 0; i++)
        status = reduce(me, buffer, 1, AH_F32, AH_REDUCE_SUM);
    RANK_CHECK(me, status == AH_EPEER);
    RANK_CHECK(me, me->rank < 2 || me->rank > 3 || strstr(ah_error_text(), "host node0 is gone"));
}

AH_TEST(hosts_whose_connection_is_cut_end)
{
    CHECK(run_hosts(6, 3, 0, 0, cable_is_cut));
}

/* Sums of hosts are added in one order, whichever arrives first. */
static void arrive_late(struct rank *me)
{
    enum { N = 300001 };
    float *buffer = malloc(N * sizeof *buffer), *first = malloc(N * sizeof *first);
    for (int turn = 0; turn < 6; turn++) {
        for (int64_t i = 0; i < N; i++)
            buffer[i] = (float)(1.0 / (double)(3 + i % 97 + 11 * me->rank));
        if (turn % me->size == me->rank)
            usleep(20000);
        RANK_CHECK(me, reduce(me, buffer, N, AH_F32, AH_REDUCE_SUM) == 0);
        if (turn == 0)
            memcpy(first, buffer, N * sizeof *first);
        RANK_CHECK(me, !memcmp(first, buffer, N * sizeof *first));
    }
    struct ah_collective call = ah_collective_broadcast(first, N, AH_F32, me->size - 1);
    RANK_CHECK(me, ah_group_run(me->group, call) == 0);
    RANK_CHECK(me, !memcmp(first, buffer, N * sizeof *first));
    free(buffer);
    free(first);
}

AH_TEST(results_do_not_depend_on_the_order_of_arrival)
{
    CHECK(run_hosts(5, 3, 0, 0, arrive_late));
}

/* Rank 1 posts a call that the progress threads move, does its part, and ends without waiting for the result. */
static void end_early(struct rank *me)
{
    float *buffer;
    struct ah_work *work;
    RANK_CHECK(me, ah_group_alloc(me->group, LONG * sizeof *buffer, (void **)&buffer) == 0);
    RANK_CHECK(me, start(me, buffer, LONG, AH_F32, AH_REDUCE_SUM, &work) == 0);
    if (me->rank == 1) {
        bool done;
        while (ah_group_counter(me->group->peer[1], AH_DONE) == 0)
            RANK_CHECK(me, ah_work_test(work, &done) == 0);
        return;
    }
    until_ended(me, 1);
    RANK_FAILS(me, ah_work_wait(work), AH_EPEER, "all_reduce_async #1: rank 1, which speaks for host node1, has ended");
}

AH_TEST(a_host_that_ends_before_its_bytes_have_gone_is_named)
{
    CHECK(run_hosts(2, 2, INT64_C(5000000000), 0, end_early));
}
