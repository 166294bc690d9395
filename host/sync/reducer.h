/* The reducer: parameters and gradients of a model in flat arenas, averaged over the group bucket by bucket while
 * backward still runs.
 *
 * A synchronised backward is begin ... the engine's backward ... finish. In between the engine reports final gradients
 * and calls the reducer after each node. Buckets are launched strictly in order, on every rank the same;
 * after the first synchronised backward the order becomes that in which they were ready on rank 0.
 *
 * Gradient = sum over ranks / sum of the ranks' weights; the result of an earlier average in a slot is part of the sum,
 * so a caller that uses weights subtracts it first. A parameter that no rank used keeps has_grad false; one that some
 * used
 * counts as zero on the others. The buffers' values of rank 0 go along. Without begin nothing is sent: gradients add up
 * locally.
 *
 * With sharded gradients a bucket is reduced into this rank's slice of it and the memory of the rest goes back to the
 * system, so that a gradient holds the mean where it is this rank's, and zeros elsewhere. Lua thread only. */
#pragma once

#include "comm/group/group.h"
#include "tensor/tensor.h"

struct ah_reducer;

/* The state that is sharded, so that each rank has only its slice of every bucket (shard.h): none; optimizer state;
 * gradients as well; parameters as well, which are then stored once for all ranks. */
enum ah_sharding { AH_SHARD_NONE, AH_SHARD_OPTIMIZER, AH_SHARD_GRADIENTS, AH_SHARD_FULL };

struct ah_reducer_options {
    int64_t bucket_bytes; /* > 0: the limit of every bucket */
    bool apart;           /* every rank keeps its own values, which are not compared: no collective */
    enum ah_sharding sharding;
    const int *unit;      /* by registration: a bucket holds parameters of one unit; NULL: all are of one */
    const char *where;    /* the script's line, copied */
};

/* A collective. Retains group, params (distinct, floating, on one device, contiguous or alone in their storage) and
 * buffers, moves the parameters' storages into the parameter arena, assigns each parameter its gradient slot, and
 * copies rank 0's values to all ranks. AH_EMISMATCH on every rank when the parameters differ in number, shape or
 * dtype. */
int ah_reducer_new(struct ah_reducer **out, struct ah_group *group, struct ah_tensor **params, int count,
                   struct ah_tensor **buffers, int buffer_count, struct ah_reducer_options options);

/* A communication hook, called for each bucket instead of averaging, in launch order on every rank: `launch` when its
 * gradients are final, `finish` when all are launched; afterwards the bucket's memory must have the same result on
 * every rank. The hook applies the weights itself. */
struct ah_reducer_hook {
    int (*launch)(void *context, int launched);
    int (*finish)(void *context, int launched);
    void *context;
};
void ah_reducer_set_hook(struct ah_reducer *reducer, struct ah_reducer_hook hook);

/* Set the rank whose buffers are broadcast with averages from now on; the same on every rank. */
void ah_reducer_buffers_from(struct ah_reducer *reducer, int rank);

/* Record that a module has replaced a buffer (by its number in ah_reducer_new) by another tensor. AH_EINVAL when its
 * dtype or shape is another one. */
int ah_reducer_replace_buffer(struct ah_reducer *reducer, int index, struct ah_tensor *tensor);

/* All gradients of a bucket as one tensor, gaps between them included. */
int ah_reducer_bucket(struct ah_tensor **out, struct ah_reducer *reducer, int launched);

/* Release the slots, except of parameters that another reducer has acquired. The storages stay in the arena, which
 * lives as long as one of them or a gradient tensor does. */
void ah_reducer_free(struct ah_reducer *reducer);

/* The parameters, in registration order. */
int ah_reducer_count(const struct ah_reducer *reducer);
struct ah_tensor *ah_reducer_param(struct ah_reducer *reducer, int index); /* borrowed */
struct ah_tensor *ah_reducer_grad(struct ah_reducer *reducer, int index); /* borrowed; aliases the slot */
bool *ah_reducer_has_grad(struct ah_reducer *reducer, int index);

/* AH_ESTATE when an earlier backward was begun and failed with buckets under way. `weight` is this rank's, of all that
 * is in the gradients since they were last averaged or cleared. */
int ah_reducer_begin(struct ah_reducer *reducer, double weight, const char *where);

/* For the engine: the gradient of parameter `index` is final for this backward. Errors surface in finish. */
void ah_reducer_param_ready(void *reducer, int index);

/* Has any parameter become ready since the last call? Within begin and finish or not. */
bool ah_reducer_touched(struct ah_reducer *reducer);

/* Advance pending buckets without waiting. */
void ah_reducer_progress(void *reducer);

/* Launch the remaining buckets and wait for all. A collective, when begun. */
int ah_reducer_finish(struct ah_reducer *reducer, const char *where);

/* As if begin had not been called. Nothing happens once buckets are under way: the ranks would wait for them. */
void ah_reducer_cancel(struct ah_reducer *reducer);

/* Times of the buckets in the last synchronised backward, in launch order (ah_now_ns; 0: never). */
struct ah_bucket_times {
    int64_t bytes, ready_ns, issued_ns, reduced_ns;
    int first, count; /* the parameters, as places in reverse registration order */
};
int ah_reducer_buckets(const struct ah_reducer *reducer);
struct ah_bucket_times ah_reducer_times(const struct ah_reducer *reducer, int launched);
int ah_reducer_bucket_of(const struct ah_reducer *reducer, int index); /* the launch position of a parameter's */
int64_t ah_reducer_backward_begin(const struct ah_reducer *reducer); /* when begin was called */
int64_t ah_reducer_backward_end(const struct ah_reducer *reducer); /* when finish was entered */
int ah_reducer_rounds(const struct ah_reducer *reducer); /* synchronised backwards so far */
