/* Messages from one rank of a group to another.
 *
 * Messages of one tag between two ranks are received in the order in which they were sent; other tags may overtake. A
 * message waits with its sender until it is received, as many of them as there are, so two ranks may both send first.
 * Waits end as those of collectives do: when the peer has ended, or at the deadline; a message whose dtype or number of
 * elements differs from its receiver's fails on both. Any failure but AH_EINVAL poisons the group. Messages and
 * collectives do not wait for each other.
 *
 * Circle: device_comm, device_p2p, group, message, message_place, mismatch, status_text, watch: a failed message
 * poisons its group; waits of the dispatcher move messages; waits for messages check, as all waits do, the peers and
 * the group's device communicators, which open by calls, or for messages; all read struct ah_group (backend.h). */
#pragma once

#include "base/status/status.h"
#include "comm/control/collective.h"

struct ah_device;
struct ah_group;
struct ah_device_comm_type;
struct ah_message_request;

struct ah_message {
    int peer; /* its rank in the group; of a receive AH_ANY_PEER: the sender of the first message available */
    int64_t tag;
    void *memory; /* plain row-major; on a device: see below */
    int64_t count;
    enum ah_dtype dtype;
    int ndim; /* for texts, as the shape and the script's line */
    const int64_t *size;
    const char *where;
    /* NULL: the host's memory. Else the device of `memory`, and its communicator type. `host` is host memory in its
     * place, with the bytes of a message that is sent, for a peer without a p2p channel. */
    struct ah_device *device;
    const struct ah_device_comm_type *device_comm;
    int (*host)(void *context, void **memory);
    void *context;
};
#define AH_ANY_PEER (-1)

/* Begin to send. `stays`: the memory is left alone until the message is received; else it is copied where peers cannot
 * reach it. AH_EINVAL for a peer that is no other rank of the group. */
int ah_group_send(struct ah_group *group, struct ah_message message, bool stays, struct ah_message_request **out);
/* Begin to receive; the memory is written until the message request is done. */
int ah_group_receive(struct ah_group *group, struct ah_message message, struct ah_message_request **out);

/* Done: received. */
int ah_message_test(struct ah_message_request *request, bool *done);
/* Wait, then free the request; *peer (may be NULL) is set to the peer's rank. */
int ah_message_wait(struct ah_message_request *request, int *peer);
/* Abandon a request without a wait: a sent message can still be received, a message for this receive is left to others.
 * `release(held)` (may be NULL) is called when memory on a device may be freed, perhaps at once. */
void ah_message_abandon(struct ah_message_request *request, void (*release)(void *held), void *held);

/* "send to rank 1, tag 3, at train.lua:7" */
const char *ah_message_describe(const struct ah_message_request *request, char *text, size_t bytes);

/* For the dispatcher and its waits: advance all messages without waiting. */
int ah_message_progress(struct ah_group *group);
void ah_message_drop_all(struct ah_group *group);
/* For a group that restarts: free the requests that no caller holds; the others fail when waited for. */
void ah_message_forget(struct ah_group *group);
