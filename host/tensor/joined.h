/* Tensors that are slices of one. */
#pragma once

#include "tensor/tensor.h"

/* If `count` tensors are stored in one memory as consecutive slices, in this order, along dim `dim` of one tensor, *out
 * is that tensor, a view. Else *out is NULL. AH_ENOMEM. */
int ah_tensor_joined(struct ah_tensor **out, struct ah_tensor *const *slice, int count, int dim);
