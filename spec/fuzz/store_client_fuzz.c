/* Fuzz target: a server's bytes to a store's client. The first byte selects whether proofs are right and where the
 * handshake ends; the others are sent, and the client makes its calls until one of them fails.
 * sources: host/base/status/status.c host/base/trace/time.c */
#include "comm/store/store_client.c"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static bool same;

void ah_store_prove(unsigned char proof[AH_SHA256_BYTES], const struct ah_store_options *place, const char *role,
                    const unsigned char theirs[AH_SHA256_BYTES], const unsigned char mine[AH_SHA256_BYTES])
{
    (void)place, (void)role, (void)theirs, (void)mine;
    memset(proof, 0, AH_SHA256_BYTES);
}

bool ah_store_same(const unsigned char *a, const unsigned char *b)
{
    (void)a, (void)b;
    return same;
}

void ah_store_job(char job[AH_STORE_JOB], const struct ah_store_options *place)
{
    (void)place;
    memset(job, 0, AH_STORE_JOB);
}

void ah_store_show_job(char text[AH_STORE_JOB], const char job[AH_STORE_JOB])
{
    memcpy(text, job, AH_STORE_JOB);
    text[AH_STORE_JOB - 1] = 0;
}

const char *ah_store_reason_of(int error)
{
    return error ? "error" : "end";
}

void ah_store_tune(int fd, int64_t alive_ns)
{
    (void)fd, (void)alive_ns;
}

static void call_all(struct ah_store *store)
{
    char *value;
    size_t length;
    int64_t number;
    bool was;
    while (!ah_store_is_closed(store)) {
        if (ah_store_get(store, "key", &value, &length, 0) == 0) {
            if (value[length])
                abort(); /* a text has its end */
            free(value);
        }
        ah_store_add(store, "key", 1, &number);
        ah_store_append(store, "list", "value", 5, &number);
        ah_store_delete(store, "key", &was);
        ah_store_set(store, "key", "value", 5);
        ah_store_will(store, "list", NULL, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const struct ah_store_options place = {.secret = "secret", .secret_bytes = 6};
    struct ah_store store = {.call_ns = 1000000, .where = "here"};
    const uint64_t magic = AH_STORE_MAGIC;
    int pair[2];
    if (!count || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
        return 0;
    store.fd = pair[0];
    same = bytes[0] & 1;
    if (bytes[0] & 2)
        (void)!write(pair[1], &magic, sizeof magic);
    (void)!write(pair[1], bytes + 1, count - 1);
    shutdown(pair[1], SHUT_WR);
    if (bytes[0] & 4 || shake_hands(&store, &place, ah_now_ns() + 1000000000) == 0)
        call_all(&store);
    client_leave(&store);
    close(pair[1]);
    return 0;
}
