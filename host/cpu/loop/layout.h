/* Activations as dense N, H, W, C arrays, whatever a tensor's own order is. */
#pragma once

#include <stdbool.h>

#include "cpu/loop/dense.h"

/* A float tensor (N, C, H, W) or (C, H, W) as a float array in the order N, H, W, C; with `half` its 16 bits as they
 * are. Zero-initialise *dense. */
int ah_nhwc_open(struct ah_dense *dense, struct ah_tensor *tensor, bool half);

/* The same as one of a kernel's arrays. */
const void *ah_array_nhwc(struct ah_arrays *a, struct ah_tensor *tensor, bool half);

/* An N, H, W, C float array (with `half` one of 16 bits) to fill for `out`, freshly allocated by the op. Closing with
 * `ok` marks a 4-d tensor channels-last; any other is rewritten to row-major. */
int ah_nhwc_out_open(struct ah_dense_out *dense, struct ah_tensor *out, bool half);
int ah_nhwc_out_close(struct ah_dense_out *dense, bool ok, bool half);
