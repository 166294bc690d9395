/* The thread that serves a store: one poll over the listener, a pipe that ends it, and the clients.
 *
 * A connection is a stranger until it has proved that it knows the secret. Strangers have STRANGERS places: with all of
 * them in use the oldest is dropped for the next one, but not before it had the time to answer; meanwhile the others
 * wait in the listener's queue, which is long. So a flood of connections delays a member, and does not keep it out. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm/store/store_protocol.h"

enum { MEMBERS = 1024, CLIENTS = MEMBERS + AH_STORE_STRANGERS, QUEUE = 4096, PIECE = 16 * 1024, FULL = 4 << 20 };
static const int64_t young_ns = 50000000, rest_ns = 100000000;

struct client {
    int fd;
    int64_t since_ns;
    bool ends; /* when its pending replies were sent */
    const char *reason; /* why it is lost */
    struct ah_store_session session;
};

struct ah_store_server {
    int listener, shutdown_fd, port;
    pthread_t thread;
    struct ah_store_options options; /* its own copies of secret and job */
    char job[AH_STORE_JOB];
    int64_t rest_ns; /* until then the listener is not polled */
    struct ah_store_table table;
    struct client *client[CLIENTS];
    struct pollfd look[CLIENTS + 2];
    int count;
};

static void server_drop(struct ah_store_server *server, int at)
{
    struct client *client = server->client[at];
    close(client->fd);
    ah_store_end_session(&client->session, client->reason ? client->reason : "it was turned away");
    ah_store_session_free(&client->session);
    free(client);
    server->client[at] = server->client[--server->count];
}

/* Count them, and find the one that connected first. */
static int count_strangers(const struct ah_store_server *server, int *oldest)
{
    int count = 0, first = -1;
    for (int i = 0; i < server->count; i++) {
        if (server->client[i]->session.trusted)
            continue;
        count++;
        if (first < 0 || server->client[i]->since_ns < server->client[first]->since_ns)
            first = i;
    }
    if (oldest)
        *oldest = first;
    return count;
}

static bool goes_on(struct client *client, int error)
{
    if (error == EAGAIN || error == EINTR)
        return true;
    client->reason = ah_store_reason_of(error);
    return false;
}

/* A launcher with a wrong port, most likely. */
static void report_other_job(const struct ah_store_server *server, const struct client *client)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[64] = "?", mine[AH_STORE_JOB];
    if (!getpeername(client->fd, (struct sockaddr *)&address, &length))
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    ah_store_show_job(mine, server->job);
    ah_notice("store: expected the job '%s' (rdzv_id), got '%s' from %s, another job of this user; refused", mine,
              client->session.job, host);
}

/* False: it is lost. */
static bool server_receive(struct ah_store_server *server, struct client *client)
{
    char piece[PIECE];
    bool stranger = !client->session.trusted;
    ssize_t n = recv(client->fd, piece, sizeof piece, 0);
    if (n <= 0)
        return goes_on(client, n < 0 ? errno : 0);
    client->ends = client->ends || ah_store_feed(&client->session, piece, (size_t)n, ah_now_ns()) < 0;
    if (stranger && client->session.refused == AH_STORE_OTHER_JOB)
        report_other_job(server, client);
    return !stranger || !client->session.trusted || server->count - count_strangers(server, NULL) <= MEMBERS;
}

static bool server_send(struct client *client)
{
    struct ah_text *out = &client->session.out;
    ssize_t n = send(client->fd, out->at, out->bytes, MSG_NOSIGNAL);
    if (n < 0)
        return goes_on(client, errno);
    memmove(out->at, out->at + n, out->bytes - (size_t)n);
    out->bytes -= (size_t)n;
    return true;
}

static void add_client(struct ah_store_server *server, int fd)
{
    struct client *client = server->count < CLIENTS ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        close(fd);
        return;
    }
    ah_store_tune(fd, server->options.alive_ns);
    client->fd = fd;
    client->since_ns = ah_now_ns();
    client->session.table = &server->table;
    client->session.options = &server->options;
    server->client[server->count++] = client;
    if (ah_store_greet(&client->session, client->since_ns) < 0 || !server_send(client))
        client->ends = true;
}

/* All connections that are in the listener's queue, as far as there are places. */
static void accept_clients(struct ah_store_server *server)
{
    for (;;) {
        int64_t now = ah_now_ns();
        int oldest, strangers = count_strangers(server, &oldest);
        if (strangers == AH_STORE_STRANGERS && now - server->client[oldest]->since_ns < young_ns) {
            server->rest_ns = server->client[oldest]->since_ns + young_ns;
            return;
        }
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN) /* no descriptors or no memory: poll would return at once */
                server->rest_ns = now + rest_ns;
            return;
        }
        if (strangers == AH_STORE_STRANGERS)
            server_drop(server, oldest);
        add_client(server, fd);
    }
}

/* Return the time until the first wait is over, in milliseconds; -1: there is none. */
static int server_timeout_ms(const struct ah_store_server *server, int64_t now)
{
    int64_t first = server->rest_ns > now ? server->rest_ns : INT64_MAX;
    for (int i = 0; i < server->count; i++) {
        const struct ah_store_session *session = &server->client[i]->session;
        if ((session->waits || !session->trusted) && session->until_ns < first)
            first = session->until_ns;
    }
    if (first == INT64_MAX)
        return -1;
    int64_t left = (first - now) / 1000000 + 1;
    return left < 0 ? 0 : left < 1000 ? (int)left : 1000;
}

static void wait_for_events(struct ah_store_server *server)
{
    int64_t now = ah_now_ns();
    server->look[0] = (struct pollfd){.fd = server->shutdown_fd, .events = POLLIN};
    server->look[1] = (struct pollfd){.fd = now < server->rest_ns ? -1 : server->listener, .events = POLLIN};
    for (int i = 0; i < server->count; i++) {
        const struct client *client = server->client[i];
        short events = client->session.out.bytes ? POLLOUT : 0;
        if (!client->ends && client->session.out.bytes < FULL)
            events |= POLLIN;
        server->look[2 + i] = (struct pollfd){.fd = client->fd, .events = events};
    }
    poll(server->look, (nfds_t)server->count + 2, server_timeout_ms(server, now));
}

static void *server_serve(void *context)
{
    struct ah_store_server *server = context;
    for (;;) {
        wait_for_events(server);
        if (server->look[0].revents)
            return NULL;
        uint64_t changes = server->table.changes;
        int64_t now = ah_now_ns();
        for (int i = server->count - 1; i >= 0; i--) {
            struct client *client = server->client[i];
            short events = server->look[2 + i].revents;
            bool here = !(events & (POLLIN | POLLHUP | POLLERR)) || client->ends || server_receive(server, client);
            if (client->session.waits || !client->session.trusted)
                client->ends = client->ends || ah_store_resume(&client->session, now) < 0;
            here = here && (!client->session.out.bytes || server_send(client));
            if (!here || (client->ends && (!client->session.out.bytes || events & (POLLHUP | POLLERR))))
                server_drop(server, i);
        }
        /* Clients that wait for the keys just set. */
        for (int i = 0; i < server->count && changes != server->table.changes; i++)
            if (server->client[i]->session.waits && ah_store_resume(&server->client[i]->session, now) < 0)
                server->client[i]->ends = true;
        if (server->look[1].revents)
            accept_clients(server);
    }
}

static int listen_at(struct ah_store_server *server, const char *host, int port)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(host, service, &hints, &found);
    if (code)
        return ah_fail(AH_EIO, "store: %s: %s", host, gai_strerror(code));
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    server->listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    bool good = server->listener >= 0 && !bind(server->listener, found->ai_addr, found->ai_addrlen) &&
                !listen(server->listener, QUEUE) &&
                !getsockname(server->listener, (struct sockaddr *)&address, &length);
    freeaddrinfo(found);
    if (!good)
        return ah_fail(AH_EIO, "store: cannot listen at %s, port %d: %s", host, port, strerror(errno));
    server->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                       : ((struct sockaddr_in *)&address)->sin_port);
    return 0;
}

static void free_server(struct ah_store_server *server)
{
    while (server->count)
        server_drop(server, 0);
    if (server->listener >= 0)
        close(server->listener);
    if (server->shutdown_fd >= 0)
        close(server->shutdown_fd);
    ah_store_table_free(&server->table);
    free((void *)(uintptr_t)server->options.secret);
    free(server);
}

int ah_store_serve(struct ah_store_server **out, const struct ah_store_options *options)
{
    int status;
    struct ah_store_server *server = calloc(1, sizeof *server);
    void *secret = malloc(options->secret_bytes + 1);
    if (!server || !secret) {
        free(server);
        free(secret);
        return ah_fail(AH_ENOMEM, "store: out of memory");
    }
    if (options->secret_bytes)
        memcpy(secret, options->secret, options->secret_bytes);
    server->options = *options;
    server->options.secret = secret;
    server->options.host = NULL;
    ah_store_job(server->job, options);
    server->options.job = server->job;
    server->listener = -1;
    server->shutdown_fd = eventfd(0, EFD_CLOEXEC);
    AH_TRYGO(listen_at(server, options->host ? options->host : "127.0.0.1", options->port), failed);
    if (server->shutdown_fd < 0 || ah_helper_start(&server->thread, server_serve, server)) {
        status = ah_fail(AH_ENOMEM, "store: no thread to serve it");
        goto failed;
    }
    *out = server;
    return 0;
failed:
    free_server(server);
    return status;
}

int ah_store_port(const struct ah_store_server *server)
{
    return server->port;
}

void ah_store_end(struct ah_store_server *server)
{
    if (!server)
        return;
    uint64_t one = 1;
    while (write(server->shutdown_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_join(server->thread, NULL);
    free_server(server);
}
