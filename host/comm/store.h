/* A small store of texts that the processes of one job share over TCP: how those of several hosts meet.
 *
 * One process serves it, from a thread; all of them, that one too, connect to it. A key's value can be set, waited for,
 * counted up and deleted; each call has a deadline. Whoever connects has to show that it knows the job's secret, and so
 * has the server, without either sending it (a challenge, answered by HMAC-SHA256); another generation of the job, one
 * before its restart, is turned away. What follows is neither encrypted nor signed: the store listens on loopback
 * unless it is told another address, and what is in it is no secret.
 *
 * A server is any thread's; a store is used by one thread. */
#ifndef AH_COMM_STORE_H
#define AH_COMM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { AH_STORE_KEY = 1024, AH_STORE_VALUE = 1 << 20 }; /* the most bytes of each */

struct ah_store_place {
    const char *host; /* NULL: 127.0.0.1 */
    int port;         /* of a server 0: any */
    const void *secret;
    size_t secret_bytes;
    uint64_t generation; /* how often the job was started again */
};

struct ah_store_server;
struct ah_store;

/* Serve until the end. AH_EIO when the address cannot be had. */
int ah_store_serve(struct ah_store_server **out, const struct ah_store_place *place);
int ah_store_port(const struct ah_store_server *server);
/* NULL is ignored; whoever waits for a key fails. */
void ah_store_end(struct ah_store_server *server);

/* Connect, as soon as there is a server. AH_ETIMEOUT; AH_EINVAL when secrets or generations differ. */
int ah_store_connect(struct ah_store **out, const struct ah_store_place *place, int64_t timeout_ns);
void ah_store_close(struct ah_store *store); /* NULL is ignored */

/* AH_EIO when the server is gone, after which nothing works any more; AH_EINVAL for what is too long. */
int ah_store_set(struct ah_store *store, const char *key, const void *value, size_t bytes);
/* The value, from malloc, with a 0 behind it; waits until there is one. AH_ETIMEOUT. */
int ah_store_get(struct ah_store *store, const char *key, char **value, size_t *bytes, int64_t timeout_ns);
/* Add to the number that a key has as text, 0 before there is one. AH_EINVAL when its value is no number. */
int ah_store_add(struct ah_store *store, const char *key, int64_t delta, int64_t *sum);
int ah_store_delete(struct ah_store *store, const char *key, bool *was);

#endif
