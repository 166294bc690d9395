/* One rank's part of a group control block, read by its peers: counters that they wait on, and a ring of its call
 * records.
 *
 * Stored in the control block. Written by the rank's Lua thread only; counters only grow (and wrap), a call record is
 * complete before the counter that announces it. A group block serves one group after another: each counts on from
 * `base`, the last count of the group before. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AH_MAX_RANKS = 256,
    AH_GROUP_CALLS = 64,    /* calls a rank may have issued that a peer has not done */
    AH_GROUP_MESSAGES = 32, /* messages a rank may have posted that have not been received */
    AH_CALL_WHERE = 64,     /* bytes of a call site */
    AH_CALL_DIMS = 8,
};

/* The record of a rank's call of a collective: the fingerprint, and where its buffer is. */
struct ah_call_record {
    uint32_t sequence;
    uint8_t kind, dtype, reduce; /* enum ah_collective_kind, ah_dtype, ah_reduce_op */
    int8_t ndim;                 /* -1: shape not set */
    int32_t root;
    uint32_t note; /* bits for the peers, no part of the fingerprint; nor is the weight */
    double weight; /* of this rank in a mean */
    uint64_t hash; /* of everything that must agree */
    int64_t count;
    uint64_t offset; /* of the buffer in the rank's segment, or AH_NO_OFFSET */
    int64_t size[AH_CALL_DIMS];
    bool async, far; /* far: on the memory of a device */
    uint8_t purpose; /* enum ah_purpose, no part of the fingerprint */
    /* For a group over several hosts (spread.h); no part of the fingerprint: */
    bool wired;              /* moved by the progress thread, not by the ranks alone */
    uint32_t inline_bytes;   /* bytes at `offset` that go to the other hosts with this post, but for */
    uint32_t own, own_bytes; /* the part of them that no other rank reads: this rank may overwrite it with its result */
    uint32_t steps;          /* SLICED of this rank before the call */
    uint64_t landing;        /* where data from other hosts is stored in its segment, as the result would be */
    uint64_t partial;        /* where its host's sum is stored, of the first rank of a host */
    uint64_t counts;         /* offset of the call's counts in its segment */
    _Alignas(64) char where[AH_CALL_WHERE];
};
#define AH_NO_OFFSET UINT64_MAX

/* A message that a rank has for another (message.h). Its sender writes it while it is free, frees it when it was
 * received, and may recall it while it is posted; from AH_MESSAGE_TAKEN to received it belongs to the receiver. */
enum ah_message_state {
    AH_MESSAGE_FREE,
    AH_MESSAGE_POSTED,
    AH_MESSAGE_TAKEN,
    AH_MESSAGE_RECEIVED,
    /* A message header to a rank on another host is recalled by a request to it. */
    AH_MESSAGE_RECALLED, /* asked: it is received, or */
    AH_MESSAGE_EMPTY,    /* is back: its sender posts it again, or another one in its place */
};
/* The path of a received message header's message whose memory is on a device (device_p2p.h): its receiver answers OPEN
 * with P2P or HOST, its sender then sets TICKET for a channel to open, STAGED when the host has the bytes. */
enum ah_message_way { AH_WAY_OPEN, AH_WAY_P2P, AH_WAY_TICKET, AH_WAY_HOST, AH_WAY_STAGED };
enum { AH_DEVICE_COMM_CARD = 16, AH_DEVICE_COMM_TICKET = 128 };
struct ah_message_header {
    atomic_uint state;
    atomic_uint number; /* of the sender's messages in this group, in order */
    atomic_int to;
    _Atomic int64_t tag;
    _Atomic uint64_t group; /* which of the groups that use this group block in turn */
    uint8_t dtype;
    int8_t ndim;
    atomic_int member; /* the receiver's rank on the control block */
    int64_t count;
    uint64_t offset; /* as of a post */
    int64_t size[AH_CALL_DIMS];
    bool far; /* may go by a line: from this card */
    uint8_t card[AH_DEVICE_COMM_CARD], ticket[AH_DEVICE_COMM_TICKET];
    uint32_t turn; /* among those of the line */
    atomic_uint way;
    _Alignas(64) char where[AH_CALL_WHERE];
};

/* Each is a futex word of its waiters. ISSUED: calls announced. DONE: calls of which this rank has completed its part.
 * ROUND and SLICED are defined by the backend. SENT and RECEIVED: messages. */
enum ah_counter { AH_ISSUED, AH_DONE, AH_ROUND, AH_SLICED, AH_SENT, AH_RECEIVED, AH_COUNTERS };

/* A control block's word that changes whenever one of its host's ranks has notifications. While a waiting rank handles
 * them, instead of the background thread, no thread is woken. */
struct ah_notification {
    _Alignas(64) atomic_uint changes;
    atomic_int sleepers;
    atomic_uint attended, visits; /* by such a rank, until it leaves or stays away for a while; number of its visits */
};
/* For whom: the replica (all counters but those of the backend), the progress thread (SLICED). */
enum ah_reader { AH_REPLICA, AH_PROGRESS, AH_READERS };

struct ah_group_block {
    _Alignas(64) atomic_uint counter[AH_COUNTERS];
    atomic_uint sleepers;          /* peers asleep on one of the counters */
    atomic_uint base;              /* where the counters of the present group began */
    _Atomic int64_t notification;  /* bytes from here to the control block's notifications; 0: they are not read */
    _Atomic uint64_t address;      /* where the backend finds this rank: a staging offset, a port */
    _Atomic uint64_t member_table; /* offset of the member table in its segment, for the progress thread */
    atomic_int wanted_from;        /* the rank (from 2) that a message is awaited from, 1: any, 0: none is */
    _Atomic int64_t wanted_tag;
    _Atomic uint64_t members[AH_MAX_RANKS / 64]; /* of the present group: a bit for each rank of the control block */
    _Alignas(64) struct ah_call_record record[AH_GROUP_CALLS];
    struct ah_message_header header[AH_GROUP_MESSAGES];
};

/* Advance a counter of the own group block and wake its waiters. */
void ah_group_counter_advance(struct ah_group_block *block, enum ah_counter which, uint32_t value);

/* Sleep until the counter differs from `seen`, the group block is woken, or `limit_ns` has passed. */
void ah_group_sleep(struct ah_group_block *block, enum ah_counter which, uint32_t seen, int64_t limit_ns);

/* Wake all waiters, after a failure. */
void ah_group_wake(struct ah_group_block *block);

/* Notify a reader of the own control block of an event that no counter shows. */
void ah_group_notify(struct ah_group_block *block, enum ah_reader reader);
void ah_notification_notify(struct ah_notification *notification);
/* Sleep until there is notifications since `seen`, or `limit_ns` has passed. */
void ah_notification_sleep(struct ah_notification *notification, uint32_t seen, int64_t limit_ns);
/* Called by a waiting rank at each poll; and when it goes to sleep, after which the progress thread does the work
 * again. */
void ah_notification_attend(struct ah_notification *notification);
void ah_notification_leave(struct ah_notification *notification);
/* By the thread: has a rank attended to it since `*visits`? Then nap, until it leaves, or a millisecond. */
bool ah_notification_nap(struct ah_notification *notification, uint32_t *visits);

static inline uint32_t ah_group_counter(struct ah_group_block *block, enum ah_counter which)
{
    return atomic_load_explicit(&block->counter[which], memory_order_acquire);
}

static inline struct ah_call_record *ah_group_record(struct ah_group_block *block, uint32_t sequence)
{
    return &block->record[sequence % AH_GROUP_CALLS];
}

/* Counters wrap: true when `value` has reached `target`. */
static inline bool ah_reached(uint32_t value, uint32_t target)
{
    return (int32_t)(value - target) >= 0;
}
