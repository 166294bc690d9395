/* The group of all ranks of the job, opened on first use. */
#include <stdlib.h>
#include <string.h>

#include "comm/control/control_block.h"
#include "comm/control/topology.h"
#include "comm/group/backend.h"
#include "comm/join/rank.h"

/* Does a group of one open device communicators, so that a machine with one card can test them? */
static bool opens_alone(void)
{
    const char *text = getenv("ACCELHOST_NCCL_ALONE");
    return text && !strcmp(text, "1");
}

int ah_group_default(struct ah_group **out)
{
    struct ah_topology topology;
    struct ah_control_block *control;
    struct ah_group *group;
    *out = ah_group_first();
    if (*out)
        return 0;
    AH_TRY(ah_rank_attach(&control)); /* a child of a rank is no rank: its variables are removed */
    AH_TRY(ah_topology_from_environment(&topology));
    AH_TRY(ah_rank_rendezvous(&control));
    if (topology.size != topology.local_size && !control->hosts)
        return ah_fail(AH_EINVAL, "%d ranks with %d on this host, and no setting locates the others", topology.size,
                       topology.local_size);
    bool alone = topology.size == 1;
    if (alone && opens_alone())
        AH_TRY(ah_rank_control_alone(&control));
    else if (alone)
        control = NULL;
    struct ah_seat seat = {.control = control, .rank = topology.rank, .size = topology.size};
    const char *backend = control && control->hosts ? "spread" : control && control->header->recovers ? "keep" : "shm";
    AH_TRY(ah_group_open(&group, ah_backend_find(backend), &seat));
    ah_group_set_first(group);
    *out = group;
    return 0;
}
