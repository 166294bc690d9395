/* NCCL as a group's device communicator (comm/group/device_comm.h): collectives on device memory, on a separate stream
 * concurrent with the compute stream.
 *
 * A call begins when the compute stream has reached the place of the call, and work queued on the compute stream after
 * its end waits for it: the caller's memory needs no other fence. A thread monitors the pending calls (nccl_watch.c).
 * Lua thread only, unless stated otherwise.
 *
 * Circle: nccl_group, nccl_open: the type of communicators has the functions that open one, which refer to the type. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "comm/group/device_comm.h"
#include "cuda/driver/api/device.h"
#include "cuda/nccl/nccl.h"

enum { AH_NCCL_RECORDS = 128, AH_NCCL_CALL = 200 };

/* A call that the device was given. */
struct ah_nccl_record {
    uint32_t sequence;
    int peer; /* of a message: whom it is from or to; -1: a call of the group's, `sequence` */
    int64_t begun_ns, timeout_ns;
    CUevent end;
    char call[AH_NCCL_CALL]; /* "all_reduce #2 at train.lua:7" */
};

struct ah_nccl_comm {
    struct ah_device_comm base;
    const struct ah_nccl *nccl;
    struct ah_cuda_device *cuda;
    CUstream stream;
    pthread_mutex_t lock;       /* of the fields that follow; held in calls for a message, not in those for a group */
    _Atomic(ncclComm_t) handle; /* NULL: aborted */
    struct ah_nccl_record record[AH_NCCL_RECORDS];
    unsigned first, count; /* of the records, those that may be under way */
    int64_t doubted_ns;    /* since when something seems wrong; 0: nothing does */
    int failed;            /* the status of the first failure */
    int64_t failed_ns;
    bool entered; /* the Lua thread is in NCCL's functions, for the call `entry` */
    struct ah_nccl_record entry;
    bool known;     /* the Lua thread knows of the failure */
    bool capturing; /* the step that is captured now has calls of it */
    bool captured;  /* a step has had */
    char text[600];
    struct ah_message_request *looped; /* a rank's message to itself, before it is received; NULL: none */
    struct ah_nccl_comm *next;         /* of those that are watched */
};

extern const struct ah_device_comm_type ah_nccl_comm_type;

/* 0, or the failure of a collective on this device; for a caller that has waited for it. */
int ah_nccl_check_all(struct ah_cuda_device *cuda);
/* Before the device is closed. */
void ah_nccl_close_all(struct ah_cuda_device *cuda);

/* Queue a call on the stream; `mean` becomes a sum where weights differ (*divisor, else 1). Between ah_nccl_enter and
 * ah_nccl_leave. */
int ah_nccl_move(struct ah_nccl_comm *comm, const struct ah_collective *call, double weights, double *divisor);

/* Register the collectives with the driver layer, which checks them and orders them with captured steps. */
void ah_nccl_register(void);
/* The type's functions that open and close communicators (nccl_open.c). A p2p channel's one opens in the background. */
int ah_nccl_card(struct ah_device *device, uint8_t card[AH_DEVICE_COMM_CARD]);
int ah_nccl_invite(struct ah_device *device, uint8_t ticket[AH_DEVICE_COMM_TICKET]);
int ah_nccl_open_group(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                       struct ah_device_comm **out);
int ah_nccl_open_p2p(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                     bool sends, struct ah_device_comm **out);
void ah_nccl_close(struct ah_device_comm *base);
int ah_nccl_settle(struct ah_device_comm *base);
void ah_nccl_free(struct ah_nccl_comm *comm);
/* The type's functions for messages (nccl_message.c). */
int ah_nccl_mark(struct ah_message_request *transfer);
int ah_nccl_move_message(struct ah_device_comm *p2p, struct ah_message_request *transfer, bool *done);
void ah_nccl_unmark(struct ah_message_request *transfer);
/* Queue a message on the stream, to or from the other rank of a p2p channel. With the lock held. */
int ah_nccl_give_message(struct ah_nccl_comm *comm, const struct ah_message_request *transfer);

/* A failing call of NCCL as a status and a line. Any thread. ah_nccl_report: with the text of NCCL's last error. */
int ah_nccl_check(const struct ah_nccl_comm *comm, ncclResult_t code, const char *what);
int ah_nccl_report(const struct ah_nccl_comm *comm, ncclResult_t code, const char *what, const char *last_error);

/* Make `after` wait for the work queued on `stream`. */
int ah_nccl_order(struct ah_cuda_device *cuda, CUstream stream, CUstream after);

/* The watch. Begin and end it for a communicator; both acquire its lock. */
int ah_nccl_watch(struct ah_nccl_comm *comm);
void ah_nccl_unwatch(struct ah_nccl_comm *comm);
/* Before and after NCCL's functions for a call of the group: the watch checks the call from the first on, and aborts
 * the communicator under it only if it does not return. ah_nccl_enter: false after a failure. ah_nccl_leave: returns
 * `status`; with `noted` the stream has the call, and the watch checks it until its end there. */
bool ah_nccl_enter(struct ah_nccl_comm *comm, uint32_t sequence);
int ah_nccl_leave(struct ah_nccl_comm *comm, int status, bool noted);
/* The stream has a call, or a message: its end is recorded there. With the lock held. */
int ah_nccl_note(struct ah_nccl_comm *comm, uint32_t sequence);
int ah_nccl_note_message(struct ah_nccl_comm *comm, const struct ah_message_request *transfer);
/* Every watched communicator, for the Lua thread, which alone changes the list. */
struct ah_nccl_comm *ah_nccl_watched(void);
