/* Lanes: what moves a group's bytes that lie in the memory of a device, beside the backend that moves the host's.
 *
 * A device's type brings a type of lane (tensor/device.h). To the door a call on a device's memory is a call like any
 * other: checked, numbered, compared with what the peers bring, in one order with calls on the host's memory. Only its
 * bytes go another way. What a lane does the device does, in the order of what it is asked: when a call has returned,
 * or a work was waited for, the result is there for all that the device is asked next, not yet for the host.
 *
 * A group opens its lane at its first call that needs it. Where there can be none - no such type, its library is
 * missing, two ranks share a card - callers bring the bytes to the host first. Messages go by lanes of two ranks
 * (line.h). This file knows no tensors. */
#ifndef AH_COMM_DEVICE_COMM_H
#define AH_COMM_DEVICE_COMM_H

#include "comm/group/backend.h"

struct ah_device;

struct ah_device_comm {
    const struct ah_device_comm_type *type;
    struct ah_group *group;
    struct ah_device *device;
};

struct ah_device_comm_type {
    /* Moves what lies on the device, as backend.h says: name, work_bytes, run, start, carry, finish, drop. `finish` and
     * `drop` make the device wait, not the host; a work may be dropped before the device is through with it. */
    struct ah_backend moves;
    bool (*takes)(const struct ah_collective *call); /* can it move this? By kind, dtype and reduction only */

    /* Is its library here? If not, one line says why. */
    int (*available)(void);
    /* What tells this device from all others. Fails as `available` does. */
    int (*card)(struct ah_device *device, uint8_t card[AH_DEVICE_COMM_CARD]);
    /* The first rank makes a ticket, with which all ranks open the lane together; waits as a call does. `*out` begins
     * with struct ah_device_comm, which is filled in. */
    int (*invite)(struct ah_device *device, uint8_t ticket[AH_DEVICE_COMM_TICKET]);
    int (*open)(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                struct ah_device_comm **out);
    void (*close)(struct ah_device_comm *lane); /* frees it, whatever is under way */

    bool (*ready)(struct ah_work *work); /* carried out here: is the device through with it? */
    int (*check)(struct ah_device_comm *lane);  /* the failure of a call that had begun well, once it is known */
    int (*settle)(struct ah_device_comm *lane); /* wait until the device is through with all calls */

    /* Messages; move NULL: they pass through the host. `mark`: the memory is the message's as of this moment in what
     * the device is asked; keeps in message request->mark what that takes. `open_line`: begin to open a lane from one
     * rank to another, with the sender's ticket, without waiting. `move`: what can be done without waiting, until
     * *done: the device was given the message. `unmark`: what the device is asked next comes behind it. */
    int (*mark)(struct ah_message_request *request);
    int (*open_line)(struct ah_group *group, struct ah_device *device, const uint8_t ticket[AH_DEVICE_COMM_TICKET],
                     bool sends, struct ah_device_comm **out);
    int (*move)(struct ah_device_comm *line, struct ah_message_request *request, bool *done);
    void (*unmark)(struct ah_message_request *request);
};

/* What moves the bytes of a call. */
static inline const struct ah_backend *ah_group_mover(const struct ah_group *group, const struct ah_collective *call)
{
    return call->device ? &group->lane->type->moves : group->backend;
}

/* 0, or the failure of a lane of the group's, with which the group is poisoned. */
int ah_device_comm_check(struct ah_group *group);
/* As if no lane had been opened. */
void ah_device_comm_forget(struct ah_group *group);

#endif
