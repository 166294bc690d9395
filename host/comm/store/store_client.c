/* A client of a store: one connection, one request under way. A call that fails in the middle leaves the connection out
 * of step, so it is closed then. */
#include <errno.h>
#include <netdb.h>
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

struct ah_store {
    int fd;    /* -1: closed after a failure */
    int error; /* errno of that, 0: the server has ended the connection */
    int64_t call_ns; /* for a reply, beyond the time that the server is given */
    char where[160];
};

/* least_ns: for a try to connect. One that the deadline cut shorter would report that cut, not its real cause. */
static const int64_t call_ns = 10000000000, again_ns = 50000000, least_ns = 250000000;
enum { once_ms = 3000 }; /* for one try to connect */

/* All bytes, or a failure: `from` NULL receives to `to`. */
static int client_transfer(struct ah_store *store, void *to, const void *from, size_t bytes, int64_t deadline)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = from ? send(store->fd, (const char *)from + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                         : recv(store->fd, (char *)to + done, bytes - done, MSG_DONTWAIT);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        store->error = n < 0 ? errno : 0;
        if (n == 0)
            return ah_fail(AH_EIO, "store at %s: the server has ended the connection", store->where);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return ah_fail(AH_EIO, "store at %s: %s", store->where, strerror(errno));
        int64_t left = deadline - ah_now_ns();
        store->error = ETIMEDOUT;
        if (left <= 0)
            return ah_fail(AH_ETIMEOUT, "store at %s: the server does not answer", store->where);
        poll(&(struct pollfd){.fd = store->fd, .events = from ? POLLOUT : POLLIN}, 1, (int)(left / 1000000 % 1000) + 1);
    }
    return 0;
}

static void client_leave(struct ah_store *store)
{
    if (store->fd >= 0)
        close(store->fd);
    store->fd = -1;
}

void ah_store_close(struct ah_store *store)
{
    if (!store)
        return;
    client_leave(store);
    free(store);
}

bool ah_store_is_closed(const struct ah_store *store)
{
    return store->fd < 0;
}

const char *ah_store_reason(const struct ah_store *store)
{
    return ah_store_reason_of(store->error);
}

/* Connecting. */

/* To one address, at most until the deadline. */
static bool client_reach(struct ah_store *store, const struct addrinfo *at, int64_t deadline)
{
    int error = 0;
    store->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (store->fd < 0)
        return false;
    if (connect(store->fd, at->ai_addr, at->ai_addrlen))
        error = errno;
    if (error == EINPROGRESS) {
        int64_t left = (deadline - ah_now_ns()) / 1000000 + 1;
        struct pollfd look = {.fd = store->fd, .events = POLLOUT};
        socklen_t length = sizeof error;
        if (poll(&look, 1, left < 0 ? 0 : left < once_ms ? (int)left : once_ms) <= 0)
            error = ETIMEDOUT;
        else if (getsockopt(store->fd, SOL_SOCKET, SO_ERROR, &error, &length))
            error = errno;
    }
    if (error)
        client_leave(store);
    errno = error;
    return !error;
}

static int open_socket(struct ah_store *store, const struct ah_store_options *options, int64_t deadline)
{
    const char *host = options->host ? options->host : "127.0.0.1";
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    char service[16];
    snprintf(service, sizeof service, "%d", options->port);
    int code = getaddrinfo(host, service, &hints, &found);
    if (code)
        return ah_fail(AH_EIO, "store at %s: %s", store->where, gai_strerror(code));
    const struct addrinfo *at = found;
    while (at && !client_reach(store, at, deadline))
        at = at->ai_next;
    int error = errno;
    freeaddrinfo(found);
    if (store->fd < 0)
        return ah_fail(AH_ETIMEOUT, "store at %s: %s", store->where, strerror(error));
    ah_store_tune(store->fd, options->alive_ns);
    return 0;
}

static int fail_other_job(const struct ah_store *store, const struct ah_store_options *options,
                          const struct ah_store_welcome *welcome)
{
    char theirs[AH_STORE_JOB], own[AH_STORE_JOB], mine[AH_STORE_JOB];
    ah_store_show_job(theirs, welcome->job);
    ah_store_job(own, options);
    ah_store_show_job(mine, own);
    return ah_fail(AH_EINVAL, "store at %s: expected the job '%s' (rdzv_id), got '%s', another job of this user: is "
                   "the port that of the own job?", store->where, mine, theirs);
}

static int shake_hands(struct ah_store *store, const struct ah_store_options *options, int64_t deadline)
{
    struct ah_store_hello hello;
    struct ah_store_answer answer = {.magic = AH_STORE_MAGIC, .generation = options->generation};
    struct ah_store_welcome welcome;
    unsigned char proof[AH_SHA256_BYTES];
    ah_store_job(answer.job, options);
    AH_TRY(client_transfer(store, &hello, NULL, sizeof hello, deadline));
    if (hello.magic != AH_STORE_MAGIC)
        return ah_fail(AH_EINVAL, "store at %s: this is no store of ours", store->where);
    if (getrandom(answer.nonce, sizeof answer.nonce, 0) != (ssize_t)sizeof answer.nonce)
        return ah_fail(AH_EIO, "store: no random numbers");
    ah_store_prove(answer.proof, options, "client", hello.nonce, answer.nonce);
    AH_TRY(client_transfer(store, NULL, &answer, sizeof answer, deadline));
    AH_TRY(client_transfer(store, &welcome, NULL, sizeof welcome, deadline));
    ah_store_prove(proof, options, "server", answer.nonce, hello.nonce);
    if (welcome.result == AH_STORE_OTHER_JOB)
        return fail_other_job(store, options, &welcome);
    if (welcome.result == AH_STORE_OTHER_GENERATION)
        return ah_fail(AH_EINVAL, "store at %s: it is of another generation of this job than %llu", store->where,
                       (unsigned long long)options->generation);
    if (welcome.result != AH_STORE_FINE || !ah_store_same(proof, welcome.proof))
        return ah_fail(AH_EINVAL, "store at %s: it has another secret: it belongs to another job", store->where);
    return 0;
}

/* AH_ETIMEOUT: there is no server yet, or it had no room for this connection; it may have some later. */
static int connect_once(struct ah_store *store, const struct ah_store_options *options, int64_t deadline)
{
    int64_t least = ah_now_ns() + least_ns;
    deadline = deadline < least ? least : deadline;
    AH_TRY(open_socket(store, options, deadline));
    int status = shake_hands(store, options, deadline);
    if (status < 0)
        client_leave(store);
    return status == AH_EIO ? AH_ETIMEOUT : status;
}

int ah_store_connect(struct ah_store **out, const struct ah_store_options *options, int64_t timeout_ns)
{
    const char *host = options->host ? options->host : "127.0.0.1";
    int64_t deadline = ah_now_ns() + timeout_ns;
    struct ah_store *store = calloc(1, sizeof *store);
    AH_TRY_MEMORY(store, "store: out of memory");
    store->fd = -1;
    store->call_ns = options->alive_ns > call_ns ? options->alive_ns : call_ns;
    snprintf(store->where, sizeof store->where, "%s, port %d", host, options->port);
    int status = connect_once(store, options, deadline);
    while (status == AH_ETIMEOUT && ah_now_ns() < deadline) {
        nanosleep(&(struct timespec){.tv_nsec = again_ns}, NULL);
        status = connect_once(store, options, deadline);
    }
    if (status < 0)
        ah_store_close(store);
    else
        *out = store;
    return status;
}

/* Calls. */

/* *value is from malloc, NULL without one. */
static int client_exchange(struct ah_store *store, const struct ah_store_request *request, const char *key,
                           const void *given, struct ah_store_reply *reply, char **value)
{
    int64_t deadline = ah_now_ns() + (int64_t)request->wait_ms * 1000000 + store->call_ns;
    AH_TRY(client_transfer(store, NULL, request, sizeof *request, deadline));
    AH_TRY(client_transfer(store, NULL, key, request->key_bytes, deadline));
    AH_TRY(client_transfer(store, NULL, given, request->value_bytes, deadline));
    AH_TRY(client_transfer(store, reply, NULL, sizeof *reply, deadline));
    if (reply->value_bytes > AH_STORE_VALUE)
        return ah_fail(AH_EIO, "store at %s: a value of %u bytes", store->where, reply->value_bytes);
    *value = malloc((size_t)reply->value_bytes + 1);
    AH_TRY_MEMORY(*value, "store: out of memory");
    (*value)[reply->value_bytes] = 0;
    return client_transfer(store, *value, NULL, reply->value_bytes, deadline);
}

static int client_call(struct ah_store *store, struct ah_store_request request, const char *key, const void *given,
                       struct ah_store_reply *reply, char **value)
{
    size_t bytes = strlen(key);
    if (bytes > AH_STORE_KEY)
        return ah_fail(AH_EINVAL, "store: a key of %zu bytes, expected at most %d", bytes, AH_STORE_KEY);
    if (store->fd < 0)
        return ah_fail(AH_EIO, "store at %s: a call failed before", store->where);
    char *got = NULL;
    request.key_bytes = (uint32_t)bytes;
    int status = client_exchange(store, &request, key, given, reply, &got);
    if (status < 0)
        client_leave(store);
    if (value && status == 0)
        *value = got;
    else
        free(got);
    return status;
}

int ah_store_set(struct ah_store *store, const char *key, const void *value, size_t bytes)
{
    struct ah_store_reply reply;
    if (bytes > AH_STORE_VALUE)
        return ah_fail(AH_EINVAL, "store: a value of %zu bytes, expected at most %d", bytes, AH_STORE_VALUE);
    AH_TRY(client_call(store, (struct ah_store_request){.op = AH_STORE_SET, .value_bytes = (uint32_t)bytes}, key, value,
                       &reply, NULL));
    return reply.result == AH_STORE_FINE ? 0 : ah_fail(AH_ENOMEM, "store: no room for '%s'", key);
}

int ah_store_get(struct ah_store *store, const char *key, char **value, size_t *bytes, int64_t timeout_ns)
{
    struct ah_store_reply reply;
    int64_t wait = timeout_ns < 0 ? 0 : timeout_ns / 1000000;
    struct ah_store_request request = {.op = AH_STORE_GET, .wait_ms = wait < INT32_MAX ? (uint32_t)wait : INT32_MAX};
    char *got = NULL;
    AH_TRY(client_call(store, request, key, NULL, &reply, &got));
    if (reply.result != AH_STORE_FINE) {
        free(got);
        return ah_fail(AH_ETIMEOUT, "store: '%s' was not set within %.3g s", key, (double)timeout_ns / 1e9);
    }
    *value = got;
    *bytes = reply.value_bytes;
    return 0;
}

int ah_store_add(struct ah_store *store, const char *key, int64_t delta, int64_t *sum)
{
    struct ah_store_reply reply;
    AH_TRY(client_call(store, (struct ah_store_request){.op = AH_STORE_ADD, .number = delta}, key, NULL, &reply, NULL));
    *sum = reply.number;
    if (reply.result != AH_STORE_FINE)
        return ah_fail(AH_EINVAL, "store: '%s' is no number that can be added to", key);
    return 0;
}

int ah_store_delete(struct ah_store *store, const char *key, bool *was)
{
    struct ah_store_reply reply;
    AH_TRY(client_call(store, (struct ah_store_request){.op = AH_STORE_DELETE}, key, NULL, &reply, NULL));
    *was = reply.number != 0;
    return 0;
}

int ah_store_append(struct ah_store *store, const char *list, const void *value, size_t bytes, int64_t *index)
{
    struct ah_store_reply reply;
    struct ah_store_request request = {.op = AH_STORE_APPEND, .value_bytes = (uint32_t)bytes};
    if (bytes > AH_STORE_VALUE)
        return ah_fail(AH_EINVAL, "store: a value of %zu bytes, expected at most %d", bytes, AH_STORE_VALUE);
    AH_TRY(client_call(store, request, list, value, &reply, NULL));
    if (index)
        *index = reply.number;
    return reply.result == AH_STORE_FINE ? 0 : ah_fail(AH_ENOMEM, "store: no room for more of '%s'", list);
}

int ah_store_will(struct ah_store *store, const char *list, const void *value, size_t bytes)
{
    struct ah_store_reply reply;
    struct ah_store_request request = {.op = AH_STORE_WILL, .number = value != NULL, .value_bytes = (uint32_t)bytes};
    if (bytes > AH_STORE_VALUE)
        return ah_fail(AH_EINVAL, "store: a will of %zu bytes, expected at most %d", bytes, AH_STORE_VALUE);
    AH_TRY(client_call(store, request, list, value, &reply, NULL));
    return reply.result == AH_STORE_FINE ? 0 : ah_fail(AH_ENOMEM, "store: no room for a will");
}
