/* Backends move a group's data. This is the contract between the dispatcher (group.c) and a backend. Included by
 * host/comm, by plugins and by tests that define a backend.
 *
 * The dispatcher checks, numbers and compares calls, holds the queue of works, and detects deadlines and dead peers. A
 * backend is called when all ranks have issued a call and agree on it, and moves the bytes. It waits for a peer through
 * watch.h, which turns a missing peer into an error. It never poisons a group: the dispatcher does when it fails. */
#pragma once

#include "comm/control/control_block.h"
#include "comm/group/group.h"
#include "comm/group/message.h"

/* The addresses that a rank publishes with a call record. */
struct ah_call_arguments {
    uint64_t offset; /* of its input in its segment, or AH_NO_OFFSET; the rest is for several hosts (group_block.h) */
    bool wired;
    uint32_t inline_bytes, own, own_bytes, steps;
    uint64_t landing, partial, counts;
    bool before; /* the process that this one replaces has issued the call */
};

struct ah_work {
    struct ah_group *group;
    const struct ah_backend *mover; /* the group's backend, or its device communicator */
    struct ah_work *next;           /* of the works that this rank has not carried out, or of the abandoned ones */
    struct ah_collective call;
    uint32_t sequence;
    struct ah_call_arguments arguments; /* published with the call record: `start` sets it */
    uint32_t note;                      /* all ranks' notes or-ed, once every rank has issued */
    int64_t *counts;                    /* own copy of the call's; NULL: it has none */
    uint32_t epoch;                       /* of the group when it began */
    double weight;                      /* the sum of all ranks' */
    bool ahead; /* carried before the peers have issued it (call.ahead) */
    bool carried, abandoned;
    void (*release)(void *held); /* of an abandoned one: called when its buffers may go; NULL: nothing holds them */
    void *held;
};

/* A message under way, of its sender or its receiver. */
struct ah_message_request {
    struct ah_group *group;
    struct ah_message_request *next; /* of the group's outgoing or incoming ones, in order */
    struct ah_message message;
    int64_t size[AH_CALL_DIMS];
    char where[AH_CALL_WHERE];
    uint32_t number;
    uint64_t offset;                    /* passed to the receiver with the message header: `give` sets it */
    struct ah_message_header *header;   /* on the sender's group block; NULL: not posted, not found yet */
    uint32_t epoch;                       /* of the group when it began */
    bool sends, stays, done, abandoned; /* stays: the sender's memory is left alone until it is received */
    bool far, moved; /* far: may use a p2p channel (device_p2p.h); moved: the sender's part is done */
    uint8_t card[AH_DEVICE_COMM_CARD];
    void *mark;                  /* of the device communicator */
    void (*release)(void *held); /* of an abandoned one: called when it goes; NULL: nothing is held */
    void *held;
};

struct ah_seat;
struct ah_backend {
    const char *name;
    /* Of the structs that begin with struct ah_group, struct ah_work, struct ah_message_request; zero-filled. */
    size_t group_bytes, work_bytes, message_bytes;
    /* Complete a group whose common part is filled in; may wait for the peers. NULL: nothing to do. */
    int (*open)(struct ah_group *group);
    void (*close)(struct ah_group *group); /* undo open; the dispatcher frees the struct. NULL: nothing to do */

    /* Before a group of this backend is split: AH_ENOTIMPL where that is not possible now. NULL: always possible. */
    int (*may_split)(const struct ah_group *parent);
    /* Of a part of a group of this backend. NULL: this one. */
    const struct ah_backend *(*part)(const struct ah_group *parent, const struct ah_seat *seat);

    /* A blocking call. `fill_arguments`, before the post: prepare the memory that peers access (NULL: nothing). `run`:
     * all have issued and agree; returns when the result is in the caller's buffer. In a group of one only `run` is
     * called. */
    int (*fill_arguments)(struct ah_group *group, const struct ah_collective *call, struct ah_call_arguments *out);
    int (*run)(struct ah_group *group, const struct ah_collective *call);

    /* A work. `start`, before its post. `carry`, in order, when all have issued and agree: do this rank's part; the
     * result of an abandoned work is not needed. `finish`: all have done their part; copy the result to the caller's
     * buffer. `drop`: release the resources of the work; `complete` false after a failure, when peers may still write
     * to them. finish and drop may be NULL. */
    int (*start)(struct ah_work *work);
    int (*carry)(struct ah_work *work);
    bool issued_is_all; /* a call that all have issued, and compared, is complete for a rank that has done its own
                           part; `run` and `carry` combine the ranks' notes */
    bool carries_ahead; /* carry of a call that asks for it needs no posts of the peers */
    bool carry_waits;   /* carry waits for the peers: not called where a call must not wait, but in ah_work_test */
    int (*finish)(struct ah_work *work);
    void (*drop)(struct ah_work *work, bool complete);
    int (*order)(struct ah_work *work); /* order later work of the device after this one, which it has; may be NULL */
    /* Is the call through, when all ranks have done their part of it, so that its memory is its rank's again? NULL: it
     * is. */
    bool (*settled)(const struct ah_group *group, uint32_t sequence);

    /* A message. `give`, by the sender before the post: make its elements accessible to the receiver. `fetch`, by the
     * receiver: copy the available ones of header->count elements, without waiting, until *done; one message of each
     * sender at a time. `serve`, by the sender while the receiver fetches: do the sender's part of `fetch` (NULL:
     * nothing). `forget`: release the resources of the request; complete as in drop. give NULL: no messages. */
    int (*give)(struct ah_message_request *request);
    int (*fetch)(struct ah_message_request *request, bool *done);
    int (*serve)(struct ah_message_request *request);
    void (*forget)(struct ah_message_request *request, bool complete);

    /* Called by a waiting rank. `attend`, between polls: do, without blocking, the work that a background thread would
     * do; true when something has moved. `leave`: the rank goes to sleep, and the thread continues. NULL: no
     * thread. */
    bool (*attend)(struct ah_group *group);
    void (*leave)(struct ah_group *group);

    int (*alloc)(struct ah_group *group, size_t bytes, void **out);
    void (*free)(struct ah_group *group, void *memory, size_t bytes);
    void (*trim)(struct ah_group *group);                                /* may be NULL */
    void (*discard)(struct ah_group *group, void *memory, size_t bytes); /* may be NULL */

    /* Memory that all ranks of a host share. `lend`, by the first of them: allocate it for `holders` ranks, zeroed, and
     * return its offset. `borrow`, by all: map it. `give_back`, by all: release it. NULL: not supported. */
    int (*lend)(struct ah_group *group, size_t bytes, int holders, uint64_t *offset);
    void *(*borrow)(struct ah_group *group, int lender, uint64_t offset);
    void (*give_back)(struct ah_group *group, void *memory, size_t bytes);

    /* Restart the group (ah_groups_renew): its counters on the control block are 0 and no rank is in any call.
     * NULL: not supported. */
    void (*renew)(struct ah_group *group);
};

struct ah_group {
    const struct ah_backend *backend;
    atomic_int refs;
    int rank, size;
    struct ah_group *root;            /* that this one was split from, directly or not; itself for the first */
    struct ah_control_block *control; /* NULL for a group of one that opens no device communicator */
    struct ah_group_block **peer;     /* every rank's group block of this group */
    int *member;                      /* its rank on the control block */
    int block;
    uint32_t base;                                  /* where the group block's counters began for this group */
    uint32_t issued, done;                          /* own counters */
    uint32_t ring_safe;                             /* every rank has done the calls up to here, as of the last check */
    struct ah_work *first, **last;                  /* works that this rank has not carried out yet, in order */
    struct ah_work *abandoned;                      /* carried out here, not yet everywhere */
    struct ah_message_request *outgoing, *incoming; /* messages that were not received yet, in order */
    uint32_t sent;                                  /* messages posted so far */
    uint64_t identity;   /* of its members and base: differs from that of other groups that use the group block */
    int spins;           /* polls of a counter before sleeping */
    int64_t timeout_ns;  /* for a call */
    int64_t stall_warning_ns; /* after which a stalled wait is reported */
    int poison;          /* the status of the first failure */
    char poison_text[1024];
    bool logs;
    uint32_t epoch;                       /* number of restarts */
    struct ah_device_comm *device_comm; /* for the memory of a device; NULL: none, or not asked for */
    bool device_comm_asked;             /* whether there is one has been found out */
    enum ah_device_comm_choice choice;
    struct ah_device_p2p *p2p; /* for messages from and to devices */
    struct ah_group *parts;    /* of a root: the open ones; of a part: the next */
    struct ah_group *retired;  /* of a root: closed groups whose group block peers may still read */
    uint32_t blocks;           /* of a root: a bit for each group block in use */
};

/* The place of a rank when a group opens. */
struct ah_seat {
    struct ah_control_block *control; /* must outlive the group */
    int rank, size;
    const int *member; /* the ranks on the control block, NULL: 0 .. size - 1 */
    int block;
    uint32_t base;
    struct ah_group *root; /* NULL: the new one is a root */
    int64_t timeout_ns;    /* 0: ACCELHOST_TIMEOUT, else 600 s */
    int64_t stall_warning_ns; /* 0: ACCELHOST_PATIENCE, else 10 s */
};

/* A group of one is always "self". Several threads may each be a rank on one mapping of a control block. */
int ah_group_open(struct ah_group **out, const struct ah_backend *backend, const struct ah_seat *seat);

/* Of its members and base. */
uint64_t ah_group_identity(const struct ah_group *group);
/* The job's group, NULL before it is opened. */
struct ah_group *ah_group_first(void);
void ah_group_set_first(struct ah_group *group);

/* Free a group that its backend has closed. */
void ah_group_dispose(struct ah_group *group);

/* Free the pending works of a group that restarts; works that a caller holds remain the caller's, and fail when waited
 * for. */
void ah_group_forget_works(struct ah_group *group);

/* The table of backends: the built-in ones and those that plugins and tests register (the struct is kept). AH_EINVAL
 * when the name is in use or the table full; NULL for an unknown name. */
int ah_backend_register(const struct ah_backend *backend);
const struct ah_backend *ah_backend_find(const char *name);

extern const struct ah_backend ah_self_backend, ah_shm_backend, ah_spread_backend, ah_replay_backend;
/* Have all ranks completed the calls up to `sequence`? */
bool ah_group_has_settled(const struct ah_group *group, uint32_t sequence);

void ah_work_free(struct ah_work *work, bool complete);

/* Publish that this rank has completed its part of the calls up to `sequence`. A backend may call this before its
 * function returns, when it then waits for the same of its peers. */
void ah_group_publish_done(struct ah_group *group, uint32_t sequence);

/* Record the first failure of a group and notify the peers; returns `status`. */
int ah_group_poison(struct ah_group *group, int status);
int ah_group_check_health(struct ah_group *group, const char *name);

/* Carry out the works up to `upto`; without `block` only as far as all ranks have issued. */
int ah_group_advance(struct ah_group *group, uint32_t upto, bool block);

static inline const struct ah_call_record *ah_group_call_record(const struct ah_group *group, int rank,
                                                                uint32_t sequence)
{
    return ah_group_record(group->peer[rank], sequence);
}
