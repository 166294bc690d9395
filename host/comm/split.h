/* Channels of a board among the groups of one rank. Included by host/comm only.
 *
 * Circle: split, open: a part of a group is opened like any group, and closing any group gives up its channel. */
#ifndef AH_COMM_SPLIT_H
#define AH_COMM_SPLIT_H

#include "comm/backend.h"

/* A part is freed: its channel is free when its peers are through with it. */
void ah_split_forget(struct ah_group *group);

#endif
