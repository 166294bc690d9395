/* Channels of a control block among the groups of one rank. Included by host/comm only.
 *
 * Circle: open, subgroup: a part of a group is opened like any group, and closing any group gives up its group block.
 */
#ifndef AH_COMM_SUBGROUP_H
#define AH_COMM_SUBGROUP_H

#include "comm/group/backend.h"

/* A part is closed: when its group block is free only once its peers are through with it, its root keeps it until then
 * (root->retired), and the answer is true. */
bool ah_split_retire(struct ah_group *group);

#endif
