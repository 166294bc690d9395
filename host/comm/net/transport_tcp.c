/* The transport over TCP: one connection to each other leader (mesh.h). A message is its tag, its length and its bytes,
 * and is copied straight from and to the memory of its exchange. Data that arrives before its exchange has begun here
 * is stored in separate memory, which is bounded for each message (AH_TRANSPORT_EARLY; the progress thread's pieces are
 * shorter). When that is ENOUGH nothing more is read from a host from which nothing is awaited; where something is, it
 * may follow early data, and is read as far as `most_early`. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/net/mesh.h"
#include "comm/net/transport.h"

enum {
    AT_ONCE = 4 << 20, /* bytes from one host before another host is served */
    ENOUGH = 16 << 20,
};
static const uint64_t longest_message = (uint64_t)1 << 32,
                      most_early = (uint64_t)1 << 29; /* bytes; the latter from one host */

struct head {
    uint64_t tag, bytes;
};

/* One way of one exchange with one host. */
struct part {
    struct part *next;
    struct exchange *exchange; /* NULL: it is early, `memory` is its own */
    struct head head;
    unsigned char *memory;
    size_t moved; /* the head too */
    struct part *claimed; /* by this one, when it has arrived early */
};

struct queue {
    struct part *first, **last;
};

struct link {
    int fd;
    bool lost;
    char why[160]; /* it is lost; empty: the connection broke */
    struct queue out, want, early;
    uint64_t early_bytes; /* with the overhead of each message */
    struct part *in; /* being received, its head is complete */
    struct head head;
    size_t head_got;
};

struct exchange {
    struct ah_transport_exchange base;
    int left; /* parts */
    unsigned char undone[AH_HOSTS_MAX]; /* of them with each host */
    struct part part[];
};

struct tcp_transport {
    struct ah_transport base;
    struct ah_transport_exchange *exchanges;
    struct link link[AH_HOSTS_MAX];
};

static void tcp_append(struct queue *queue, struct part *part)
{
    part->next = NULL;
    *queue->last = part;
    queue->last = &part->next;
}

static void take_out(struct queue *queue, struct part *part)
{
    struct part **at = &queue->first;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    if (!*at)
        queue->last = at;
}

static struct part *first_of(const struct queue *queue, uint64_t tag)
{
    struct part *part = queue->first;
    while (part && (part->head.tag != tag || part->claimed))
        part = part->next;
    return part;
}

static void tcp_finish(struct part *part, int host)
{
    part->exchange->left--;
    part->exchange->undone[host]--;
}

/* Receiving. */

static uint64_t cost_of(const struct head *head)
{
    return sizeof(struct part) + head->bytes;
}

/* An early message is complete, and its exchange has begun. */
static void hand_over(struct link *link, struct part *early, int host)
{
    struct part *part = early->claimed;
    memcpy(part->memory, early->memory, part->head.bytes);
    tcp_finish(part, host);
    take_out(&link->early, early);
    link->early_bytes -= cost_of(&early->head);
    free(early);
}

static int does_not_fit(uint64_t came, uint64_t expected)
{
    return ah_fail(AH_EPEER, "it sent %llu bytes where %llu were expected", (unsigned long long)came,
                   (unsigned long long)expected);
}

static int begin_message(struct link *link)
{
    struct part *part = first_of(&link->want, link->head.tag);
    unsigned long long tag = (uint32_t)link->head.tag, bytes = link->head.bytes;
    if (tag >= AH_TRANSPORT_TAGS)
        return ah_fail(AH_EPEER, "it sent %llu bytes of the tag %llu, expected one below %d", bytes, tag,
                       AH_TRANSPORT_TAGS);
    if (!bytes || bytes > longest_message)
        return ah_fail(AH_EPEER, "it sent a message of %llu bytes", bytes);
    if (part && part->head.bytes != bytes)
        return does_not_fit(bytes, part->head.bytes);
    if (part) {
        take_out(&link->want, part);
    } else {
        if (bytes > AH_TRANSPORT_EARLY)
            return ah_fail(AH_EPEER, "it sent an unrequested message of %llu bytes, expected at most "
                           "%d", bytes, AH_TRANSPORT_EARLY);
        if (link->early_bytes + cost_of(&link->head) > most_early)
            return ah_fail(AH_EPEER, "it sent more than %llu unrequested bytes",
                           (unsigned long long)most_early);
        part = malloc(sizeof *part + link->head.bytes);
        AH_TRY_MEMORY(part, "transport: out of memory");
        *part = (struct part){.head = link->head};
        part->memory = (unsigned char *)(part + 1);
        tcp_append(&link->early, part);
        link->early_bytes += cost_of(&link->head);
    }
    link->in = part;
    return 0;
}

static void end_message(struct link *link, int host)
{
    struct part *part = link->in;
    link->in = NULL;
    link->head_got = 0;
    if (part->exchange)
        tcp_finish(part, host);
    else if (part->claimed)
        hand_over(link, part, host);
}

/* Bytes into `to`; false: there are none now, or never again. */
static bool tcp_read(struct link *link, void *to, size_t most, size_t *got)
{
    ssize_t n = recv(link->fd, to, most, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        link->lost = true;
    *got += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* Is there a reason to receive more from the host? */
static bool tcp_listens(const struct link *link)
{
    const struct part *in = link->in;
    return link->want.first || (in && (in->exchange || in->claimed)) || link->early_bytes < ENOUGH;
}

static int tcp_receive(struct link *link, int host)
{
    for (size_t all = 0; all < AT_ONCE && !link->lost && tcp_listens(link);) {
        size_t got = 0;
        if (!link->in) {
            if (!tcp_read(link, (char *)&link->head + link->head_got, sizeof link->head - link->head_got, &got))
                break;
            link->head_got += got;
            if (link->head_got < sizeof link->head)
                break;
            AH_TRY(begin_message(link));
            got = 0;
        }
        size_t left = link->in->head.bytes - link->in->moved;
        if (left && !tcp_read(link, link->in->memory + link->in->moved, left, &got))
            break;
        link->in->moved += left ? got : 0;
        all += got;
        if (link->in->moved == link->in->head.bytes)
            end_message(link, host);
    }
    return 0;
}

/* Sending. */

static void tcp_write(struct link *link, int host)
{
    while (link->out.first && !link->lost) {
        struct part *part = link->out.first;
        size_t head = sizeof part->head, in_body = part->moved > head ? part->moved - head : 0;
        struct iovec iov[2];
        int n_iov = 0;
        if (part->moved < head)
            iov[n_iov++] = (struct iovec){(char *)&part->head + part->moved, head - part->moved};
        iov[n_iov++] = (struct iovec){part->memory + in_body, part->head.bytes - in_body};
        ssize_t n = sendmsg(link->fd, &(struct msghdr){.msg_iov = iov, .msg_iovlen = (size_t)n_iov}, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            link->lost = errno != EAGAIN;
            return;
        }
        part->moved += (size_t)n;
        if (part->moved < head + part->head.bytes)
            continue;
        take_out(&link->out, part);
        tcp_finish(part, host);
    }
}

/* Turns. */

static void tcp_lose(struct link *link, const char *why)
{
    link->lost = true;
    snprintf(link->why, sizeof link->why, "%s", why);
}

static void tcp_progress(struct tcp_transport *transport)
{
    for (int h = 0; h < transport->base.hosts; h++) {
        struct link *link = &transport->link[h];
        if (link->fd < 0 || link->lost)
            continue;
        tcp_write(link, h);
        if (tcp_receive(link, h) < 0)
            tcp_lose(link, ah_error_text());
    }
}

static void begin_receive(struct link *link, struct part *part, int host)
{
    struct part *early = first_of(&link->early, part->head.tag);
    if (!early) {
        tcp_append(&link->want, part);
        return;
    }
    if (early->head.bytes != part->head.bytes) {
        does_not_fit(early->head.bytes, part->head.bytes);
        tcp_lose(link, ah_error_text());
        return;
    }
    early->claimed = part;
    if (early != link->in)
        hand_over(link, early, host);
}

static int tcp_start(struct ah_transport *base, uint64_t tag, const struct ah_transport_piece *send,
                     const struct ah_transport_piece *receive_to, struct ah_transport_exchange **out)
{
    struct tcp_transport *transport = (struct tcp_transport *)base;
    struct exchange *exchange = calloc(1, sizeof *exchange + 2 * (size_t)base->hosts * sizeof exchange->part[0]);
    AH_TRY_MEMORY(exchange, "transport: out of memory");
    ah_transport_list(&transport->exchanges, &exchange->base);
    *out = &exchange->base;
    for (int h = 0; h < base->hosts; h++) {
        const struct ah_transport_piece *piece[2] = {&send[h], &receive_to[h]};
        for (int way = 0; way < 2 && h != base->host; way++) {
            if (!piece[way]->bytes)
                continue;
            struct part *part = &exchange->part[2 * h + way];
            *part = (struct part){.exchange = exchange, .head = {tag, piece[way]->bytes},
                                  .memory = piece[way]->memory};
            exchange->left++;
            exchange->undone[h]++;
            if (way)
                begin_receive(&transport->link[h], part, h);
            else
                tcp_append(&transport->link[h].out, part);
        }
        if (transport->link[h].fd >= 0 && !transport->link[h].lost)
            tcp_write(&transport->link[h], h);
    }
    return 0;
}

static int tcp_test(struct ah_transport *base, struct ah_transport_exchange *under_way, bool *done, int *lost)
{
    struct tcp_transport *transport = (struct tcp_transport *)base;
    struct exchange *exchange = (struct exchange *)under_way;
    *done = false;
    tcp_progress(transport);
    if (!exchange->left) {
        *done = true;
        ah_transport_unlist(&exchange->base);
        free(exchange);
        return 0;
    }
    for (int h = 0; h < base->hosts; h++)
        if (exchange->undone[h] && transport->link[h].lost) {
            *lost = h;
            return ah_fail(AH_EPEER, "%s", transport->link[h].why[0] ? transport->link[h].why
                                                                : "the connection for data is broken");
        }
    return 0;
}

static void tcp_wait_for(struct ah_transport *base, int64_t limit_ns)
{
    struct tcp_transport *transport = (struct tcp_transport *)base;
    struct pollfd look[AH_HOSTS_MAX];
    struct timespec limit = {limit_ns / 1000000000, limit_ns % 1000000000};
    for (int h = 0; h < base->hosts; h++) {
        const struct link *link = &transport->link[h];
        short events = (short)((tcp_listens(link) ? POLLIN : 0) | (link->out.first ? POLLOUT : 0));
        look[h] = (struct pollfd){.fd = link->lost ? -1 : link->fd, .events = events};
    }
    ppoll(look, (nfds_t)base->hosts, &limit, NULL);
}

static int tcp_open(struct ah_transport **out, const struct ah_hosts *hosts, int64_t timeout_ns)
{
    int fd[AH_HOSTS_MAX];
    struct tcp_transport *transport = calloc(1, sizeof *transport);
    AH_TRY_MEMORY(transport, "transport: out of memory");
    int status = ah_mesh_open(hosts, "transport", timeout_ns, fd);
    if (status < 0) {
        free(transport);
        return status;
    }
    transport->base = (struct ah_transport){&ah_tcp_transport, hosts->mine, hosts->count};
    for (int h = 0; h < AH_HOSTS_MAX; h++) {
        struct link *link = &transport->link[h];
        link->fd = fd[h];
        link->out.last = &link->out.first;
        link->want.last = &link->want.first;
        link->early.last = &link->early.first;
    }
    *out = &transport->base;
    return 0;
}

static void tcp_close(struct ah_transport *base)
{
    struct tcp_transport *transport = (struct tcp_transport *)base;
    for (int h = 0; h < base->hosts; h++) {
        struct link *link = &transport->link[h];
        for (struct part *early; (early = link->early.first) != NULL;) {
            link->early.first = early->next;
            free(early);
        }
        if (link->fd >= 0)
            close(link->fd);
    }
    for (struct ah_transport_exchange *exchange; (exchange = transport->exchanges) != NULL;) {
        transport->exchanges = exchange->next;
        free(exchange);
    }
    free(transport);
}

const struct ah_transport_type ah_tcp_transport = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .start = tcp_start,
    .test = tcp_test,
    .wait_for = tcp_wait_for,
};
