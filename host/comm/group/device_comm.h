/* Device communicators: they move the bytes of a group that are in a device's memory, as the backend moves the host's.
 *
 * A device type supplies a communicator type (tensor/device.h). The dispatcher treats a call on device memory like any
 * other: checked, numbered, compared with the calls of the peers, in one order with calls on host memory. The device
 * runs a communicator's calls in the order in which they were queued: when a call has returned, or a work was waited
 * for, its result is ready for everything queued on the device afterwards, but not yet for the host.
 *
 * A group opens its communicator at the first call that needs one. If it cannot (no such type, the library is missing,
 * two ranks use one card), callers copy the bytes to the host first. Messages use communicators of two ranks
 * (device_p2p.h). This file knows no tensors. */
#pragma once

#include "comm/group/backend.h"

struct ah_device;

struct ah_device_comm {
    const struct ah_device_comm_type *type;
    struct ah_group *group;
    struct ah_device *device;
};

struct ah_device_comm_type {
    /* Backend for device memory (backend.h): name, work_bytes, run, start, carry, finish, drop. `finish` and `drop`
     * make the device wait, not the host; a work may be dropped before the device has completed it. */
    struct ah_backend moves;
    bool (*takes)(
        const struct ah_collective *call); /* is the call supported? Depends on kind, dtype and reduction only */

    /* Check that its library can be loaded; the error names the cause in one line. */
    int (*available)(void);
    /* Write an identifier of the physical device. Fails as `available` does. */
    int (*card)(struct ah_device *device, uint8_t card[AH_DEVICE_COMM_CARD]);
    /* The first rank creates a ticket, with which all ranks open the communicator together; waits as a call does.
     * `*out` begins with struct ah_device_comm, which the caller fills in. */
    int (*invite)(struct ah_device *device, uint8_t ticket[AH_DEVICE_COMM_TICKET]);
    int (*open)(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                struct ah_device_comm **out);
    void (*close)(struct ah_device_comm *comm); /* free it, also with calls in progress */

    bool (*ready)(struct ah_work *work);        /* of a work of this rank: has the device completed it? */
    int (*check)(struct ah_device_comm *comm);  /* return the failure of a queued call, once known */
    int (*settle)(struct ah_device_comm *comm); /* wait until the device has completed all calls */

    /* Messages; move NULL: they pass through the host. `mark`: record in request->mark the point in the device's queue
     * from which the memory is the message's. `open_p2p`: begin to open a p2p channel from one rank to another with the
     * sender's ticket, without waiting. `move`: advance without waiting; *done once the message is queued on the
     * device. `unmark`: order all later work of the device after the message. */
    int (*mark)(struct ah_message_request *request);
    int (*open_p2p)(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                    bool sends, struct ah_device_comm **out);
    int (*move)(struct ah_device_comm *p2p, struct ah_message_request *request, bool *done);
    void (*unmark)(struct ah_message_request *request);
};

/* Return the backend that moves the bytes of a call. */
static inline const struct ah_backend *ah_group_mover(const struct ah_group *group, const struct ah_collective *call)
{
    return call->device ? &group->device_comm->type->moves : group->backend;
}

/* Return 0, or a communicator's failure, with which the group is poisoned. */
int ah_device_comm_check(struct ah_group *group);
/* Close the group's communicator and its p2p channels; a later call may open new ones. */
void ah_device_comm_forget(struct ah_group *group);
