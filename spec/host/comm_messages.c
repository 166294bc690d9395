/* Messages from rank to rank: order, tags, either side first, and failures. */
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "comm_ranks.h"

static struct ah_message message_of(void *memory, int64_t count, enum ah_dtype dtype, int peer, int64_t tag)
{
    return (struct ah_message){.peer = peer, .tag = tag, .memory = memory, .count = count, .dtype = dtype, .ndim = -1,
                               .where = "train.lua:3"};
}

static int message_send(struct rank *me, void *memory, int64_t count, int peer, int64_t tag)
{
    struct ah_message_request *request;
    AH_TRY(ah_group_send(me->group, message_of(memory, count, AH_I32, peer, tag), true, &request));
    return ah_message_wait(request, NULL);
}

static int message_receive(struct rank *me, void *memory, int64_t count, int peer, int64_t tag, int *from)
{
    struct ah_message_request *request;
    AH_TRY(ah_group_receive(me->group, message_of(memory, count, AH_I32, peer, tag), &request));
    return ah_message_wait(request, from);
}

/* Round the ring, of many lengths, from private memory and from the group's. */
static void message_ring(struct rank *me)
{
    if (!has_messages(me))
        return;
    static const int64_t lengths[] = {0, 1, 1000, 300000};
    int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
    int32_t *private = malloc(300000 * 4), *got = malloc(300000 * 4);
    void *arena;
    RANK_CHECK(me, ah_group_alloc(me->group, 300000 * 4, &arena) == 0);
    for (int turn = 0; turn < 8; turn++) {
        int64_t n = lengths[turn % 4], bad = 0;
        int32_t *buffer = turn < 4 ? private : arena;
        for (int64_t i = 0; i < n; i++)
            buffer[i] = (int32_t)(me->rank * 1000000 + turn + i);
        if (me->rank == 0) {
            RANK_CHECK(me, message_send(me, buffer, n, next, 0) == 0);
            RANK_CHECK(me, message_receive(me, got, n, before, 0, NULL) == 0);
        } else {
            RANK_CHECK(me, message_receive(me, got, n, before, 0, NULL) == 0);
            RANK_CHECK(me, message_send(me, buffer, n, next, 0) == 0);
        }
        for (int64_t i = 0; i < n; i++)
            bad += got[i] != (int32_t)(before * 1000000 + turn + i);
        RANK_CHECK(me, bad == 0);
    }
    free(private);
    free(got);
}

AH_TEST(messages_go_round_a_ring)
{
    CHECK(run_ranks(2, 0, message_ring));
    CHECK(run_ranks(3, 0, message_ring));
    CHECK(run_ranks(5, 0, message_ring));
}

/* Both send far more than there is room for before they receive; two tags, each in its own order. */
static void both_first(struct rank *me)
{
    if (!has_messages(me))
        return;
    enum { N = 100 };
    struct ah_message_request *request[N];
    int peer = !me->rank, value;
    bool done = true;
    for (int i = 0; i < N; i++) {
        value = 1000 * me->rank + i;
        RANK_CHECK(me, ah_group_send(me->group, message_of(&value, 1, AH_I32, peer, i % 2), false, &request[i]) == 0);
    }
    RANK_CHECK(me, barrier(me) == 0);
    RANK_CHECK(me, ah_message_test(request[N - 1], &done) == 0 && !done);
    RANK_CHECK(me, barrier(me) == 0);
    for (int tag = 1; tag >= 0; tag--)
        for (int i = tag; i < N; i += 2)
            RANK_CHECK(me, message_receive(me, &value, 1, peer, tag, NULL) == 0 && value == 1000 * peer + i);
    for (int i = N - 1; i >= 0; i--)
        RANK_CHECK(me, ah_message_wait(request[i], NULL) == 0);
    RANK_CHECK(me, me->group->outgoing == NULL && me->group->incoming == NULL);
}

AH_TEST(two_ranks_may_both_send_first_and_tags_keep_apart)
{
    CHECK(run_ranks(2, 20 * 1000000000ll, both_first));
}

/* Many in a row that are not waited for, sent as fast as the other receives; two tags in turn. */
static void message_stream(struct rank *me)
{
    if (!has_messages(me))
        return;
    int value, bad = 0, n = strcmp(ah_group_backend(me->group), "shm") ? 40 : 4000; /* the other one moves slowly */
    struct ah_message_request *request;
    for (int i = 0; i < n && me->rank == 0; i++) {
        value = i;
        RANK_CHECK(me, ah_group_send(me->group, message_of(&value, 1, AH_I32, 1, i % 2), false, &request) == 0);
        ah_message_abandon(request, NULL, NULL);
    }
    for (int i = 0; i < n && me->rank == 1; i++)
        bad += message_receive(me, &value, 1, 0, i % 2, NULL) != 0 || value != i;
    RANK_CHECK(me, bad == 0);
    RANK_CHECK(me, barrier(me) == 0);
}

AH_TEST(a_stream_of_messages_stays_in_order)
{
    CHECK(run_ranks(2, 60 * 1000000000ll, message_stream));
}

/* Rank 0 receives from any source; receives are begun before anything is sent, and collectives run meanwhile. */
static void from_anybody(struct rank *me)
{
    if (!has_messages(me))
        return;
    int value = me->rank, got[8], from, seen = 0;
    struct ah_message_request *request[8];
    for (int i = 1; i < me->size && me->rank == 0; i++)
        RANK_CHECK(me, ah_group_receive(me->group, message_of(&got[i], 1, AH_I32, AH_ANY_PEER, 7), &request[i]) == 0);
    RANK_CHECK(me, barrier(me) == 0);
    if (me->rank > 0)
        RANK_CHECK(me, message_send(me, &value, 1, 0, 7) == 0);
    for (int i = 1; i < me->size && me->rank == 0; i++) {
        RANK_CHECK(me, ah_message_wait(request[i], &from) == 0 && got[i] == from);
        seen |= 1 << from;
    }
    RANK_CHECK(me, me->rank > 0 || seen == (1 << me->size) - 2);
    RANK_CHECK(me, barrier(me) == 0);
}

AH_TEST(a_rank_receives_from_anybody)
{
    CHECK(run_ranks(2, 0, from_anybody));
    CHECK(run_ranks(5, 0, from_anybody));
}

/* A message begun and not waited for arrives while its sender waits in a collective, or has given its handle up. */
static void while_waiting(struct rank *me)
{
    if (!has_messages(me))
        return;
    enum { N = 200000 };
    int32_t *memory = malloc(N * 4);
    struct ah_message_request *request;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < N; i++)
            memory[i] = turn + i;
        if (me->rank == 0) {
            RANK_CHECK(me, ah_group_send(me->group, message_of(memory, N, AH_I32, 1, 0), false, &request) == 0);
            memset(memory, 0xff, N * 4);
            if (turn)
                ah_message_abandon(request, NULL, NULL);
            RANK_CHECK(me, barrier(me) == 0);
            if (!turn)
                RANK_CHECK(me, ah_message_wait(request, NULL) == 0);
        } else {
            memset(memory, 0, N * 4);
            RANK_CHECK(me, message_receive(me, memory, N, 0, 0, NULL) == 0);
            RANK_CHECK(me, memory[0] == turn && memory[N - 1] == turn + N - 1);
            RANK_CHECK(me, barrier(me) == 0);
        }
    }
    free(memory);
}

AH_TEST(a_message_arrives_while_its_sender_waits_for_something_else)
{
    CHECK(run_ranks(2, 0, while_waiting));
}

/* In a part of the group, ranks and messages are the part's. */
static void in_a_part(struct rank *me)
{
    if (!has_messages(me))
        return;
    struct ah_group *part;
    int value = me->rank, other = -1;
    struct ah_message_request *out, *in;
    RANK_CHECK(me, ah_group_split(&part, me->group, me->rank > 0 ? 1 : -1, 0, "?") == 0);
    if (part) {
        int peer = !ah_group_rank(part);
        RANK_CHECK(me, ah_group_send(part, message_of(&value, 1, AH_I32, peer, 0), false, &out) == 0);
        RANK_CHECK(me, ah_group_receive(part, message_of(&other, 1, AH_I32, peer, 0), &in) == 0);
        RANK_CHECK(me, ah_message_wait(in, NULL) == 0 && other == 3 - me->rank);
        RANK_CHECK(me, ah_message_wait(out, NULL) == 0);
        ah_group_close(part);
    }
    RANK_CHECK(me, barrier(me) == 0);
}

AH_TEST(a_part_of_a_group_has_messages_of_its_own)
{
    CHECK(run_ranks(3, 0, in_a_part));
}

/* Failures. */

static void message_unfitting(struct rank *me)
{
    if (!has_messages(me))
        return;
    double memory[10] = {0};
    struct ah_message_request *request;
    if (me->rank == 0) {
        RANK_CHECK(me, ah_group_send(me->group, message_of(memory, 10, AH_F64, 1, 2), true, &request) == 0);
        RANK_FAILS(me, ah_message_wait(request, NULL), AH_EPEER,
                   "send to rank 1, tag 2, at train.lua:3: rank 1 left the group: "
                   "recv from rank 0, tag 2, at train.lua:3: expected int32 (9,), "
                   "but rank 0 sent float64 (10,) at train.lua:3");
    } else {
        RANK_FAILS(me, message_receive(me, memory, 9, 0, 2, NULL), AH_EMISMATCH,
                   "expected int32 (9,), but rank 0 sent float64 (10,) at train.lua:3");
    }
    RANK_CHECK(me, barrier(me) != 0);
}

AH_TEST(a_message_that_does_not_fit_fails_on_both_sides)
{
    CHECK(run_ranks(2, 0, message_unfitting));
}

static void nobody_sends(struct rank *me)
{
    if (!has_messages(me))
        return;
    int32_t value;
    me->group->timeout_ns = 150 * 1000000;
    if (me->rank == 0)
        until_ended(me, 1);
    else
        RANK_FAILS(me, message_receive(me, &value, 1, 0, 0, NULL), AH_ETIMEOUT,
                   "recv from rank 0 at train.lua:3: timed out after 0.15 s: rank 0 has not reached its first");
}

static void nobody_receives(struct rank *me)
{
    if (!has_messages(me))
        return;
    int32_t value = 1;
    if (me->rank == 0)
        return;
    RANK_FAILS(me, message_send(me, &value, 1, 0, 0), AH_EPEER,
               "send to rank 0 at train.lua:3: rank 0 ended without it");
}

static void sender_dies(struct rank *me)
{
    if (!has_messages(me))
        return;
    int32_t value = 7;
    struct ah_message_request *request;
    if (me->rank == 0) {
        RANK_CHECK(me, ah_group_send(me->group, message_of(&value, 1, AH_I32, 1, 0), false, &request) == 0);
        kill(getpid(), SIGKILL);
    }
    until_ended(me, 0);
    int status = message_receive(me, &value, 1, 0, 0, NULL); /* shared memory still has the message */
    RANK_CHECK(me, (status == 0 && value == 7) || strstr(ah_error_text(), "lost rank 0, which died"));
    if (status == 0)
        RANK_FAILS(me, message_receive(me, &value, 1, AH_ANY_PEER, 0, NULL), AH_EPEER, "lost rank 0, which died");
}

static void wrong_peer(struct rank *me)
{
    if (!has_messages(me))
        return;
    int32_t value = 0;
    RANK_FAILS(me, message_send(me, &value, 1, me->rank, 0), AH_EINVAL, "another rank than this one");
    RANK_FAILS(me, message_send(me, &value, 1, 2, 0), AH_EINVAL, "send: expected a rank in 0..1, got 2");
    RANK_FAILS(me, message_send(me, &value, 1, AH_ANY_PEER, 0), AH_EINVAL, "got -1");
    RANK_CHECK(me, barrier(me) == 0);
}

AH_TEST(messages_that_nobody_sends_or_receives_end_with_an_error)
{
    CHECK(run_ranks(2, 0, nobody_sends));
    CHECK(run_ranks(2, 0, nobody_receives));
    CHECK(run_ranks_mortal(2, 0, 1u << 0, sender_dies));
    CHECK(run_ranks(2, 0, wrong_peer));
}

/* Message headers left in a closed group are not received by the next group in its entry. */
static void leave_one_behind(struct rank *me)
{
    int32_t value = 7, got = 0;
    int last = me->size - 1;
    for (int turn = 0; turn < 3 && has_messages(me); turn++) {
        struct ah_group *part;
        struct ah_message_request *request = NULL;
        RANK_CHECK(me, ah_group_split(&part, me->group, 0, 0, "?") == 0);
        if (me->rank == 0) {
            value = 7 + turn;
            RANK_CHECK(me, ah_group_send(part, message_of(&value, 1, AH_I32, last, 1), false, &request) == 0);
            RANK_CHECK(me, ah_message_wait(request, NULL) == 0);
            RANK_CHECK(me, ah_group_send(part, message_of(&value, 1, AH_I32, last, 2), false, &request) == 0);
            ah_message_abandon(request, NULL, NULL);
        } else if (me->rank == last) {
            RANK_CHECK(me, ah_group_receive(part, message_of(&got, 1, AH_I32, 0, 1), &request) == 0);
            RANK_CHECK(me, ah_message_wait(request, NULL) == 0 && got == 7 + turn);
        }
        RANK_CHECK(me, ah_group_run(part, ah_collective_barrier()) == 0);
        ah_group_close(part);
    }
}

AH_TEST(a_message_that_nobody_has_received_goes_with_its_group)
{
    CHECK(run_ranks(3, 0, leave_one_behind));
}

/* The data that wait for a socket are no copy of all that were sent by it. */
static void send_long(struct rank *me)
{
    enum { N = 12 << 20 };
    int32_t *memory = calloc(N, sizeof *memory);
    size_t before = mallinfo2().hblkhd;
    if (me->rank == 0)
        RANK_CHECK(me, message_send(me, memory, N, 1, 0) == 0);
    else
        RANK_CHECK(me, message_receive(me, memory, N, 0, 0, NULL) == 0);
    RANK_CHECK(me, mallinfo2().hblkhd - before < (size_t)(24 << 20));
    free(memory);
}

AH_TEST(a_long_message_needs_no_memory_of_its_length)
{
    CHECK(run_hosts(2, 2, 0, 0, send_long));
}

/* The receiver, which leads no host, wants the one message for which its sender has no room. */
static void want_the_last(struct rank *me)
{
    enum { N = AH_GROUP_MESSAGES + 1 };
    struct ah_message_request *request[N];
    int value = 5;
    for (int i = 0; i < N && me->rank == 0; i++)
        RANK_CHECK(me, ah_group_send(me->group, message_of(&value, 1, AH_I32, 3, i == N - 1), false, &request[i]) == 0);
    RANK_CHECK(me, barrier(me) == 0);
    if (me->rank == 0)
        RANK_CHECK(me, ah_message_wait(request[N - 1], NULL) == 0);
    if (me->rank == 3) {
        usleep(50000); /* the barrier's report is printed */
        int64_t begin = ah_now_ns();
        RANK_CHECK(me, message_receive(me, &value, 1, 0, 1, NULL) == 0);
        RANK_CHECK(me, ah_now_ns() - begin < INT64_C(4000000000)); /* less than a beat */
    }
    for (int i = 0; i < N - 1; i++) {
        RANK_CHECK(me, me->rank != 0 || ah_message_wait(request[i], NULL) == 0);
        RANK_CHECK(me, me->rank != 3 || message_receive(me, &value, 1, 0, 0, NULL) == 0);
    }
}

AH_TEST(a_rank_s_wait_is_reported_to_other_hosts_before_it_sleeps)
{
    setenv("ACCELHOST_HEARTBEAT", "40", 1);
    CHECK(run_hosts(4, 2, 0, 0, want_the_last));
    unsetenv("ACCELHOST_HEARTBEAT");
}
