/* The protocol between replicas, and the state that the parts of one share. Included by comm/net/replica*.c only.
 *
 * Frames: a head, then `bytes` of content as its kind specifies. Announced data precedes its counter. */
#pragma once

#include <pthread.h>

#include "base/memory/array.h"
#include "comm/control/collective.h"
#include "comm/net/replica.h"

enum replica_kind {
    REPLICA_BEAT,    /* I am here */
    REPLICA_BYE,     /* all ranks of this host have ended */
    REPLICA_DATA,    /* offset (u64), then bytes of the rank's segment */
    REPLICA_CALL,    /* struct ah_call_record */
    REPLICA_COUNTERS, /* struct replica_counters */
    REPLICA_HEADER,  /* index (u64), struct ah_message_header */
    REPLICA_RECALL,  /* struct replica_outcome: may I have this message header back? */
    REPLICA_OUTCOME, /* struct replica_outcome, of a message header of the receiver's host */
    REPLICA_STATE,   /* struct replica_state, then `group_bytes` and `text_bytes` of texts */
    REPLICA_KINDS
};

struct replica_head {
    uint32_t bytes;
    uint8_t kind, block;
    uint16_t rank;
};

struct replica_counters {
    int64_t wanted_tag;
    uint64_t address;
    uint32_t value[AH_COUNTERS], base;
    int32_t wanted_from, latest;
    uint32_t unused;
};

struct replica_outcome {
    uint32_t index, number, state;
};

struct replica_state {
    int32_t state, group_status, victim, blamed, line, line_done;
    uint32_t group_bytes, text_bytes;
};

enum { REPLICA_PIECE = 256 * 1024, REPLICA_MOST = REPLICA_PIECE + 4096 }; /* bytes of data in a frame; of a frame */

/* Of an own rank's message header: the state last sent to the other host. */
struct replica_header_state {
    uint32_t number;
    bool announced, asked; /* sent as a whole; its return was requested */
    uint64_t sent;    /* bytes */
};

struct replica_group {
    atomic_uint returned; /* by the receiver: a bit for each returned message header, set before it shows as empty */
    atomic_uint
        there; /* by the sender: a bit for each message header that the other host has whole, until its outcome */
    struct replica_counters announced;
    struct replica_header_state header[AH_GROUP_MESSAGES];
};

struct replica_rank {
    struct replica_group block[AH_MAX_GROUPS];
    struct replica_state announced;
};

struct replica_peer {
    int fd;
    atomic_bool lost, done; /* lost; has sent its last frame */
    struct ah_text out;     /* of the sender */
    size_t sent;
    unsigned char *in;      /* of the receiver: REPLICA_MOST bytes and a head */
    size_t got;
    int64_t silent_ns;
    /* Under `losing`: is it doubted, for how long, and why? */
    bool doubted;
    int64_t doubted_ns;
    char doubt[160];
};

/* Memory for data of other hosts, in blocks that are allocated once: `room` bounds it for every offset that a host
 * sends. */
enum { REPLICA_BLOCK = 16 * 1024 };

struct ah_replica {
    struct ah_control_block *control;
    uint64_t room;                             /* bytes left for such data */
    unsigned char *held[AH_MAX_RANKS];   /* of other hosts' ranks: a bit for each block; NULL: none */
    const struct ah_hosts *hosts;
    int64_t heartbeat_timeout_ns;
    struct replica_peer peer[AH_HOSTS_MAX];
    struct replica_rank *rank; /* of the own host */
    pthread_t sender, receiver;
    pthread_mutex_t sending, receiving; /* of the sender's state; of the receiver's */
    uint32_t seen_changes;     /* the control block's notifications as last read */
    bool more;                 /* there is data that had to wait then */
    atomic_bool recalled;      /* by the receiver: a message header of another host is to go back */
    atomic_bool shutting_down, ended; /* the sender shall send its last frame; the receiver shall stop */
    pthread_mutex_t losing;
};

/* The sender's: append the changes since the last scan, for every peer that they concern. *more: there is data that had
 * to wait. */
int ah_replica_scan(struct ah_replica *replica, bool beat, bool *more);
int ah_replica_send(struct ah_replica *replica, int host, struct replica_head head, const void *body, const void *tail,
                  size_t tail_bytes);

/* Apply one frame of a peer; by the receiver. AH_EINVAL for an invalid frame. */
int ah_replica_apply(struct ah_replica *replica, int host, const struct replica_head *head, const unsigned char *body);
