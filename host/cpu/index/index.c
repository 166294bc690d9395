/* Indexing by rows: an index is checked whole before anything is written, then rows are copied or added in blocks.
 * Threads own destinations, and each sums in the order of the index. */
#include "cpu/index/index.h"

#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/shape_copy.h"
#include "ops/dispatch/op.h"

struct range_job {
    const int64_t *at;
    int64_t low, n;
    bool negative, outside;
};

static void range_part(void *context, int64_t begin, int64_t end)
{
    struct range_job *job = context;
    int64_t least = 0, most = -1;
    for (int64_t i = begin; i < end; i++) {
        least = job->at[i] < least ? job->at[i] : least;
        most = job->at[i] > most ? job->at[i] : most;
    }
    if (least < 0)
        __atomic_store_n(&job->negative, true, __ATOMIC_RELAXED);
    if (least < job->low || most >= job->n)
        __atomic_store_n(&job->outside, true, __ATOMIC_RELAXED);
}

int ah_index_fail(const char *op, const struct ah_tensor *list, int64_t low, int64_t n, int dim,
                  const struct ah_tensor *shape_of)
{
    const int64_t *at = ah_tensor_data(list);
    int64_t bad = 0;
    while (at[bad] >= low && at[bad] < n)
        bad++;
    return ah_fail(AH_EINVAL, "%s: index %lld at position %lld is outside %lld..%lld (dim %d of %s)", op,
                   (long long)at[bad], (long long)bad, (long long)low, (long long)n - 1, dim, ah_shape(shape_of));
}

int ah_checked_index(const char *op, struct ah_tensor *index, int64_t n, bool from_end, int dim,
                     const struct ah_tensor *shape_of, struct ah_tensor **out)
{
    AH_OWNED struct ah_tensor *list = NULL;
    AH_TRY(ah_contiguous_as(&list, index, AH_I64));
    struct range_job job = {.at = ah_tensor_data(list), .low = from_end ? -n : 0, .n = n};
    ah_parallel_units(list->numel, 1, AH_SHARE_COPY, range_part, &job);
    if (job.outside)
        return ah_index_fail(op, list, job.low, n, dim, shape_of);
    if (!job.negative) {
        *out = ah_tensor_retain(list);
        return 0;
    }
    AH_TRY(ah_tensor_empty_like(out, list));
    int64_t *to = ah_tensor_data(*out);
    for (int64_t i = 0; i < list->numel; i++)
        to[i] = job.at[i] < 0 ? job.at[i] + n : job.at[i];
    return 0;
}

int ah_target_open(struct ah_call *call, bool copy, struct ah_target *target)
{
    struct ah_tensor *out = call->out[0];
    target->out = target->work = out;
    if (!ah_tensor_is_contiguous(out))
        AH_TRY(ah_tensor_empty_like(&target->work, out));
    if (!copy || (call->inplace && target->work == out))
        return 0;
    int status = ah_copy(target->work, call->arg[0].tensor);
    if (status < 0 && target->work != out)
        ah_tensor_release(target->work);
    return status;
}

int ah_sum_open(struct ah_tensor **sum, struct ah_tensor *out, struct ah_tensor *start, int64_t addends)
{
    enum ah_dtype dtype = addends >= out->numel / 4 ? ah_compute_dtype(out->dtype) : out->dtype;
    if (dtype == out->dtype && ah_tensor_is_contiguous(out))
        *sum = ah_tensor_retain(out);
    else
        AH_TRY(ah_tensor_empty(sum, out->size, out->ndim, dtype, &ah_cpu));
    if (start)
        return ah_copy(*sum, start);
    ah_zero_fill(ah_tensor_data(*sum), ah_tensor_bytes(*sum));
    return 0;
}

int ah_target_close(struct ah_target *target, int status)
{
    if (target->work == target->out)
        return status;
    if (status == 0)
        status = ah_copy(target->out, target->work);
    ah_tensor_release(target->work);
    return status;
}

/* Rows of `shape` when indexed along dim; a 0-dim tensor is one row of one element. */
static struct ah_rows rows_of(const int64_t *size, int ndim, int dim, const struct ah_tensor *at)
{
    struct ah_rows rows = {
        .outer = 1, .n = 1, .inner = 1, .count = at->numel, .at = ah_tensor_data(at)};
    for (int d = 0; d < ndim; d++) {
        if (d < dim)
            rows.outer *= size[d];
        else if (d == dim)
            rows.n = size[d];
        else
            rows.inner *= size[d];
    }
    return rows;
}

struct pick_job {
    char *dst;
    const char *src;
    const struct ah_rows *rows;
    size_t item;
    bool outside; /* of single elements: an index was, and the result is undefined */
};

/* Elements of a vector: each index is checked as it is read, so that loads which miss the caches follow each other. */
static void pick_elements(void *context, int64_t begin, int64_t end)
{
    struct pick_job *job = context;
    const int64_t *at = job->rows->at;
    const uint64_t n = (uint64_t)job->rows->n;
#define PICK(type)                                       \
    do {                                                 \
        const type *from = (const type *)job->src;       \
        type *restrict to = (type *)job->dst;            \
        _Pragma("GCC unroll 4")                          \
        for (int64_t i = begin; i < end; i++) {          \
            if ((uint64_t)at[i] >= n)                    \
                goto outside;                            \
            to[i] = from[at[i]];                         \
        }                                                \
    } while (0)
    AH_ITEM_TYPES(job->item, PICK)
#undef PICK
    return;
outside:
    __atomic_store_n(&job->outside, true, __ATOMIC_RELAXED);
}

static void pick_range(void *context, int64_t begin, int64_t end)
{
    const struct pick_job *job = context;
    const struct ah_rows *rows = job->rows;
    int64_t outer = begin / rows->count, k = begin % rows->count;
    size_t width = (size_t)rows->inner * job->item;
#define PICK(type)                                       \
    do {                                                 \
        const type *from = (const type *)job->src;       \
        type *to = (type *)job->dst;                     \
        for (int64_t i = begin, run; i < end; i += run) { \
            const type *line = from + outer * rows->n;   \
            run = rows->count - k < end - i ? rows->count - k : end - i; \
            for (int64_t j = 0; j < run; j++)            \
                to[i + j] = line[rows->at[k + j]];       \
            k = 0;                                       \
            outer++;                                     \
        }                                                \
    } while (0)
    if (rows->inner == 1) {
        AH_ITEM_TYPES(job->item, PICK)
        return;
    }
#undef PICK
    for (int64_t i = begin; i < end; i++) {
        memcpy(job->dst + (size_t)i * width,
               job->src + (size_t)(outer * rows->n + rows->at[k]) * width, width);
        if (++k == rows->count)
            k = 0, outer++;
    }
}

/* Rows of x along dim, by an index of any shape, into the contiguous out. */
int ah_pick_rows(const char *op, struct ah_tensor *out, struct ah_tensor *x, struct ah_tensor *index, int dim)
{
    AH_OWNED struct ah_tensor *source = NULL, *at = NULL;
    int64_t n = x->ndim > 0 ? x->size[dim] : 1;
    bool elements = x->ndim <= 1;
    if (elements)
        AH_TRY(ah_contiguous_as(&at, index, AH_I64));
    else
        AH_TRY(ah_checked_index(op, index, n, false, dim, x, &at));
    AH_TRY(ah_contiguous_as(&source, x, x->dtype));
    struct ah_rows rows = rows_of(x->size, x->ndim, dim, at);
    struct pick_job job = {ah_tensor_data(out), ah_tensor_data(source), &rows, ah_dtype_size(x->dtype), false};
    if (out->numel > 0)
        ah_parallel_units(rows.outer * rows.count, rows.inner, AH_SHARE_LIGHT,
                          elements ? pick_elements : pick_range, &job);
    return job.outside ? ah_index_fail(op, at, 0, n, dim, x) : 0;
}

int ah_cpu_index_select(struct ah_call *c)
{
    const struct ah_args_index_select *arg = ah_args(c, index_select);
    return ah_pick_rows("index_select", c->out[0], arg->input.tensor, arg->index.tensor, (int)arg->dim.integer);
}

struct rows_job {
    void *dst;
    const void *src;
    const struct ah_rows *rows;
    double alpha;
    enum ah_dtype dtype;
    size_t item;
};

/* The unit is one outer block, or, where there is only one, one column: either way two units never
 * meet in a destination, and each destination sums in the order of the index. */
static void add_block(const struct rows_job *job, int64_t outer, int64_t first, int64_t last)
{
    const struct ah_rows *rows = job->rows;
    int64_t inner = rows->inner;
    double alpha = job->alpha;
/* int64 for the integers, else the float type itself. */
#define ADD(type, load, store)                                                  \
    do {                                                                        \
        __typeof__(load((type)0) + INT64_C(0)) scale = alpha;                   \
        type *dst = (type *)job->dst + outer * rows->n * inner;                 \
        const type *src = (const type *)job->src + outer * rows->count * inner; \
        for (int64_t k = 0; inner == 1 && k < rows->count; k++) {               \
            type *to = dst + rows->at[k];                                       \
            *to = store(AH_WRAPPING(load(*to)) +                                \
                        AH_WRAPPING(scale) * AH_WRAPPING(load(src[k])));        \
        }                                                                       \
        for (int64_t k = 0; inner != 1 && k < rows->count; k++) {               \
            type *restrict to = dst + rows->at[k] * inner;                      \
            const type *restrict from = src + k * inner;                        \
            for (int64_t i = first; i < last; i++)                              \
                to[i] = store(AH_WRAPPING(load(to[i])) +                        \
                              AH_WRAPPING(scale) * AH_WRAPPING(load(from[i]))); \
        }                                                                       \
    } while (0)
    AH_SUM_DTYPES(job->dtype, ADD)
#undef ADD
}

static void add_outers(void *context, int64_t begin, int64_t end)
{
    const struct rows_job *job = context;
    for (int64_t outer = begin; outer < end; outer++)
        add_block(job, outer, 0, job->rows->inner);
}

static void add_columns(void *context, int64_t begin, int64_t end)
{
    add_block(context, 0, begin, end);
}

void ah_rows_add(void *dst, const void *src, const struct ah_rows *rows, double alpha,
                 enum ah_dtype dtype)
{
    if (dtype == AH_BOOL) /* a sum of bools is an or, whatever the factor's sign */
        alpha = alpha != 0;
    struct rows_job job = {.dst = dst, .src = src, .rows = rows, .alpha = alpha, .dtype = dtype};
    int64_t grain = ah_grain(rows->count, AH_SHARE_LIGHT);
    if (rows->outer > 1)
        ah_parallel_units(rows->outer, rows->count * rows->inner, AH_SHARE_LIGHT, add_outers, &job);
    else if (rows->outer == 1)
        ah_parallel_for(rows->inner, grain < 16 ? 16 : grain, add_columns, &job);
}

void ah_rows_copy(void *dst, const void *src, const struct ah_rows *rows, size_t item)
{
    size_t width = (size_t)rows->inner * item;
    if (width == 0)
        return;
    for (int64_t outer = 0; outer < rows->outer; outer++)
        for (int64_t k = 0; k < rows->count; k++)
            memcpy((char *)dst + (size_t)(outer * rows->n + rows->at[k]) * width,
                   (const char *)src + (size_t)(outer * rows->count + k) * width, width);
}

int ah_cpu_index_select_backward(struct ah_call *c)
{
    const struct ah_args_index_select_backward *arg = ah_args(c, index_select_backward);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *grad = NULL, *at = NULL, *sum = NULL;
    int dim = (int)arg->dim.integer;
    int64_t n = out->ndim > 0 ? out->size[dim] : 1;
    AH_TRY(ah_checked_index("index_select", arg->index.tensor, n, false, dim, out, &at));
    AH_TRY(ah_sum_open(&sum, out, NULL, out->numel));
    AH_TRY(ah_contiguous_as(&grad, arg->grad.tensor, sum->dtype));
    struct ah_rows rows = rows_of(out->size, out->ndim, dim, at);
    ah_rows_add(ah_tensor_data(sum), ah_tensor_data(grad), &rows, 1, sum->dtype);
    return ah_copy(out, sum);
}

/* index_add, index_copy: source rows into out's rows. */
static int place_rows(struct ah_call *c, bool add)
{
    const struct ah_args_index_add *arg = ah_args(c, index_add);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *source = NULL, *at = NULL;
    struct ah_target target = {out, out};
    int dim = (int)arg->dim.integer;
    int64_t n = out->ndim > 0 ? out->size[dim] : 1;
    AH_TRY(ah_checked_index(c->op->name, arg->index.tensor, n, false, dim, out, &at));
    AH_TRY(ah_contiguous_as(&source, arg->source.tensor, out->dtype));
    AH_TRY(ah_target_open(c, true, &target));
    struct ah_rows rows = rows_of(out->size, out->ndim, dim, at);
    double alpha = !add ? 1 : out->dtype == AH_BOOL ? arg->alpha.number != 0 : arg->alpha.number;
    if (add)
        ah_rows_add(ah_tensor_data(target.work), ah_tensor_data(source), &rows, alpha, out->dtype);
    else
        ah_rows_copy(ah_tensor_data(target.work), ah_tensor_data(source), &rows,
                     ah_dtype_size(out->dtype));
    return ah_target_close(&target, 0);
}

AH_CPU_OP(index_add, place_rows(c, true))
AH_CPU_OP(index_copy, place_rows(c, false))

int ah_cpu_index_fill(struct ah_call *c)
{
    const struct ah_args_index_fill *arg = ah_args(c, index_fill);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *value = NULL, *at = NULL;
    struct ah_target target = {out, out};
    int dim = (int)arg->dim.integer;
    int64_t n = out->ndim > 0 ? out->size[dim] : 1;
    AH_TRY(ah_checked_index(c->op->name, arg->index.tensor, n, false, dim, out, &at));
    AH_TRY(ah_tensor_scalar(&value, arg->value.number, out->dtype, &ah_cpu));
    AH_TRY(ah_target_open(c, true, &target));
    struct ah_rows rows = rows_of(out->size, out->ndim, dim, at);
#define FILL(type)                                                                           \
    do {                                                                                     \
        type *to = ah_tensor_data(target.work), with = *(const type *)ah_tensor_data(value); \
        for (int64_t outer = 0; outer < rows.outer; outer++)                                 \
            for (int64_t k = 0; k < rows.count; k++)                                         \
                for (int64_t i = 0; i < rows.inner; i++)                                     \
                    to[(outer * rows.n + rows.at[k]) * rows.inner + i] = with;               \
    } while (0)
    AH_ITEM_TYPES(ah_dtype_size(out->dtype), FILL)
#undef FILL
    return ah_target_close(&target, 0);
}

int ah_cpu_index_put(struct ah_call *c)
{
    const struct ah_args_index_put *arg = ah_args(c, index_put);
    struct ah_tensor *out = c->out[0], *values = arg->values.tensor;
    AH_OWNED struct ah_tensor *wide = NULL, *source = NULL;
    struct ah_tensor *at = c->extra[0], *shape = c->extra[1];
    struct ah_target target = {out, out};
    int64_t stride[AH_MAX_DIMS];
    ah_broadcast_strides(values, shape->size, shape->ndim, stride);
    AH_TRY(ah_tensor_view(&wide, values, shape->size, stride, shape->ndim, values->offset));
    AH_TRY(ah_contiguous_as(&source, wide, out->dtype));
    AH_TRY(ah_target_open(c, true, &target));
    struct ah_rows rows = {
        .outer = 1, .n = 1, .inner = 1, .count = at->numel, .at = ah_tensor_data(at)};
    for (int d = 0; d < out->ndim; d++)
        *(d < c->state.place.covered ? &rows.n : &rows.inner) *= out->size[d];
    if (arg->accumulate.flag)
        ah_rows_add(ah_tensor_data(target.work), ah_tensor_data(source), &rows, 1, out->dtype);
    else
        ah_rows_copy(ah_tensor_data(target.work), ah_tensor_data(source), &rows,
                     ah_dtype_size(out->dtype));
    return ah_target_close(&target, 0);
}
