/* Plans of matrix products: the description that cuBLASLt needs and the algorithms that it proposes, kept by shape.
 *
 * The table has AH_CUDA_PLANS plans; a new one replaces one that was not used since the table was last searched for a
 * place. Lua thread only.
 *
 * Circle: matmul, matmul_tune: a product has its plan tuned, and tuning runs the plan's candidates. */
#pragma once

#include "cuda/vendor/blas.h"
#include "cuda/vendor/matmul.h"

enum { AH_CUDA_PLANS = 4096, AH_CUDA_CANDIDATES = 8 };

/* Identifies a plan; padding is zero. */
struct ah_cuda_plan_key {
    int64_t rows, columns, depth, batch;
    int64_t a_ld, b_ld, a_stride, b_stride, out_stride;
    int32_t ordinal, dtype, a_transposed, b_transposed, epilogue, aligned, tf32, wide;
    int32_t a_codes, b_codes, adds;
    int32_t unused; /* a key is whole words */
};

struct ah_cuda_plan {
    struct ah_cuda_plan_key key;
    int next; /* in its bucket: an index + 1, or 0 */
    bool made, recent;
    bool used;  /* a product was computed by it */
    bool tuned; /* its algorithms were compared, or need not be */
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulHeuristicResult_t candidate[AH_CUDA_CANDIDATES]; /* best first */
    int count;                                                     /* of candidates; 0: cuBLASLt has no such product */
    int chosen;                                                    /* those before it failed */
};

/* Return the plan of a product, a kept or a new one, with the addresses of the product's epilogue. AH_ENOTIMPL where
 * cuBLASLt has no such product. `op_name` is for messages. */
int ah_cuda_plan_find(const struct ah_cublas *blas, const struct ah_cuda_device *cuda, const char *op_name,
                      const struct ah_cuda_matmul *product, struct ah_cuda_plan **out);

/* Set the addresses of a product's epilogue in the description of its plan. */
cublasStatus_t ah_cuda_plan_point(const struct ah_cublas *blas, struct ah_cuda_plan *plan,
                                  const struct ah_cuda_matmul *product);

/* Queue a product on the compute stream by one of its plan's candidates. `addend`: the address of the summand, where
 * the product adds. *status is cuBLASLt's answer; AH_ENOMEM when there is no memory for the workspace. */
int ah_cuda_plan_run(const struct ah_cublas *blas, struct ah_cuda_device *cuda, const struct ah_cuda_plan *plan,
                     const struct ah_cuda_matmul *product, uint64_t addend, int candidate, cublasStatus_t *status);

/* Drop the plans of a device and close its handle of cuBLASLt. */
void ah_cuda_plans_forget(const struct ah_cuda_device *cuda);

/* Time a plan's candidates and move the fastest of those to the front whose results are equal to the first one's in
 * every bit (matmul_tune.c). Once for each plan, at its second use outside of a capture; products of 8-bit floats keep
 * the first. Leaves the plan as it was
 * where memory is short. */
int ah_cuda_plan_tune(const struct ah_cublas *blas, struct ah_device *device, struct ah_cuda_plan *plan,
                      const struct ah_cuda_matmul *product);

/* 0, or a failure's text from cuBLASLt's status. */
int ah_cublas_check(const struct ah_cublas *blas, cublasStatus_t status, const char *op_name, const char *what);
