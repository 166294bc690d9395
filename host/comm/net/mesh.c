/* Host h listens, stores its address under a key of the store, connects to all hosts below it and accepts connections
 * of all above. A caller proves that it knows the secret for just this connection: purpose and both hosts are part of
 * the proof. Callers are served side by side in one poll, so that one that does not answer delays no other; with all
 * places in use the oldest is dropped for the next one, but not before it had the time to answer. */
#include "comm/net/mesh.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "comm/store/store_protocol.h"

static const uint64_t mesh_magic = 0x3168736d6861; /* "ahmsh1" */
static const int64_t answer_ns = 5000000000, again_ns = 50000000, young_ns = 50000000, rest_ns = 100000000;
enum { CALLERS = 32, QUEUE = 4096 };

struct greeting {
    uint64_t magic;
    unsigned char nonce[AH_SHA256_BYTES];
};
struct reply {
    uint64_t magic, generation;
    int64_t host;
    unsigned char nonce[AH_SHA256_BYTES], proof[AH_SHA256_BYTES];
};

/* A connection whose proof has not arrived yet. */
struct caller {
    int fd; /* -1: a free place */
    int64_t since_ns;
    struct greeting greeting;
    struct reply reply;
    size_t got; /* bytes of it */
};

struct mesh {
    const struct ah_hosts *hosts;
    const char *purpose;
    struct ah_store *store;
    int *fd, listener;
    int64_t deadline, timeout_ns;
    int64_t rest_ns; /* until then the listener is not polled */
    struct caller caller[CALLERS];
};

/* All bytes, or a failure: `from` NULL receives to `to`. */
static int mesh_transfer(int fd, void *to, const void *from, size_t bytes, int64_t deadline)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = from ? send(fd, (const char *)from + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                         : recv(fd, (char *)to + done, bytes - done, MSG_DONTWAIT);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return AH_EIO;
        int64_t left = deadline - ah_now_ns();
        if (left <= 0)
            return AH_ETIMEOUT;
        poll(&(struct pollfd){.fd = fd, .events = from ? POLLOUT : POLLIN}, 1, (int)(left / 1000000) % 1000 + 1);
    }
    return 0;
}

/* Write the purpose of a proof: the connection of two hosts, and the side that proves itself. */
static const char *mesh_role(const struct mesh *m, int caller, int called, bool calls, char *text, size_t bytes)
{
    snprintf(text, bytes, "mesh %s %d to %d %s", m->purpose, caller, called, calls ? "calls" : "is called");
    return text;
}

static const char *key_of(const struct mesh *m, int host, char *text, size_t bytes)
{
    snprintf(text, bytes, "mesh/%llu/%s/%d", (unsigned long long)m->hosts->store.generation, m->purpose, host);
    return text;
}

static int mesh_late(const struct mesh *m, int host)
{
    return ah_fail(AH_ETIMEOUT, "host %s did not connect to %s within %.3g s", m->hosts->name[host],
                   m->hosts->name[m->hosts->mine], (double)m->timeout_ns / 1e9);
}

/* Find the own address: the configured one, loopback for a store on loopback, else that by which the store is
 * reached. */
static int find_address(const struct ah_hosts *hosts, struct sockaddr_storage *address, socklen_t *length)
{
    const char *store = hosts->store.host ? hosts->store.host : "127.0.0.1";
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM}, *found;
    int code = getaddrinfo(hosts->address ? hosts->address : store, "1", &hints, &found);
    if (code)
        return ah_fail(AH_EIO, "host %s: %s: %s", hosts->name[hosts->mine], hosts->address ? hosts->address : store,
                       gai_strerror(code));
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *length = found->ai_addrlen;
    freeaddrinfo(found);
    if (hosts->address)
        return 0;
    int fd = socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && !connect(fd, (struct sockaddr *)address, *length) &&
                !getsockname(fd, (struct sockaddr *)address, length);
    if (fd >= 0)
        close(fd);
    return good ? 0 : ah_fail(AH_EIO, "host %s has no way to %s: %s", hosts->name[hosts->mine], store, strerror(errno));
}

static void set_port(struct sockaddr_storage *address, int port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
}

static int listen_here(struct mesh *m)
{
    struct sockaddr_storage address;
    socklen_t length;
    char host[64], port[16], text[96], key[128];
    AH_TRY(find_address(m->hosts, &address, &length));
    set_port(&address, 0);
    m->listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&address, length) ||
        listen(m->listener, QUEUE) || getsockname(m->listener, (struct sockaddr *)&address, &length) ||
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return ah_fail(AH_EIO, "host %s cannot listen: %s", m->hosts->name[m->hosts->mine], strerror(errno));
    snprintf(text, sizeof text, "%s %s", host, port);
    return ah_store_set(m->store, key_of(m, m->hosts->mine, key, sizeof key), text, strlen(text));
}

/* Calling. */

static int mesh_introduce(struct mesh *m, int fd, int host)
{
    struct greeting greeting;
    struct reply reply = {.magic = mesh_magic, .generation = m->hosts->store.generation, .host = m->hosts->mine};
    unsigned char proof[AH_SHA256_BYTES], theirs[AH_SHA256_BYTES];
    char text[128];
    int64_t deadline = ah_now_ns() + answer_ns < m->deadline ? ah_now_ns() + answer_ns : m->deadline;
    AH_TRY(mesh_transfer(fd, &greeting, NULL, sizeof greeting, deadline));
    if (greeting.magic != mesh_magic || getrandom(reply.nonce, sizeof reply.nonce, 0) != (ssize_t)sizeof reply.nonce)
        return AH_EIO;
    ah_store_prove(reply.proof, &m->hosts->store, mesh_role(m, m->hosts->mine, host, true, text, sizeof text),
                   greeting.nonce, reply.nonce);
    AH_TRY(mesh_transfer(fd, NULL, &reply, sizeof reply, deadline));
    AH_TRY(mesh_transfer(fd, theirs, NULL, sizeof theirs, deadline));
    ah_store_prove(proof, &m->hosts->store, mesh_role(m, m->hosts->mine, host, false, text, sizeof text), reply.nonce,
                   greeting.nonce);
    return ah_store_same(proof, theirs) ? 0 : AH_EINVAL;
}

static int connect_to(struct mesh *m, int host, char *place)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found;
    char *port = strchr(place, ' ');
    if (port)
        *port++ = 0;
    if (!port || getaddrinfo(place, port, &hints, &found))
        return ah_fail(AH_EINVAL, "host %s sent an invalid address", m->hosts->name[host]);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), status = AH_EIO, error = 0;
    socklen_t length = sizeof error;
    struct pollfd look = {.fd = fd, .events = POLLOUT};
    if (fd >= 0 && (!connect(fd, found->ai_addr, found->ai_addrlen) || errno == EINPROGRESS) &&
        poll(&look, 1, (int)(answer_ns / 1000000)) == 1 && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) &&
        !error)
        status = mesh_introduce(m, fd, host);
    freeaddrinfo(found);
    if (status == 0)
        m->fd[host] = fd;
    else if (fd >= 0)
        close(fd);
    return status == AH_EINVAL ? ah_fail(AH_EINVAL, "host %s has another secret: it belongs to another job",
                                         m->hosts->name[host]) : status;
}

static int mesh_call(struct mesh *m, int host)
{
    char key[128], *place;
    size_t bytes;
    int status = ah_store_get(m->store, key_of(m, host, key, sizeof key), &place, &bytes, m->deadline - ah_now_ns());
    if (status == AH_ETIMEOUT)
        return mesh_late(m, host);
    AH_TRY(status);
    do {
        char copy[128];
        snprintf(copy, sizeof copy, "%s", place);
        status = connect_to(m, host, copy);
        if (status != AH_EIO && status != AH_ETIMEOUT)
            break;
        nanosleep(&(struct timespec){.tv_nsec = again_ns}, NULL);
    } while (ah_now_ns() < m->deadline);
    free(place);
    return status == AH_EIO || status == AH_ETIMEOUT ? mesh_late(m, host) : status;
}

/* Being called. */

static void drop_caller(struct caller *caller)
{
    close(caller->fd);
    caller->fd = -1;
}

/* A few bytes to a socket that has room for them; false: it is broken. */
static bool send_all(int fd, const void *bytes, size_t count)
{
    return send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)count;
}

static void greet_caller(struct caller *caller, int fd, int64_t now)
{
    *caller = (struct caller){.fd = fd, .since_ns = now, .greeting.magic = mesh_magic};
    if (getrandom(caller->greeting.nonce, sizeof caller->greeting.nonce, 0) != (ssize_t)sizeof caller->greeting.nonce ||
        !send_all(fd, &caller->greeting, sizeof caller->greeting))
        drop_caller(caller);
}

/* Check a reply that has arrived whole: AH_EINVAL, or the own proof. */
static int judge_caller(const struct mesh *m, const struct caller *caller, unsigned char proof[AH_SHA256_BYTES])
{
    const struct reply *reply = &caller->reply;
    char text[128];
    int mine = m->hosts->mine;
    if (reply->magic != mesh_magic || reply->generation != m->hosts->store.generation || reply->host <= mine ||
        reply->host >= m->hosts->count || m->fd[reply->host] >= 0)
        return AH_EINVAL;
    ah_store_prove(proof, &m->hosts->store, mesh_role(m, (int)reply->host, mine, true, text, sizeof text),
                   caller->greeting.nonce, reply->nonce);
    if (!ah_store_same(proof, reply->proof))
        return AH_EINVAL;
    ah_store_prove(proof, &m->hosts->store, mesh_role(m, (int)reply->host, mine, false, text, sizeof text),
                   reply->nonce, caller->greeting.nonce);
    return 0;
}

/* Read the bytes that have arrived. A caller that has proved itself becomes the host's connection. */
static void feed_caller(struct mesh *m, struct caller *caller)
{
    unsigned char proof[AH_SHA256_BYTES];
    char *at = (char *)&caller->reply + caller->got;
    ssize_t n = recv(caller->fd, at, sizeof caller->reply - caller->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    caller->got += n > 0 ? (size_t)n : 0;
    if (n > 0 && caller->got < sizeof caller->reply)
        return;
    if (n <= 0 || judge_caller(m, caller, proof) < 0 || !send_all(caller->fd, proof, sizeof proof)) {
        drop_caller(caller);
        return;
    }
    m->fd[caller->reply.host] = caller->fd;
    caller->fd = -1;
}

/* A free place, else that of the oldest caller. */
static struct caller *next_place(struct mesh *m)
{
    struct caller *oldest = &m->caller[0];
    for (int i = 0; i < CALLERS; i++) {
        if (m->caller[i].fd < 0)
            return &m->caller[i];
        if (m->caller[i].since_ns < oldest->since_ns)
            oldest = &m->caller[i];
    }
    return oldest;
}

static void accept_callers(struct mesh *m)
{
    for (;;) {
        int64_t now = ah_now_ns();
        struct caller *place = next_place(m);
        if (place->fd >= 0 && now - place->since_ns < young_ns) {
            m->rest_ns = place->since_ns + young_ns;
            return;
        }
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN) /* no descriptors or no memory: poll would return at once */
                m->rest_ns = now + rest_ns;
            return;
        }
        if (place->fd >= 0)
            drop_caller(place);
        greet_caller(place, fd, now);
    }
}

/* One poll over the listener and all callers, a second at most. */
static void serve_callers(struct mesh *m)
{
    struct pollfd look[CALLERS + 1];
    int64_t now = ah_now_ns(), until = now + 1000000000;
    until = m->deadline < until ? m->deadline : until;
    until = m->rest_ns > now && m->rest_ns < until ? m->rest_ns : until;
    look[CALLERS] = (struct pollfd){.fd = now < m->rest_ns ? -1 : m->listener, .events = POLLIN};
    for (int i = 0; i < CALLERS; i++)
        look[i] = (struct pollfd){.fd = m->caller[i].fd, .events = POLLIN};
    if (poll(look, CALLERS + 1, (int)((until - now) / 1000000) + 1) < 0)
        return;
    now = ah_now_ns();
    for (int i = 0; i < CALLERS; i++) {
        struct caller *caller = &m->caller[i];
        if (caller->fd >= 0 && look[i].revents)
            feed_caller(m, caller);
        if (caller->fd >= 0 && now - caller->since_ns > answer_ns)
            drop_caller(caller);
    }
    if (look[CALLERS].revents || (m->rest_ns && now >= m->rest_ns)) {
        m->rest_ns = 0;
        accept_callers(m);
    }
}

static int be_called(struct mesh *m)
{
    for (int h = m->hosts->mine + 1; h < m->hosts->count; h++)
        while (m->fd[h] < 0) {
            if (ah_now_ns() >= m->deadline)
                return mesh_late(m, h);
            serve_callers(m);
        }
    return 0;
}

int ah_mesh_open(const struct ah_hosts *hosts, const char *purpose, int64_t timeout_ns, int fd[AH_HOSTS_MAX])
{
    struct mesh m = {.hosts = hosts, .purpose = purpose, .fd = fd, .listener = -1, .timeout_ns = timeout_ns,
                     .deadline = ah_now_ns() + timeout_ns};
    int status;
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        fd[h] = -1;
    for (int i = 0; i < CALLERS; i++)
        m.caller[i].fd = -1;
    AH_TRYGO(ah_store_connect(&m.store, &hosts->store, timeout_ns), out);
    AH_TRYGO(listen_here(&m), out);
    for (int h = 0; h < hosts->mine; h++)
        AH_TRYGO(mesh_call(&m, h), out);
    AH_TRYGO(be_called(&m), out);
    for (int h = 0; h < hosts->count; h++)
        if (fd[h] >= 0)
            setsockopt(fd[h], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
out:
    for (int i = 0; i < CALLERS; i++)
        if (m.caller[i].fd >= 0)
            drop_caller(&m.caller[i]);
    if (m.listener >= 0)
        close(m.listener);
    ah_store_close(m.store);
    if (status < 0)
        ah_mesh_close(fd);
    return status;
}

void ah_mesh_close(int fd[AH_HOSTS_MAX])
{
    for (int h = 0; h < AH_HOSTS_MAX; h++) {
        if (fd[h] >= 0)
            close(fd[h]);
        fd[h] = -1;
    }
}
