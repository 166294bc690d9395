/* The three products of a convolution on memory of a known order: by cuDNN (conv_dnn.c), or by matrices of windows
 * (conv_patches.c). */
#pragma once

#include "base/numeric/dtype.h"
#include "cuda/driver/api/device.h"
#include "ops/nn/conv.h"

enum ah_cuda_conv_kind { AH_CONV_FORWARD, AH_CONV_GRAD_INPUT, AH_CONV_GRAD_WEIGHT };

/* Two of the tensors are read, the third, which the kind names, is written. */
struct ah_cuda_conv {
    enum ah_cuda_conv_kind kind;
    enum ah_dtype dtype; /* of all three; halves are added up in float32 */
    bool last;           /* channels behind the pixels, in the weight too */
    bool tf32;           /* float32 may be rounded to tensor cores' 10 bits before it is multiplied */
    const struct ah_conv *shape;
    uint64_t input, weight, output; /* addresses, multiples of 16 for cuDNN */
};

/* Has cuDNN a way? It is chosen by heuristics and kept: 1 there is one, 0 there is none or no cuDNN. The addresses do
 * not matter. */
int ah_cuda_dnn_takes(struct ah_device *device, const struct ah_cuda_conv *conv);

/* Compute it by cuDNN: 1 done, 0 no way within the memory that is left (nothing was written), negative an error. */
int ah_cuda_dnn_convolve(struct ah_device *device, const char *op_name, const struct ah_cuda_conv *conv);

/* Compute it, row-major, by products of matrices (cuda/vendor/matmul.h). */
int ah_cuda_patches_convolve(struct ah_device *device, const char *op_name, const struct ah_cuda_conv *conv);

/* Drop the cached objects of a device that is closed. */
void ah_cuda_dnn_forget(const struct ah_cuda_device *cuda);
