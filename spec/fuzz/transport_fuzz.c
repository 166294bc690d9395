/* Fuzz target: messages over the transport from a peer host. Each step is two bytes: begin an exchange that receives
 * that many bytes of a tag, or have the peer send a message, a head that it breaks off, or one that no exchange can
 * want.
 * sources: host/base/status/status.c */
#include "comm/net/transport_tcp.c"

#include <fcntl.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { STEPS = 64 };
static const struct ah_hosts hosts = {.count = 2, .first = {0, 1, 2}, .name = {"here", "there"}};
static int other = -1;

int ah_mesh_open(const struct ah_hosts *all, const char *purpose, int64_t timeout_ns, int fd[AH_HOSTS_MAX])
{
    int pair[2];
    (void)all, (void)purpose, (void)timeout_ns;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
        abort();
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        fd[h] = -1;
    fd[1] = pair[0];
    other = pair[1];
    return 0;
}

static void put(const void *bytes, size_t count)
{
    if (send(other, bytes, count, MSG_NOSIGNAL) < 0)
        return; /* full, or lost already */
}

static void act(uint8_t what, uint8_t number)
{
    static const uint64_t lengths[] = {0, (uint64_t)1 << 30, (uint64_t)3 << 30, UINT64_MAX};
    char message[256] = {0};
    struct head head = {what >> 4, number};
    if ((what & 7) == 1)
        head = (struct head){(uint64_t)number << 8, number % 16 + 1};
    else if ((what & 7) == 2)
        head.bytes = lengths[number % 4];
    put(&head, (what & 7) == 3 ? number % sizeof head : sizeof head);
    put(message, number);
}

/* An exchange's memory is its own, so that a byte too many is seen. */
struct wanted {
    struct ah_transport_exchange *exchange;
    void *memory;
};

static void begin(struct ah_transport *transport, struct wanted *wanted, uint8_t tag, uint8_t number)
{
    struct ah_transport_piece send_to[2] = {{0}}, receive_from[2] = {{0}};
    wanted->memory = malloc(number + 1u);
    if (!wanted->memory)
        abort();
    receive_from[1] = (struct ah_transport_piece){wanted->memory, number};
    ah_tcp_transport.start(transport, tag, send_to, receive_from, &wanted->exchange);
}

static void look(struct ah_transport *transport, struct wanted wanted[STEPS], size_t end, size_t from)
{
    for (size_t w = from; w < end; w++) {
        bool done = false;
        int lost = -1;
        if (wanted[w].exchange && ah_tcp_transport.test(transport, wanted[w].exchange, &done, &lost) < 0 && lost != 1)
            abort();
        if (done)
            wanted[w].exchange = NULL;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_transport *transport;
    struct wanted wanted[STEPS] = {{0}};
    if (ah_tcp_transport.open(&transport, &hosts, 1000) < 0)
        abort();
    for (size_t i = 0; i + 2 <= count && i < 2 * STEPS; i += 2) {
        if (bytes[i] & 8)
            begin(transport, &wanted[i / 2], bytes[i] >> 4, bytes[i + 1]);
        else
            act(bytes[i], bytes[i + 1]);
        look(transport, wanted, i / 2 + 1, i / 2); /* the latest; the others at the end */
    }
    look(transport, wanted, STEPS, 0);
    if (((struct tcp_transport *)transport)->link[1].early_bytes > most_early)
        abort();
    ah_tcp_transport.close(transport);
    close(other);
    for (int w = 0; w < STEPS; w++)
        free(wanted[w].memory);
    return 0;
}
