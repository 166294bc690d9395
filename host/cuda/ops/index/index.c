/* Picking and placing by rows and by lines. Writes are first sorted by their destination. */
#include "cuda/kernels/index/index.h"

#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/index/compact.h"
#include "cuda/ops/index/radix.h"
#include "cuda/ops/index/row_fold.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static struct ah_cuda_kernel pick_kernel[] = {
    AH_CUDA_KERNEL("index", "pick_1"), AH_CUDA_KERNEL("index", "pick_2"), AH_CUDA_KERNEL("index", "pick_4"),
    AH_CUDA_KERNEL("index", "pick_8"), AH_CUDA_KERNEL("index", "pick_16")};
static struct ah_cuda_kernel gather_kernel[] = {
    AH_CUDA_KERNEL("index", "slices_gather_1"), AH_CUDA_KERNEL("index", "slices_gather_2"),
    AH_CUDA_KERNEL("index", "slices_gather_4"), AH_CUDA_KERNEL("index", "slices_gather_8")};
static struct ah_cuda_kernel line_keys_kernel = AH_CUDA_KERNEL("index", "line_keys");
static struct ah_cuda_kernel wrap_kernel = AH_CUDA_KERNEL("index", "index_wrap");

static struct ah_cuda_kernel slices_fold_kernel[] = AH_CUDA_INDEX_EVERY("slices_fold");
static struct ah_cuda_kernel slices_join_kernel[] = AH_CUDA_INDEX_EVERY("slices_join");

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_INDEX_THREADS);
}

/* A 0-dim tensor is one row of one element. */
static struct ah_cuda_rows rows_of(const struct ah_tensor *t, int dim)
{
    struct ah_cuda_rows rows = {1, 1, 1};
    for (int d = 0; d < t->ndim; d++)
        *(d < dim ? &rows.outer : d == dim ? &rows.n : &rows.inner) *= t->size[d];
    return rows;
}

/* The index as row-major int64, in 0..n-1 unless an error is reported (cuda/driver/stream/fault.h). */
static struct ah_tensor *open_index(struct ah_cuda_inputs *in, const char *op_name, struct ah_tensor *index, int64_t n,
                                    int dim, const struct ah_tensor *of)
{
    struct ah_tensor *at = ah_cuda_input(in, index, AH_I64);
    struct ah_cuda_bounds bounds = {op_name, "index", 0, n - 1, 0, of, dim};
    if (n == 0)
        bounds.other = INT64_MIN;
    if (at)
        in->status = ah_cuda_expect_within(in->device, &bounds, at);
    return at;
}

/* A row-major tensor to write into: out[0], or a temporary where that is a strided view. With `copy` it holds
 * arg[0]. */
struct target {
    struct ah_tensor *out, *work;
};

static int target_open(struct ah_call *c, bool copy, struct target *target)
{
    struct ah_tensor *out = c->out[0];
    *target = (struct target){out, out};
    if (!ah_tensor_is_contiguous(out))
        AH_TRY(ah_tensor_empty_like(&target->work, out));
    if (!copy || (c->inplace && target->work == out))
        return 0;
    int status = ah_cuda_assign(c->device, target->work, c->arg[0].tensor);
    if (status < 0 && target->work != out) {
        ah_tensor_release(target->work);
        target->work = out;
    }
    return status;
}

static int target_close(struct ah_call *c, struct target *target, int status)
{
    if (target->work == target->out)
        return status;
    if (status == 0)
        status = ah_cuda_assign(c->device, target->out, target->work);
    ah_tensor_release(target->work);
    return status;
}

/* Rows. */

static int index_pick(struct ah_call *c, const struct ah_tensor *source, const struct ah_tensor *at,
                      struct ah_cuda_rows rows)
{
    struct ah_tensor *out = c->out[0];
    size_t item = ah_dtype_size(out->dtype), bytes = (size_t)rows.inner * item;
    struct ah_pick_args args = {.to = ah_cuda_data(out), .from = ah_cuda_data(source), .at = ah_cuda_data(at),
                                .outer = rows.outer, .n = rows.n, .count = at->numel};
    if (out->numel == 0)
        return 0;
    if ((args.to | args.from | bytes) % 16 == 0)
        item = 16;
    args.width = args.row = (int64_t)(bytes / item);
    return ah_cuda_launch(c->device, &pick_kernel[__builtin_ctz((unsigned)item)], c->op->name,
                          grid_for(args.outer * args.count * args.width), &args);
}

int ah_cuda_index_select(struct ah_call *c)
{
    const struct ah_args_index_select *arg = ah_args(c, index_select);
    struct ah_tensor *x = arg->input.tensor;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    int dim = (int)arg->dim.integer;
    struct ah_cuda_rows rows = rows_of(x, dim);
    struct ah_tensor *at = open_index(&in, "index_select", arg->index.tensor, rows.n, dim, x);
    struct ah_tensor *source = ah_cuda_input(&in, x, x->dtype);
    AH_TRY(in.status);
    return index_pick(c, source, at, rows);
}

static int index_clear(struct ah_call *c, struct ah_tensor *t)
{
    return ah_cuda_fill(c->device, ah_tensor_data(t), 0, ah_tensor_bytes(t));
}

/* Fold the rows of `given` into a result of zeros, by an index that the forward has checked. */
static int fold_gradient(struct ah_call *c, struct ah_tensor *index, struct ah_tensor *given, struct ah_cuda_rows rows,
                         int64_t skip, bool fresh)
{
    struct ah_tensor *out = c->out[0];
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_cuda_row_fold fold = {.fold = AH_INDEX_ADD, .alpha = 1, .skip = skip, .fresh = fresh};
    struct ah_tensor *at = ah_cuda_input(&in, index, AH_I64), *grad = ah_cuda_input(&in, given, out->dtype);
    AH_TRY(in.status);
    if (fresh)
        AH_TRY(index_clear(c, out));
    return ah_cuda_fold_rows(c, out, grad, at, rows, fold);
}

AH_CUDA_OP_WITH(index_select_backward, index_select_backward,
                fold_gradient(c, arg->index.tensor, arg->grad.tensor, rows_of(c->out[0], (int)arg->dim.integer), -1,
                              true))

/* index_add, index_copy, index_fill. */
static int place_rows(struct ah_call *c, struct ah_tensor *source, struct ah_cuda_row_fold fold)
{
    const struct ah_args_index_add *arg = ah_args(c, index_add);
    struct ah_tensor *out = c->out[0];
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct target target = {out, out};
    int dim = (int)arg->dim.integer;
    struct ah_cuda_rows rows = rows_of(out, dim);
    struct ah_tensor *at = open_index(&in, c->op->name, arg->index.tensor, rows.n, dim, out);
    struct ah_tensor *from = ah_cuda_input(&in, source, out->dtype);
    AH_TRY(in.status);
    AH_TRY(target_open(c, true, &target));
    return target_close(c, &target, ah_cuda_fold_rows(c, target.work, from, at, rows, fold));
}

int ah_cuda_index_add(struct ah_call *c)
{
    const struct ah_args_index_add *arg = ah_args(c, index_add);
    double alpha = arg->alpha.number; /* a sum of bools is an or, whatever the factor's sign */
    alpha = c->out[0]->dtype == AH_BOOL ? alpha != 0 : alpha;
    return place_rows(c, arg->source.tensor,
                      (struct ah_cuda_row_fold){.fold = AH_INDEX_ADD, .alpha = alpha, .skip = -1});
}

AH_CUDA_OP(index_copy, place_rows(c, ah_args(c, index_copy)->source.tensor,
                                  (struct ah_cuda_row_fold){.fold = AH_INDEX_LAST, .skip = -1}))

int ah_cuda_index_fill(struct ah_call *c)
{
    AH_OWNED struct ah_tensor *value = NULL, *number = NULL;
    AH_TRY(ah_tensor_scalar(&number, ah_args(c, index_fill)->value.number, c->out[0]->dtype, &ah_cpu));
    AH_TRY(ah_cuda_dense(c->device, &value, number, number->dtype));
    return place_rows(c, value, (struct ah_cuda_row_fold){.fold = AH_INDEX_LAST, .skip = -1, .single = true});
}

int ah_cuda_index_put(struct ah_call *c)
{
    const struct ah_args_index_put *arg = ah_args(c, index_put);
    struct ah_tensor *out = c->out[0], *values = arg->values.tensor;
    AH_OWNED struct ah_tensor *wide = NULL, *source = NULL;
    struct ah_tensor *at = c->extra[0], *shape = c->extra[1];
    struct target target = {out, out};
    struct ah_cuda_rows rows = {1, 1, 1};
    int64_t stride[AH_MAX_DIMS];
    ah_broadcast_strides(values, shape->size, shape->ndim, stride);
    AH_TRY(ah_tensor_view(&wide, values, shape->size, stride, shape->ndim, values->offset));
    AH_TRY(ah_cuda_dense(c->device, &source, wide, out->dtype));
    AH_TRY(target_open(c, true, &target));
    for (int d = 0; d < out->ndim; d++)
        *(d < c->state.place.covered ? &rows.n : &rows.inner) *= out->size[d];
    struct ah_cuda_row_fold fold = {.fold = arg->accumulate.flag ? AH_INDEX_ADD : AH_INDEX_LAST, .alpha = 1,
                                    .skip = -1};
    return target_close(c, &target, ah_cuda_fold_rows(c, target.work, source, at, rows, fold));
}

/* Return the places where a mask is true. */
static int places_of(struct ah_call *c, struct ah_tensor *given)
{
    AH_OWNED struct ah_tensor *mask = NULL;
    AH_CLEANUP(ah_cuda_nonzeros_release) struct ah_cuda_nonzeros places = {0};
    int64_t count;
    AH_TRY(ah_cuda_dense(c->device, &mask, given, AH_BOOL));
    AH_TRY(ah_cuda_nonzeros_find(c->device, c->op->name, mask, &places));
    AH_TRY(ah_cuda_nonzeros_count(c->device, &places, &count));
    AH_TRY(ah_call_output(c, 0, &count, 1, AH_I64));
    return ah_cuda_nonzeros_write(c->device, c->op->name, &places, c->out[0], true);
}

int ah_cuda_index_positions(struct ah_call *c)
{
    const struct ah_args_index_positions *arg = ah_args(c, index_positions);
    struct ah_tensor *x = arg->input.tensor;
    AH_OWNED struct ah_tensor *list = NULL;
    int dim = (int)arg->dim.integer;
    if (arg->index.tensor->dtype == AH_BOOL)
        return places_of(c, arg->index.tensor);
    int64_t n = x->size[dim];
    AH_TRY(ah_cuda_dense(c->device, &list, arg->index.tensor, AH_I64));
    struct ah_cuda_bounds bounds = {"index", "index", -n, n - 1, -n, x, dim};
    if (n == 0)
        bounds.other = INT64_MIN;
    AH_TRY(ah_cuda_expect_within(c->device, &bounds, list));
    AH_TRY(ah_call_output(c, 0, &list->numel, 1, AH_I64));
    if (list->numel > 0) {
        struct ah_row_keys_args args = {ah_cuda_data(c->out[0]), ah_cuda_data(list), list->numel, n, 0};
        AH_TRY(ah_cuda_launch(c->device, &wrap_kernel, c->op->name, grid_for(list->numel), &args));
    }
    return 0;
}

/* Tables of rows. */

int ah_cuda_embedding(struct ah_call *c)
{
    const struct ah_args_embedding *arg = ah_args(c, embedding);
    struct ah_tensor *w = arg->weight.tensor;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_tensor *at = open_index(&in, "embedding", arg->input.tensor, w->size[0], 0, NULL);
    struct ah_tensor *table = ah_cuda_input(&in, w, w->dtype);
    AH_TRY(in.status);
    return index_pick(c, table, at, (struct ah_cuda_rows){1, w->size[0], w->size[1]});
}

static int embedding_backward(struct ah_call *c, struct ah_tensor *index, struct ah_tensor *grad,
                              const struct ah_value *padding_idx, bool fresh)
{
    struct ah_cuda_rows rows = {1, c->out[0]->size[0], c->out[0]->size[1]};
    int64_t skip = -1;
    if (padding_idx->kind != AH_NONE)
        skip = padding_idx->integer + (padding_idx->integer < 0 ? rows.n : 0);
    return fold_gradient(c, index, grad, rows, skip, fresh);
}

AH_CUDA_OP_WITH(embedding_backward, embedding_backward,
                embedding_backward(c, arg->input.tensor, arg->grad.tensor, &arg->padding_idx, true))
AH_CUDA_OP_WITH(embedding_backward_add, embedding_backward_add,
                embedding_backward(c, arg->input.tensor, arg->grad.tensor, &arg->padding_idx, false))

/* Lines. */

static struct ah_slices_args slices_of(const struct ah_tensor *at, int dim, const struct ah_tensor *indexed,
                                       const struct ah_tensor *other)
{
    struct ah_slices_args args = {.at = ah_cuda_data(at), .count = at->numel, .n = 1, .ndim = at->ndim, .dim = dim};
    if (at->ndim == 0) { /* a line of one element */
        args.ndim = 1;
        args.size[0] = 1;
        args.indexed[0] = indexed->ndim > 0 ? indexed->stride[0] : 0;
    }
    for (int d = 0; d < at->ndim; d++) {
        args.size[d] = at->size[d];
        args.indexed[d] = indexed->ndim > d ? indexed->stride[d] : 0;
        args.other[d] = other->ndim > d ? other->stride[d] : 0;
    }
    if (indexed->ndim > 0)
        args.n = indexed->size[dim];
    return args;
}

int ah_cuda_gather(struct ah_call *c)
{
    const struct ah_args_gather *arg = ah_args(c, gather);
    struct ah_tensor *x = arg->input.tensor, *out = c->out[0];
    struct ah_cuda_inputs in = {.device = c->device};
    int dim = (int)arg->dim.integer;
    struct ah_tensor *at = open_index(&in, "gather", arg->index.tensor, x->ndim > 0 ? x->size[dim] : 1, dim, x);
    if (in.status == 0 && at->numel > 0) {
        struct ah_slices_args args = slices_of(at, dim, x, out);
        args.from = ah_cuda_data(x);
        args.to = ah_cuda_data(out);
        in.status = ah_cuda_launch(c->device, &gather_kernel[__builtin_ctz((unsigned)ah_dtype_size(x->dtype))],
                                   c->op->name, grid_for(args.count), &args);
    }
    return ah_cuda_inputs_close(&in);
}

/* Fold by sorted keys, in pieces; the sums of destinations of several pieces are joined after that. */
static int fold_pieces(struct ah_call *c, enum ah_dtype dtype, struct ah_slices_args *args)
{
    int64_t stretches = (args->count + AH_INDEX_PIECE - 1) / AH_INDEX_PIECE;
    AH_CUDA_SCRATCH(parts, c->device);
    if (args->fold != AH_INDEX_LAST && stretches > 1) {
        AH_TRY(ah_cuda_scratch_take(&parts, (size_t)stretches * 2 * sizeof(double)));
        args->parts = ah_cuda_address(parts.at);
    }
    AH_TRY(ah_cuda_launch(c->device, &slices_fold_kernel[dtype], c->op->name, grid_for(args->count), args));
    if (parts.at)
        AH_TRY(ah_cuda_launch(c->device, &slices_join_kernel[dtype], c->op->name, grid_for(stretches - 1), args));
    return 0;
}

/* The elements of `from` into the places of `to`, which is row-major. */
static int fold_slices(struct ah_call *c, struct ah_tensor *to, const struct ah_tensor *from,
                       const struct ah_tensor *at, int dim, int fold)
{
    AH_CLEANUP(ah_cuda_sorted_release) struct ah_cuda_sorted sorted = {0};
    AH_CUDA_SCRATCH(keys, c->device);
    if (at->numel == 0)
        return 0;
    if (to->numel >= INT64_C(0xffffffff))
        return ah_fail(AH_EINVAL, "%s: a tensor of %lld elements is too large to be written by index on %s",
                       c->op->name, (long long)to->numel, c->device->name);
    struct ah_slices_args args = slices_of(at, dim, to, from);
    AH_TRY(ah_cuda_scratch_take(&keys, (size_t)at->numel * sizeof(uint32_t)));
    args.keys = ah_cuda_address(keys.at);
    args.places = to->numel;
    AH_TRY(ah_cuda_launch(c->device, &line_keys_kernel, c->op->name, grid_for(args.count), &args));
    AH_TRY(ah_cuda_sort_keys(c->device, c->op->name, keys.at, NULL, args.count, 4, ah_cuda_bits(args.places + 1),
                             &sorted));
    args.keys = ah_cuda_address(sorted.keys);
    args.order = ah_cuda_address(sorted.order);
    args.to = ah_cuda_data(to);
    args.from = ah_cuda_data(from);
    args.fold = fold;
    return fold_pieces(c, to->dtype, &args);
}

int ah_cuda_gather_backward(struct ah_call *c)
{
    const struct ah_args_gather_backward *arg = ah_args(c, gather_backward);
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_tensor *at = ah_cuda_input(&in, arg->index.tensor, AH_I64);
    AH_TRY(in.status);
    AH_TRY(index_clear(c, c->out[0]));
    return fold_slices(c, c->out[0], arg->grad.tensor, at, (int)arg->dim.integer, AH_INDEX_ADD);
}

static int index_scatter(struct ah_call *c, int fold)
{
    const struct ah_args_scatter *arg = ah_args(c, scatter);
    struct ah_tensor *out = c->out[0], *src = arg->src.tensor;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct target target = {out, out};
    int dim = (int)arg->dim.integer;
    int64_t n = out->ndim > 0 ? out->size[dim] : 1;
    struct ah_tensor *at = open_index(&in, c->op->name, arg->index.tensor, n, dim, out);
    if (src->wrapped || ah_on_cpu(src))
        src = ah_cuda_input(&in, src, out->dtype);
    AH_TRY(in.status);
    AH_TRY(target_open(c, true, &target));
    return target_close(c, &target, fold_slices(c, target.work, src, at, dim, fold));
}

int ah_cuda_scatter(struct ah_call *c)
{
    const struct ah_value *reduce = &ah_args(c, scatter)->reduce;
    if (reduce->kind != AH_STRING)
        return index_scatter(c, AH_INDEX_LAST);
    return index_scatter(c, !strcmp(reduce->string, "add") ? AH_INDEX_ADD : AH_INDEX_MULTIPLY);
}

AH_CUDA_OP(scatter_add, index_scatter(c, AH_INDEX_ADD))

int ah_cuda_scatter_fold(struct ah_call *c)
{
    const char *reduce = ah_args(c, scatter_fold)->reduce.string;
    return index_scatter(c, !strcmp(reduce, "prod")   ? AH_INDEX_MULTIPLY
                            : !strcmp(reduce, "amax") ? AH_INDEX_LARGER
                                                      : AH_INDEX_SMALLER);
}
