/* A product is computed by its plan's first algorithm; where cuBLASLt refuses to run that, by the next. */
#include "cuda/vendor/product.h"

#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/times.h"
#include "cuda/vendor/product_plan.h"

/* May another algorithm do what this status refuses? */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_EXECUTION_FAILED;
}

static int run_plan(const struct ah_cublas *blas, struct ah_cuda_device *cuda, const char *op_name,
                    struct ah_cuda_plan *plan, const struct ah_cuda_product *product)
{
    cublasStatus_t status;
    AH_TRY(ah_cuda_plan_run(blas, cuda, plan, product, product->out.at, plan->chosen, &status));
    while (is_refusal(status) && plan->chosen + 1 < plan->count) {
        plan->chosen++;
        plan->tuned = true;
        AH_TRY(ah_cuda_plan_run(blas, cuda, plan, product, product->out.at, plan->chosen, &status));
    }
    plan->used = true;
    return ah_cublas_check(blas, status, op_name, "a product");
}

static double product_operations(const struct ah_cuda_plan_key *key)
{
    return 2.0 * (double)key->batch * (double)key->rows * (double)key->columns * (double)key->depth;
}

/* What it reads and writes once. */
static double product_bytes(const struct ah_cuda_plan_key *key)
{
    double rows = (double)key->rows, columns = (double)key->columns, depth = (double)key->depth;
    double item = (double)ah_dtype_size((enum ah_dtype)key->dtype);
    return (double)key->batch * (rows * depth + depth * columns + rows * columns) * item;
}

int ah_cuda_multiply(struct ah_device *device, const char *op_name, const struct ah_cuda_product *product)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    const struct ah_cublas *blas;
    struct ah_cuda_plan *plan;
    AH_TRY(ah_cublas_open(&blas));
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_see(cuda, product, sizeof *product));
    AH_TRY(ah_cuda_plan_find(blas, cuda, op_name, product, &plan));
    AH_TRY(ah_cuda_plan_tune(blas, device, plan, product));
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, op_name, "product");
    AH_TRY(run_plan(blas, cuda, op_name, plan, product));
    ah_cuda_span_end(cuda, span, product_bytes(&plan->key), product_operations(&plan->key));
    if (!cuda->waits || cuda->capturing)
        return 0;
    return ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: %s: a product", device->name, op_name);
}

void ah_cuda_product_forget(const struct ah_cuda_device *cuda)
{
    ah_cuda_plans_forget(cuda);
}
