/* Passes over gradients: clipping by their common norm or by value, unscaling. Lua thread only. */
#pragma once

#include "tensor/tensor.h"

/* Scale the gradients so that their norm of order p (above 0, or infinite) is at most max_norm. *norm is a new 0-dim
 * tensor with the norm before: float64 when all gradients are, else float32. With `strict` a norm that is not finite is
 * AH_EINVAL and nothing changes. */
int ah_clip_grad_norm(struct ah_tensor **grad, int count, double max_norm, double p, bool strict,
                      struct ah_tensor **norm);

/* Clamp every element to -limit..limit. */
int ah_clip_grad_value(struct ah_tensor **grad, int count, double limit);

/* Multiply the gradients by `factor`; *overflow: was an element infinite or NaN before? */
int ah_unscale_grad(struct ah_tensor **grad, int count, double factor, bool *overflow);

/* The same without waiting for the device, by tensors of one element there: `factor`, a float64, and `found`, an int32,
 * which is set to 1 or 0. Only where ah_unscales_there returns true. */
int ah_unscale_grad_there(struct ah_tensor **grad, int count, struct ah_tensor *factor, struct ah_tensor *found);

/* Are the gradients all of one device, which can that? */
bool ah_unscales_there(struct ah_tensor **grad, int count);
