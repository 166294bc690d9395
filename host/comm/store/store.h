/* A small key-value store that the processes of one job share over TCP, for the rendezvous of several hosts.
 *
 * One process serves it, from a thread; all of them, that one too, connect to it. A key's value can be set, waited for,
 * counted up and deleted, and texts be appended to a list, in one order for all; each call has a deadline. A client may
 * set a will, which the server carries out when its connection ends for any reason.
 *
 * Client and server prove to each other that they know the job's secret, without sending it (a challenge, answered by
 * HMAC-SHA256, which also covers the job's name and generation); a client of another job, or of a generation before a
 * restart, is refused. The bytes that follow are neither encrypted nor protected against change: the store listens on
 * loopback unless another address is configured, and its values are no secrets. Connections without a proof are limited
 * to a few, so that they cannot exhaust those of the job's processes.
 *
 * A server is any thread's; a store is used by one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AH_STORE_KEY = 1024, AH_STORE_VALUE = 1 << 20 }; /* the most bytes of each */
enum { AH_STORE_JOB = 64 };       /* bytes of a job's name, the end included */
enum { AH_STORE_STRANGERS = 64 }; /* connections without a proof that a server keeps */

struct ah_store_options {
    const char *host; /* NULL: 127.0.0.1 */
    int port;         /* of a server 0: any */
    const void *secret;
    size_t secret_bytes;
    uint64_t generation; /* number of restarts of the job */
    const char *job;     /* name that distinguishes jobs of one secret, cut to AH_STORE_JOB; NULL: none */
    int64_t alive_ns; /* a peer that the network has not heard from for so long is lost; 0: the system's own, hours */
};

struct ah_store_server;
struct ah_store;

/* Serve until the end. AH_EIO when the address cannot be had. */
int ah_store_serve(struct ah_store_server **out, const struct ah_store_options *options);
int ah_store_port(const struct ah_store_server *server);
/* NULL is ignored; clients that wait for a key fail. */
void ah_store_end(struct ah_store_server *server);

/* Connect, as soon as there is a server; again while the connection ends before the server has answered. The last try
 * has a quarter of a second, also beyond the timeout. AH_ETIMEOUT; AH_EINVAL when secrets, jobs or generations differ.
 */
int ah_store_connect(struct ah_store **out, const struct ah_store_options *options, int64_t timeout_ns);
void ah_store_close(struct ah_store *store); /* NULL is ignored */
/* Has the connection ended, or a call failed in the middle? Nothing works any more then. */
bool ah_store_is_closed(const struct ah_store *store);
/* Return the reason, in words about the server: "its connection ended", "the network does not reach it". */
const char *ah_store_reason(const struct ah_store *store);

/* Set a key's value. AH_EIO when the connection is lost, after which every call fails; AH_EINVAL for a key or value
 * that is too long. */
int ah_store_set(struct ah_store *store, const char *key, const void *value, size_t bytes);
/* Wait for a key's value and return it, from malloc, with a 0 after it. AH_ETIMEOUT. */
int ah_store_get(struct ah_store *store, const char *key, char **value, size_t *bytes, int64_t timeout_ns);
/* Add to the number that a key has as text, 0 before there is one. AH_EINVAL when its value is no number. */
int ah_store_add(struct ah_store *store, const char *key, int64_t delta, int64_t *sum);
int ah_store_delete(struct ah_store *store, const char *key, bool *was);

/* Append to a list: the value gets the key LIST/N, N from 0 on; N is stored in *index unless that is NULL. */
int ah_store_append(struct ah_store *store, const char *list, const void *value, size_t bytes, int64_t *index);
/* Set the value that the server appends to a list when this connection ends, followed by the reason, a text; NULL
 * withdraws an earlier will. */
int ah_store_will(struct ah_store *store, const char *list, const void *value, size_t bytes);
