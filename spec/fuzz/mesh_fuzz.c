/* Fuzz target: bytes of callers to a leader that listens, and a leader's address in the store. The first
 * byte selects one. Of callers each step is caller, right proof or not, and length, in two bytes, then the bytes; where
 * its second bit is set the length's bytes follow a head that may be right.
 * sources: host/base/status/status.c host/base/trace/time.c */
#define connect fuzz_connect
#include "comm/net/mesh.c"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { HOSTS = 4, MINE = 1 };
static bool same;

/* Nothing here reaches a network or a store. */
int fuzz_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    (void)fd, (void)address, (void)length;
    return 0;
}
int ah_store_connect(struct ah_store **out, const struct ah_store_options *place, int64_t timeout_ns)
{
    (void)out, (void)place, (void)timeout_ns;
    abort();
}
void ah_store_close(struct ah_store *store)
{
    (void)store;
}
int ah_store_get(struct ah_store *store, const char *key, char **value, size_t *bytes, int64_t timeout_ns)
{
    (void)store, (void)key, (void)value, (void)bytes, (void)timeout_ns;
    abort();
}
int ah_store_set(struct ah_store *store, const char *key, const void *value, size_t bytes)
{
    (void)store, (void)key, (void)value, (void)bytes;
    abort();
}
void ah_store_prove(unsigned char proof[AH_SHA256_BYTES], const struct ah_store_options *place, const char *text,
                    const unsigned char theirs[AH_SHA256_BYTES], const unsigned char mine[AH_SHA256_BYTES])
{
    (void)place, (void)text, (void)theirs, (void)mine;
    memset(proof, 0, AH_SHA256_BYTES);
}
bool ah_store_same(const unsigned char *a, const unsigned char *b)
{
    (void)a, (void)b;
    return same;
}

static void read_address(struct mesh *m, const uint8_t *bytes, size_t count)
{
    char *text = malloc(count + 1); /* a separate block: its end is watched */
    if (!text)
        abort();
    memcpy(text, bytes, count);
    text[count] = 0;
    if (connect_to(m, 0, text) == 0)
        abort(); /* no host has proved anything */
    free(text);
}

static void check(const struct mesh *m, const int *fd)
{
    for (int h = 0; h < AH_HOSTS_MAX; h++) {
        if (fd[h] >= 0 && (h <= MINE || h >= HOSTS))
            abort();
        for (int i = 0; i < CALLERS && fd[h] >= 0; i++)
            if (m->caller[i].fd == fd[h])
                abort(); /* it is one or the other */
    }
}

static void feed(struct mesh *m, struct caller *caller, int other, bool headed, const uint8_t *bytes, size_t count)
{
    struct reply head = {.magic = mesh_magic, .host = count ? bytes[0] % (HOSTS + 1) : 0};
    if (headed && send(other, &head, offsetof(struct reply, nonce), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;
    if (send(other, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;
    for (int tries = 0; tries < 4 && caller->fd >= 0; tries++)
        feed_caller(m, caller);
}

static void serve(struct mesh *m, const uint8_t *bytes, size_t count)
{
    int other[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        other[i] = -1;
    for (size_t at = 0; at + 2 <= count;) {
        int which = bytes[at] >> 3, pair[2];
        size_t length = bytes[at + 1];
        bool headed = bytes[at] & 2;
        struct caller *caller = &m->caller[which];
        same = bytes[at] & 1;
        at += 2;
        length = length < count - at ? length : count - at;
        if (caller->fd < 0 && other[which] < 0 && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
            greet_caller(caller, pair[0], 0);
            other[which] = pair[1];
        }
        if (caller->fd >= 0)
            feed(m, caller, other[which], headed, bytes + at, length);
        check(m, m->fd);
        at += length;
    }
    for (int i = 0; i < CALLERS; i++) {
        if (m->caller[i].fd >= 0)
            drop_caller(&m->caller[i]);
        if (other[i] >= 0)
            close(other[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const struct ah_hosts hosts = {.count = HOSTS, .mine = MINE, .name = {"a", "b", "c", "d"}};
    int fd[AH_HOSTS_MAX];
    struct mesh m = {.hosts = &hosts, .purpose = "fuzz", .fd = fd, .listener = -1};
    m.deadline = INT64_MAX;
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        fd[h] = -1;
    for (int i = 0; i < CALLERS; i++)
        m.caller[i].fd = -1;
    if (!count)
        return 0;
    if (bytes[0] & 1)
        serve(&m, bytes + 1, count - 1);
    else
        read_address(&m, bytes + 1, count - 1);
    ah_mesh_close(fd);
    return 0;
}
