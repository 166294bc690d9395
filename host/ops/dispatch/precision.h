/* Settings that allow computing in less than the dtype's precision. The CPU ignores them: its float32 is float32. Lua
 * thread only. */
#pragma once

#include <stdbool.h>

/* PyTorch's float32_matmul_precision. On CUDA "high" and "medium" are one: TF32, float32 rounded to 10 bits. */
enum ah_matmul_precision { AH_MATMUL_HIGHEST, AH_MATMUL_HIGH, AH_MATMUL_MEDIUM, AH_MATMUL_PRECISIONS };

struct ah_precision {
    enum ah_matmul_precision matmul; /* of products of float32 matrices */
    bool conv_tf32;                  /* may convolutions of float32 be computed in TF32? */
    bool dnn;                        /* may cuDNN compute convolutions and attention at all? */
};

/* Products as float32, convolutions in TF32 by cuDNN, as in PyTorch; TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 begins with
 * products at "high". */
struct ah_precision *ah_precision(void);

const char *ah_matmul_precision_name(enum ah_matmul_precision precision);

/* AH_EINVAL lists the names. */
int ah_matmul_precision_parse(const char *name, enum ah_matmul_precision *out);
