/* The hosts of a group's members, and the data that a call moves between hosts: equal on every rank. Included by
 * host/comm/net/spread.c and progress thread*.c. */
#pragma once

#include "comm/control/collective.h"
#include "comm/control/control_block.h"
#include "comm/control/hosts.h"

struct ah_team {
    int size, hosts, mine;                      /* ranks; hosts that have some; the own one's place among those */
    int member[AH_MAX_RANKS];             /* of each rank of the group, on the control block */
    int at[AH_MAX_RANKS];                 /* its host's place */
    int host[AH_HOSTS_MAX];                     /* each place's host, ascending */
    int local, ranks[AH_MAX_RANKS];       /* ranks of the group on the own host, ascending */
    int most;                                   /* ranks on a host */
};

/* `member`: of each rank its rank on the control block; some of them on this host, or none. */
void ah_team_make(struct ah_team *team, const struct ah_hosts *hosts, const int *member, int size);

/* Is the call too large for inline data in its records? */
bool ah_team_wires(const struct ah_team *team, const struct ah_collective *call);

/* The data from one host to another: a stream of consecutive parts. An input that all receivers share is sent to a host
 * once; for kinds that reduce, the host's sum is sent. */
struct ah_stream_part {
    int from, to;             /* ranks of the group; from -1: the host's sum; to -1: all takers of that host */
    int64_t first, count;     /* elements of the giver's input */
};
/* Part number `index`; false: there are no more. */
bool ah_team_stream(const struct ah_team *team, const struct ah_collective *call, int from, int to, int index,
                    struct ah_stream_part *out);

/* Elements of a rank's result. */
int64_t ah_team_result(const struct ah_collective *call, int size, int rank);

/* Return the dtype of a host's sum: float32 for fp16 and bf16 where a host has several ranks, so that they are rounded
 * once. */
enum ah_dtype ah_team_sums(const struct ah_team *team, const struct ah_collective *call);
/* Bytes of an element that goes from one host to another. */
size_t ah_team_width(const struct ah_team *team, const struct ah_collective *call);

/* Pieces in which the ranks of a host form its sum, and the progress thread moves it. */
enum { AH_TEAM_PIECE = 1 << 20 }; /* bytes */
int64_t ah_team_pieces(const struct ah_team *team, const struct ah_collective *call);
/* Elements of all pieces but the last. */
int64_t ah_team_piece(const struct ah_team *team, const struct ah_collective *call);
/* Slice `index` of n elements, in whole lines of the cache: [*begin, *end). */
void ah_team_slice(int64_t n, int index, int of, size_t width, int64_t *begin, int64_t *end);
