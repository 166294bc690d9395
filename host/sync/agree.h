/* Do all ranks have the same list of tensors? */
#pragma once

#include "comm/group/group.h"
#include "tensor/tensor.h"

/* A collective. Check that every rank has as many tensors as rank 0, of the same shapes and dtypes. All fail together
 * with AH_EMISMATCH when one has not, and report the same difference. `what` names the list ("parameters"); `where` is
 * the script's line. */
int ah_agree(struct ah_group *group, const char *what, const char *where, struct ah_tensor **list, int count);
