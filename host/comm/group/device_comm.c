/* Open a device communicator: all ranks exchange, by a call on the group's own backend, the identifiers of their cards,
 * which must differ; then the first rank broadcasts its ticket, and all open the communicator together. */
#include "comm/group/device_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/notice.h"
#include "comm/group/device_p2p.h"

struct entry {
    int64_t usable, card[AH_DEVICE_COMM_CARD / sizeof(int64_t)];
};
enum { WORDS = sizeof(struct entry) / sizeof(int64_t) };

static int device_comm_run(struct ah_group *group, struct ah_collective call, const char *where)
{
    call.purpose = AH_FOR_DEVICE_COMM;
    call.where = where;
    return ah_group_run(group, call);
}

/* Two ranks that share a card. */
static bool find_pair(const struct entry *table, int size, int *one, int *two)
{
    for (*two = 1; *two < size; ++*two)
        for (*one = 0; *one < *two; ++*one)
            if (!memcmp(table[*one].card, table[*two].card, sizeof table->card))
                return true;
    return false;
}

/* Return why there is no communicator; false if there can be one. The same on every rank, but for the words of a
 * missing library, which are those of the first rank that misses it. */
static bool find_reason(const struct ah_group *group, const struct entry *table, const char *missing, char *text,
                        size_t room)
{
    int one, two;
    for (int r = 0; r < group->size; r++) {
        if (table[r].usable)
            continue;
        if (r == group->rank)
            snprintf(text, room, "%s", missing);
        else
            snprintf(text, room, "rank %d cannot use it", group->member[r]);
        return true;
    }
    if (!find_pair(table, group->size, &one, &two))
        return false;
    snprintf(text, room, "ranks %d and %d share one card, and each rank needs its own card", group->member[one],
             group->member[two]);
    return true;
}

static int exchange_cards(struct ah_group *group, struct ah_device *device, const struct ah_device_comm_type *type,
                          const char *where, char *reason, size_t room)
{
    struct entry mine = {0};
    AH_FREED struct entry *table = malloc((size_t)group->size * sizeof *table);
    AH_TRY_MEMORY(table, "out of memory");
    uint8_t card[AH_DEVICE_COMM_CARD] = {0};
    mine.usable = type->card(device, card) == 0;
    memcpy(mine.card, card, sizeof mine.card);
    char missing[512];
    snprintf(missing, sizeof missing, "%s", mine.usable ? "" : ah_error_text());
    AH_TRY(device_comm_run(group, ah_collective_all_gather(table, &mine, WORDS, AH_I64), where));
    reason[0] = '\0';
    find_reason(group, table, missing, reason, room);
    return 0;
}

/* A rank on which it fails poisons the group, so that the others do not wait for it. */
static int open_together(struct ah_group *group, struct ah_device *device, const struct ah_device_comm_type *type,
                         const char *where)
{
    uint8_t ticket[AH_DEVICE_COMM_TICKET] = {0};
    struct ah_device_comm *comm;
    if (group->rank == 0)
        AH_TRY(ah_group_poison(group, type->invite(device, ticket)));
    AH_TRY(device_comm_run(group, ah_collective_broadcast(ticket, sizeof ticket, AH_U8, 0), where));
    AH_TRY(ah_group_poison(group, type->open(group, device, ticket, &comm)));
    comm->type = type;
    comm->group = group;
    comm->device = device;
    group->device_comm = comm;
    return 0;
}

int ah_group_reach(struct ah_group *group, struct ah_device *device, const struct ah_device_comm_type *type,
                   const char *where, bool *out)
{
    char reason[640];
    *out = false;
    if (group->choice == AH_DEVICE_COMM_NONE)
        return 0;
    if (group->device_comm && group->device_comm->device != device)
        return ah_fail(AH_EINVAL,
                       "%s: a rank's tensors of a group must be on one device, and others of this one were on "
                       "another",
                       group->device_comm->type->moves.name);
    bool communicates = ah_group_communicates(group);
    if (group->device_comm_asked || !communicates || !type) {
        *out = group->device_comm != NULL;
        if (!*out && group->choice == AH_DEVICE_COMM_ONLY && communicates)
            return ah_fail(AH_EINVAL, "this device has no collectives");
        return 0;
    }
    AH_TRY(ah_group_check_health(group, type->moves.name));
    AH_TRY(exchange_cards(group, device, type, where, reason, sizeof reason));
    if (!reason[0])
        AH_TRY(open_together(group, device, type, where));
    else if (group->choice == AH_DEVICE_COMM_ONLY)
        return ah_group_poison(group, ah_fail(AH_EINVAL, "%s: %s", type->moves.name, reason));
    else if (group->rank == 0 && group->root == group)
        ah_notice("collectives on this device go through the host's memory, not by %s: %s", type->moves.name, reason);
    group->device_comm_asked = true;
    *out = group->device_comm != NULL;
    return 0;
}

bool ah_group_takes(const struct ah_group *group, const struct ah_collective *call)
{
    return group->device_comm && group->device_comm->type->takes(call);
}

const char *ah_group_device_comm(const struct ah_group *group)
{
    return group->device_comm ? group->device_comm->type->moves.name : NULL;
}

bool ah_group_has_asked(const struct ah_group *group)
{
    return group->device_comm_asked;
}

bool ah_group_may_have_device_comm(const struct ah_group *group)
{
    return group->choice != AH_DEVICE_COMM_NONE;
}

enum ah_device_comm_choice ah_group_choose_device_comm(struct ah_group *group, enum ah_device_comm_choice choice)
{
    enum ah_device_comm_choice before = group->choice;
    group->choice = choice;
    return before;
}

int ah_device_comm_check(struct ah_group *group)
{
    if (group->poison)
        return 0;
    if (group->device_comm)
        AH_TRY(ah_group_poison(group, group->device_comm->type->check(group->device_comm)));
    return ah_group_poison(group, ah_device_p2p_check_all(group));
}

void ah_device_comm_forget(struct ah_group *group)
{
    if (group->device_comm)
        group->device_comm->type->close(group->device_comm);
    group->device_comm = NULL;
    group->device_comm_asked = false;
    ah_device_p2p_close_all(group);
}

int ah_groups_carry(void)
{
    struct ah_group *root = ah_group_first();
    for (struct ah_group *group = root; group; group = group == root ? root->parts : group->parts)
        if (group->first && !group->poison)
            AH_TRY(ah_group_poison(group, ah_group_advance(group, group->issued, true)));
    return 0;
}

int ah_groups_settle(void)
{
    int status = 0;
    struct ah_group *root = ah_group_first();
    for (struct ah_group *group = root; group; group = group == root ? root->parts : group->parts) {
        int settled = group->device_comm && !group->poison ? group->device_comm->type->settle(group->device_comm) : 0;
        settled = settled < 0 || group->poison ? settled : ah_device_p2p_settle_all(group);
        status = status < 0 ? status : ah_group_poison(group, settled);
    }
    return status;
}
