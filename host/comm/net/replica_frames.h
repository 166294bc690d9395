/* What replicas say to each other, and what the parts of one share. Included by comm/net/replica*.c only.
 *
 * Frames: a head, then `bytes` of what its kind says. What a counter announces comes before it. */
#ifndef AH_COMM_REPLICA_FRAMES_H
#define AH_COMM_REPLICA_FRAMES_H

#include <pthread.h>

#include "base/array.h"
#include "comm/control/collective.h"
#include "comm/net/replica.h"

enum mirror_kind {
    MIRROR_BEAT,    /* I am here */
    MIRROR_BYE,     /* all ranks of this host have ended */
    MIRROR_DATA,    /* offset (u64), then bytes of the rank's segment */
    MIRROR_POST,    /* struct ah_call_record */
    MIRROR_COUNTERS, /* struct mirror_counters */
    MIRROR_LETTER,  /* index (u64), struct ah_message_header */
    MIRROR_RECALL,  /* struct mirror_verdict: may I have this message header back? */
    MIRROR_VERDICT, /* struct mirror_verdict, of a message header of the receiver's host */
    MIRROR_FARES,   /* struct mirror_fares, then `group_bytes` and `text_bytes` of texts */
    MIRROR_KINDS
};

struct mirror_head {
    uint32_t bytes;
    uint8_t kind, block;
    uint16_t rank;
};

struct mirror_counters {
    int64_t wanted_tag;
    uint64_t address;
    uint32_t value[AH_COUNTERS], base;
    int32_t wanted_from, latest;
    uint32_t unused;
};

struct mirror_verdict {
    uint32_t index, number, state;
};

struct mirror_fares {
    int32_t state, group_status, victim, blamed, line, line_done;
    uint32_t group_bytes, text_bytes;
};

enum { MIRROR_PIECE = 256 * 1024, MIRROR_MOST = MIRROR_PIECE + 4096 }; /* bytes of data in a frame; of a frame */

/* Of an own rank's message header: what the other host was told. */
struct mirror_letter {
    uint32_t number;
    bool told, asked; /* all of it; to give it back */
    uint64_t sent;    /* bytes */
};

struct mirror_channel {
    atomic_uint returned; /* by the receiver: a bit for each message header that came back, before it shows as empty */
    atomic_uint
        there; /* by the sender: a bit for each message header that the other host has whole, until its verdict */
    struct mirror_counters told;
    struct mirror_letter header[AH_GROUP_MESSAGES];
};

struct mirror_rank {
    struct mirror_channel block[AH_MAX_GROUPS];
    struct mirror_fares told;
};

struct mirror_peer {
    int fd;
    atomic_bool gone, done; /* lost; has said goodbye */
    struct ah_text out;     /* of the sender */
    size_t sent;
    unsigned char *in;      /* of the receiver: MIRROR_MOST bytes and a head */
    size_t got;
    int64_t silent_ns;
    int64_t doubted_ns; /* since when it is doubted, 0: it is not; this and the reason under `losing` */
    char doubt[160];
};

/* Memory that data of other hosts has taken, in blocks that are allocated once and stay: the room bounds it whatever
 * offsets a host names. */
enum { MIRROR_BLOCK = 16 * 1024 };

struct ah_replica {
    struct ah_control_block *control;
    uint64_t room;                             /* bytes that such data may still take */
    unsigned char *held[AH_MAX_RANKS];   /* of other hosts' ranks: a bit for each block; NULL: none */
    const struct ah_hosts *hosts;
    int64_t silence_ns;
    struct mirror_peer peer[AH_HOSTS_MAX];
    struct mirror_rank *rank; /* of the own host */
    pthread_t sender, receiver;
    pthread_mutex_t telling, hearing; /* what is the sender's; the receiver's */
    uint32_t told_of;          /* the control block's notifications that was looked at last */
    bool more;                 /* there is data that had to wait then */
    atomic_bool recalled;      /* by the receiver: a message header of another host is to go back */
    atomic_bool ending, ended; /* the sender is to say goodbye; the receiver is to stop */
    pthread_mutex_t losing;
};

/* The sender's: append what has changed since it was told, to every peer that it concerns. *more: there is data that
 * had to wait. */
int ah_replica_scan(struct ah_replica *replica, bool beat, bool *more);
int ah_replica_send(struct ah_replica *replica, int host, struct mirror_head head, const void *body, const void *tail,
                  size_t tail_bytes);

/* The receiver's: take one frame of a peer. AH_EINVAL for one that no replica sends. */
int ah_replica_apply(struct ah_replica *replica, int host, const struct mirror_head *head, const unsigned char *body);

#endif
