/* A caller sends a greeting; the host's first rank answers with its result, the control block's descriptor and then
 * the ranks' segments, a packet for each; the caller confirms that it has joined. In a job on several hosts it then
 * waits for their table, which the first ranks compute together (comm/join/rendezvous_hosts.h). Both check the user of
 * the other. */
#include "comm/join/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm/control/address.h"
#include "comm/join/membership.h"
#include "comm/join/rendezvous_hosts.h"
#include "comm/net/mpi.h"

static const uint64_t hello_magic = 0x6168656c6c6f; /* "ahello" */
static const int tick_ms = 50;

struct hello {
    uint64_t magic;
    int32_t version, rank, size, local_rank, local_size;
};

struct answer {
    int32_t status;
    char text[512];
};

/* Of a job on several hosts: the second one. */
struct table {
    struct answer answer;
    char text[AH_HOSTS_TEXT];
};

/* The data of both sides. */
struct rendezvous {
    const struct ah_topology *topology;
    int first; /* rank of this host */
    struct sockaddr_un address;
    socklen_t address_bytes;
    char name[96]; /* for people: "MASTER_PORT 29500" */
    char leader[32]; /* "rank 0" */
    int64_t begin_ns, timeout_ns, stall_warning_ns;
    bool reported;
};

/* The name of the place. */

static void name_meeting(struct rendezvous *m)
{
    static const char *const parts[] = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                        "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"};
    char path[sizeof m->address.sun_path];
    const char *port = getenv("MASTER_PORT");
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *value = getenv(parts[i]);
        for (const char *at = value ? value : ""; *at; at++)
            hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
        hash = (hash ^ (value != NULL)) * 0x100000001b3u;
    }
    snprintf(m->name, sizeof m->name, "MASTER_PORT %.60s", port && *port ? port : "not set");
    int length = snprintf(path, sizeof path, "accelhost-%ld-%016llx", (long)getuid(), (unsigned long long)hash);
    m->address.sun_family = AF_UNIX;
    memcpy(m->address.sun_path + 1, path, (size_t)length); /* a first byte of 0: no file */
    m->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool is_this_host(const char *address)
{
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    size_t length = strlen(own);
    return !*address || !strcmp(address, "localhost") || !strncmp(address, "127.", 4) || !strcmp(address, "::1") ||
           (length && !strncmp(address, own, length) && (!address[length] || address[length] == '.')) ||
           ah_address_is_here(address);
}

static int rendezvous_begin(struct rendezvous *m, const struct ah_topology *topology)
{
    const char *address = getenv("MASTER_ADDR");
    *m = (struct rendezvous){.topology = topology, .first = topology->rank - topology->local_rank,
                             .begin_ns = ah_now_ns()};
    if (topology->by == AH_BY_RANK && address && !getenv("LOCAL_WORLD_SIZE") && !is_this_host(address))
        return ah_fail(AH_EINVAL, "MASTER_ADDR is %s, another host: LOCAL_RANK and LOCAL_WORLD_SIZE must define which "
                       "of the %d ranks are here", address, topology->size);
    AH_TRY(ah_seconds_from_environment("ACCELHOST_TIMEOUT", 600, &m->timeout_ns));
    AH_TRY(ah_seconds_from_environment("ACCELHOST_PATIENCE", AH_STALL_WARNING_S, &m->stall_warning_ns));
    name_meeting(m);
    snprintf(m->leader, sizeof m->leader, "rank %d", m->first);
    return 0;
}

/* Fail at the timeout, or report, when it is due, the awaited ranks; `whom` as "rank 0". */
static int look_at_clock(struct rendezvous *m, const char *whom)
{
    int64_t waited = ah_now_ns() - m->begin_ns;
    if (waited > m->timeout_ns)
        return ah_fail(AH_ETIMEOUT, "rank %d of %d (%s): %s did not arrive within %.3g s", m->topology->rank,
                       m->topology->size, m->name, whom, (double)m->timeout_ns / 1e9);
    if (waited > m->stall_warning_ns && !m->reported) {
        ah_notice(
            "rank %d of %d (%s) has waited %.3g s for %s; `accelhost launch --num_processes %d` starts all of them",
            m->topology->rank, m->topology->size, m->name, (double)m->stall_warning_ns / 1e9, whom, m->topology->size);
        m->reported = true;
    }
    return 0;
}

static bool is_own_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) && peer.uid == getuid();
}

static void limit_waits(int fd)
{
    struct timeval limit = {.tv_sec = 2};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Packets with a descriptor. */

static int send_with(int fd, const void *bytes, size_t count, int passed)
{
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
    struct iovec part = {(void *)bytes, count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &passed, sizeof passed);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)count ? 0 : -1;
}

static int receive_with(int fd, void *bytes, size_t count, int *passed)
{
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    struct iovec part = {bytes, count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    *passed = -1;
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (n != (ssize_t)count) {
        errno = n < 0 ? errno : ECONNRESET; /* nothing: it went away */
        return -1;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(passed, CMSG_DATA(header), sizeof *passed);
    return 0;
}

/* The host's first rank. */

static void rendezvous_judge(const struct rendezvous *m, const struct hello *hello, const bool *here,
                             struct answer *out)
{
    int size = m->topology->size, local = hello->local_rank;
    *out = (struct answer){.status = AH_EINVAL};
    if (hello->magic != hello_magic || hello->version != (int32_t)sizeof(struct ah_rank_entry))
        snprintf(out->text, sizeof out->text, "rank %d runs another version of accelhost", m->first);
    else if (hello->size != size)
        snprintf(out->text, sizeof out->text, "WORLD_SIZE is %d here, but %d of rank %d (%s)", hello->size, size,
                 m->first, m->name);
    else if (hello->local_size != m->topology->local_size)
        snprintf(out->text, sizeof out->text, "rank %d counts %d ranks on this host, and rank %d %d (%s)", hello->rank,
                 hello->local_size, m->first, m->topology->local_size, m->name);
    else if (hello->rank < 1 || hello->rank >= size || local < 1 || local >= hello->local_size)
        snprintf(out->text, sizeof out->text, "RANK is %d of %d, and %d of %d on this host", hello->rank, size, local,
                 hello->local_size);
    else if (hello->rank - local != m->first)
        snprintf(out->text, sizeof out->text, "the ranks of a host have to be consecutive, and rank %d is number %d "
                 "after rank %d: %s", hello->rank, local, m->first, ah_topology_block_option(m->topology->by));
    else if (here[local])
        snprintf(out->text, sizeof out->text, "RANK %d occurs twice (%s); set a different MASTER_PORT for each job",
                 hello->rank, m->name);
    else
        out->status = 0;
}

/* Hand the control block to a caller that may have it. */
static bool hand_over(struct ah_control_block *control, int fd, const struct answer *answer)
{
    char byte = 0;
    if (send_with(fd, answer, sizeof *answer, answer->status ? -1 : control->fd) || answer->status)
        return false;
    for (int r = 0; r < control->size; r++)
        if (send_with(fd, &byte, 1, control->segment_fd[r]))
            return false;
    return recv(fd, &byte, 1, 0) == 1;
}

/* A caller's contradiction about sizes is this rank's as well: there will never be all. A caller that waits for the
 * table of hosts is kept in caller[]. */
static int rendezvous_serve(const struct rendezvous *m, struct ah_control_block *control, int listener, bool *here,
                            int *caller)
{
    struct hello hello;
    struct answer answer;
    int status = 0, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return 0;
    limit_waits(fd);
    if (is_own_user(fd) && recv(fd, &hello, sizeof hello, 0) == (ssize_t)sizeof hello) {
        rendezvous_judge(m, &hello, here, &answer);
        bool taken = hand_over(control, fd, &answer);
        if (taken)
            here[hello.local_rank] = true;
        if (taken && m->topology->local_size < m->topology->size) {
            caller[hello.local_rank] = fd;
            return 0;
        }
        if (answer.status && hello.magic == hello_magic && hello.size != m->topology->size)
            status = ah_fail(AH_EINVAL, "WORLD_SIZE is %d here, but %d of rank %d (%s)", m->topology->size, hello.size,
                             hello.rank, m->name);
        else if (answer.status && hello.magic == hello_magic && hello.rank - hello.local_rank != m->first)
            status = ah_fail(AH_EINVAL, "%s", answer.text);
    }
    close(fd);
    return status;
}

static int first_missing(const bool *here, int size)
{
    int rank = 0;
    while (rank < size && here[rank])
        rank++;
    return rank;
}

static int wait_for_all(struct rendezvous *m, struct ah_control_block *control, int listener, int *caller)
{
    bool here[AH_MAX_RANKS] = {true};
    for (int missing; (missing = first_missing(here, m->topology->local_size)) < m->topology->local_size;) {
        char whom[32];
        struct pollfd at = {.fd = listener, .events = POLLIN};
        snprintf(whom, sizeof whom, "rank %d", m->first + missing);
        AH_TRY(look_at_clock(m, whom));
        if (poll(&at, 1, tick_ms) > 0)
            AH_TRY(rendezvous_serve(m, control, listener, here, caller));
    }
    return 0;
}

static int open_place(const struct rendezvous *m, int *listener)
{
    *listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listener < 0)
        return ah_fail(AH_EIO, "cannot make a socket: %s", strerror(errno));
    if (!bind(*listener, (const struct sockaddr *)&m->address, m->address_bytes) &&
        !listen(*listener, AH_MAX_RANKS))
        return 0;
    int error = errno;
    close(*listener);
    if (error == EADDRINUSE)
        return ah_fail(AH_EINVAL, "RANK %d occurs twice (%s); set a different MASTER_PORT for each job", m->first,
                       m->name);
    return ah_fail(AH_EIO, "cannot open the place where ranks meet: %s", strerror(error));
}

/* Make the table of hosts with the other first ranks, and pass it, or the failure, to this host's ranks. */
static int meet_hosts(struct rendezvous *m, const int *caller, struct ah_hosts *hosts)
{
    static struct table table; /* too large for a stack */
    int64_t left = m->timeout_ns - (ah_now_ns() - m->begin_ns);
    int status = ah_rendezvous_hosts(m->topology, left, m->stall_warning_ns, hosts);
    table.answer.status = status;
    snprintf(table.answer.text, sizeof table.answer.text, "%s", status < 0 ? ah_error_text() : "");
    if (status == 0)
        ah_hosts_write(hosts, table.text, sizeof table.text);
    for (int r = 1; r < m->topology->local_size; r++)
        send_with(caller[r], &table, sizeof table, -1);
    return status;
}

static int rendezvous_host(struct rendezvous *m, struct ah_control_block **out, struct ah_hosts *hosts)
{
    struct ah_control_block *control;
    int listener, status, caller[AH_MAX_RANKS];
    for (int r = 0; r < AH_MAX_RANKS; r++)
        caller[r] = -1;
    AH_TRY(open_place(m, &listener));
    AH_TRYGO(ah_control_create(&control, m->topology->size), closed);
    control->header->alone = true;
    AH_TRYGO(ah_control_map_segments(control), failed);
    AH_TRYGO(ah_control_show_life(control, m->topology->rank), failed);
    AH_TRYGO(wait_for_all(m, control, listener, caller), failed);
    if (m->topology->local_size < m->topology->size)
        AH_TRYGO(meet_hosts(m, caller, hosts), failed);
    for (int r = m->first + 1; r < m->first + m->topology->local_size; r++) { /* mapped, and theirs from now on */
        close(control->segment_fd[r]);
        control->segment_fd[r] = -1;
    }
    *out = control;
    goto closed;
failed:
    ah_control_leave(control, m->topology->rank, AH_RANK_FAILED, ah_error_text(), false);
    ah_control_close(control);
closed:
    for (int r = 0; r < AH_MAX_RANKS; r++)
        if (caller[r] >= 0)
            close(caller[r]);
    close(listener);
    return status;
}

/* The others. */

static int rendezvous_call(struct rendezvous *m, int *out)
{
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return ah_fail(AH_EIO, "cannot make a socket: %s", strerror(errno));
        if (!connect(fd, (const struct sockaddr *)&m->address, m->address_bytes)) {
            *out = fd;
            return 0;
        }
        int error = errno;
        close(fd);
        if (error != ECONNREFUSED && error != ENOENT && error != EAGAIN && error != EINTR)
            return ah_fail(AH_EIO, "cannot reach %s: %s", m->leader, strerror(error));
        AH_TRY(look_at_clock(m, m->leader));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* It answers at its next poll; *ended when it ended before. */
static int rendezvous_ask(struct rendezvous *m, int fd, int *control_fd, int *segments, bool *ended)
{
    struct hello hello = {hello_magic, (int32_t)sizeof(struct ah_rank_entry), m->topology->rank, m->topology->size,
                          m->topology->local_rank, m->topology->local_size};
    struct answer answer;
    char byte;
    *ended = false;
    if (!is_own_user(fd))
        return ah_fail(AH_EINVAL, "another user has the place where the ranks of %s meet", m->name);
    struct timeval limit = {.tv_sec = 0, .tv_usec = tick_ms * 1000};
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
        *ended = true;
        return 0;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while (receive_with(fd, &answer, sizeof answer, control_fd)) {
        if (errno != EAGAIN && errno != EINTR) {
            *ended = true;
            return 0;
        }
        AH_TRY(look_at_clock(m, m->leader));
    }
    if (answer.status)
        return ah_fail(answer.status, "%.*s", (int)sizeof answer.text - 1, answer.text);
    limit_waits(fd);
    for (int r = 0; r < m->topology->size; r++)
        if (receive_with(fd, &byte, 1, &segments[r])) {
            *ended = true;
            return 0;
        }
    return 0;
}

/* The host's first rank has the timeout; when it ends, so does the job. */
static int await_table(const struct rendezvous *m, int fd, struct ah_hosts *hosts)
{
    static struct table table;
    int passed;
    while (receive_with(fd, &table, sizeof table, &passed))
        if (errno != EAGAIN && errno != EINTR)
            return ah_fail(AH_EPEER, "%s, which died while it met the other hosts", m->leader);
    if (table.answer.status)
        return ah_fail(table.answer.status, "%.*s", (int)sizeof table.answer.text - 1, table.answer.text);
    return ah_hosts_read(hosts, table.text);
}

/* Close the descriptors that were passed by a rank that left too early. */
static void close_all(int control_fd, const int *segments)
{
    if (control_fd >= 0)
        close(control_fd);
    for (int r = 0; r < AH_MAX_RANKS; r++)
        if (segments[r] >= 0)
            close(segments[r]);
}

static int rendezvous_join(struct rendezvous *m, struct ah_control_block **out, struct ah_hosts *hosts)
{
    int segments[AH_MAX_RANKS];
    bool ended = true;
    while (ended) {
        int fd = -1, control_fd = -1;
        for (int r = 0; r < AH_MAX_RANKS; r++)
            segments[r] = -1;
        AH_TRY(rendezvous_call(m, &fd));
        int status = rendezvous_ask(m, fd, &control_fd, segments, &ended);
        if (ended)
            close_all(control_fd, segments);
        if (status == 0 && !ended)
            status = ah_control_open(out, control_fd, m->topology->rank, segments);
        if (status == 0 && !ended)
            status = ah_control_show_life(*out, m->topology->rank);
        if (status == 0 && !ended && send(fd, "", 1, MSG_NOSIGNAL) != 1)
            status = ah_fail(AH_EPEER, "%s went away while rank %d joined it", m->leader, m->topology->rank);
        if (status == 0 && !ended && m->topology->local_size < m->topology->size)
            status = await_table(m, fd, hosts);
        close(fd);
        AH_TRY(status);
        AH_TRY(look_at_clock(m, m->leader));
    }
    return 0;
}

int ah_rendezvous_local(struct ah_control_block **out, const struct ah_topology *topology, struct ah_hosts *hosts)
{
    struct rendezvous m;
    bool by_mpi = false;
    if (topology->size > AH_MAX_RANKS)
        return ah_fail(AH_EINVAL, "WORLD_SIZE is %d, expected 1..%d", topology->size, AH_MAX_RANKS);
    AH_TRY(rendezvous_begin(&m, topology));
    if (topology->local_size < topology->size)
        AH_TRY(ah_mpi_choose(topology, &by_mpi));
    if (by_mpi)
        AH_TRY(ah_mpi_begin(topology, m.timeout_ns));
    return topology->local_rank == 0 ? rendezvous_host(&m, out, hosts) : rendezvous_join(&m, out, hosts);
}
