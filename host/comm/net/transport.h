/* Byte transport between the hosts of a job: from each leader to each other leader.
 *
 * A transport is used by one thread of a leader at a time, and closed by its opener. Its user begins exchanges, in each
 * of which it sends a piece of memory to some of the other hosts and receives one from some of them, and polls now and
 * then whether they have completed. Pieces of one tag from one host to another are matched in the order in which they
 * are begun, so both begin them in one order and with the same numbers of bytes; those of different tags do not wait
 * for each other. The same memory may be sent and received into in one exchange, if the reply depends on the sent data.
 * The transport does not interpret the bytes. */
#pragma once

#include <stddef.h>

#include "base/status/status.h"
#include "comm/control/hosts.h"

/* A tag's low 32 bits are below AH_TRANSPORT_TAGS; its high ones distinguish groups that use a low one in turn. The
 * transport `mpi`, whose tags are short, compares the low ones only. */
enum { AH_TRANSPORT_TAGS = 4096 };
/* The most bytes of a message that may arrive before it is awaited. */
enum { AH_TRANSPORT_EARLY = 16 << 20 };

struct ah_transport {
    const struct ah_transport_type *type;
    int host, hosts; /* this one's number, and their count */
};

struct ah_transport_piece {
    void *memory;
    size_t bytes; /* 0: nothing goes between the two hosts in this exchange */
};

/* Begins each transport's own struct of an exchange. A transport has a list of its exchanges under way, to free them
 * when it closes. */
struct ah_transport_exchange {
    struct ah_transport_exchange *next, **at;
};

static inline void ah_transport_list(struct ah_transport_exchange **list, struct ah_transport_exchange *exchange)
{
    exchange->next = *list;
    exchange->at = list;
    if (exchange->next)
        exchange->next->at = &exchange->next;
    *list = exchange;
}

static inline void ah_transport_unlist(struct ah_transport_exchange *exchange)
{
    *exchange->at = exchange->next;
    if (exchange->next)
        exchange->next->at = exchange->at;
}

struct ah_transport_type {
    const char *name;
    /* Connect to the other leaders; AH_ETIMEOUT names the host that did not arrive. `*out` begins with struct
     * ah_transport. */
    int (*open)(struct ah_transport **out, const struct ah_hosts *hosts, int64_t timeout_ns);
    void (*close)(struct ah_transport *transport); /* whatever is under way; frees all exchanges */

    /* Begin an exchange: a piece for each host, in their order; the own ones are ignored. The memory belongs to the
     * exchange until it has completed. May transfer data at once, and never waits. */
    int (*start)(struct ah_transport *transport, uint64_t tag, const struct ah_transport_piece *send,
                 const struct ah_transport_piece *receive, struct ah_transport_exchange **out);
    /* Move bytes, of any exchange, and never wait. An exchange that is done is freed. AH_EPEER when a host is lost:
     * *lost. */
    int (*test)(struct ah_transport *transport, struct ah_transport_exchange *exchange, bool *done, int *lost);
    /* Sleep until something may have moved, or so long. NULL: not supported, so poll. */
    void (*wait_for)(struct ah_transport *transport, int64_t limit_ns);
};

extern const struct ah_transport_type ah_tcp_transport;
/* The built-in one and those that plugins register (the struct is kept). NULL for an unknown name. */
int ah_transport_register(const struct ah_transport_type *type);
const struct ah_transport_type *ah_transport_find(const char *name);
