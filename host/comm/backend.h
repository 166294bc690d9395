/* What a backend of collectives fills in. Included by host/comm only.
 *
 * The door (group.c) has checked arguments and the poison before any function here runs, and poisons the group when
 * one fails. */
#ifndef AH_COMM_BACKEND_H
#define AH_COMM_BACKEND_H

#include "comm/board.h"
#include "comm/group.h"

enum ah_collective_kind {
    AH_ALL_REDUCE,
    AH_ALL_REDUCE_START,
    AH_BROADCAST,
    AH_ALL_GATHER,
    AH_ALL_GATHER_V,
    AH_REDUCE_SCATTER,
    AH_GATHER,
    AH_SCATTER,
    AH_ALL_TO_ALL,
    AH_BARRIER,
    AH_COLLECTIVE_KINDS
};

struct ah_collective {
    enum ah_collective_kind kind;
    enum ah_dtype dtype;
    enum ah_reduce_op reduce;
    int root; /* -1 for kinds without one */
    int64_t count;
    const void *in;
    void *out;
    const int64_t *counts; /* of AH_ALL_GATHER_V */
};

struct ah_work {
    struct ah_group *group;
    struct ah_work *next;
    struct ah_collective what;
    uint32_t sequence;
    void *private_buffer; /* the caller's buffer when it had to be copied to `what.out`, else NULL */
    int size_class;       /* of that copy */
    uint32_t note;        /* all ranks' notes or-ed, once every rank has posted */
};

struct ah_group_ops {
    const char *name;
    int (*run)(struct ah_group *group, const struct ah_collective *what);
    int (*start)(struct ah_group *group, const struct ah_collective *what, struct ah_work **out);
    int (*test)(struct ah_work *work, bool *done);
    int (*wait)(struct ah_work *work); /* until it is complete; the door frees it by `drop` */
    void (*drop)(struct ah_work *work);
    int (*arena_alloc)(struct ah_group *group, size_t bytes, void **out);
    void (*close)(struct ah_group *group); /* frees the group */
    void (*poisoned)(struct ah_group *group); /* tell the peers; may be NULL */
};

struct ah_group {
    const struct ah_group_ops *ops;
    int rank, size;
    int poison; /* the status of the first failure */
    char poison_text[1024];
    char where[AH_BOARD_WHERE];
    int ndim; /* -1: not told */
    int64_t shape[AH_BOARD_DIMS];
    double weight;
    uint32_t note;
};

const char *ah_collective_name(int kind);

/* "all_reduce float32 (10,)"; returns text. */
const char *ah_post_describe(const struct ah_post *post, char *text, size_t bytes);

int ah_self_open(struct ah_group **out);

/* A rank of a board; the board must outlive the group. timeout_ns 0 takes ACCELHOST_TIMEOUT or 600 s. Several
 * threads may each be a rank on one mapping. */
int ah_shm_open(struct ah_group **out, struct ah_board *board, int rank, int64_t timeout_ns);

/* For a group not made by ah_group_default. */
void ah_group_close(struct ah_group *group);

#endif
