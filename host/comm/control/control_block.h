/* The job's control block: one shared segment that the launcher makes and every rank maps.
 *
 * It holds, per rank, a rank entry: its identity, its state, its failure message, and a group block for each group of
 * which it is a member. Each rank also has a data segment (staging and arena) that all ranks map. Control block and
 * segments are memfds inherited over exec: nothing has a name, so nothing is left when the job is killed. A control
 *
 * Thread rule: a rank entry's group blocks are written by its own rank's Lua thread only, its state by the rank and by
 * the launcher, with atomics. This file knows no collectives and no tensors. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/trace/counters.h"
#include "comm/control/group_block.h"

#define AH_CONTROL_NAME "accelhost-control" /* of the memfd */

/* Seconds without progress before a rank that others wait for is reported; ACCELHOST_PATIENCE overrides it. */
#define AH_STALL_WARNING_S 10

enum {
    AH_MAX_GROUPS = 8, /* groups that a rank may be a member of at once; group block 0 is the whole job's */
    AH_RANK_TEXT = 16 * 1024, /* bytes of a rank's failure text */
    AH_STAGE_BYTES = 128 * 1024, /* one half of a rank's staging area, which opens its data segment */
};

enum ah_rank_state {
    AH_RANK_RUNNING,
    AH_RANK_ENDED,  /* ended normally */
    AH_RANK_FAILED, /* reported a failure */
    AH_RANK_DIED,   /* ended without a word; set by the launcher */
    AH_RANK_RETURNING, /* its process was killed and is being replaced; set by the launcher */
};

/* A rank's state at a boundary (recover.h), and the data that it published there. */
struct ah_boundary {
    uint32_t issued[AH_MAX_GROUPS]; /* its counters */
    uint64_t note_bytes, slice_bytes;
};

/* The data of a rank's replay log, for the process that replaces it (replay_log.h): written by the rank alone, complete
 * before the counter that announces it. Boundaries are counted by ROUND of group block 0. */
struct ah_replay_log {
    struct ah_boundary boundary[2];      /* the last two, by their number's last bit */
    uint32_t set_up[AH_MAX_GROUPS];  /* counters at boundary 0 */
    _Atomic uint64_t used[3];            /* bytes kept: for good, and since each of the two boundaries */
};

/* The message that a rank waits for: to arrive, or to be received. For observers outside its process; set when the rank
 * goes to sleep. */
enum ah_awaiting { AH_AWAITS_NONE, AH_AWAITS_MESSAGE, AH_AWAITS_RECEIVER };
struct ah_awaited {
    atomic_int what;          /* enum ah_awaiting; the others are complete before it is set */
    atomic_int peer;          /* its rank on the control block, -1: any of the group */
    _Atomic int64_t tag, since_ns;
    char where[AH_CALL_WHERE];
};

struct ah_rank_entry {
    _Alignas(64) atomic_int pid;
    atomic_int state;         /* enum ah_rank_state */
    atomic_int group_status;  /* AH_E* of the collective that poisoned the rank's group, else 0 */
    atomic_int victim;        /* its failure follows from another rank's */
    atomic_int blamed;        /* with a timeout: the rank that did not arrive, else -1 */
    _Atomic int64_t ended_ns; /* when it left AH_RANK_RUNNING, monotonic */
    atomic_int silent_ms;     /* of another host's first rank: since when the replica has heard nothing from there */
    int segment_fd;           /* inherited number; read when attaching */
    atomic_int line;          /* at a prompt of several processes: which line it is in, or was; 0: no prompt */
    atomic_int line_done;     /* the last one that it has completed */
    char group_text[512];     /* with group_status; complete before that is set */
    char text[AH_RANK_TEXT]; /* with AH_RANK_FAILED: message and traceback */
    atomic_int latest;        /* the group block of its latest collective */
    atomic_int replaced;      /* number of replacements of its process */
    atomic_int due;           /* the process replaces another one, whose state it has not loaded */
    _Atomic int64_t returned_ns;  /* of the last replacement */
    _Atomic int64_t returned_at;  /* the boundary at which it replaced the killed process, -1: none */
    struct ah_replay_log replay_log;
    struct ah_counters counters; /* its progress counters */
    struct ah_awaited awaited;
    struct ah_group_block block[AH_MAX_GROUPS];
};

struct ah_control_header {
    _Atomic uint64_t magic; /* set last: an observer that acquires it reads a complete control block */
    uint32_t version;
    int32_t size;
    int32_t columns;     /* of the launcher's terminal, 0 if unknown */
    bool stdout_is_terminal, stderr_is_terminal;
    bool reports; /* the launcher prints the failure of the first rank that fails */
    bool alone;   /* there is no launcher: the ranks have met by themselves (meet.h) */
    bool recovers; /* a rank that is killed is replaced */
    uint64_t seed;        /* of the ranks' default generators until the script seeds them */
    int32_t first,
        local; /* this host's ranks: `local` of them, from `first` on; the others' rank entries a replica fills */
    _Alignas(64) atomic_int first_failed; /* rank, -1 before */
    atomic_int blocks;                  /* ever used on any rank entry: those that a wake visits */
    _Atomic uint64_t reported;            /* the stalled rank (from 1) and its progress in the last stall warning */
    struct ah_notification notification[AH_READERS];
    _Atomic int64_t heartbeat_timeout_ns; /* without a beat of the replica, after which it is stuck; 0: there is none */
    atomic_uint beats;
    _Alignas(64) struct ah_rank_entry slot[];
};

struct ah_hosts;
struct ah_replica;

/* One process's mapping of a control block and its segments. */
struct ah_control_block {
    struct ah_control_header *header;
    size_t bytes;
    int size;
    int fd;                                   /* the creator's, and of ranks that are alone; else -1 */
    size_t segment_span;                      /* bytes reserved for each segment */
    unsigned char *segment[AH_MAX_RANKS];
    int segment_fd[AH_MAX_RANKS];       /* -1 once closed */
    size_t segment_bytes[AH_MAX_RANKS]; /* it has at least that many, as it was found or made; none ever shrinks */
    const struct ah_hosts *hosts;             /* NULL: there is one */
    struct ah_replica *replica;                 /* of a leader, while it is open */
};

/* The job is on several hosts, of which this control block is one's. By its maker before any rank maps it, and by every
 * rank when it has mapped it; the struct is kept, not copied. AH_EINVAL when it does not fit the control block. */
int ah_control_place(struct ah_control_block *control, const struct ah_hosts *hosts);
/* Is the rank on this host? */
static inline bool ah_control_is_local(const struct ah_control_block *control, int rank)
{
    return rank >= control->header->first && rank < control->header->first + control->header->local;
}

/* Make a control block for `size` ranks. The creator's mapping has no segments mapped yet. */
int ah_control_create(struct ah_control_block **out, int size);

/* Map the segments too, so that threads or forked children can be ranks on this mapping. */
int ah_control_map_segments(struct ah_control_block *control);

/* Let the descriptors pass the next exec (call in the child); the number for ACCELHOST_CONTROL_BLOCK. */
int ah_control_hand_over(struct ah_control_block *control);

/* Map the control block behind a descriptor, as `rank`: all segments are mapped, and all descriptors but that of the
 * rank's own segment are closed (where ranks are alone the control block's stays, too, and a host's first rank keeps
 * those of ranks on other hosts). `segments` are the ranks' descriptors; NULL: the inherited ones. AH_EIO when it is no
 * control block of this program. */
int ah_control_open(struct ah_control_block **out, int fd, int rank, const int *segments);

void ah_control_close(struct ah_control_block *control);

static inline struct ah_rank_entry *ah_rank_entry(struct ah_control_block *control, int rank)
{
    return &control->header->slot[rank];
}

/* Map a control block from its descriptor alone, to inspect it: read only, no segments. NULL in *out when it is none,
 * or one of another version of the program. */
void ah_control_look(struct ah_control_block **out, int fd);

/* Make a rank's data segment at least `bytes` long (zero-filled). */
int ah_control_grow(struct ah_control_block *control, int rank, size_t bytes);

/* End AH_RANK_RUNNING of a rank; the first caller wins and true is returned. Wakes all waits. */
bool ah_control_leave(struct ah_control_block *control, int rank, enum ah_rank_state state, const char *text,
                      bool victim);

/* Without a launcher: hold a lock that the system releases when this process ends, for any reason. */
int ah_control_show_life(struct ah_control_block *control, int rank);
/* Has a rank ended without reporting it? Then mark it as dead. With a launcher the launcher checks, and the result is
 * false. */
bool ah_control_lost(struct ah_control_block *control, int rank);

/* The boundaries that a rank has published. */
static inline uint32_t ah_replay_boundaries(struct ah_control_block *control, int rank)
{
    return ah_group_counter(&ah_rank_entry(control, rank)->block[0], AH_ROUND);
}

/* Mark a rank whose process was killed as being replaced: peers wait for it. False if it cannot be: it had ended, or
 * left a group. */
bool ah_control_replace(struct ah_control_block *control, int rank);
/* Record that the new process has caught up with the replaced one, or runs from the beginning; called by it. */
void ah_control_return(struct ah_control_block *control, int rank);

/* Wake every wait on the control block: after a failure all waits read the states. */
void ah_control_wake(struct ah_control_block *control);

/* Return true to the first of the ranks that find `rank` stuck at the same progress, which reports it. */
bool ah_control_first_to_report(struct ah_control_block *control, int rank, uint32_t progress);

/* Return the call record of the rank's latest collective and its sequence number; NULL before the first. */
const struct ah_call_record *ah_control_last_call(struct ah_control_block *control, int rank, uint32_t *sequence);
