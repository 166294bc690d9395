/* The fold behind sums, products, extremes and norms: dims are merged, then rows are folded where the reduced dim is
 * dense, columns where the kept one is, else a row-major copy is made. Borders of chunks depend on the shape alone, so
 * results do not depend on the thread count. */
#include "cpu/reduce/reduce.h"

#include <math.h>
#include <string.h>

#include "base/memory/alloc.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/loop/iterate.h"
#include "tensor/tensor.h"

enum {
    TILE = 1024,          /* accumulators of a column tile: 8 KiB */
    SPLIT = 32768,        /* inputs per part when one output has them all */
    SHORT = 64,           /* shorter rows are turned, that many at a time */
};

union value {
    double number;
    int64_t integer;
};

static union value start_of(enum ah_fold fold, bool integral)
{
    static const double number[] = {
        [AH_FOLD_PROD] = 1, [AH_FOLD_MAX] = -INFINITY, [AH_FOLD_MIN] = INFINITY, [AH_FOLD_ABS_MIN] = INFINITY};
    static const int64_t integer[] = {
        [AH_FOLD_PROD] = 1, [AH_FOLD_MAX] = INT64_MIN, [AH_FOLD_MIN] = INT64_MAX, [AH_FOLD_ABS_MIN] = 0};
    return integral ? (union value){.integer = integer[fold]} : (union value){.number = number[fold]};
}

/* Return the fold that joins partial results: the fold itself for products and extremes, else addition. */
static enum ah_fold reduce_joining(enum ah_fold fold)
{
    switch (fold) {
    case AH_FOLD_PROD:
    case AH_FOLD_MAX:
    case AH_FOLD_MIN: return fold;
    case AH_FOLD_ABS_MAX: return AH_FOLD_MAX;
    case AH_FOLD_ABS_MIN: return AH_FOLD_MIN;
    default: return AH_FOLD_SUM;
    }
}

struct dim {
    int64_t size, stride;
};

/* The dims of one reduction: kept ones in output order, reduced ones outer to inner; neighbours merged. */
struct plan {
    struct dim kept[AH_MAX_DIMS], reduced[AH_MAX_DIMS];
    int kept_count, reduced_count;
    int64_t outputs, folded;
    const char *data;
    size_t item;
    const struct ah_fold_loops *fold, *join;
    union value start;
    double p;
    union value *result;
    int64_t parts, part; /* splitting the reduced range: number of parts and rows per part */
    int64_t width;       /* outputs of the inner kept dim */
};

static void reduce_append(struct dim *dims, int *count, int64_t size, int64_t stride)
{
    if (size == 1)
        return;
    if (*count && dims[*count - 1].stride == stride * size) {
        dims[*count - 1].size *= size;
        dims[*count - 1].stride = stride;
        return;
    }
    dims[(*count)++] = (struct dim){size, stride};
}

static void reduce_describe(struct plan *plan, const struct ah_tensor *input, uint32_t mask)
{
    plan->kept_count = plan->reduced_count = 0;
    plan->outputs = plan->folded = 1;
    for (int d = 0; d < input->ndim; d++) {
        if (mask >> d & 1) {
            reduce_append(plan->reduced, &plan->reduced_count, input->size[d], input->stride[d]);
            plan->folded *= input->size[d];
        } else {
            reduce_append(plan->kept, &plan->kept_count, input->size[d], input->stride[d]);
            plan->outputs *= input->size[d];
        }
    }
    plan->data = ah_tensor_data(input);
    plan->item = ah_dtype_size(input->dtype);
}

/* Element offset of a flat index over some dims. */
static int64_t offset_of(const struct dim *dims, int count, int64_t flat)
{
    int64_t offset = 0;
    for (int d = count - 1; d > 0; d--) {
        offset += flat % dims[d].size * dims[d].stride;
        flat /= dims[d].size;
    }
    return count > 0 ? offset + flat * dims[0].stride : offset;
}

static const char *reduce_at(const struct plan *plan, int64_t offset)
{
    return plan->data + offset * (int64_t)plan->item;
}

/* Horizontal: the innermost reduced dim is dense. One call per output and outer reduced index. */
static void reduce_rows(void *context, int64_t begin, int64_t end)
{
    const struct plan *plan = context;
    int inner = plan->reduced_count - 1;
    int64_t n = plan->reduced[inner].size, outer = plan->folded / n;
    for (int64_t i = begin; i < end; i++) {
        int64_t base = offset_of(plan->kept, plan->kept_count, i);
        union value acc = plan->start;
        for (int64_t o = 0; o < outer; o++)
            plan->fold->row(&acc, reduce_at(plan, base + offset_of(plan->reduced, inner, o)), n, plan->p);
        plan->result[i] = acc;
    }
}

#define TURN(name, type)                                                                         \
    static void name(void *to, const char *from, int64_t lines, int64_t n, int64_t stride)       \
    {                                                                                            \
        type *restrict tile = to;                                                                \
        for (int64_t i = 0; i < lines; i++)                                                      \
            for (int64_t k = 0; k < n; k++)                                                      \
                tile[k * SHORT + i] = ((const type *)(const void *)from)[i * stride + k];        \
    }
TURN(turn_8, uint8_t)
TURN(turn_32, uint32_t)
TURN(turn_64, uint64_t)

/* Short rows, evenly apart: turned into columns, so that a vector holds an element of each of several rows. A row's
 * result is the same in whatever company it is folded. */
static void short_rows(void *context, int64_t begin, int64_t end)
{
    const struct plan *plan = context;
    int64_t n = plan->reduced[0].size, stride = plan->kept[0].stride;
    uint64_t tile[SHORT * SHORT];
    for (int64_t i = begin; i < end; i += SHORT) {
        int64_t lines = end - i < SHORT ? end - i : SHORT;
        const char *from = reduce_at(plan, i * stride);
        if (plan->item == 8)
            turn_64(tile, from, lines, n, stride);
        else if (plan->item == 4)
            turn_32(tile, from, lines, n, stride);
        else
            turn_8(tile, from, lines, n, stride);
        for (int64_t k = 0; k < lines; k++)
            plan->result[i + k] = plan->start;
        plan->fold->column(plan->result + i, tile, lines, n, SHORT, plan->p);
    }
}

/* One output and one dense run: fixed parts, joined in order. */
static void run_parts(void *context, int64_t begin, int64_t end)
{
    const struct plan *plan = context;
    for (int64_t k = begin; k < end; k++) {
        int64_t from = k * SPLIT, n = plan->folded - from < SPLIT ? plan->folded - from : SPLIT;
        plan->result[k] = plan->start;
        plan->fold->row(&plan->result[k], reduce_at(plan, from), n, plan->p);
    }
}

static int reduce_single(struct plan *plan)
{
    union value *result = plan->result, *parts;
    int64_t count = (plan->folded + SPLIT - 1) / SPLIT;
    AH_TRY(ah_block_alloc((size_t)count * sizeof *parts, (void **)&parts));
    plan->result = parts;
    ah_parallel_for(count, 1, run_parts, plan);
    plan->result = result;
    *result = plan->start;
    plan->join->row(result, parts, count, 0);
    ah_block_free(parts, (size_t)count * sizeof *parts);
    return 0;
}

/* Vertical: the last kept dim is dense. Task t covers one tile of columns for one part of the reduced range. Narrow
 * matrices are folded several rows at a time, as one wide row. */
static void reduce_columns(void *context, int64_t begin, int64_t end)
{
    const struct plan *plan = context;
    int64_t width = plan->width, tiles = (width + TILE - 1) / TILE;
    const struct dim *inner = &plan->reduced[plan->reduced_count - 1];
    bool flat = plan->reduced_count == 1 && inner->stride == width && width <= TILE / 2;
    int64_t together = flat ? TILE / width : 1;
    for (int64_t t = begin; t < end; t++) {
        int64_t part = t % plan->parts, tile = t / plan->parts % tiles, outer = t / plan->parts / tiles;
        int64_t first = tile * TILE, n = width - first < TILE ? width - first : TILE;
        int64_t r = part * plan->part, stop = r + plan->part < plan->folded ? r + plan->part : plan->folded;
        int64_t base = offset_of(plan->kept, plan->kept_count - 1, outer) + first;
        union value acc[TILE];
        for (int64_t i = 0; i < n * together; i++)
            acc[i] = plan->start;
        if (together > 1) {
            int64_t rows = (stop - r) / together;
            plan->fold->column(acc, reduce_at(plan, base + r * width), n * together, rows, n * together, plan->p);
            plan->join->column(acc, acc + n, n, together - 1, n, 0);
            r += rows * together;
        }
        for (int64_t rows; r < stop; r += rows) {
            rows = inner->size - r % inner->size < stop - r ? inner->size - r % inner->size : stop - r;
            plan->fold->column(acc, reduce_at(plan, base + offset_of(plan->reduced, plan->reduced_count, r)), n, rows,
                               inner->stride, plan->p);
        }
        memcpy(plan->result + part * plan->outputs + outer * width + first, acc, (size_t)n * sizeof *acc);
    }
}

static int reduce_vertical(struct plan *plan)
{
    plan->width = plan->kept[plan->kept_count - 1].size;
    int64_t tiles = plan->outputs / plan->width * ((plan->width + TILE - 1) / TILE);
    /* Few tiles: cut the reduced range as well, by the shape alone. */
    plan->part = plan->folded;
    if (tiles < 16 && plan->folded * plan->outputs > 2 * SPLIT) {
        int64_t per_row = plan->outputs / tiles;
        plan->part = SPLIT / (per_row > 0 ? per_row : 1);
        plan->part = plan->part < 64 ? 64 : plan->part;
    }
    plan->parts = (plan->folded + plan->part - 1) / plan->part;
    union value *result = plan->result;
    size_t bytes = (size_t)(plan->parts * plan->outputs) * sizeof *result;
    if (plan->parts > 1)
        AH_TRY(ah_block_alloc(bytes, (void **)&plan->result));
    int64_t per_task = plan->part * (plan->outputs / tiles);
    ah_parallel_units(tiles * plan->parts, per_task, AH_SHARE_LIGHT, reduce_columns, plan);
    if (plan->parts > 1) {
        memcpy(result, plan->result, (size_t)plan->outputs * sizeof *result);
        plan->join->column(result, plan->result + plan->outputs, plan->outputs, plan->parts - 1, plan->outputs, 0);
        ah_block_free(plan->result, bytes);
        plan->result = result;
    }
    return 0;
}

static int reduce_run(struct ah_reduction *out, struct ah_tensor *input, uint32_t mask, enum ah_fold fold, double p)
{
    struct plan plan;
    reduce_describe(&plan, input, mask);
    plan.fold = ah_fold_loops(input->dtype, fold);
    plan.join = ah_fold_loops(out->integral ? AH_I64 : AH_F64, reduce_joining(fold));
    plan.start = start_of(fold, out->integral);
    plan.p = p;
    out->count = plan.outputs;
    out->folded = plan.folded;
    AH_TRY(ah_block_alloc((size_t)plan.outputs * sizeof(union value), &out->data));
    plan.result = out->data;
    if (plan.outputs == 0)
        return 0;
    if (plan.folded == 0) {
        for (int64_t i = 0; i < plan.outputs; i++)
            plan.result[i] = plan.start;
        return 0;
    }
    if (plan.reduced_count == 0) /* only dims of size 1: every output folds itself */
        plan.reduced[plan.reduced_count++] = (struct dim){1, 1};
    bool dense_row = plan.reduced[plan.reduced_count - 1].stride == 1;
    bool dense_column = plan.kept_count && plan.kept[plan.kept_count - 1].stride == 1;
    if (dense_column && (!dense_row || plan.folded == 1))
        return reduce_vertical(&plan);
    if (dense_row && plan.outputs == 1 && plan.reduced_count == 1)
        return reduce_single(&plan);
    if (dense_row) {
        bool brief = plan.folded < SHORT && plan.kept_count == 1 && plan.reduced_count == 1 && plan.item != 2;
        ah_parallel_units(plan.outputs, plan.folded, AH_SHARE_LIGHT, brief ? short_rows : reduce_rows, &plan);
        return 0;
    }
    /* Nothing is dense: a row-major copy is. */
    ah_reduction_free(out);
    AH_OWNED struct ah_tensor *copy = NULL;
    AH_TRY(ah_tensor_empty_like(&copy, input));
    AH_TRY(ah_copy(copy, input));
    return reduce_run(out, copy, mask, fold, p);
}

int ah_reduce(struct ah_reduction *out, struct ah_tensor *input, uint32_t mask, enum ah_fold fold, double p)
{
    struct ah_tensor *wide = NULL;
    enum ah_dtype dtype = ah_compute_dtype(input->dtype);
    memset(out, 0, sizeof *out);
    /* Halves are read as float32, unless they have loops and rows are long; folds of magnitudes exist for floats
     * only. */
    if (fold >= AH_FOLD_ABS && !ah_dtype_is_float(dtype))
        dtype = AH_F64;
    bool direct = ah_fold_loops(input->dtype, fold)->row && input->ndim > 0 && input->size[input->ndim - 1] >= SHORT;
    if (dtype != input->dtype && !direct) {
        AH_TRY(ah_contiguous_as(&wide, input, dtype));
        input = wide;
    }
    out->integral = !ah_dtype_is_float(dtype);
    int status = reduce_run(out, input, mask, fold, p);
    ah_tensor_release(wide);
    if (status < 0)
        ah_reduction_free(out);
    return status;
}

void ah_reduction_free(struct ah_reduction *reduction)
{
    ah_block_free(reduction->data, (size_t)reduction->count * sizeof(union value));
    reduction->data = NULL;
}

void ah_reduction_store(const struct ah_reduction *reduction, struct ah_tensor *out)
{
    ah_cast(reduction->count, ah_tensor_data(out), out->dtype, 1, reduction->data,
            reduction->integral ? AH_I64 : AH_F64, 1);
}

int ah_reduce_rows(struct ah_tensor **out, struct ah_tensor *input, uint32_t mask, enum ah_dtype dtype, int64_t *rows_,
                   int64_t *columns_)
{
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS], outputs = 1, folded = 1;
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int d = 0; d < input->ndim; d++) {
            if ((int)(mask >> d & 1) != pass)
                continue;
            size[n] = input->size[d];
            stride[n++] = input->stride[d];
            *(pass ? &folded : &outputs) *= input->size[d];
        }
    }
    struct ah_tensor *view;
    AH_TRY(ah_tensor_view(&view, input, size, stride, n, input->offset));
    int status = ah_contiguous_as(out, view, dtype);
    ah_tensor_release(view);
    *rows_ = outputs;
    *columns_ = folded;
    return status;
}
