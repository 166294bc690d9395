/* Tensors that no step changes, as the codes of quantised weights: stored once per host, in memory that its ranks
 * share. */
#pragma once

#include "comm/group/group.h"
#include "tensor/tensor.h"

/* Move the storages of dense CPU tensors to common memory, with the values of rank 0. A collective; AH_EMISMATCH when
 * the tensors of ranks have other sizes. *shared is false, and nothing is changed, where the ranks have no memory in
 * common. */
int ah_constants_share(struct ah_tensor **tensors, int count, struct ah_group *group, const char *where, bool *shared);
