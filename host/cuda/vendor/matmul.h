/* Products of stacks of matrices by cuBLASLt, with plans kept for recurring shapes. */
#pragma once

#include "base/numeric/dtype.h"
#include "cuda/driver/api/device.h"

/* One operand: a stack of row-major matrices, possibly of their transposes. */
struct ah_cuda_matrix {
    uint64_t at;
    bool transposed; /* memory holds the transposes */
    int64_t ld;      /* elements from one row in memory to the next */
    int64_t stride;  /* elements from one matrix to the next; 0: the same for all */
};

/* The last operation on a product while it is still in registers: of one matrix, not of float64. */
enum ah_cuda_epilogue {
    AH_CUDA_PLAIN,
    AH_CUDA_GELU,       /* gelu of it, by the tanh formula; aux: 0, or where the product itself goes */
    AH_CUDA_GELU_SLOPE, /* times gelu's slope at aux, which has the result's shape */
    AH_CUDA_ROW_SUMS,   /* and the sums of a's rows, `rows` numbers at aux */
    AH_CUDA_COLUMN_SUMS, /* and the sums of b's columns, `columns` numbers at aux */
};

/* The elements of an operand in memory. */
enum ah_cuda_codes {
    AH_CUDA_AS_DTYPE, /* numbers of the product's dtype */
    AH_CUDA_E4M3,     /* 8-bit floats */
    AH_CUDA_E5M2,
};
enum { AH_CUDA_FP8_CAPABILITY = 89 }; /* the least that cuBLASLt multiplies these on */

/* Does the epilogue's aux fit a result of `columns` columns? */
static inline bool ah_cuda_epilogue_fits(enum ah_dtype dtype, int64_t columns)
{
    return dtype != AH_F64 && columns % 8 == 0;
}

struct ah_cuda_matmul {
    enum ah_dtype dtype; /* a floating one; halves are added up in float32, also in parts of `depth` */
    int64_t rows, columns, depth, batch;
    struct ah_cuda_matrix a, b, out; /* rows x depth, depth x columns, rows x columns (never transposed) */
    bool wide;     /* `out` of halves is float32 */
    bool tf32;     /* float32 may be rounded to tensor cores' 10 bits before it is multiplied */
    bool adds;     /* to the values of `out` */
    uint64_t bias; /* 0, or `columns` numbers that every row gets; not for float64 */
    enum ah_cuda_epilogue epilogue;
    uint64_t aux;  /* of the epilogue */
    /* Both or neither 8-bit floats, at most one in e5m2: a not transposed, b transposed, depth, columns, lines and
     * addresses multiples of 16; `dtype` is the result's, and the product is multiplied by the float32 numbers at the
     * addresses of the scales. */
    enum ah_cuda_codes a_codes, b_codes;
    uint64_t a_scale, b_scale;
};

/* out = a b + bias, or out + a b, then the epilogue, on the compute stream. No size may be 0. AH_EINVAL when cuBLASLt
 * is missing, AH_ENOTIMPL when it has no such product. */
int ah_cuda_multiply(struct ah_device *device, const char *op_name, const struct ah_cuda_matmul *product);

/* Forget the plans of a device that is closed. */
void ah_cuda_matmul_forget(const struct ah_cuda_device *cuda);
