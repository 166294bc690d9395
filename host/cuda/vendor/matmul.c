/* A product is computed by its plan's first algorithm; where cuBLASLt refuses to run that, by the next. cuBLASLt counts
 * matrices by columns, so it is asked for the transpose: out' = b' a'. */
#include "cuda/vendor/matmul.h"

#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/times.h"
#include "cuda/vendor/matmul_plan.h"

enum { BUCKETS = 8192 };
#define WORKSPACE ((size_t)32 << 20)

static struct ah_cuda_plan matmul_plans[AH_CUDA_PLANS];
static int matmul_buckets[BUCKETS]; /* an index + 1 into `matmul_plans`, or 0 */
static int matmul_hand;      /* where the search for a place continues */
static cublasLtHandle_t matmul_handles[AH_CUDA_DEVICES];

int ah_cublas_check(const struct ah_cublas *blas, cublasStatus_t status, const char *op_name, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return ah_fail(status == CUBLAS_STATUS_NOT_SUPPORTED ? AH_ENOTIMPL : AH_EIO, "%s: cuBLASLt: %s: %s", op_name, what,
                   blas->status_name(status));
}

/* Keys. */

static uint32_t epilogue_of(const struct ah_cuda_matmul *product)
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

/* The largest power of two up to 16 that all addresses are multiples of. */
static int32_t alignment_of(const struct ah_cuda_matmul *product)
{
    uint64_t all = product->a.at | product->b.at | product->out.at | product->bias | product->aux | 16;
    return (int32_t)(all & -all);
}

static struct ah_cuda_plan_key key_of(const struct ah_cuda_device *cuda, const struct ah_cuda_matmul *product)
{
    struct ah_cuda_plan_key key;
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
    key.aligned = alignment_of(product);
    key.tf32 = product->tf32 && product->dtype == AH_F32;
    key.wide = product->wide && (product->dtype == AH_F16 || product->dtype == AH_BF16);
    key.a_codes = (int32_t)product->a_codes;
    key.b_codes = (int32_t)product->b_codes;
    key.adds = product->adds; /* a product that cuBLASLt refuses to add it may store */
    return key;
}

static int *bucket_of(const struct ah_cuda_plan_key *key)
{
    uint64_t word[sizeof *key / sizeof(uint64_t)], hash = 0;
    _Static_assert(sizeof word == sizeof *key, "a key is whole words");
    memcpy(word, key, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++) {
        hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return &matmul_buckets[hash % BUCKETS];
}

/* Descriptions. */

static int type_of(enum ah_dtype dtype)
{
    return dtype == AH_F64 ? CUDA_R_64F : dtype == AH_F16 ? CUDA_R_16F : dtype == AH_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The type of an operand. */
static int operand_type(int32_t codes, int dtype)
{
    return codes == AH_CUDA_E4M3 ? CUDA_R_8F_E4M3 : codes == AH_CUDA_E5M2 ? CUDA_R_8F_E5M2 : dtype;
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

cublasStatus_t ah_cuda_plan_point(const struct ah_cublas *blas, struct ah_cuda_plan *plan,
                                  const struct ah_cuda_matmul *product)
{
    bool sums = product->epilogue == AH_CUDA_ROW_SUMS || product->epilogue == AH_CUDA_COLUMN_SUMS;
    uint64_t bias = sums ? product->aux : product->bias, aux = sums ? 0 : product->aux;
    int64_t ld = plan->key.columns;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (bias)
        status = blas->matmul_set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (aux && status == CUBLAS_STATUS_SUCCESS)
        status = blas->matmul_set(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    if (aux && status == CUBLAS_STATUS_SUCCESS)
        status = blas->matmul_set(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    if (plan->key.a_codes && status == CUBLAS_STATUS_SUCCESS)
        status = blas->matmul_set(plan->matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &product->b_scale,
                                  sizeof product->b_scale);
    if (plan->key.a_codes && status == CUBLAS_STATUS_SUCCESS)
        status = blas->matmul_set(plan->matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &product->a_scale,
                                  sizeof product->a_scale);
    return status;
}

static cublasStatus_t matmul_describe(const struct ah_cublas *blas, struct ah_cuda_plan *plan,
                                      const struct ah_cuda_matmul *product)
{
    const struct ah_cuda_plan_key *key = &plan->key;
    bool wide = key->dtype == AH_F64;
    int type = type_of((enum ah_dtype)key->dtype);
    int32_t first = key->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t second = key->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = (uint32_t)key->epilogue;
    int compute = wide ? CUBLAS_COMPUTE_64F : key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t status = blas->matmul_create(&plan->matmul, compute, wide ? CUDA_R_64F : CUDA_R_32F);
    const struct {
        int attribute;
        const void *value;
        size_t bytes;
    } set[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first},
               {CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second},
               {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue}};
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof set / sizeof set[0]; i++)
        status = blas->matmul_set(plan->matmul, set[i].attribute, set[i].value, set[i].bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = ah_cuda_plan_point(blas, plan, product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(blas, &plan->a, key->batch, operand_type(key->a_codes, type),
                             key->a_transposed ? key->rows : key->depth, key->a_transposed ? key->depth : key->rows,
                             key->a_ld, key->a_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(blas, &plan->b, key->batch, operand_type(key->b_codes, type),
                             key->b_transposed ? key->depth : key->columns,
                             key->b_transposed ? key->columns : key->depth, key->b_ld, key->b_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(blas, &plan->out, key->batch, key->wide ? CUDA_R_32F : type, key->columns, key->rows,
                             key->columns, key->out_stride);
    return status;
}

/* Ask for the candidates. Partial sums of a product that is split along its depth are not rounded to halves: INPLACE
 * and OUTPUT_TYPE would round them to the type of the result. */
static cublasStatus_t matmul_propose(const struct ah_cublas *blas, struct ah_cuda_plan *plan)
{
    cublasLtMatmulPreference_t preference;
    size_t workspace = WORKSPACE;
    const struct ah_cuda_plan_key *key = &plan->key;
    bool half = (key->dtype == AH_F16 || key->dtype == AH_BF16) && !key->wide;
    uint32_t aligned = (uint32_t)key->aligned;
    uint32_t schemes = half ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK;
    cublasStatus_t status = blas->preference_create(&preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    status = blas->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < 4; i++)
        status =
            blas->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &aligned, sizeof aligned);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->heuristic(matmul_handles[key->ordinal], plan->matmul, plan->b, plan->a, plan->out, plan->out,
                                 preference, AH_CUDA_CANDIDATES, plan->candidate, &plan->count);
    blas->preference_destroy(preference);
    return status == CUBLAS_STATUS_SUCCESS && plan->count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

/* The table. */

static void drop_plan(const struct ah_cublas *blas, struct ah_cuda_plan *plan)
{
    int self = (int)(plan - matmul_plans) + 1;
    for (int *link = bucket_of(&plan->key); plan->made && *link; link = &matmul_plans[*link - 1].next) {
        if (*link == self) {
            *link = plan->next;
            break;
        }
    }
    if (plan->matmul)
        blas->matmul_destroy(plan->matmul);
    if (plan->a)
        blas->layout_destroy(plan->a);
    if (plan->b)
        blas->layout_destroy(plan->b);
    if (plan->out)
        blas->layout_destroy(plan->out);
    memset(plan, 0, sizeof *plan);
}

/* A place for a plan: an empty one, or the next whose plan was not used since the hand last passed it. */
static struct ah_cuda_plan *free_plan(const struct ah_cublas *blas)
{
    for (;;) {
        struct ah_cuda_plan *plan = &matmul_plans[matmul_hand];
        matmul_hand = (matmul_hand + 1) % AH_CUDA_PLANS;
        if (!plan->recent) {
            drop_plan(blas, plan);
            return plan;
        }
        plan->recent = false;
    }
}

static int make_plan(const struct ah_cublas *blas, const struct ah_cuda_plan_key *key, const char *op_name,
                     const struct ah_cuda_matmul *product, struct ah_cuda_plan **out)
{
    struct ah_cuda_plan *plan = free_plan(blas);
    plan->key = *key;
    int status = ah_cublas_check(blas, matmul_describe(blas, plan, product), op_name, "describing a product");
    if (status == 0)
        status = ah_cublas_check(blas, matmul_propose(blas, plan), op_name, "choosing an algorithm");
    if (status < 0 && status != AH_ENOTIMPL) {
        drop_plan(blas, plan);
        return status;
    }
    if (status < 0)
        plan->count = 0;
    int *bucket = bucket_of(key);
    plan->next = *bucket;
    *bucket = (int)(plan - matmul_plans) + 1;
    plan->made = plan->recent = true;
    *out = plan;
    return status;
}

int ah_cuda_plan_find(const struct ah_cublas *blas, const struct ah_cuda_device *cuda, const char *op_name,
                      const struct ah_cuda_matmul *product, struct ah_cuda_plan **out)
{
    struct ah_cuda_plan_key key = key_of(cuda, product);
    if (!matmul_handles[cuda->ordinal])
        AH_TRY(ah_cublas_check(blas, blas->create(&matmul_handles[cuda->ordinal]), op_name, "opening it"));
    for (int i = *bucket_of(&key); i; i = matmul_plans[i - 1].next) {
        struct ah_cuda_plan *plan = &matmul_plans[i - 1];
        if (memcmp(&plan->key, &key, sizeof key) != 0)
            continue;
        plan->recent = true;
        *out = plan;
        if (plan->count == 0)
            return ah_cublas_check(blas, CUBLAS_STATUS_NOT_SUPPORTED, op_name, "a product");
        return ah_cublas_check(blas, ah_cuda_plan_point(blas, plan, product), op_name, "the addresses of an epilogue");
    }
    return make_plan(blas, &key, op_name, product, out);
}

int ah_cuda_plan_run(const struct ah_cublas *blas, struct ah_cuda_device *cuda, const struct ah_cuda_plan *plan,
                     const struct ah_cuda_matmul *product, uint64_t addend, int candidate, cublasStatus_t *status)
{
    const float one = 1, kept = product->adds;
    const double wide_one = 1, wide_kept = product->adds;
    bool wide = product->dtype == AH_F64;
    const cublasLtMatmulHeuristicResult_t *with = &plan->candidate[candidate];
    void *out = (void *)(uintptr_t)product->out.at, *workspace = NULL;
    if (with->workspaceSize)
        AH_TRY(ah_cuda_memory_take(cuda->memory, with->workspaceSize, &workspace));
    *status = blas->matmul(matmul_handles[cuda->ordinal], plan->matmul, wide ? (const void *)&wide_one : &one,
                           (const void *)(uintptr_t)product->b.at, plan->b, (const void *)(uintptr_t)product->a.at,
                           plan->a, wide ? (const void *)&wide_kept : &kept, (const void *)(uintptr_t)addend, plan->out,
                           out, plan->out, &with->algo, workspace, with->workspaceSize, cuda->compute);
    /* In the order of the stream: the next user of the block writes it after the product. */
    ah_cuda_memory_give(cuda->memory, workspace);
    return 0;
}

void ah_cuda_plans_forget(const struct ah_cuda_device *cuda)
{
    const struct ah_cublas *blas;
    if (!matmul_handles[cuda->ordinal] || ah_cublas_open(&blas) < 0)
        return;
    for (int i = 0; i < AH_CUDA_PLANS; i++)
        if (matmul_plans[i].made && matmul_plans[i].key.ordinal == cuda->ordinal)
            drop_plan(blas, &matmul_plans[i]);
    blas->destroy(matmul_handles[cuda->ordinal]);
    matmul_handles[cuda->ordinal] = NULL;
}

/* Products. */

/* May another algorithm compute a product that this status refuses? */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_EXECUTION_FAILED;
}

static int run_plan(const struct ah_cublas *blas, struct ah_cuda_device *cuda, const char *op_name,
                    struct ah_cuda_plan *plan, const struct ah_cuda_matmul *product)
{
    cublasStatus_t status;
    AH_TRY(ah_cuda_plan_run(blas, cuda, plan, product, product->out.at, plan->chosen, &status));
    while (is_refusal(status) && plan->chosen + 1 < plan->count) {
        plan->chosen++;
        plan->tuned = true;
        AH_TRY(ah_cuda_plan_run(blas, cuda, plan, product, product->out.at, plan->chosen, &status));
    }
    plan->used = true;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        plan->count = 0;
    return ah_cublas_check(blas, status, op_name, "a product");
}

static double product_operations(const struct ah_cuda_plan_key *key)
{
    return 2.0 * (double)key->batch * (double)key->rows * (double)key->columns * (double)key->depth;
}

/* Return the bytes of a product's operands and result. */
static double product_bytes(const struct ah_cuda_plan_key *key)
{
    double rows = (double)key->rows, columns = (double)key->columns, depth = (double)key->depth;
    double item = (double)ah_dtype_size((enum ah_dtype)key->dtype), operand = key->a_codes ? 1 : item;
    return (double)key->batch * ((rows * depth + depth * columns) * operand + rows * columns * item);
}

int ah_cuda_multiply(struct ah_device *device, const char *op_name, const struct ah_cuda_matmul *product)
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
    ah_cuda_span_end(cuda, span, (struct ah_cuda_work){product_bytes(&plan->key), product_operations(&plan->key),
                                                       ah_cuda_rate_of(product->dtype, product->tf32)});
    if (!cuda->waits || cuda->capturing)
        return 0;
    return ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: %s: a product", device->name, op_name);
}

void ah_cuda_matmul_forget(const struct ah_cuda_device *cuda)
{
    ah_cuda_plans_forget(cuda);
}
