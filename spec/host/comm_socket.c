/* A backend for the tests: sockets on the loopback interface, plain and slow, to show the dispatcher's requirements.
 *
 * Every rank listens on its own port, publishes it in its group block, and connects to all ranks below it. A
 * call is an exchange of messages between each pair of ranks: each sends the data that the other needs and receives its
 * own; sums are formed by every rank, in rank order. A work keeps a copy of its input until it is carried. Messages
 * have their own connection, on which the sender writes when its receiver has accepted the message header.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "comm/control/combine.h"
#include "comm/group/watch.h"
#include "comm_ranks.h"

enum { TICK_MS = 50 };

struct socket_group {
    struct ah_group base;
    int fd[2][AH_MAX_RANKS]; /* to every other rank, -1 for the own: of collectives, of messages */
};

struct socket_message {
    struct ah_message_request base;
    char *copy; /* of the sent data */
    size_t moved;
};

struct socket_work {
    struct ah_work base;
    void *copy;
};

static int socket_failed(const char *what)
{
    return ah_fail(AH_EIO, "sockets: %s: %s", what, strerror(errno));
}

/* Opening: rank r is called by all above it. */

static int listen_on_loopback(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, AH_MAX_RANKS) ||
        getsockname(fd, (struct sockaddr *)&at, &length)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *port = ntohs(at.sin_port);
    return fd;
}

/* The peer's port, published together with the place at which this group begins to count. */
static int port_of(struct ah_group *group, int rank, int *port)
{
    for (struct ah_watch watch = {0};;) {
        uint64_t stated = atomic_load(&group->peer[rank]->address);
        if (stated >> 32 == (uint64_t)group->base && stated & 0xffff) {
            *port = (int)(stated & 0xffff);
            return 0;
        }
        AH_TRY(ah_watch_look(&watch, group, AH_DONE, group->base + 1));
        usleep(1000);
    }
}

static int call_rank(struct socket_group *s, int rank, int which)
{
    int port, own = 2 * s->base.rank + which;
    AH_TRY(port_of(&s->base, rank, &port));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port)};
    int fd = s->fd[which][rank] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) || write(fd, &own, sizeof own) != sizeof own)
        return socket_failed("connect");
    return 0;
}

static int be_called(struct socket_group *s, int listener)
{
    int caller;
    struct pollfd at = {.fd = listener, .events = POLLIN};
    struct ah_watch watch = {0};
    while (poll(&at, 1, TICK_MS) <= 0)
        AH_TRY(ah_watch_look(&watch, &s->base, AH_DONE, s->base.base + 1));
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || read(fd, &caller, sizeof caller) != sizeof caller) {
        if (fd >= 0)
            close(fd);
        return socket_failed("accept");
    }
    s->fd[caller % 2][caller / 2] = fd;
    return 0;
}

static int socket_open(struct ah_group *group)
{
    struct socket_group *s = (struct socket_group *)group;
    int port, status = 0, listener = listen_on_loopback(&port);
    if (listener < 0)
        return socket_failed("listen");
    for (int r = 0; r < group->size; r++)
        s->fd[0][r] = s->fd[1][r] = -1;
    if (group->size > 1)
        atomic_store(&group->peer[group->rank]->address, (uint64_t)group->base << 32 | (uint64_t)port);
    for (int i = 0; i < 2 * group->rank && status == 0; i++)
        status = call_rank(s, i / 2, i % 2);
    for (int i = 2 * group->rank + 2; i < 2 * group->size && status == 0; i++)
        status = be_called(s, listener);
    for (int i = 0; i < 2 * group->size; i++)
        if (s->fd[i % 2][i / 2] >= 0)
            fcntl(s->fd[i % 2][i / 2], F_SETFL, O_NONBLOCK);
    close(listener);
    return status;
}

static void socket_close(struct ah_group *group)
{
    struct socket_group *s = (struct socket_group *)group;
    for (int i = 0; i < 2 * group->size; i++)
        if (s->fd[i % 2][i / 2] >= 0)
            close(s->fd[i % 2][i / 2]);
}

/* One message each way. */

struct message {
    const char *out;
    char *in;
    size_t to_send, to_receive;
};

static int socket_step(struct socket_group *s, int rank, struct message *m, short events)
{
    ssize_t n;
    if (events & POLLOUT && m->to_send) {
        n = send(s->fd[0][rank], m->out, m->to_send, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE && errno != ECONNRESET)
            return socket_failed("send");
        m->out += n > 0 ? n : 0;
        m->to_send -= n > 0 ? (size_t)n : 0;
    }
    if (events & POLLIN && m->to_receive) {
        n = recv(s->fd[0][rank], m->in, m->to_receive, 0);
        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNRESET)
            return socket_failed("receive");
        m->in += n > 0 ? n : 0;
        m->to_receive -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* All pairs at once; a peer that is gone shows on the control block. */
static int socket_exchange(struct socket_group *s, struct message *message, uint32_t sequence)
{
    struct ah_watch watch = {0};
    for (;;) {
        struct pollfd at[AH_MAX_RANKS];
        bool left = false;
        for (int r = 0; r < s->base.size; r++) {
            struct message *m = &message[r];
            short events = (short)((m->to_send ? POLLOUT : 0) | (m->to_receive ? POLLIN : 0));
            at[r] = (struct pollfd){.fd = events ? s->fd[0][r] : -1, .events = events};
            left |= events != 0;
        }
        if (!left)
            return 0;
        poll(at, (nfds_t)s->base.size, TICK_MS);
        for (int r = 0; r < s->base.size; r++) {
            if (at[r].revents & (POLLHUP | POLLERR))
                usleep(1000);
            AH_TRY(socket_step(s, r, &message[r], at[r].revents));
        }
        AH_TRY(ah_watch_look(&watch, &s->base, AH_DONE, sequence));
    }
}

/* Copy the data received from each rank into the result. */
static void socket_compose(struct ah_group *group, const struct ah_collective *call, char *const *got,
                           const struct ah_part *part, uint32_t sequence)
{
    size_t width = ah_dtype_size(call->dtype);
    double divisor = 0;
    for (int r = 0; r < group->size; r++)
        divisor += ah_group_call_record(group, r, sequence)->weight;
    if (ah_collective_reduces(call) && part[0].count)
        ah_combine(call->dtype, call->reduce, (void *const *)&call->out, 1, (const void *const *)got, group->size,
                   part[0].count, divisor);
    for (int r = 0; r < group->size && !ah_collective_reduces(call); r++)
        if (part[r].count)
            memcpy((char *)call->out + (size_t)part[r].place * width, got[r], (size_t)part[r].count * width);
}

static int carry_out(struct ah_group *group, const struct ah_collective *call, const void *in, uint32_t sequence)
{
    struct socket_group *s = (struct socket_group *)group;
    struct message message[AH_MAX_RANKS] = {{0}};
    char *got[AH_MAX_RANKS] = {NULL};
    struct ah_part part[AH_MAX_RANKS];
    size_t width = ah_dtype_size(call->dtype);
    int status = 0;
    for (int r = 0; r < group->size; r++) {
        struct ah_part given = ah_collective_part(call, group->size, group->rank, r);
        part[r] = ah_collective_part(call, group->size, r, group->rank);
        got[r] = malloc((size_t)part[r].count * width + 1);
        const char *from = given.count ? (const char *)in + (size_t)given.first * width : NULL;
        if (r == group->rank && given.count)
            memcpy(got[r], from, (size_t)given.count * width);
        else if (r != group->rank)
            message[r] = (struct message){from, got[r], (size_t)given.count * width, (size_t)part[r].count * width};
    }
    status = socket_exchange(s, message, sequence);
    if (status == 0 && call->out)
        socket_compose(group, call, got, part, sequence);
    for (int r = 0; r < group->size; r++)
        free(got[r]);
    return status;
}

static int socket_run(struct ah_group *group, const struct ah_collective *call)
{
    return carry_out(group, call, call->in, group->issued);
}

/* Works. */

static int socket_start(struct ah_work *work)
{
    struct socket_work *own = (struct socket_work *)work;
    int64_t count = ah_collective_input(&work->call, work->group->size, work->group->rank);
    size_t bytes = (size_t)count * ah_dtype_size(work->call.dtype);
    own->copy = malloc(bytes + 1);
    if (bytes)
        memcpy(own->copy, work->call.in, bytes);
    return 0;
}

static int socket_carry(struct ah_work *work)
{
    struct ah_collective call = work->call;
    if (work->abandoned)
        call.out = NULL;
    return carry_out(work->group, &call, ((struct socket_work *)work)->copy, work->sequence);
}

static void socket_drop(struct ah_work *work, bool complete)
{
    free(((struct socket_work *)work)->copy);
}

/* Messages. */

static size_t message_bytes(const struct ah_message_request *request)
{
    return (size_t)request->message.count * ah_dtype_size(request->message.dtype);
}

static int socket_give(struct ah_message_request *request)
{
    struct socket_message *own = (struct socket_message *)request;
    own->copy = malloc(message_bytes(request) + 1);
    if (message_bytes(request))
        memcpy(own->copy, request->message.memory, message_bytes(request));
    return 0;
}

static int socket_moved(struct socket_message *own, ssize_t n)
{
    if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE && errno != ECONNRESET)
        return socket_failed("message");
    own->moved += n > 0 ? (size_t)n : 0;
    return 0;
}

static int socket_serve(struct ah_message_request *request)
{
    struct socket_message *own = (struct socket_message *)request;
    int fd = ((struct socket_group *)request->group)->fd[1][request->message.peer];
    if (own->moved == message_bytes(request))
        return 0;
    return socket_moved(own, send(fd, own->copy + own->moved, message_bytes(request) - own->moved, MSG_NOSIGNAL));
}

static int socket_fetch(struct ah_message_request *request, bool *done)
{
    struct socket_message *own = (struct socket_message *)request;
    int fd = ((struct socket_group *)request->group)->fd[1][request->message.peer];
    if (own->moved < message_bytes(request)) {
        char *at = (char *)request->message.memory + own->moved;
        AH_TRY(socket_moved(own, recv(fd, at, message_bytes(request) - own->moved, 0)));
    }
    *done = own->moved == message_bytes(request);
    return 0;
}

static void socket_forget(struct ah_message_request *request, bool complete)
{
    free(((struct socket_message *)request)->copy);
}

static int socket_alloc(struct ah_group *group, size_t bytes, void **out)
{
    size_t rounded = (bytes + 63) / 64 * 64 + 64;
    *out = memset(aligned_alloc(64, rounded), 0, rounded);
    return 0;
}

static void socket_free(struct ah_group *group, void *memory, size_t bytes)
{
    free(memory);
}

const struct ah_backend socket_backend = {
    .name = "socket",
    .group_bytes = sizeof(struct socket_group),
    .work_bytes = sizeof(struct socket_work),
    .message_bytes = sizeof(struct socket_message),
    .open = socket_open,
    .close = socket_close,
    .run = socket_run,
    .start = socket_start,
    .carry = socket_carry,
    .carry_waits = true,
    .drop = socket_drop,
    .give = socket_give,
    .fetch = socket_fetch,
    .serve = socket_serve,
    .forget = socket_forget,
    .alloc = socket_alloc,
    .free = socket_free,
};
