/* Restart groups after a failure, at an interactive prompt, where the processes continue. All ranks are at rest then:
 * the remains of calls are this process's own, and the group blocks on the control block are as a new job's. */
#include "comm/control/control_block.h"
#include "comm/group/backend.h"
#include "comm/group/device_comm.h"

static void clear_group(struct ah_group_block *block)
{
    for (int c = 0; c < AH_COUNTERS; c++)
        atomic_store(&block->counter[c], 0);
    for (int i = 0; i < AH_GROUP_MESSAGES; i++)
        atomic_store(&block->header[i].state, AH_MESSAGE_FREE);
    atomic_store(&block->base, 0);
    atomic_store(&block->wanted_from, 0);
}

static void group_renew(struct ah_group *group)
{
    ah_group_forget_works(group);
    ah_device_comm_forget(group);
    ah_message_forget(group);
    group->base = group->issued = group->done = group->ring_safe = group->sent = 0;
    group->poison = 0;
    group->epoch++;
    group->identity = ah_group_identity(group);
    if (group->backend->renew)
        group->backend->renew(group);
}

/* Close subgroups whose group blocks a peer might have been reading. */
static void dispose_retired(struct ah_group *root)
{
    while (root->retired) {
        struct ah_group *closed = root->retired;
        root->retired = closed->retired;
        root->blocks &= ~(1u << closed->block);
        ah_group_dispose(closed);
    }
}

int ah_groups_renew(void)
{
    struct ah_group *root = ah_group_first();
    if (!root || !root->control)
        return 0;
    if (!root->backend->renew)
        return ah_fail(AH_ENOTIMPL, "groups of %s cannot be restarted", root->backend->name);
    struct ah_rank_entry *slot = ah_rank_entry(root->control, root->member[root->rank]);
    for (int c = 0; c < AH_MAX_GROUPS; c++)
        clear_group(&slot->block[c]);
    dispose_retired(root);
    group_renew(root);
    for (struct ah_group *part = root->parts; part; part = part->parts)
        group_renew(part);
    atomic_store(&slot->blamed, -1);
    atomic_store(&slot->group_status, 0);
    return 0;
}

uint32_t ah_group_epoch(const struct ah_group *group)
{
    return group->epoch;
}

bool ah_groups_have_failed(void)
{
    struct ah_group *root = ah_group_first();
    bool failed = root && root->poison;
    for (struct ah_group *part = root ? root->parts : NULL; part; part = part->parts)
        failed |= part->poison != 0;
    return failed;
}

int ah_groups_status(struct ah_group_status *status, int room)
{
    struct ah_group *root = ah_group_first();
    int count = 0;
    for (struct ah_group *group = root; group && count < room; group = group == root ? root->parts : group->parts)
        status[count++] = (struct ah_group_status){group->identity, group->issued - group->base};
    return count;
}
