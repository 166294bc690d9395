/* The server's side of a store: proofs, values, requests; and how both sides use a socket. Whatever a client sends is
 * bounded before it is read: a request's lengths are checked when its head is complete, and a session that is not
 * trusted yet holds one answer's bytes. */
#include "comm/store/store_protocol.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/numeric/hmac.h"

enum { MOST_ENTRIES = 1 << 16 };
static const size_t most_bytes = (size_t)64 << 20;
static const int64_t answer_ns = 5000000000, ms_ns = 1000000;

struct ah_store_entry {
    char *key;
    size_t key_bytes, bytes;
    char *value;
};

/* Proofs. */

void ah_store_prove(unsigned char proof[AH_SHA256_BYTES], const struct ah_store_options *options, const char *role,
                    const unsigned char theirs[AH_SHA256_BYTES], const unsigned char mine[AH_SHA256_BYTES])
{
    struct ah_hmac mac;
    char job[AH_STORE_JOB];
    ah_store_job(job, options);
    ah_hmac_begin(&mac, options->secret, options->secret_bytes);
    ah_hmac_add(&mac, role, strlen(role) + 1);
    ah_hmac_add(&mac, theirs, AH_SHA256_BYTES);
    ah_hmac_add(&mac, mine, AH_SHA256_BYTES);
    ah_hmac_add(&mac, &options->generation, sizeof options->generation);
    ah_hmac_add(&mac, job, sizeof job);
    ah_hmac_end(&mac, proof);
}

void ah_store_job(char job[AH_STORE_JOB], const struct ah_store_options *options)
{
    const char *name = options->job ? options->job : "";
    size_t bytes = strnlen(name, AH_STORE_JOB - 1);
    memset(job, 0, AH_STORE_JOB);
    memcpy(job, name, bytes);
}

void ah_store_show_job(char text[AH_STORE_JOB], const char job[AH_STORE_JOB])
{
    for (int i = 0; i < AH_STORE_JOB; i++)
        text[i] = !job[i] || (job[i] > ' ' && job[i] <= '~') ? job[i] : '?';
    text[AH_STORE_JOB - 1] = 0;
}

bool ah_store_same(const unsigned char *a, const unsigned char *b)
{
    return ah_hmac_same(a, b);
}

/* Values. */

static struct ah_store_entry *store_find(const struct ah_store_table *table, const char *key, size_t bytes)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->entry[i].key_bytes == bytes && !memcmp(table->entry[i].key, key, bytes))
            return &table->entry[i];
    return NULL;
}

static int add_entry(struct ah_store_table *table, const char *key, size_t bytes, struct ah_store_entry **out)
{
    if (table->count == MOST_ENTRIES)
        return AH_ENOMEM;
    AH_TRY(ah_grow(&table->entry, table->count + 1, &table->room, sizeof table->entry[0]));
    char *copy = malloc(bytes + 1);
    if (!copy)
        return AH_ENOMEM;
    memcpy(copy, key, bytes);
    *out = &table->entry[table->count++];
    **out = (struct ah_store_entry){.key = copy, .key_bytes = bytes};
    table->bytes += bytes;
    return 0;
}

static int store_set(struct ah_store_table *table, const char *key, size_t key_bytes, const char *value, size_t bytes)
{
    struct ah_store_entry *entry = store_find(table, key, key_bytes);
    if (table->bytes + key_bytes + bytes > most_bytes)
        return AH_ENOMEM;
    char *copy = malloc(bytes + 1);
    int status = copy ? entry ? 0 : add_entry(table, key, key_bytes, &entry) : AH_ENOMEM;
    if (status < 0) {
        free(copy);
        return status;
    }
    memcpy(copy, value, bytes);
    copy[bytes] = 0;
    table->bytes += bytes - entry->bytes;
    table->changes++;
    free(entry->value);
    entry->value = copy;
    entry->bytes = bytes;
    return 0;
}

static int store_add(struct ah_store_table *table, const char *key, size_t key_bytes, int64_t delta, int64_t *sum)
{
    const struct ah_store_entry *entry = store_find(table, key, key_bytes);
    char text[24], *end;
    errno = 0;
    long long before = entry ? strtoll(entry->value, &end, 10) : 0;
    if (entry && (end == entry->value || *end || errno || (size_t)(end - entry->value) != entry->bytes))
        return AH_EINVAL;
    if (__builtin_add_overflow((int64_t)before, delta, sum))
        return AH_EINVAL;
    snprintf(text, sizeof text, "%lld", (long long)*sum);
    return store_set(table, key, key_bytes, text, strlen(text));
}

static int store_append(struct ah_store_table *table, const char *list, size_t list_bytes, const char *value,
                        size_t bytes, int64_t *index)
{
    AH_FREED char *key = malloc(list_bytes + 24);
    if (!key)
        return AH_ENOMEM;
    AH_TRY(store_add(table, list, list_bytes, 1, index));
    *index -= 1;
    memcpy(key, list, list_bytes);
    int digits = snprintf(key + list_bytes, 24, "/%lld", (long long)*index);
    return store_set(table, key, list_bytes + (size_t)digits, value, bytes);
}

static bool store_delete(struct ah_store_table *table, const char *key, size_t bytes)
{
    struct ah_store_entry *entry = store_find(table, key, bytes);
    if (!entry)
        return false;
    table->bytes -= entry->key_bytes + entry->bytes;
    free(entry->key);
    free(entry->value);
    *entry = table->entry[--table->count];
    return true;
}

void ah_store_table_free(struct ah_store_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->entry[i].key);
        free(table->entry[i].value);
    }
    free(table->entry);
    *table = (struct ah_store_table){0};
}

/* Sessions. */

static void store_consume(struct ah_text *text, size_t bytes)
{
    memmove(text->at, text->at + bytes, text->bytes - bytes);
    text->bytes -= bytes;
}

int ah_store_greet(struct ah_store_session *session, int64_t now_ns)
{
    struct ah_store_hello hello = {.magic = AH_STORE_MAGIC};
    if (getrandom(session->nonce, sizeof session->nonce, 0) != (ssize_t)sizeof session->nonce)
        return ah_fail(AH_EIO, "store: no random numbers");
    memcpy(hello.nonce, session->nonce, sizeof hello.nonce);
    session->until_ns = now_ns + answer_ns;
    return ah_text_append(&session->out, &hello, sizeof hello);
}

/* Check an answer's proof of the secrets; AH_STORE_FINE: it proves all that these options require. */
static enum ah_store_result judge_answer(const struct ah_store_session *session, const struct ah_store_answer *answer)
{
    struct ah_store_options claimed = *session->options;
    unsigned char proof[AH_SHA256_BYTES];
    char name[AH_STORE_JOB + 1] = "", mine[AH_STORE_JOB];
    memcpy(name, answer->job, AH_STORE_JOB);
    claimed.job = name;
    claimed.generation = answer->generation;
    ah_store_prove(proof, &claimed, "client", session->nonce, answer->nonce);
    ah_store_job(mine, session->options);
    if (!ah_store_same(proof, answer->proof))
        return AH_STORE_OTHER_SECRET;
    if (memcmp(mine, answer->job, AH_STORE_JOB) != 0)
        return AH_STORE_OTHER_JOB;
    return answer->generation == session->options->generation ? AH_STORE_FINE : AH_STORE_OTHER_GENERATION;
}

/* Check the answer to the challenge. Of the results only the first carries a proof. */
static int check_answer(struct ah_store_session *session)
{
    struct ah_store_answer answer;
    struct ah_store_welcome welcome = {0};
    memcpy(&answer, session->in.at, sizeof answer);
    store_consume(&session->in, sizeof answer);
    if (answer.magic != AH_STORE_MAGIC)
        return AH_EINVAL;
    session->refused = judge_answer(session, &answer);
    session->trusted = session->refused == AH_STORE_FINE;
    welcome.result = session->refused;
    if (session->refused != AH_STORE_OTHER_SECRET)
        ah_store_job(welcome.job, session->options);
    if (session->refused == AH_STORE_OTHER_JOB)
        ah_store_show_job(session->job, answer.job);
    if (session->trusted)
        ah_store_prove(welcome.proof, session->options, "server", answer.nonce, session->nonce);
    AH_TRY(ah_text_append(&session->out, &welcome, sizeof welcome));
    return session->trusted ? 0 : AH_EINVAL;
}

static int store_reply(struct ah_store_session *session, struct ah_store_reply head, const void *value)
{
    AH_TRY(ah_text_append(&session->out, &head, sizeof head));
    return head.value_bytes ? ah_text_append(&session->out, value, head.value_bytes) : 0;
}

static int keep_will(struct ah_store_session *session, const struct ah_store_request *request, const char *key)
{
    session->will.bytes = 0;
    session->will_key_bytes = request->key_bytes;
    return request->number ? ah_text_append(&session->will, key, (size_t)request->key_bytes + request->value_bytes) : 0;
}

void ah_store_end_session(struct ah_store_session *session, const char *reason)
{
    int64_t index;
    struct ah_text will = session->will;
    session->will = (struct ah_text){0};
    if (will.bytes && ah_text_append(&will, reason, strlen(reason)) == 0)
        store_append(session->table, will.at, session->will_key_bytes, will.at + session->will_key_bytes,
                     will.bytes - session->will_key_bytes, &index);
    free(will.at);
}

/* Carry a request out; *waits: it has to wait. */
static int store_serve(struct ah_store_session *session, const struct ah_store_request *request, const char *key,
                       bool may_wait, bool *waits)
{
    struct ah_store_table *table = session->table;
    const struct ah_store_entry *entry;
    struct ah_store_reply head = {.result = AH_STORE_FINE};
    const char *value = NULL;
    switch (request->op) {
    case AH_STORE_SET:
        if (store_set(table, key, request->key_bytes, key + request->key_bytes, request->value_bytes) < 0)
            head.result = AH_STORE_REFUSED;
        break;
    case AH_STORE_GET:
        entry = store_find(table, key, request->key_bytes);
        *waits = !entry && may_wait;
        if (*waits)
            return 0;
        head.result = entry ? AH_STORE_FINE : AH_STORE_MISSING;
        head.value_bytes = entry ? (uint32_t)entry->bytes : 0;
        value = entry ? entry->value : NULL;
        break;
    case AH_STORE_ADD:
        if (store_add(table, key, request->key_bytes, request->number, &head.number) < 0)
            head.result = AH_STORE_REFUSED;
        break;
    case AH_STORE_APPEND:
        if (store_append(table, key, request->key_bytes, key + request->key_bytes, request->value_bytes, &head.number) <
            0)
            head.result = AH_STORE_REFUSED;
        break;
    case AH_STORE_WILL:
        if (keep_will(session, request, key) < 0)
            head.result = AH_STORE_REFUSED;
        break;
    default: head.number = store_delete(table, key, request->key_bytes); break;
    }
    return store_reply(session, head, value);
}

/* The next request, if all of it is here. */
static int next_request(struct ah_store_session *session, int64_t now_ns, bool *more)
{
    struct ah_store_request request;
    *more = false;
    if (session->in.bytes < sizeof request)
        return 0;
    memcpy(&request, session->in.at, sizeof request);
    if (request.op >= AH_STORE_OPS || request.key_bytes > AH_STORE_KEY || request.value_bytes > AH_STORE_VALUE)
        return AH_EINVAL;
    size_t bytes = sizeof request + request.key_bytes + request.value_bytes;
    if (session->in.bytes < bytes)
        return 0;
    if (!session->waits)
        session->until_ns = now_ns + (int64_t)request.wait_ms * ms_ns;
    AH_TRY(
        store_serve(session, &request, session->in.at + sizeof request, now_ns < session->until_ns, &session->waits));
    if (session->waits)
        return 0;
    store_consume(&session->in, bytes);
    *more = true;
    return 0;
}

int ah_store_resume(struct ah_store_session *session, int64_t now_ns)
{
    if (!session->trusted && session->in.bytes >= sizeof(struct ah_store_answer))
        AH_TRY(check_answer(session));
    if (!session->trusted)
        return now_ns < session->until_ns ? 0 : AH_ETIMEOUT;
    for (bool more = true; more;)
        AH_TRY(next_request(session, now_ns, &more));
    return 0;
}

int ah_store_feed(struct ah_store_session *session, const void *bytes, size_t count, int64_t now_ns)
{
    /* A client has one request under way. */
    size_t most = session->trusted ? sizeof(struct ah_store_request) + AH_STORE_KEY + AH_STORE_VALUE
                                   : sizeof(struct ah_store_answer);
    if (count > most - session->in.bytes)
        return AH_EINVAL;
    AH_TRY(ah_text_append(&session->in, bytes, count));
    return ah_store_resume(session, now_ns);
}

void ah_store_session_free(struct ah_store_session *session)
{
    free(session->in.at);
    free(session->out.at);
    free(session->will.at);
    session->in = session->out = session->will = (struct ah_text){0};
}

const char *ah_store_reason_of(int error)
{
    bool reached = error != ETIMEDOUT && error != EHOSTUNREACH && error != ENETUNREACH;
    return reached ? "its connection ended" : "the network does not reach it";
}

/* The network asks a silent peer three times; bytes that were sent and not acknowledged count as well. */
void ah_store_tune(int fd, int64_t alive_ns)
{
    int second = (int)(alive_ns / 3 / 1000000000);
    unsigned limit = (unsigned)(alive_ns / ms_ns);
    second = second < 1 ? 1 : second;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (alive_ns <= 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof second);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){2}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}
