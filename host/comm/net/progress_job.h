/* A call on its way between hosts, as the progress thread sees it. Included by comm/net/progress*.c only. */
#pragma once

#include "comm/net/progress.h"
#include "comm/net/team.h"
#include "comm/net/transport.h"

/* Pieces sent at a time, and pieces received at a time: another host may be ahead by that many. */
enum { PROGRESS_DEPTH = 4, PROGRESS_AHEAD = 2 * PROGRESS_DEPTH };

/* Memory of a progress thread, for received data and for data assembled to be sent. */
struct scratch {
    unsigned char *memory;
    size_t bytes;
};

/* A piece under way. */
struct flight {
    struct ah_transport_exchange *give, *take, *sums; /* that have not completed; all_reduce: incoming sums */
    struct scratch scratch;
};

struct progress_job {
    struct progress_job *next;
    struct ah_control_block *control;
    struct ah_transport *transport;
    struct ah_team team;
    struct ah_collective call; /* counts are its own */
    uint32_t sequence;
    int block, tag;
    uint32_t identity;         /* of the group, which distinguishes its pieces from others with its tag */
    bool known, dead;          /* where all buffers are; a host that it needs is lost */
    bool direct;               /* all_reduce: each host gets all, and adds everything itself */
    double divisor;
    uint32_t before[AH_MAX_RANKS];                           /* by place among the local ranks */
    uint64_t offset[AH_MAX_RANKS], landing[AH_MAX_RANKS]; /* the same */
    uint64_t partial;          /* in the first local rank's segment */
    int64_t pieces, awaited, begun, halfway, done;
    struct flight flight[PROGRESS_AHEAD];
    struct scratch
        *spare; /* the progress thread's: PROGRESS_AHEAD that earlier jobs have left, whose pages are there */
};

/* In a local rank's segment, by its place among them. */
static inline unsigned char *progress_at(const struct progress_job *job, int place, uint64_t offset)
{
    return job->control->segment[job->team.member[job->team.ranks[place]]] + offset;
}

/* Enlarge a flight's scratch memory; its contents are lost. */
int progress_scratch(struct progress_job *job, struct flight *flight, size_t bytes);
/* Begin an exchange of phase 0 or 1; pieces are by the team's places. */
int progress_start(struct progress_job *job, int phase, const struct ah_transport_piece *send,
                  const struct ah_transport_piece *receive, struct ah_transport_exchange **exchange);
/* *done: the exchange has completed, or there was none, and *exchange is NULL. */
int progress_test(struct progress_job *job, struct ah_transport_exchange **exchange, bool *done, int *lost);

/* Advance the call without waiting; `steps`: the completed parts of the local ranks. AH_EPEER: *lost is the lost
 * host. */
int progress_reduce(struct progress_job *job, int64_t steps, bool *moved, int *lost);
int progress_stream(struct progress_job *job, bool *moved, int *lost);
/* Return the number of pieces of a job of streams. */
int64_t progress_stream_pieces(const struct progress_job *job);
