/* The reducer's struct, shared by reducer.c (creation, removal) and average.c (averaging). */
#pragma once

#include <string.h>

#include "autograd/engine/engine.h"
#include "comm/control/group_block.h"
#include "sync/arena.h"
#include "sync/buffers.h"
#include "sync/common.h"
#include "sync/layout.h"
#include "sync/reducer.h"
#include "sync/split.h"

struct ah_sync_parameter {
    struct ah_tensor *tensor, *grad; /* grad aliases the slot */
    bool ready;                      /* final in this backward */
    bool mean, weighed;              /* of sharded gradients, see shard.h */
};

struct ah_sync_bucket {
    int waiting; /* parameters not ready yet */
    struct ah_work *work;
    int64_t ready_ns, issued_ns, reduced_ns;
};

struct ah_reducer {
    struct ah_group *group;
    struct ah_layout layout;
    enum ah_sharding sharding;
    struct ah_device *device;
    struct ah_arena *params, *grads; /* NULL where a device has its slices of them only: */
    struct ah_split *split_params, *split_grads;
    struct ah_work **gather; /* by bucket: parameters of a device that are on their way to this rank */
    int *bucket_unit;        /* by bucket */
    struct ah_common *common; /* parameters stored once per host; NULL: each rank has its own */
    /* The transfer of a device's gradients: by its communicator (`device_comm`), or by a copy in the group's memory
     * (`staged`). */
    struct ah_device *device_comm;
    struct ah_arena *staged;
    bool way_known;                      /* of this epoch */
    struct ah_sync_parameter *parameter; /* by registration */
    bool *has_grad;
    struct ah_sync_bucket *bucket;    /* as layout.bucket */
    int *order;                       /* launch position -> bucket */
    int *arrival, arrived;            /* buckets in the order in which they became ready */
    bool ordered;                     /* the launch order is agreed */
    int launched, reduced, collected; /* positions in `order`; collected: the work is over and collected */
    uint32_t notes;                   /* of those, all ranks' */
    bool active, touched;
    double weight;
    int status; /* the first failure since begin */
    char text[1024];
    char where[AH_CALL_WHERE]; /* the script's line for the next collectives */
    struct ah_buffers *buffers;
    int buffers_from;
    struct ah_reducer_hook hook;      /* launch NULL: none */
    struct ah_engine_watcher watcher; /* while a synchronised backward runs */
    bool watching;
    int64_t begin_ns, end_ns;
    int rounds;
    uint32_t epoch; /* of the group when the last backward began */
};

/* Set the script's line of the following collectives; the end of a long path is more specific than its beginning. */
static inline void ah_reducer_at(struct ah_reducer *reducer, const char *where)
{
    size_t length = strlen(where), most = sizeof reducer->where - 1;
    memcpy(reducer->where, length > most ? where + (length - most) : where, (length > most ? most : length) + 1);
}
void ah_reducer_unwatch(struct ah_reducer *reducer);

/* Abandon the work of a bucket. */
void ah_reducer_abandon(struct ah_reducer *reducer, int bucket);

/* Choose the transfer of gradients. A collective, the first time. */
int ah_reducer_find_way(struct ah_reducer *reducer);
/* Copy a span of an arena to the group's memory, and back; nothing where it is there already. */
int ah_reducer_stage(struct ah_reducer *reducer, struct ah_arena *arena, size_t offset, size_t bytes);
int ah_reducer_unstage(struct ah_reducer *reducer, struct ah_arena *arena, size_t offset, size_t bytes);
/* Return the address of an offset of an arena there. */
void *ah_reducer_reachable(struct ah_reducer *reducer, struct ah_arena *arena, size_t offset);

/* Are gradients reduced into slices? A group of one has nothing to share. */
static inline bool ah_reducer_slices(const struct ah_reducer *reducer)
{
    return reducer->sharding >= AH_SHARD_GRADIENTS && ah_group_size(reducer->group) > 1;
}

/* Are buckets averaged by calls of the group? Alone only where a device communicator was opened. */
static inline bool ah_reducer_meets(const struct ah_reducer *reducer)
{
    return ah_group_size(reducer->group) > 1 || reducer->device_comm;
}
