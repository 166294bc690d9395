/* Timing the algorithms of a plan.
 *
 * They run on separate numbers in scratch memory, so that nothing is added or stored twice, and so that equal bits mean
 * an equal order of sums: on the numbers of a script, which may be zeros or small integers, algorithms agree that
 * differ later (kernels/linear/matmul.cu). Only an algorithm whose results equal those of the first in every bit may
 * replace it, so that results depend neither on the clock nor on the rank. */
#include <stdlib.h>
#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/linear/matmul.h"
#include "cuda/vendor/matmul_plan.h"

enum { REPEATS = 4 };
#define SCRATCH ((size_t)1 << 30)

/* An algorithm replaces the first one if its time is less than this part of the first one's. */
static const float WORTHWHILE = 0.96f;

static struct ah_cuda_kernel fill_kernel[] = AH_CUDA_REALS("matmul", "matmul_fill");
static struct ah_cuda_kernel compare_kernel = AH_CUDA_KERNEL("matmul", "matmul_compare");

struct trial {
    const struct ah_cublas *blas;
    struct ah_device *device;
    struct ah_cuda_plan *plan;
    struct ah_cuda_matmul product; /* in scratch memory */
    void *block;
    uint64_t addend;
    uint64_t first, other;      /* results of the first algorithm and of another */
    size_t result_bytes, inner; /* of which the product itself has `inner`, the output of an epilogue the rest */
    uint64_t differ;            /* a word for each candidate */
    CUevent from, to;
    float time[AH_CUDA_CANDIDATES]; /* milliseconds; below 0: it does not run */
};

static bool tune_is_on(void)
{
    const char *word = getenv("ACCELHOST_CUDA_TUNE");
    return word && *word ? strcmp(word, "0") != 0 : !ah_cuda_is_simulated();
}

static size_t tune_padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static uint64_t trial_reserve(size_t *used, uint64_t base, size_t bytes)
{
    uint64_t at = base + *used;
    *used += tune_padded(bytes);
    return at;
}

/* Bytes from the first number of a stack of matrices to its last. */
static size_t tune_extent(const struct ah_cuda_matrix *matrix, int64_t rows, int64_t columns, int64_t batch,
                          size_t item)
{
    int64_t lines = matrix->transposed ? columns : rows, line = matrix->transposed ? rows : columns;
    return (size_t)((batch - 1) * matrix->stride + (lines - 1) * matrix->ld + line) * item;
}

/* Set the scratch addresses from `base` on; return their number of bytes. */
static size_t trial_layout(struct trial *t, const struct ah_cuda_matmul *given, uint64_t base)
{
    struct ah_cuda_matmul *p = &t->product;
    size_t item = ah_dtype_size(p->dtype), out_item = t->plan->key.wide ? sizeof(float) : item, used = 0;
    size_t whole = (size_t)(given->rows * given->columns) * item;
    size_t stored = given->epilogue == AH_CUDA_ROW_SUMS ? (size_t)p->rows * sizeof(double)
                    : given->epilogue == AH_CUDA_COLUMN_SUMS ? (size_t)p->columns * sizeof(double) : whole;
    bool stores = given->aux && given->epilogue != AH_CUDA_GELU_SLOPE;
    p->a.at = trial_reserve(&used, base, tune_extent(&p->a, p->rows, p->depth, p->batch, item));
    p->b.at = trial_reserve(&used, base, tune_extent(&p->b, p->depth, p->columns, p->batch, item));
    t->inner = tune_padded(tune_extent(&p->out, p->rows, p->columns, p->batch, out_item));
    t->addend = p->adds ? trial_reserve(&used, base, t->inner) : 0;
    if (given->bias)
        p->bias = trial_reserve(&used, base, (size_t)p->columns * out_item);
    if (given->aux && !stores)
        p->aux = trial_reserve(&used, base, whole);
    t->result_bytes = t->inner;
    if (stores)
        t->result_bytes += tune_padded(stored);
    t->first = trial_reserve(&used, base, t->result_bytes);
    t->other = trial_reserve(&used, base, t->result_bytes);
    t->differ = trial_reserve(&used, base, AH_CUDA_CANDIDATES * sizeof(uint32_t));
    return used;
}

static int fill_operand(struct trial *t, const struct ah_cuda_matrix *matrix, int64_t rows, int64_t columns, bool left)
{
    struct ah_matmul_fill_args args = {
        .to = matrix->at, .batch = matrix->stride ? t->product.batch : 1, .stride = matrix->stride,
        .lines = matrix->transposed ? columns : rows, .line = matrix->transposed ? rows : columns, .ld = matrix->ld,
        .along = matrix->transposed != left, .negates = left};
    unsigned blocks = ah_cuda_blocks(args.batch * args.lines * args.line, AH_MATMUL_THREADS);
    return ah_cuda_launch(t->device, &fill_kernel[t->product.dtype], "tuning of a product",
                          ah_cuda_grid_of(blocks, AH_MATMUL_THREADS, 0), &args);
}

static bool trial_has_room(struct ah_cuda_device *cuda, size_t bytes)
{
    struct ah_memory_stats stats;
    size_t available = 0, total = 0;
    if (bytes > SCRATCH || ah_cuda.memory_info(&available, &total) != CUDA_SUCCESS)
        return false;
    ah_cuda_memory_stats(cuda->memory, &stats);
    return bytes <= (available + stats.cached) / 2;
}

/* Results go to `at`. */
static cublasStatus_t trial_point(struct trial *t, uint64_t at)
{
    t->product.out.at = at;
    if (t->result_bytes > t->inner)
        t->product.aux = at + t->inner;
    return ah_cuda_plan_point(t->blas, t->plan, &t->product);
}

static int trial_measure(struct trial *t, int candidate)
{
    struct ah_cuda_device *cuda = ah_cuda_state(t->device);
    uint64_t at = candidate == 0 ? t->first : t->other;
    cublasStatus_t status = trial_point(t, at);
    t->time[candidate] = -1;
    if (status == CUBLAS_STATUS_SUCCESS)
        AH_TRY(ah_cuda_plan_run(t->blas, cuda, t->plan, &t->product, t->addend, candidate, &status));
    if (status != CUBLAS_STATUS_SUCCESS)
        return 0;
    AH_TRY(ah_cuda_check(ah_cuda.event_record(t->from, cuda->compute), "timing a product"));
    for (int i = 0; i < REPEATS && status == CUBLAS_STATUS_SUCCESS; i++)
        AH_TRY(ah_cuda_plan_run(t->blas, cuda, t->plan, &t->product, t->addend, candidate, &status));
    AH_TRY(ah_cuda_check(ah_cuda.event_record(t->to, cuda->compute), "timing a product"));
    if (candidate > 0) {
        struct ah_matmul_compare_args args = {.a = t->first, .b = t->other, .count = (int64_t)t->result_bytes / 16,
                                               .differ = t->differ + (unsigned)candidate * sizeof(uint32_t)};
        unsigned blocks = ah_cuda_blocks(args.count, AH_MATMUL_THREADS);
        AH_TRY(ah_cuda_launch(t->device, &compare_kernel, "tuning of a product",
                              ah_cuda_grid_of(blocks, AH_MATMUL_THREADS, 0), &args));
    }
    AH_TRY(ah_cuda_check(ah_cuda.event_synchronise(t->to), "timing a product"));
    if (status != CUBLAS_STATUS_SUCCESS)
        return 0;
    return ah_cuda_check(ah_cuda.event_elapsed(&t->time[candidate], t->from, t->to), "timing a product");
}

/* Move the fastest of the equal ones to the front. */
static int trial_choose(struct trial *t)
{
    uint32_t differ[AH_CUDA_CANDIDATES];
    int best = 0;
    AH_TRY(ah_device_copy(differ, &ah_cpu, (void *)(uintptr_t)t->differ, t->device, sizeof differ));
    for (int i = 1; i < t->plan->count; i++) {
        bool better = best ? t->time[i] < t->time[best] : t->time[i] < WORTHWHILE * t->time[0];
        if (t->time[i] >= 0 && !differ[i] && better)
            best = i;
    }
    cublasLtMatmulHeuristicResult_t kept = t->plan->candidate[0];
    t->plan->candidate[0] = t->plan->candidate[best];
    t->plan->candidate[best] = kept;
    return 0;
}

static int trial_run(struct trial *t, const struct ah_cuda_matmul *given, size_t bytes)
{
    struct ah_cuda_matmul *p = &t->product;
    AH_TRY(ah_cuda_memory_take(ah_cuda_state(t->device)->memory, bytes, &t->block));
    trial_layout(t, given, ah_cuda_address(t->block));
    AH_TRY(t->device->type->fill(t->device, t->block, 0, bytes));
    AH_TRY(fill_operand(t, &p->a, p->rows, p->depth, true));
    AH_TRY(fill_operand(t, &p->b, p->depth, p->columns, false));
    AH_TRY(ah_cuda_check(ah_cuda.event_create(&t->from, CU_EVENT_DEFAULT), "an event"));
    AH_TRY(ah_cuda_check(ah_cuda.event_create(&t->to, CU_EVENT_DEFAULT), "an event"));
    for (int i = 0; i < t->plan->count; i++) {
        AH_TRY(trial_measure(t, i));
        if (t->time[0] < 0)
            return 0;
    }
    return trial_choose(t);
}

int ah_cuda_plan_tune(const struct ah_cublas *blas, struct ah_device *device, struct ah_cuda_plan *plan,
                      const struct ah_cuda_matmul *product)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    if (plan->tuned || !plan->used || cuda->capturing || cuda->revised)
        return 0;
    plan->tuned = true;
    if (plan->count < 2 || plan->key.a_codes || !tune_is_on())
        return 0;
    struct trial t = {.blas = blas, .device = device, .plan = plan, .product = *product};
    size_t bytes = trial_layout(&t, product, 0);
    if (!trial_has_room(cuda, bytes))
        return 0;
    int status = trial_run(&t, product, bytes);
    if (t.from)
        ah_cuda.event_destroy(t.from);
    if (t.to)
        ah_cuda.event_destroy(t.to);
    ah_cuda_memory_give(cuda->memory, t.block);
    AH_TRY(status);
    return ah_cublas_check(blas, ah_cuda_plan_point(blas, plan, product), "tuning", "the addresses of an epilogue");
}
