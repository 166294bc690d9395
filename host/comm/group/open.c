/* Opening and closing groups: the table of backends, the common part of every group, and the process's own first
 * group. A group is freed when its last holder lets go; a part of a group holds its root, which counts the group
 * blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/process/threads.h"
#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm/group/device_comm.h"
#include "comm/group/subgroup.h"

enum { BACKENDS = 16, SPINS = 2000, FEW_SPINS = 20 };
static const double timeout_default_s = 600;

static const struct ah_backend *backends[BACKENDS] = {&ah_self_backend, &ah_shm_backend, &ah_spread_backend,
                                                    &ah_replay_backend};

int ah_backend_register(const struct ah_backend *backend)
{
    int at = 0;
    while (at < BACKENDS && backends[at]) {
        if (backends[at] == backend)
            return 0;
        if (!strcmp(backends[at++]->name, backend->name))
            return ah_fail(AH_EINVAL, "a backend of the name %s is registered already", backend->name);
    }
    if (at == BACKENDS)
        return ah_fail(AH_EINVAL, "no room for the backend %s: %d are registered", backend->name, BACKENDS);
    backends[at] = backend;
    return 0;
}

const struct ah_backend *ah_backend_find(const char *name)
{
    for (int i = 0; i < BACKENDS && backends[i]; i++)
        if (!strcmp(backends[i]->name, name))
            return backends[i];
    return NULL;
}

/* Groups. */

void ah_group_dispose(struct ah_group *group)
{
    free(group->peer);
    free(group->member);
    free(group);
}

uint64_t ah_group_identity(const struct ah_group *group)
{
    uint64_t hash = group->base;
    for (int r = 0; r < group->size; r++)
        hash = (hash ^ (uint64_t)group->member[r]) * 0x100000001b3u;
    return hash;
}

/* The own group block, which another group may have used before. */
static void clear_group(const struct ah_group *group, struct ah_group_block *mine)
{
    uint64_t members[AH_MAX_RANKS / 64] = {0};
    for (int r = 0; r < group->size; r++)
        members[group->member[r] / 64] |= (uint64_t)1 << group->member[r] % 64;
    for (int i = 0; i < AH_MAX_RANKS / 64; i++)
        atomic_store(&mine->members[i], members[i]);
    for (int i = 0; i < AH_GROUP_MESSAGES; i++)
        atomic_store(&mine->header[i].state, AH_MESSAGE_FREE);
    atomic_store(&mine->wanted_from, 0);
}

static int take_seat(struct ah_group *group, const struct ah_seat *seat)
{
    group->peer = calloc((size_t)seat->size, sizeof *group->peer);
    group->member = calloc((size_t)seat->size, sizeof *group->member);
    if (!group->peer || !group->member)
        return ah_fail(AH_ENOMEM, "a group of %d ranks: out of memory", seat->size);
    for (int r = 0; r < seat->size; r++) {
        group->member[r] = seat->member ? seat->member[r] : r;
        if (seat->control)
            group->peer[r] = &ah_rank_entry(seat->control, group->member[r])->block[seat->block];
    }
    if (seat->control)
        clear_group(group, group->peer[seat->rank]);
    group->identity = ah_group_identity(group);
    group->timeout_ns = seat->timeout_ns;
    group->stall_warning_ns = seat->stall_warning_ns;
    if (!group->timeout_ns)
        AH_TRY(ah_seconds_from_environment("ACCELHOST_TIMEOUT", timeout_default_s, &group->timeout_ns));
    if (!group->stall_warning_ns)
        AH_TRY(ah_seconds_from_environment("ACCELHOST_PATIENCE", AH_STALL_WARNING_S, &group->stall_warning_ns));
    return 0;
}

int ah_group_open(struct ah_group **out, const struct ah_backend *backend, const struct ah_seat *seat)
{
    int status;
    if (seat->size == 1)
        backend = &ah_self_backend;
    struct ah_group *group = calloc(1, backend->group_bytes);
    if (!group)
        return ah_fail(AH_ENOMEM, "a group of %d ranks: out of memory", seat->size);
    group->backend = backend;
    atomic_init(&group->refs, 1);
    group->rank = seat->rank;
    group->size = seat->size;
    group->control = seat->control;
    group->block = seat->block;
    group->base = group->issued = group->done = group->ring_safe = group->sent = seat->base;
    group->last = &group->first;
    /* With more ranks of a host than processors whom we wait for may need this one. */
    group->spins = !seat->control || seat->control->header->local <= ah_cpu_count() ? SPINS : FEW_SPINS;
    group->logs = ah_log_enabled("comm");
    group->root = seat->root ? seat->root : group;
    AH_TRYGO(take_seat(group, seat), failed);
    if (backend->open)
        AH_TRYGO(backend->open(group), failed);
    if (seat->root) {
        ah_group_retain(seat->root);
        group->parts = seat->root->parts;
        seat->root->parts = group;
    }
    *out = group;
    return 0;
failed:
    ah_group_dispose(group);
    return status;
}

struct ah_group *ah_group_retain(struct ah_group *group)
{
    atomic_fetch_add(&group->refs, 1);
    return group;
}

static void free_list(struct ah_work *work)
{
    while (work) {
        struct ah_work *next = work->next;
        ah_work_free(work, false);
        work = next;
    }
}

/* Free the group. It has no works with other references: their owner holds the group. */
static void group_dismantle(struct ah_group *group)
{
    struct ah_group *root = group->root;
    for (struct ah_group **at = &root->parts; *at && root != group; at = &(*at)->parts) {
        if (*at != group)
            continue;
        *at = group->parts;
        break;
    }
    free_list(group->first);
    free_list(group->abandoned);
    ah_message_drop_all(group);
    ah_device_comm_forget(group);
    if (group->backend->close)
        group->backend->close(group);
    while (root == group && group->retired) {
        struct ah_group *closed = group->retired;
        group->retired = closed->retired;
        ah_group_dispose(closed);
    }
    if (!ah_subgroup_retire(group))
        ah_group_dispose(group);
    if (root != group)
        ah_group_close(root);
}

void ah_group_close(struct ah_group *group)
{
    if (group && atomic_fetch_sub(&group->refs, 1) == 1)
        group_dismantle(group);
}

/* The process's own. */

static struct ah_group *first_group;

struct ah_group *ah_group_first(void)
{
    return first_group;
}

void ah_group_set_first(struct ah_group *group)
{
    first_group = group;
}

bool ah_group_default_is_open(void)
{
    return first_group != NULL;
}

void ah_group_trim(struct ah_group *group)
{
    group = group ? group : first_group;
    if (group && group->backend->trim)
        group->backend->trim(group);
}
