/* The protocol of a store, and the server's side of it without sockets: bytes in, bytes out. Integers are
 * little-endian, as the machines that this program runs on.
 *
 * hello (server): magic, nonce. answer (client): magic, generation, nonce, proof. welcome (server): result, proof.
 * Then requests, each with one reply, in order. Included by comm/store and their tests. */
#pragma once

#include "base/memory/array.h"
#include "base/numeric/sha256.h"
#include "comm/store/store.h"

#define AH_STORE_MAGIC 0x3265726f74736861u /* "ahstore2" */

struct ah_store_hello {
    uint64_t magic;
    unsigned char nonce[AH_SHA256_BYTES];
};
struct ah_store_answer {
    uint64_t magic, generation;
    char job[AH_STORE_JOB]; /* padded with zeros */
    unsigned char nonce[AH_SHA256_BYTES], proof[AH_SHA256_BYTES];
};
enum ah_store_result {
    AH_STORE_FINE,
    AH_STORE_MISSING, /* no value before the deadline */
    AH_STORE_REFUSED, /* no number, or the store is full */
    AH_STORE_OTHER_SECRET,
    AH_STORE_OTHER_JOB,
    AH_STORE_OTHER_GENERATION,
};
struct ah_store_welcome {
    uint32_t result;
    char job[AH_STORE_JOB]; /* the server's, for a client that knows the secret */
    unsigned char proof[AH_SHA256_BYTES];
};
enum ah_store_op {
    AH_STORE_SET,
    AH_STORE_GET,
    AH_STORE_ADD,
    AH_STORE_DELETE,
    AH_STORE_APPEND,
    AH_STORE_WILL, /* number 0: none */
    AH_STORE_OPS
};
/* Key and value follow. */
struct ah_store_request {
    uint32_t op, key_bytes, value_bytes, wait_ms;
    int64_t number;
};
struct ah_store_reply {
    uint32_t result, value_bytes;
    int64_t number;
};

/* Proof that this side knows the secret: HMAC-SHA256 of role, their and the own nonce, and the options' generation and
 * job. `role` keeps one side's proof from serving the other. */
void ah_store_prove(unsigned char proof[AH_SHA256_BYTES], const struct ah_store_options *options, const char *role,
                    const unsigned char theirs[AH_SHA256_BYTES], const unsigned char mine[AH_SHA256_BYTES]);
/* Compare in constant time, so that the duration does not reveal the first difference. */
bool ah_store_same(const unsigned char *a, const unsigned char *b);
/* The name of the options' job, padded with zeros. */
void ah_store_job(char job[AH_STORE_JOB], const struct ah_store_options *options);
/* Convert a name from outside to a text of visible characters. */
void ah_store_show_job(char text[AH_STORE_JOB], const char job[AH_STORE_JOB]);

/* The values. */
struct ah_store_table {
    struct ah_store_entry *entry;
    size_t count, room, bytes;
    uint64_t changes;
};
void ah_store_table_free(struct ah_store_table *table);

/* A client, as the server sees it; all zero before ah_store_greet. */
struct ah_store_session {
    struct ah_store_table *table;
    const struct ah_store_options *options;
    unsigned char nonce[AH_SHA256_BYTES];
    bool trusted;
    enum ah_store_result refused; /* why it is not; AH_STORE_FINE before its answer */
    char job[AH_STORE_JOB];        /* the client's, when that is why; visible characters */
    bool waits;       /* for a key: its request is the first in `in` */
    int64_t until_ns; /* for that, or for the answer */
    struct ah_text in, out;
    struct ah_text will; /* key and value, as in its request */
    size_t will_key_bytes;
};
int ah_store_greet(struct ah_store_session *session, int64_t now_ns);
/* Process received bytes: replies are appended to `out`. A failure ends the session, after `out` was sent. */
int ah_store_feed(struct ah_store_session *session, const void *bytes, size_t count, int64_t now_ns);
/* Again, when values have changed or time has passed. */
int ah_store_resume(struct ah_store_session *session, int64_t now_ns);
/* End a session for a reason, and execute its client's will. */
void ah_store_end_session(struct ah_store_session *session, const char *reason);
void ah_store_session_free(struct ah_store_session *session);

/* Return the reason for the loss of the peer, from an error of a socket (0: it has ended). */
const char *ah_store_reason_of(int error);
/* A socket's peer that does not answer for so long is lost (0: leave that to the system). Small messages go at once. */
void ah_store_tune(int fd, int64_t alive_ns);
