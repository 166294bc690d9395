/* Process groups: collectives behind one interface.
 *
 * This is their only entry point. Every call is checked, numbered, fingerprinted on the job's control block and
 * compared with the calls of the peers; mismatches, dead peers and timeouts become errors, and any failure of a
 * collective poisons the group: later calls fail with the first error's text. Backends only move data (backend.h). One
 * thread uses a group, a rank's Lua thread. Functions return 0 or a negative status (AH_EPEER, AH_EMISMATCH,
 * AH_ETIMEOUT, AH_EINVAL ...); a wrong argument (AH_EINVAL) is this rank's error only and does not poison.
 *
 * ACCELHOST_DEBUG=comm prints a line for each call. */
#pragma once

#include "comm/control/collective.h"

struct ah_group;
struct ah_work; /* an asynchronous collective under way */

/* The job's group: "self" for one process, "shm" when the launcher handed us a control block or the ranks have met
 * (meet.h). One per process, opened on first use, closed by the end of the process. Borrowed. */
int ah_group_default(struct ah_group **out);
bool ah_group_default_is_open(void);

/* Create a subgroup of the ranks that pass the same color, ordered by key, then by rank. A collective of the whole
 * parent; *out is NULL for ranks whose color is negative. Calls of different groups do not wait for each other.
 * AH_EINVAL on all members when one of them is in too many groups at once. */
int ah_group_split(struct ah_group **out, struct ah_group *parent, int color, int key, const char *where);

/* Restart the job's group and its subgroups, counting from 0, as if nothing had failed: pending works and messages are
 * dropped. Requires a moment in which no rank of the job is in any call; it ends, for all of them, when every rank has
 * called this. AH_ENOTIMPL when the backend does not support it. */
int ah_groups_renew(void);
/* Return the number of restarts of a group. */
uint32_t ah_group_epoch(const struct ah_group *group);
/* Has a group of this process failed? */
bool ah_groups_have_failed(void);
/* Write the status of at most `room` open groups; returns their number. Idle ranks whose `calls` differ have not made
 * the same calls. */
struct ah_group_status {
    uint64_t identity; /* of the members: the same number on all of them */
    uint32_t calls; /* made by this rank */
};
int ah_groups_status(struct ah_group_status *status, int room);

/* Add and drop a reference; the last one frees the group. Not collective. */
struct ah_group *ah_group_retain(struct ah_group *group);
void ah_group_close(struct ah_group *group);

/* Ranks count from 0. */
int ah_group_rank(const struct ah_group *group);
int ah_group_size(const struct ah_group *group);
int ah_group_host(const struct ah_group *group, int rank);  /* the number of its host, from 0 */
const char *ah_group_backend(const struct ah_group *group); /* "self", "shm" */
/* May the group open a device communicator? One of a single rank only with ACCELHOST_NCCL_ALONE. */
bool ah_group_communicates(const struct ah_group *group);
/* Return the longest time that a call waits, after setting it to `set_ns` if that is above 0. */
int64_t ah_group_timeout(struct ah_group *group, int64_t set_ns);

/* Set *out to whether the group has a device communicator (device_comm.h) for `device`, which holds a call's buffers;
 * if not, copy the bytes to the host. `type`: the device type's communicator type, or NULL. Collective at the group's
 * first call, cheap after that. */
struct ah_device;
struct ah_device_comm_type;
int ah_group_reach(struct ah_group *group, struct ah_device *device, const struct ah_device_comm_type *type,
                   const char *where, bool *out);
/* Does the group's device communicator support the call? Same on every rank; otherwise copy the bytes to the host. */
bool ah_group_takes(const struct ah_group *group, const struct ah_collective *call);
/* "nccl"; NULL: the group has none, or none yet. */
const char *ah_group_device_comm(const struct ah_group *group);
bool ah_group_has_asked(const struct ah_group *group); /* so that it is known whether it has one */
bool ah_group_may_have_device_comm(const struct ah_group *group);
/* Choose its device communicator, before the first call: any, none (all data are copied through the host), or it is an
 * error not to have one. The same on every rank; parts begin with their parent's. Returns the choice before. */
enum ah_device_comm_choice { AH_DEVICE_COMM_ANY, AH_DEVICE_COMM_NONE, AH_DEVICE_COMM_ONLY };
enum ah_device_comm_choice ah_group_choose_device_comm(struct ah_group *group, enum ah_device_comm_choice choice);
/* Carry out all works that were begun, in all groups: waits until the peers have begun them too. */
int ah_groups_carry(void);
/* Before the end of the process: wait until devices have completed all work that peers may depend on. */
int ah_groups_settle(void);

/* Make a call (ah_collective_...) and wait until its result is here. */
int ah_group_run(struct ah_group *group, struct ah_collective call);

/* Begin a collective of any kind; progress is made in later calls, in ah_work_test and in
 * ah_work_wait, which frees the work. The buffers must stay untouched in between. */
int ah_group_start(struct ah_group *group, struct ah_collective call, struct ah_work **out);
int ah_work_test(struct ah_work *work, bool *done);
int ah_work_wait(struct ah_work *work);
/* Order all later work of the device after a work there, without waiting for the peers' hosts; *ordered false where
 * that requires a wait. Wait for the work, or abandon it, afterwards. */
int ah_work_order(struct ah_work *work, bool *ordered);
int ah_work_wait_note(struct ah_work *work, uint32_t *note);
/* Abandon a work whose result is not needed. This rank still does its part of it in later calls; the buffer of an
 * all_reduce must stay in place if it is in the group's memory, others may be freed. */
void ah_work_abandon(struct ah_work *work);
/* The same for buffers on a device, which must stay allocated: `release(held)` is called when they may be freed,
 * perhaps at once. */
void ah_work_abandon_held(struct ah_work *work, void (*release)(void *held), void *held);

/* Memory that peers can reach without copying: collectives on buffers inside it are zero-copy. Zero-filled, 64-byte
 * aligned, private to the job. For "self" it is plain memory. Not a collective. Memory freed while works are pending is
 * used again only after they have completed; the group must outlive its memory (retain it). */
int ah_group_alloc(struct ah_group *group, size_t bytes, void **out);
void ah_group_free(struct ah_group *group, void *memory, size_t bytes);
/* Discard the contents of a piece of such memory: it is zero from now on, and its whole pages are returned to the
 * system until they are touched. No peer may be reading there. */
void ah_group_discard(struct ah_group *group, void *memory, size_t bytes);

/* Memory that all ranks of a host share, zero at first: each rank sees the writes of the others, in an order that the
 * callers ensure. A collective; AH_ENOTIMPL on all where ranks have no memory in common. Every rank releases it by
 * ah_group_unshare, at any time; the memory is reused when all have. */
int ah_group_share(struct ah_group *group, size_t bytes, const char *where, void **out);
void ah_group_unshare(struct ah_group *group, void *memory, size_t bytes);

/* Return pages of freed memory to the system; NULL: of the job's group, if it is open. */
void ah_group_trim(struct ah_group *group);
