/* A plan is what cuBLASLt needs to know of a product, and the algorithm that it chose; the last PLANS of them are kept.
 * cuBLASLt counts matrices by columns, so it is asked for the transpose: out' = b' a'. */
#include "cuda/product.h"

#include <string.h>

#include "cuda/blas.h"
#include "cuda/capture.h"
#include "cuda/memory.h"
#include "cuda/times.h"

enum { PLANS = 256 };
#define WORKSPACE ((size_t)32 << 20)

/* What tells plans apart, padding included. */
struct key {
    int64_t rows, columns, depth, batch;
    int64_t a_ld, b_ld, a_stride, b_stride, out_stride;
    int32_t ordinal, dtype, a_transposed, b_transposed, epilogue, aligned, tf32, wide;
};

static struct plan {
    struct key key;
    bool made;
    bool missing;  /* cuBLASLt has no such product */
    uint64_t used; /* when it was used last */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulHeuristicResult_t choice;
} plans[PLANS];
static uint64_t uses;
static cublasLtHandle_t handles[AH_CUDA_DEVICES];

static int check(const struct ah_cublas *blas, cublasStatus_t status, const char *who, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return ah_fail(status == CUBLAS_STATUS_NOT_SUPPORTED ? AH_ENOTIMPL : AH_EIO, "%s: cuBLASLt: %s: %s", who, what,
                   blas->status_name(status));
}

static int type_of(enum ah_dtype dtype)
{
    return dtype == AH_F64 ? CUDA_R_64F : dtype == AH_F16 ? CUDA_R_16F : dtype == AH_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static void drop(const struct ah_cublas *blas, struct plan *plan)
{
    if (plan->product)
        blas->product_destroy(plan->product);
    if (plan->a)
        blas->layout_destroy(plan->a);
    if (plan->b)
        blas->layout_destroy(plan->b);
    if (plan->out)
        blas->layout_destroy(plan->out);
    *plan = (struct plan){.made = false};
}

static cublasStatus_t make_layout(const struct ah_cublas *blas, cublasLtMatrixLayout_t *out, int64_t count, int type,
                                  int64_t rows, int64_t columns, int64_t ld, int64_t stride)
{
    int32_t batch = (int32_t)count;
    cublasStatus_t status = blas->layout_create(out, type, (uint64_t)rows, (uint64_t)columns, ld);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->layout_set(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->layout_set(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return status;
}

static uint32_t epilogue_of(const struct ah_cuda_product *product)
{
    switch (product->epilogue) {
    case AH_CUDA_GELU:
        if (product->aux)
            return product->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        return product->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case AH_CUDA_GELU_SLOPE:
        return CUBLASLT_EPILOGUE_DGELU;
    case AH_CUDA_ROW_SUMS: /* of b, as cuBLASLt sees it */
        return CUBLASLT_EPILOGUE_BGRADB;
    case AH_CUDA_COLUMN_SUMS:
        return CUBLASLT_EPILOGUE_BGRADA;
    default:
        return product->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

/* The addresses of an epilogue. */
static cublasStatus_t set_addresses(const struct ah_cublas *blas, struct plan *plan,
                                    const struct ah_cuda_product *product)
{
    bool sums = product->epilogue == AH_CUDA_ROW_SUMS || product->epilogue == AH_CUDA_COLUMN_SUMS;
    uint64_t bias = sums ? product->aux : product->bias, aux = sums ? 0 : product->aux;
    int64_t ld = plan->key.columns;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (bias)
        status = blas->product_set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (aux && status == CUBLAS_STATUS_SUCCESS)
        status = blas->product_set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    if (aux && status == CUBLAS_STATUS_SUCCESS)
        status = blas->product_set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    return status;
}

/* What is to be done. */
static cublasStatus_t describe(const struct ah_cublas *blas, struct plan *plan, const struct ah_cuda_product *product)
{
    const struct key *key = &plan->key;
    bool wide = key->dtype == AH_F64;
    int type = type_of((enum ah_dtype)key->dtype);
    int32_t first = key->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t second = key->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = (uint32_t)key->epilogue;
    int compute = wide ? CUBLAS_COMPUTE_64F : key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t status = blas->product_create(&plan->product, compute, wide ? CUDA_R_64F : CUDA_R_32F);
    const struct {
        int attribute;
        const void *value;
        size_t bytes;
    } set[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first},
               {CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second},
               {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue}};
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof set / sizeof set[0]; i++)
        status = blas->product_set(plan->product, set[i].attribute, set[i].value, set[i].bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set_addresses(blas, plan, product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(blas, &plan->a, key->batch, type, key->a_transposed ? key->rows : key->depth,
                             key->a_transposed ? key->depth : key->rows, key->a_ld, key->a_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(blas, &plan->b, key->batch, type, key->b_transposed ? key->depth : key->columns,
                             key->b_transposed ? key->columns : key->depth, key->b_ld, key->b_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(blas, &plan->out, key->batch, key->wide ? CUDA_R_32F : type, key->columns, key->rows,
                             key->columns, key->out_stride);
    return status;
}

static cublasStatus_t choose(const struct ah_cublas *blas, struct plan *plan)
{
    cublasLtMatmulPreference_t preference;
    size_t workspace = WORKSPACE;
    uint32_t aligned = (uint32_t)plan->key.aligned;
    int found = 0;
    cublasStatus_t status = blas->preference_create(&preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    status = blas->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < 4; i++)
        status = blas->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &aligned,
                                      sizeof aligned);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->heuristic(handles[plan->key.ordinal], plan->product, plan->b, plan->a, plan->out, plan->out,
                                 preference, 1, &plan->choice, &found);
    blas->preference_destroy(preference);
    return status == CUBLAS_STATUS_SUCCESS && found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

/* The plan of a key: one that is kept, or a new one in the place of the one that was used longest ago. */
static int find_plan(const struct ah_cublas *blas, const char *who, const struct key *key,
                     const struct ah_cuda_product *product, struct plan **out)
{
    struct plan *oldest = &plans[0];
    for (int i = 0; i < PLANS; i++) {
        if (plans[i].made && !memcmp(&plans[i].key, key, sizeof *key)) {
            plans[i].used = ++uses;
            *out = &plans[i];
            if (plans[i].missing)
                return check(blas, CUBLAS_STATUS_NOT_SUPPORTED, who, "a product");
            return check(blas, set_addresses(blas, &plans[i], product), who, "what goes with a product");
        }
        if (plans[i].used < oldest->used)
            oldest = &plans[i];
    }
    drop(blas, oldest);
    oldest->key = *key;
    int status = check(blas, describe(blas, oldest, product), who, "describing a product");
    if (status == 0)
        status = check(blas, choose(blas, oldest), who, "choosing an algorithm");
    if (status < 0 && status != AH_ENOTIMPL) {
        drop(blas, oldest);
        return status;
    }
    oldest->missing = status < 0;
    oldest->made = true;
    oldest->used = ++uses;
    *out = oldest;
    return status;
}

/* The largest power of two up to 16 that all addresses are multiples of. */
static int32_t alignment(const struct ah_cuda_product *product)
{
    uint64_t all = product->a.at | product->b.at | product->out.at | product->bias | product->aux | 16;
    return (int32_t)(all & -all);
}

static struct key key_of(const struct ah_cuda_device *cuda, const struct ah_cuda_product *product)
{
    struct key key;
    memset(&key, 0, sizeof key);
    key.rows = product->rows;
    key.columns = product->columns;
    key.depth = product->depth;
    key.batch = product->batch;
    key.a_ld = product->a.ld;
    key.b_ld = product->b.ld;
    key.a_stride = product->a.stride;
    key.b_stride = product->b.stride;
    key.out_stride = product->out.stride;
    key.ordinal = cuda->ordinal;
    key.dtype = (int32_t)product->dtype;
    key.a_transposed = product->a.transposed;
    key.b_transposed = product->b.transposed;
    key.epilogue = (int32_t)epilogue_of(product);
    key.aligned = alignment(product);
    key.tf32 = product->tf32 && product->dtype == AH_F32;
    key.wide = product->wide && (product->dtype == AH_F16 || product->dtype == AH_BF16);
    return key;
}

static double product_operations(const struct key *key)
{
    return 2.0 * (double)key->batch * (double)key->rows * (double)key->columns * (double)key->depth;
}

/* What it reads and writes once. */
static double product_bytes(const struct key *key)
{
    double rows = (double)key->rows, columns = (double)key->columns, depth = (double)key->depth;
    double item = (double)ah_dtype_size((enum ah_dtype)key->dtype);
    return (double)key->batch * (rows * depth + depth * columns + rows * columns) * item;
}

int ah_cuda_multiply(struct ah_device *device, const char *who, const struct ah_cuda_product *product)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    const struct ah_cublas *blas;
    struct plan *plan;
    void *workspace = NULL;
    AH_TRY(ah_cublas_open(&blas));
    AH_TRY(ah_cuda_enter(cuda));
    if (!handles[cuda->ordinal])
        AH_TRY(check(blas, blas->create(&handles[cuda->ordinal]), who, "opening it"));
    struct key key = key_of(cuda, product);
    AH_TRY(ah_cuda_capture_see(cuda, product, sizeof *product));
    AH_TRY(find_plan(blas, who, &key, product, &plan));
    if (plan->choice.workspaceSize)
        AH_TRY(ah_cuda_memory_take(cuda->memory, plan->choice.workspaceSize, &workspace));
    const float one = 1, kept = product->adds;
    const double wide_one = 1, wide_kept = product->adds;
    bool wide = product->dtype == AH_F64;
    void *out = (void *)(uintptr_t)product->out.at;
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, who, "product");
    cublasStatus_t status = blas->matmul(
        handles[cuda->ordinal], plan->product, wide ? (const void *)&wide_one : &one,
        (const void *)(uintptr_t)product->b.at, plan->b, (const void *)(uintptr_t)product->a.at, plan->a,
        wide ? (const void *)&wide_kept : &kept, out, plan->out, out, plan->out, &plan->choice.algo, workspace,
        plan->choice.workspaceSize, cuda->compute);
    ah_cuda_span_end(cuda, span, product_bytes(&key), product_operations(&key));
    /* In the order of the stream: who takes the block next writes it after the product. */
    ah_cuda_memory_give(cuda->memory, workspace);
    AH_TRY(check(blas, status, who, "a product"));
    if (!cuda->waits || cuda->capturing)
        return 0;
    return ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: %s: a product", device->name, who);
}

void ah_cuda_product_forget(const struct ah_cuda_device *cuda)
{
    const struct ah_cublas *blas;
    if (!handles[cuda->ordinal] || ah_cublas_open(&blas) < 0)
        return;
    for (int i = 0; i < PLANS; i++)
        if (plans[i].made && plans[i].key.ordinal == cuda->ordinal)
            drop(blas, &plans[i]);
    blas->destroy(handles[cuda->ordinal]);
    handles[cuda->ordinal] = NULL;
}
