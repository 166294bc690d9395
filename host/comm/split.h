/* Channels of a board among the groups of one rank. Included by host/comm only. */
#ifndef AH_COMM_SPLIT_H
#define AH_COMM_SPLIT_H

#include "comm/backend.h"

/* A part is freed: its channel is free when its peers are through with it. */
void ah_split_forget(struct ah_group *group);

#endif
