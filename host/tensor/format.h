/* Tensors as text, by PyTorch's rules: four digits, one width for all, scientific notation for wide
 * ranges, large tensors summarised, lines of 80 columns. Reads elements only; knows no gradients
 * (the caller passes suffixes). */
#ifndef AH_TENSOR_FORMAT_H
#define AH_TENSOR_FORMAT_H

#include "tensor/tensor.h"

/* Format a tensor as "tensor([[1., 2.],\n        [3., 4.]])" in *text, malloc'ed, which the caller frees. `suffix`
 * follows the values, for example "requires_grad=true", and `device` precedes the other suffixes; NULL or "" for none.
 * The tensor must be on the CPU and its storage not be marked channels-last (ah_host_copy ensures both). AH_ENOMEM. */
int ah_tensor_format(const struct ah_tensor *tensor, const char *device, const char *suffix, char **text);

#endif
