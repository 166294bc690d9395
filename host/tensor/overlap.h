/* Do tensors share memory? Addresses only, so for storages of any device. Tensors without elements share nothing. */
#pragma once

#include "tensor/tensor.h"

/* The same elements at the same places: reading one while the other is written element by element is safe. */
bool ah_same_memory(const struct ah_tensor *a, const struct ah_tensor *b);

/* Do the ranges of memory that the two span meet? True also where their elements interleave without meeting. */
bool ah_memory_meets(const struct ah_tensor *a, const struct ah_tensor *b);

/* AH_EINVAL when several elements share one place in memory: an expanded tensor. */
int ah_check_writable(const struct ah_tensor *out);
