/* Fuzz target: another host's frames while a rank of this host works. The rank's thread, the replica's two and the
 * progress thread's are the real ones, under ThreadSanitizer; the other host is this file, which sends frames over the
 * replica's connection, and messages over the transport's. Each step of the input is an action and a byte: send the
 * frames of an honest rank (its part of the call that rank 0 has issued, a message for it, an outcome), the same with
 * one byte changed, bytes of the input as they are, or nothing. Counters start just below 2^32, so that they wrap.
 * sources: COMM TENSORS host/base/memory/array.c host/base/process/process.c
 * sources: host/base/numeric/hmac.c host/base/numeric/sha256.c
 * sources: host/base/numeric/sha256_blocks.c host/base/status/notice.c host/base/process/signals.c
 * sanitizer: thread */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "base/trace/time.h"
#include "comm/group/backend.h"
#include "comm/net/mesh.h"
#include "comm/net/progress.h"
#include "comm/net/replica_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { RANKS = 2, THEIRS = 1, STEPS = 64, LARGE = 200 * 1024 };
static const int64_t timeout_ns = 200000000;
static const uint32_t base = UINT32_MAX - 2;
static const struct ah_hosts hosts = {.count = 2, .first = {0, THEIRS, RANKS}, .name = {"here", "there"},
                                      .transport = "tcp"};
static int replica_end, wire_end; /* the other host's */

int ah_mesh_open(const struct ah_hosts *all, const char *purpose, int64_t limit_ns, int fd[AH_HOSTS_MAX])
{
    int pair[2], *other = strcmp(purpose, "transport") ? &replica_end : &wire_end;
    (void)all, (void)limit_ns;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        abort();
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        fd[h] = -1;
    fd[1] = pair[0];
    *other = pair[1];
    return 0;
}

void ah_mesh_close(int fd[AH_HOSTS_MAX])
{
    (void)fd;
}

/* A rank of one thread; a library of threads would be unknown to the sanitizer. */
int ah_cpu_count(void)
{
    return 1;
}
int ah_helper_start(pthread_t *out, void *(*run)(void *context), void *context)
{
    return pthread_create(out, NULL, run, context);
}
void ah_parallel_for(int64_t n, int64_t grain, ah_range_fn body, void *context)
{
    (void)grain;
    body(context, 0, n);
}

/* The rank. Its thread counts no coverage. */
#define RANK_THREAD __attribute__((no_sanitize("coverage")))

struct rank {
    struct ah_group *group;
    const uint8_t *bytes;
    size_t count;
};

RANK_THREAD static void reduce(struct rank *rank, int64_t count)
{
    static float memory[LARGE / sizeof(float)];
    ah_group_run(rank->group, ah_collective_all_reduce(memory, count, AH_F32, AH_REDUCE_SUM));
}

RANK_THREAD static void exchange(struct rank *rank, bool sends, int64_t tag)
{
    static float memory[2][16];
    struct ah_message message = {.peer = THEIRS, .tag = tag, .memory = memory[sends], .count = 16, .dtype = AH_F32,
                                 .ndim = -1, .where = "here"};
    struct ah_message_request *request = NULL;
    if ((sends ? ah_group_send(rank->group, message, false, &request)
               : ah_group_receive(rank->group, message, &request)) < 0)
        return;
    bool done = false;
    for (int i = 0; i < 100 && !done && ah_message_test(request, &done) == 0; i++)
        usleep(20);
    ah_message_abandon(request, NULL, NULL);
}

RANK_THREAD static void *run_rank(void *context)
{
    struct rank *rank = context;
    for (size_t i = 1; i < rank->count && i < STEPS; i += 7)
        switch (rank->bytes[i] % 4) {
        case 0: reduce(rank, rank->bytes[i] + 1); break;
        case 1: reduce(rank, LARGE / sizeof(float)); break;
        default: exchange(rank, rank->bytes[i] & 1, rank->bytes[i] >> 6);
        }
    return NULL;
}

/* The other host. */

static void put(int fd, const void *bytes, size_t count)
{
    for (size_t sent = 0; sent < count;) {
        ssize_t n = send(fd, (const char *)bytes + sent, count - sent, MSG_NOSIGNAL);
        if (n < 0)
            return; /* full, or lost already */
        sent += (size_t)n;
    }
}

static void drain(int fd)
{
    char piece[64 * 1024];
    while (recv(fd, piece, sizeof piece, MSG_DONTWAIT) > 0)
        continue;
}

static void send_frame(enum replica_kind kind, const void *body, size_t bytes, int wrong)
{
    unsigned char frame[sizeof(struct replica_head) + 4096];
    struct replica_head head = {.bytes = (uint32_t)bytes, .kind = (uint8_t)kind, .rank = THEIRS};
    memcpy(frame, &head, sizeof head);
    memcpy(frame + sizeof head, body, bytes);
    if (wrong >= 0)
        frame[(size_t)wrong % (sizeof head + bytes)] ^= (unsigned char)(wrong | 1);
    put(replica_end, frame, sizeof head + bytes);
}

struct other {
    struct ah_control_block *control;
    struct replica_counters now;
    uint32_t headers;
};

/* Answer the call that rank 0 has issued, with inline input that is sent with the post. */
static void answer_call(struct other *other, int wrong)
{
    struct ah_group_block *theirs = &ah_rank_entry(other->control, 0)->block[0];
    unsigned char data[sizeof(uint64_t) + 1024] = {0};
    uint32_t issued = ah_group_counter(theirs, AH_ISSUED);
    if (issued == other->now.value[AH_ISSUED])
        return;
    struct ah_call_record record = *ah_group_record(theirs, other->now.value[AH_ISSUED] + 1);
    other->now.value[AH_ISSUED] = other->now.value[AH_DONE] = record.sequence;
    if (record.inline_bytes > 1024)
        return;
    memcpy(data, &record.offset, sizeof record.offset);
    send_frame(REPLICA_DATA, data, sizeof record.offset + record.inline_bytes, -1);
    send_frame(REPLICA_CALL, &record, sizeof record, wrong);
    send_frame(REPLICA_COUNTERS, &other->now, sizeof other->now, -1);
    if (record.wired) {
        const struct ah_member_table *member_table =
            (void *)(other->control->segment[0] + atomic_load(&theirs->member_table));
        uint64_t head[2] = {(uint64_t)member_table->identity << 32, LARGE};
        static const unsigned char sum[LARGE];
        put(wire_end, head, sizeof head);
        put(wire_end, sum, sizeof sum);
    }
}

static void send_header(struct other *other, const struct ah_group *group, int64_t tag, int wrong)
{
    unsigned char body[sizeof(uint64_t) + sizeof(struct ah_message_header)] = {0};
    unsigned char data[sizeof(uint64_t) + 64] = {0};
    struct ah_message_header header = {.dtype = AH_F32, .ndim = -1, .count = 16, .offset = 1 << 20};
    uint64_t index = other->headers++ % AH_GROUP_MESSAGES, offset = header.offset;
    atomic_store(&header.state, AH_MESSAGE_POSTED);
    atomic_store(&header.number, base + other->headers);
    atomic_store(&header.tag, tag);
    atomic_store(&header.group, group->identity);
    memcpy(data, &offset, sizeof offset);
    memcpy(body, &index, sizeof index);
    memcpy(body + sizeof index, (void *)&header, sizeof header);
    send_frame(REPLICA_DATA, data, sizeof data, -1);
    send_frame(REPLICA_HEADER, body, sizeof body, wrong);
}

static void send_outcome(uint8_t what, int wrong)
{
    struct replica_outcome outcome = {.index = what % 4, .number = base + what / 8 % 8,
                                     .state = what & 4 ? AH_MESSAGE_RECEIVED : AH_MESSAGE_EMPTY};
    struct replica_head head = {.bytes = sizeof outcome, .kind = REPLICA_OUTCOME, .rank = 0};
    unsigned char frame[sizeof head + sizeof outcome];
    memcpy(frame, &head, sizeof head);
    memcpy(frame + sizeof head, &outcome, sizeof outcome);
    if (wrong >= 0)
        frame[(size_t)wrong % sizeof frame] ^= 1;
    put(replica_end, frame, sizeof frame);
}

static void act(struct other *other, const struct ah_group *group, const uint8_t *bytes, size_t count)
{
    int wrong = bytes[0] & 8 ? bytes[1] : -1;
    switch (bytes[0] % 8) {
    case 0: case 1: case 2: answer_call(other, wrong); break;
    case 3: case 4: send_header(other, group, bytes[1] & 3, wrong); break;
    case 5: send_outcome(bytes[1], wrong); break;
    case 6: put(bytes[1] & 1 ? wire_end : replica_end, bytes, count < 40 ? count : 40); break;
    default: usleep(bytes[1]);
    }
    drain(replica_end);
    drain(wire_end);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct other other = {.now = {.value = {[AH_ISSUED] = base, [AH_DONE] = base, [AH_RECEIVED] = base}, .base = base}};
    struct rank rank = {.bytes = bytes, .count = count};
    pthread_t thread;
    if (ah_control_create(&other.control, RANKS) < 0 || ah_control_map_segments(other.control) < 0 ||
        ah_control_place(other.control, &hosts) < 0)
        abort();
    struct ah_seat seat = {.control = other.control, .rank = 0, .size = RANKS, .base = base, .timeout_ns = timeout_ns};
    for (int k = 0; k < AH_COUNTERS; k++)
        for (int r = 0; r < RANKS; r++)
            atomic_store(&ah_rank_entry(other.control, r)->block[0].counter[k], base);
    atomic_store(&ah_rank_entry(other.control, 0)->block[0].base, base);
    if (ah_group_open(&rank.group, ah_backend_find("spread"), &seat) < 0)
        abort();
    if (pthread_create(&thread, NULL, run_rank, &rank))
        abort();
    send_frame(REPLICA_COUNTERS, &other.now, sizeof other.now, -1);
    for (size_t at = 0; at + 2 <= count && at < 2 * STEPS; at += 2)
        act(&other, rank.group, bytes + at, count - at);
    shutdown(replica_end, SHUT_RDWR); /* the host is gone: whatever waits for it ends */
    shutdown(wire_end, SHUT_RDWR);
    pthread_join(thread, NULL);
    ah_control_leave(other.control, 0, AH_RANK_ENDED, NULL, false);
    ah_group_close(rank.group);
    close(replica_end);
    close(wire_end);
    ah_control_close(other.control);
    return 0;
}
