/* Channels of a control block among the groups of one rank. Included by host/comm only.
 *
 * Circle: open, subgroup: a subgroup is opened like any group, and closing any group releases its group block. */
#pragma once

#include "comm/group/backend.h"

/* Close a subgroup: if peers have not completed all its calls, keep its group block in root->retired until they have,
 * and return true. */
bool ah_subgroup_retire(struct ah_group *group);
