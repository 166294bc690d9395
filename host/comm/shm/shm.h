/* The shared-memory backend's own struct and the ways in which it moves data. Included by shm*.c and spread.c of
 * host/comm. */
#pragma once

#include "comm/control/segment.h"
#include "comm/group/watch.h"

enum { SHM_SMALL = 8 * 1024 }; /* bytes up to which an all_reduce is staged with its post */

struct shm_group {
    struct ah_group base;
    struct ah_segment *segment; /* the rank's; of a part: its root's */
    uint32_t round;
    struct pending *pending;    /* freed memory that peers may still touch */
    struct common *lent;        /* of a host's first rank: memory that all its ranks have */
    uint64_t stage[AH_MAX_GROUPS]; /* of a root: the staging area of each group block that was ever used, 0: none yet */
};

struct shm_message {
    struct ah_message_request base;
    void *copy; /* in the segment; NULL when the message itself is there for good */
    size_t bytes;
};

static inline struct shm_group *shm_of(struct ah_group *group)
{
    return (struct shm_group *)group;
}

static inline unsigned char *shm_segment(const struct shm_group *shm, int rank)
{
    return shm->base.control->segment[shm->base.member[rank]];
}

/* Half `round % 2` of a rank's staging area. The address is set before the rank's first post in the group, which the
 * caller has acquired. */
static inline unsigned char *shm_stage(const struct shm_group *shm, int rank, uint32_t round)
{
    return shm_segment(shm, rank) + atomic_load_explicit(&shm->base.peer[rank]->address, memory_order_relaxed) +
           (size_t)(round & 1) * AH_STAGE_BYTES;
}

/* Return the divisor of a mean: the ranks' weights, added in rank order. */
double shm_divisor(const struct shm_group *shm, uint32_t sequence);

/* Advance a round counter without a wake; peers see it with the next publication. */
void shm_count_round(struct shm_group *shm, enum ah_counter which);
void shm_enter_round(struct shm_group *shm);

/* Memory that is one for all ranks: as backend.h has them. */
int shm_lend(struct ah_group *group, size_t bytes, int holders, uint64_t *offset);
void *shm_borrow(struct ah_group *group, int lender, uint64_t offset);
void shm_give_back(struct ah_group *group, void *memory, size_t bytes);
/* Free the memory that every rank has released; all of it when the group ends. */
void shm_collect_common(struct shm_group *shm, bool all);

/* All kinds but all_reduce and barrier, through the staging areas. */
int shm_exchange(struct shm_group *shm, const struct ah_collective *call);

/* Copy this rank's result of a call from the inputs in its peers' segments; `wanted`: of these peers only. */
void shm_take_parts(struct shm_group *shm, const struct ah_collective *call, uint32_t sequence,
                    bool (*wanted)(const struct ah_group *group, int rank));
/* A small all_reduce whose inputs are all staged. */
void shm_reduce_small(struct shm_group *shm, const struct ah_collective *call);

/* As in struct ah_backend. */
int shm_open_ranks(struct ah_group *group);
void shm_close(struct ah_group *group);
int shm_fill_arguments(struct ah_group *group, const struct ah_collective *call, struct ah_call_arguments *out);
int shm_give(struct ah_message_request *request);
int shm_fetch(struct ah_message_request *request, bool *done);
void shm_forget(struct ah_message_request *request, bool complete);
int shm_alloc(struct ah_group *group, size_t bytes, void **out);
void shm_free(struct ah_group *group, void *memory, size_t bytes);
void shm_trim(struct ah_group *group);
void shm_discard(struct ah_group *group, void *memory, size_t bytes);
void shm_renew(struct ah_group *group);
