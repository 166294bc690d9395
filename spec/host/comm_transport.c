/* The transport over TCP and a host that sends unrequested messages. */
#include "comm/net/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/net/mesh.h"
#include "test.h"

enum { MEGABYTE = 1 << 20 };

struct pair {
    struct ah_store_server *server;
    struct ah_hosts hosts[2];
    struct ah_transport *transport; /* of host 0 */
    int fd;               /* of host 1, which is no transport */
};

static void *open_peer(void *context)
{
    struct pair *pair = context;
    int fd[AH_HOSTS_MAX];
    CHECK_OK(ah_mesh_open(&pair->hosts[1], "transport", INT64_C(20000000000), fd));
    pair->fd = fd[0];
    return NULL;
}

static bool open_pair(struct pair *pair)
{
    struct ah_store_options place = {.secret = "a secret", .secret_bytes = 8, .generation = 1};
    pthread_t thread;
    *pair = (struct pair){.fd = -1};
    CHECK_OK(ah_store_serve(&pair->server, &place));
    place.port = ah_store_port(pair->server);
    for (int h = 0; h < 2; h++)
        pair->hosts[h] = (struct ah_hosts){.count = 2, .mine = h, .first = {0, 1, 2}, .name = {"here", "liar"},
                                           .store = place};
    if (pthread_create(&thread, NULL, open_peer, pair))
        return false;
    CHECK_OK(ah_tcp_transport.open(&pair->transport, &pair->hosts[0], INT64_C(20000000000)));
    pthread_join(thread, NULL);
    return pair->transport && pair->fd >= 0;
}

static void close_pair(struct pair *pair)
{
    if (pair->transport)
        ah_tcp_transport.close(pair->transport);
    if (pair->fd >= 0)
        close(pair->fd);
    ah_store_end(pair->server);
}

/* An exchange that receives `bytes` bytes from the peer. */
static struct ah_transport_exchange *transport_want(struct pair *pair, uint64_t tag, void *memory, size_t bytes)
{
    struct ah_transport_piece send[2] = {{0}}, receive[2] = {{0}, {memory, bytes}};
    struct ah_transport_exchange *exchange = NULL;
    CHECK_OK(ah_tcp_transport.start(pair->transport, tag, send, receive, &exchange));
    return exchange;
}

static int transport_look(struct pair *pair, struct ah_transport_exchange *exchange, bool *done)
{
    int lost = -1, status = ah_tcp_transport.test(pair->transport, exchange, done, &lost);
    if (status < 0)
        CHECK(lost == 1);
    else if (!*done)
        ah_tcp_transport.wait_for(pair->transport, 1000000);
    return status;
}

/* Send until the socket is full while this host moves bytes; `all` of `bytes` in the end, or it stays full. */
static size_t transport_flood(struct pair *pair, const unsigned char *bytes, size_t all)
{
    size_t sent = 0;
    for (int idle = 0; sent < all && idle < 50;) {
        bool done;
        ssize_t n = send(pair->fd, bytes + sent, all - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        idle = n > 0 ? 0 : idle + 1;
        CHECK_OK(transport_look(pair, transport_want(pair, 1, NULL, 0), &done));
        if (n <= 0)
            usleep(2000);
    }
    return sent;
}

/* `count` messages of a megabyte, each full of its number. */
static unsigned char *transport_messages(int tag, int count, size_t *bytes)
{
    uint64_t head[2] = {(uint64_t)tag, MEGABYTE};
    *bytes = (size_t)count * (sizeof head + MEGABYTE);
    unsigned char *all = malloc(*bytes), *at = all;
    for (int i = 0; i < count; i++, at += sizeof head + MEGABYTE) {
        memcpy(at, head, sizeof head);
        memset(at + sizeof head, i + 1, MEGABYTE);
    }
    return all;
}

static void take_messages(struct pair *pair, int tag, int count)
{
    unsigned char *memory = malloc(MEGABYTE);
    for (int i = 0; i < count; i++) {
        struct ah_transport_exchange *exchange = transport_want(pair, tag, memory, MEGABYTE);
        bool done = false;
        for (int tries = 0; !done && tries < 1000; tries++)
            CHECK_OK(transport_look(pair, exchange, &done));
        CHECK(done && memory[0] == i + 1 && memory[MEGABYTE - 1] == i + 1);
    }
    free(memory);
}

AH_TEST(what_nobody_asks_for_stays_with_its_host)
{
    enum { COUNT = 100, AT_MOST = 48 * MEGABYTE, FEW = 8 };
    struct pair pair;
    size_t bytes;
    REQUIRE(open_pair(&pair));
    unsigned char *all = transport_messages(5, COUNT, &bytes);
    size_t sent = transport_flood(&pair, all, bytes);
    CHECK(sent > FEW * (size_t)(MEGABYTE + 16) && sent < AT_MOST);
    take_messages(&pair, 5, FEW);
    free(all);
    close_pair(&pair);
}

AH_TEST(a_requested_message_is_found_after_unrequested_ones_and_received_to_its_end)
{
    enum { COUNT = 14 };
    struct pair pair;
    size_t bytes, last;
    REQUIRE(open_pair(&pair));
    unsigned char *first = transport_messages(5, COUNT, &bytes), *other = transport_messages(6, 5, &last);
    CHECK(transport_flood(&pair, first, bytes) == bytes);
    unsigned char *memory = malloc(MEGABYTE);
    struct ah_transport_exchange *exchange = transport_want(&pair, 7, memory, MEGABYTE);
    CHECK(transport_flood(&pair, other, last) == last);
    uint64_t head[2] = {7, MEGABYTE};
    memcpy(first, head, sizeof head);
    bool done = false;
    CHECK(transport_flood(&pair, first, MEGABYTE) == MEGABYTE);
    for (int i = 0; i < 100; i++)
        CHECK_OK(transport_look(&pair, exchange, &done));
    CHECK(!done);
    CHECK(transport_flood(&pair, first + MEGABYTE, sizeof head) == sizeof head);
    for (int tries = 0; !done && tries < 1000; tries++)
        CHECK_OK(transport_look(&pair, exchange, &done));
    CHECK(done && memory[MEGABYTE - 1] == 1);
    take_messages(&pair, 5, COUNT);
    take_messages(&pair, 6, 5);
    free(memory);
    free(first);
    free(other);
    close_pair(&pair);
}

/* A head that the peer has sent before the exchange begins, or after. */
static void check_head(uint64_t tag, uint64_t bytes, bool early, const char *why)
{
    struct pair pair;
    uint64_t head[2] = {tag, bytes};
    char memory[8];
    bool done = false;
    int status = 0;
    struct ah_transport_exchange *exchange = NULL;
    REQUIRE(open_pair(&pair));
    if (!early)
        exchange = transport_want(&pair, 3, memory, sizeof memory);
    CHECK(send(pair.fd, head, sizeof head, 0) == sizeof head);
    for (int i = 0; early && i < 100; i++)
        CHECK_OK(transport_look(&pair, transport_want(&pair, 1, NULL, 0), &done));
    if (early)
        exchange = transport_want(&pair, 3, memory, sizeof memory);
    done = false;
    for (int tries = 0; !done && status == 0 && tries < 1000; tries++)
        status = transport_look(&pair, exchange, &done);
    CHECK(status == AH_EPEER && strstr(ah_error_text(), why));
    close_pair(&pair);
}

AH_TEST(a_host_that_sends_what_does_not_fit_is_lost_with_what_it_sent)
{
    for (int early = 0; early < 2; early++) {
        check_head(3, 9, early, "it sent 9 bytes where 8 were expected");
        check_head(AH_TRANSPORT_TAGS, 8, early, "it sent 8 bytes of the tag 4096, expected one below 4096");
        check_head(5, 0, early, "it sent a message of 0 bytes");
        check_head(5, UINT64_MAX, early, "it sent a message of 18446744073709551615 bytes");
        check_head(5, (uint64_t)AH_TRANSPORT_EARLY + 1, early,
                   "it sent an unrequested message of 16777217 bytes");
    }
}

/* 33 unrequested messages, of 16 MiB each, together with one that is awaited. */
AH_TEST(a_host_is_lost_that_sends_more_than_a_host_may_be_ahead_by)
{
    struct pair pair;
    char memory[8];
    uint64_t head[2] = {5, AH_TRANSPORT_EARLY};
    unsigned char *body = calloc(AH_TRANSPORT_EARLY, 1);
    REQUIRE(open_pair(&pair) && body);
    struct ah_transport_exchange *exchange = transport_want(&pair, 3, memory, sizeof memory);
    bool done = false;
    int status = 0;
    size_t sent = 0, all = sizeof head + AH_TRANSPORT_EARLY;
    for (int idle = 0; status == 0 && sent < 33 * all && idle < 5000; idle++) {
        size_t at = sent % all;
        const void *from = at < sizeof head ? (char *)head + at : (char *)body + (at - sizeof head);
        ssize_t n = send(pair.fd, from, at < sizeof head ? sizeof head - at : all - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        idle = n > 0 ? 0 : idle;
        status = transport_look(&pair, exchange, &done);
    }
    CHECK(status == AH_EPEER && strstr(ah_error_text(), "it sent more than 536870912 unrequested bytes"));
    free(body);
    close_pair(&pair);
}

AH_TEST(pieces_of_another_group_with_the_same_tag_are_not_received)
{
    struct pair pair;
    char first[8] = "", second[8] = "";
    struct {
        uint64_t tag, bytes;
        char text[8];
    } sent[2] = {{(uint64_t)7 << 32 | 3, 8, "seventh"}, {(uint64_t)9 << 32 | 3, 8, "ninth"}};
    bool done[2] = {false, false};
    REQUIRE(open_pair(&pair));
    struct ah_transport_exchange *exchange[2] = {transport_want(&pair, sent[1].tag, first, 8), NULL};
    CHECK(send(pair.fd, sent, sizeof sent, 0) == sizeof sent);
    for (int tries = 0; !done[0] && tries < 1000; tries++)
        CHECK_OK(transport_look(&pair, exchange[0], &done[0]));
    exchange[1] = transport_want(&pair, sent[0].tag, second, 8);
    for (int tries = 0; !done[1] && tries < 1000; tries++)
        CHECK_OK(transport_look(&pair, exchange[1], &done[1]));
    CHECK(!strcmp(first, "ninth") && !strcmp(second, "seventh"));
    close_pair(&pair);
}
