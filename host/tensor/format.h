/* Tensors as text, by PyTorch's rules: four digits, one width for all, scientific notation for wide
 * ranges, large tensors summarised, lines of 80 columns. Reads elements only; knows no gradients
 * (the caller passes suffixes). */
#ifndef AH_TENSOR_FORMAT_H
#define AH_TENSOR_FORMAT_H

#include "tensor/tensor.h"

/* "tensor([[1., 2.],\n        [3., 4.]])" into *text, malloc'ed, the caller frees it. `suffix` is
 * put behind the values, for example "requires_grad=true"; NULL for none. The storage must not be
 * marked channels-last (call ah_tensor_row_major first). AH_ENOMEM. */
int ah_tensor_format(const struct ah_tensor *tensor, const char *suffix, char **text);

#endif
