/* cuBLASLt's descriptions as the simulator keeps them. */
#pragma once

#include "cuda/vendor/blas.h"
#include "state.h"

struct cublasLtContext {
    CUcontext context;
};

struct ah_cublas_matmul {
    int32_t compute, scale, pointer_mode, transpose_a, transpose_b;
    uint32_t epilogue;
    void *bias, *aux;
    int64_t bias_stride, aux_leading, aux_stride;
    int32_t aux_type, bias_type;
    const float *scale_a, *scale_b;
};

struct ah_cublas_layout {
    uint32_t type;
    int32_t order;
    uint64_t rows, columns;
    int64_t leading;
    int32_t batch;
    int64_t stride;
};

struct ah_cublas_preference {
    uint32_t search;
    uint64_t workspace;
    uint32_t schemes;
    uint32_t alignment[4];
};

#define CALL(result, field, symbol, parameters) SIM_API result symbol parameters;
#include "cuda/vendor/blas.def"
#undef CALL

namespace sim
{
/* One way of computing a product. */
struct Algorithm {
    uint64_t workspace;
    int parts;   /* of the depth, each added up by itself */
    bool rounds; /* the parts' sums to the type of the result, else to the compute type */
};

/* A product with all that it needs. */
struct Product {
    ah_cublas_matmul how;
    ah_cublas_layout a, b, c, d;
    double alpha, beta;
    const void *device_alpha, *device_beta; /* the numbers' addresses on the device instead */
    const char *at_a, *at_b, *at_c;
    char *at_d;
    Algorithm by;
};

/* Why these do not fit, in words; null when they do. */
const char *refuse_product(const Product &product);
/* On the stream's thread. */
void multiply(const Product &product);

size_t size_of_type(int type);
/* The number at an index, as a double; NaN's bits are not kept. */
double load_real(int type, const void *from, int64_t index);
void store_real(int type, void *to, int64_t index, double value);
} // namespace sim
