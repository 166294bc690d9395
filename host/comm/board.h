/* The job's board: one shared segment that the launcher makes and every rank maps.
 *
 * It holds, per rank, a slot (who it is, how it fares, the text of its failure), the counters that collectives wait
 * on, and a ring of what the rank brought to its last collectives. Beside it each rank has a data segment (staging
 * and arena) that all ranks map. Board and segments are memfds inherited over exec: nothing has a name, so nothing
 * is left when the job is killed. A board serves one run of a job.
 *
 * Thread rule: a slot's counters and posts are written by its own rank's Lua thread only, its state by the rank and
 * by the launcher, with atomics. This file knows no collectives and no tensors. */
#ifndef AH_COMM_BOARD_H
#define AH_COMM_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    AH_BOARD_MAX_RANKS = 256,
    AH_BOARD_POSTS = 64,   /* collectives a rank may have posted that a peer has not finished */
    AH_BOARD_TEXT = 3072,  /* bytes of a rank's failure text */
    AH_BOARD_WHERE = 64,   /* bytes of a call site */
    AH_BOARD_DIMS = 8,
    AH_STAGE_BYTES = 128 * 1024, /* one half of a rank's staging area, which opens its data segment */
};

enum ah_rank_state {
    AH_RANK_RUNNING,
    AH_RANK_ENDED,  /* came to its normal end */
    AH_RANK_FAILED, /* reported a failure */
    AH_RANK_DIED,   /* gone without a word; set by the launcher */
};

/* What a rank brought to a collective: the fingerprint, and where its buffer is. */
struct ah_post {
    uint32_t sequence;
    uint8_t kind, dtype, reduce;
    int8_t ndim; /* -1: shape not told */
    int32_t root;
    uint32_t note;   /* bits for the peers, no part of the fingerprint; nor is the weight */
    double weight;   /* of this rank in a mean */
    uint64_t hash;   /* of everything that must agree */
    int64_t count;
    uint64_t offset; /* of the buffer in the rank's segment, or AH_NO_OFFSET */
    int64_t size[AH_BOARD_DIMS];
    _Alignas(64) char where[AH_BOARD_WHERE];
};
#define AH_NO_OFFSET UINT64_MAX

/* A rank's counters: each is written by its owner, only grows, and is a futex word for who waits on it. */
enum ah_counter { AH_POSTED, AH_REDUCED, AH_ROUND, AH_SLICED, AH_COUNTERS };

struct ah_board_slot {
    _Alignas(64) atomic_uint counter[AH_COUNTERS];
    atomic_uint sleepers; /* peers asleep on one of the counters */
    _Alignas(64) atomic_int pid;
    atomic_int state;         /* enum ah_rank_state */
    atomic_int group_status;  /* AH_E* of the collective that poisoned the rank's group, else 0 */
    atomic_int victim;        /* its failure follows from another rank's */
    atomic_int blamed;        /* with a timeout: the rank that did not come, else -1 */
    _Atomic int64_t ended_ns; /* when it left AH_RANK_RUNNING, monotonic */
    int segment_fd;           /* inherited number; read when attaching */
    char group_text[512];     /* with group_status; complete before that is set */
    char text[AH_BOARD_TEXT]; /* with AH_RANK_FAILED: message and traceback */
    _Alignas(64) struct ah_post post[AH_BOARD_POSTS];
};

struct ah_board_header {
    uint64_t magic;
    uint32_t version;
    int32_t size;
    int32_t columns;     /* of the launcher's terminal, 0 if unknown */
    bool stdout_is_terminal, stderr_is_terminal;
    bool reports; /* the launcher prints the failure of the first rank that fails */
    _Alignas(64) atomic_int first_failed; /* rank, -1 before */
    _Atomic uint64_t told;                /* the stuck rank (from 1) and its progress that a wait last told of */
    _Alignas(64) struct ah_board_slot slot[];
};

/* One process's mapping of a board and its segments. */
struct ah_board {
    struct ah_board_header *header;
    size_t bytes;
    int size;
    int fd;                                   /* of the creator until ah_board_hand_over, else -1 */
    size_t segment_span;                      /* bytes reserved for each segment */
    unsigned char *segment[AH_BOARD_MAX_RANKS];
    int segment_fd[AH_BOARD_MAX_RANKS];       /* -1 once closed */
};

/* Make a board for `size` ranks. The creator's mapping has no segments mapped yet. */
int ah_board_create(struct ah_board **out, int size);

/* Map the segments too, so that threads or forked children can be ranks on this mapping. */
int ah_board_map_segments(struct ah_board *board);

/* Let the descriptors pass the next exec (call in the child); the number for ACCELHOST_BOARD. */
int ah_board_hand_over(struct ah_board *board);

/* Map the board behind an inherited descriptor, as `rank`: all segments are mapped, and all descriptors but that of
 * the rank's own segment are closed. AH_EIO when it is no board of this program. */
int ah_board_open(struct ah_board **out, int fd, int rank);

void ah_board_close(struct ah_board *board);

static inline struct ah_board_slot *ah_board_slot(struct ah_board *board, int rank)
{
    return &board->header->slot[rank];
}

/* Make a rank's data segment at least `bytes` long (zero-filled). */
int ah_board_grow(struct ah_board *board, int rank, size_t bytes);

/* Take a rank out of AH_RANK_RUNNING; the first caller wins and true is returned. Wakes all waits. */
bool ah_board_leave(struct ah_board *board, int rank, enum ah_rank_state state, const char *text, bool victim);

/* Wake every wait on the board: something is wrong, all look at the states. */
void ah_board_wake(struct ah_board *board);

/* Of all ranks that find `rank` stuck at the same progress only the first is to say so. */
bool ah_board_first_to_tell(struct ah_board *board, int rank, uint32_t progress);

/* Advance a counter of the own slot and wake who sleeps on it. */
void ah_board_advance(struct ah_board_slot *slot, enum ah_counter which, uint32_t value);

/* Sleep until the counter differs from `seen`, the board is woken, or `limit_ns` has passed. */
void ah_board_sleep(struct ah_board_slot *slot, enum ah_counter which, uint32_t seen, int64_t limit_ns);

/* Counters wrap: true when `value` has reached `target`. */
static inline bool ah_reached(uint32_t value, uint32_t target)
{
    return (int32_t)(value - target) >= 0;
}

#endif
