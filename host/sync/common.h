/* Parameters stored once per host: in an arena shared by its ranks, filled and kept equal to other hosts' by the first
 * rank of each. */
#pragma once

#include "sync/arena.h"
#include "sync/layout.h"

struct ah_common;

/* A collective. AH_ENOTIMPL on all ranks when those of a host are not neighbours in the group, or have no memory in
 * common. */
int ah_common_new(struct ah_common **out, struct ah_group *group, size_t bytes, const char *where);
void ah_common_free(struct ah_common *common); /* NULL is ignored */
struct ah_arena *ah_common_arena(struct ah_common *common); /* borrowed */

/* Does this rank supply its host's values? */
bool ah_common_brings(const struct ah_common *common);
/* They are there: all hosts get those of rank 0. A collective. */
int ah_common_fill(struct ah_common *common, const char *where);

/* Every rank has written its slice of every bucket: every host gets those of the others. A collective. */
int ah_common_exchange(struct ah_common *common, const struct ah_layout *layout, const char *where);
