/* Tensors as text, by PyTorch's rules: one width for all numbers, scientific notation for wide ranges, large tensors
 * summarised. Reads elements only; knows no gradients (the caller passes suffixes). */
#pragma once

#include "tensor/tensor.h"

enum { AH_PRINT_PRECISION = 64 }; /* the largest precision */

/* The options of accelhost.set_printoptions, of all tensors that are printed from now on. */
struct ah_print_options {
    int precision;      /* digits behind the point, 0..AH_PRINT_PRECISION */
    double threshold;   /* number of elements above which a tensor is summarised; may be infinite */
    int64_t edge_items; /* of a summarised dim: printed at both ends, 0 or more */
    int line_width;     /* in columns, 1 or more */
    enum { AH_SCIENTIFIC_AUTO, AH_SCIENTIFIC_OFF, AH_SCIENTIFIC_ON } scientific; /* auto: where the range is wide */
};
#define AH_PRINT_DEFAULTS {.precision = 4, .threshold = 1000, .edge_items = 3, .line_width = 80}
extern struct ah_print_options ah_print_options;

/* Format a tensor as "tensor([[1., 2.],\n        [3., 4.]])" in *text, malloc'ed, which the caller frees. `suffix`
 * follows the values, for example "requires_grad=true", and `device` precedes the other suffixes; NULL or "" for none.
 * The tensor must be on the CPU and its storage not be marked channels-last (ah_host_copy ensures both). AH_ENOMEM. */
int ah_tensor_format(const struct ah_tensor *tensor, const char *device, const char *suffix, char **text);
