/* Counting: distinct values (kernels/index/sort.cu), whole numbers, and places among sorted numbers
 * (kernels/index/count.cu). Where a size depends on the values the host waits once, for one number or two. */
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/index/count.h"
#include "cuda/kernels/index/sort.h"
#include "cuda/ops/index/compact.h"
#include "cuda/ops/index/keys.h"
#include "cuda/ops/index/radix.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static struct ah_cuda_kernel marks_kernel = AH_CUDA_KERNEL("sort", "unique_marks");
static struct ah_cuda_kernel groups_kernel = AH_CUDA_KERNEL("sort", "unique_groups");
static struct ah_cuda_kernel inverse_kernel = AH_CUDA_KERNEL("sort", "unique_inverse");
static struct ah_cuda_kernel range_kernel = AH_CUDA_KERNEL("count", "count_range");
static struct ah_cuda_kernel few_kernel = AH_CUDA_KERNEL("count", "count_few");
static struct ah_cuda_kernel many_kernel = AH_CUDA_KERNEL("count", "count_many");
static struct ah_cuda_kernel search_kernel = AH_CUDA_KERNEL("count", "search_sorted");

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_SORT_THREADS);
}

/* unique. */

/* The outputs, from where the groups of equal keys start. */
static int write_groups(struct ah_call *c, struct ah_unique_args *args, const struct ah_tensor *x,
                        const struct ah_cuda_nonzeros *places)
{
    const struct ah_args_unique *arg = ah_args(c, unique);
    AH_OWNED struct ah_tensor *starts = NULL;
    int64_t groups = 0;
    int next = 1;
    if (places)
        AH_TRY(ah_cuda_nonzeros_count(c->device, places, &groups));
    AH_TRY(ah_call_output(c, 0, &groups, 1, x->dtype));
    if (arg->return_inverse.flag) {
        AH_TRY(ah_call_output(c, next, x->size, x->ndim, AH_I64));
        args->inverse = ah_cuda_data(c->out[next++]);
    }
    if (arg->return_counts.flag) {
        AH_TRY(ah_call_output(c, next, &groups, 1, AH_I64));
        args->counts = ah_cuda_data(c->out[next]);
    }
    if (groups == 0)
        return 0;
    AH_TRY(ah_tensor_empty(&starts, &groups, 1, AH_I64, c->device));
    AH_TRY(ah_cuda_nonzeros_write(c->device, c->op->name, places, starts, true));
    args->starts = ah_cuda_data(starts);
    args->groups = groups;
    args->values = ah_cuda_data(c->out[0]);
    AH_TRY(ah_cuda_launch(c->device, &groups_kernel, c->op->name, grid_for(groups), args));
    if (arg->return_inverse.flag)
        AH_TRY(ah_cuda_launch(c->device, &inverse_kernel, c->op->name, grid_for(args->n), args));
    return 0;
}

static int unique_run(struct ah_call *c, const struct ah_tensor *x)
{
    AH_CLEANUP(ah_cuda_sorted_release) struct ah_cuda_sorted sorted = {0};
    AH_CLEANUP(ah_cuda_nonzeros_release) struct ah_cuda_nonzeros places = {0};
    AH_OWNED struct ah_tensor *marks = NULL;
    int bits = ah_cuda_key_bits(x->dtype), item = bits <= 32 ? 4 : 8;
    struct ah_unique_args args = {.x = ah_cuda_data(x), .n = x->numel, .item = item, .dtype = (int32_t)x->dtype};
    AH_CUDA_SCRATCH(keys, c->device);
    args.nan = ah_dtype_is_float(x->dtype) ? ~UINT64_C(0) >> (64 - bits) : 0;
    AH_TRY(ah_cuda_scratch_take(&keys, (size_t)x->numel * (size_t)item));
    AH_TRY(ah_cuda_make_keys(c->device, c->op->name, x, keys.at, item));
    AH_TRY(ah_cuda_sort_keys(c->device, c->op->name, keys.at, NULL, x->numel, item, bits, &sorted));
    AH_TRY(ah_tensor_empty(&marks, &x->numel, 1, AH_BOOL, c->device));
    args.keys = ah_cuda_address(sorted.keys);
    args.order = ah_cuda_address(sorted.order);
    args.marks = ah_cuda_data(marks);
    AH_TRY(ah_cuda_launch(c->device, &marks_kernel, c->op->name, grid_for(args.n), &args));
    AH_TRY(ah_cuda_nonzeros_find(c->device, c->op->name, marks, &places));
    return write_groups(c, &args, x, &places);
}

int ah_cuda_unique(struct ah_call *c)
{
    struct ah_tensor *given = ah_args(c, unique)->input.tensor;
    AH_OWNED struct ah_tensor *x = NULL;
    AH_TRY(ah_cuda_dense(c->device, &x, given, given->dtype));
    return x->numel ? unique_run(c, x) : write_groups(c, &(struct ah_unique_args){0}, x, NULL);
}

/* bincount. */

/* Number of bins for the numbers; AH_EINVAL names the refused one. */
static int find_bins(struct ah_call *c, const struct ah_tensor *x, int64_t *bins)
{
    struct ah_count_range range = {0};
    struct ah_count_args args = {.x = ah_cuda_data(x), .n = x->numel};
    int64_t refused;
    AH_CUDA_SCRATCH(there, c->device);
    if (x->numel == 0)
        return 0;
    AH_TRY(ah_cuda_scratch_take(&there, sizeof range));
    args.range = ah_cuda_address(there.at);
    AH_TRY(ah_cuda_fill(c->device, there.at, 0, sizeof range));
    AH_TRY(ah_cuda_fill(c->device, (char *)there.at + sizeof range.most, 0xff, sizeof range.refused));
    AH_TRY(ah_cuda_launch(c->device, &range_kernel, "bincount", grid_for(x->numel), &args));
    AH_TRY(ah_cuda_copy(c->device, &range, &ah_cpu, there.at, c->device, sizeof range, NULL));
    if (range.refused != UINT64_MAX) {
        const int64_t *at = ah_tensor_data(x);
        AH_TRY(ah_cuda_copy(c->device, &refused, &ah_cpu, at + range.refused, c->device, sizeof refused, NULL));
        if (refused < 0)
            return ah_fail(AH_EINVAL, "bincount: expected values of at least 0, got %lld at position %lld",
                           (long long)refused, (long long)range.refused);
        return ah_fail(AH_EINVAL, "bincount: %lld, at position %lld, is too large to count to", (long long)refused,
                       (long long)range.refused);
    }
    *bins = (int64_t)range.most >= *bins ? (int64_t)range.most + 1 : *bins;
    return 0;
}

static int add_weights(struct ah_call *c, struct ah_tensor *x, struct ah_tensor *weights)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *same = NULL, *sums = NULL;
    AH_TRY(ah_cuda_dense(c->device, &same, weights, out->dtype));
    AH_TRY(ah_op1(AH_OP_index_add, &sums, AH_T(out), AH_I(0), AH_T(x), AH_T(same)));
    return ah_cuda_assign(c->device, out, sums);
}

int ah_cuda_bincount(struct ah_call *c)
{
    const struct ah_args_bincount *arg = ah_args(c, bincount);
    struct ah_tensor *weights = ah_given(&arg->weights);
    AH_OWNED struct ah_tensor *x = NULL;
    struct ah_count_args args = {.bins = arg->minlength.integer};
    AH_TRY(ah_cuda_dense(c->device, &x, arg->input.tensor, AH_I64));
    AH_TRY(find_bins(c, x, &args.bins));
    AH_TRY(ah_call_output(c, 0, &args.bins, 1, !weights ? AH_I64 : weights->dtype == AH_F32 ? AH_F32 : AH_F64));
    AH_TRY(ah_cuda_zero_(c));
    args.x = ah_cuda_data(x);
    args.n = x->numel;
    args.counts = ah_cuda_data(c->out[0]);
    if (x->numel > 0 && weights)
        AH_TRY(add_weights(c, x, weights));
    else if (x->numel > 0)
        AH_TRY(ah_cuda_launch(c->device, args.bins <= AH_COUNT_SHARED ? &few_kernel : &many_kernel, "bincount",
                              grid_for(args.n), &args));
    return 0;
}

int ah_cuda_searchsorted(struct ah_call *c)
{
    const struct ah_args_searchsorted *arg = ah_args(c, searchsorted);
    struct ah_tensor *sequence = arg->sorted_sequence.tensor, *input = arg->input.tensor;
    AH_OWNED struct ah_tensor *edges = NULL, *x = NULL;
    struct ah_tensor *out = c->out[0];
    AH_TRY(ah_cuda_dense(c->device, &edges, sequence, sequence->dtype));
    AH_TRY(ah_cuda_dense(c->device, &x, input, input->dtype));
    struct ah_search_sorted_args args = {
        .edges = ah_cuda_data(edges), .x = ah_cuda_data(x), .to = ah_cuda_data(out), .n = x->numel,
        .edge_count = edges->size[edges->ndim - 1], .per_row = x->ndim > 0 ? x->size[x->ndim - 1] : 1,
        .edge_dtype = (int32_t)edges->dtype, .dtype = (int32_t)x->dtype, .right = arg->right.flag,
        .narrow = out->dtype == AH_I32, .one_row = edges->ndim == 1,
        .by_double = ah_dtype_is_float(edges->dtype) || ah_dtype_is_float(x->dtype)};
    if (x->numel > 0)
        AH_TRY(ah_cuda_launch(c->device, &search_kernel, "searchsorted", grid_for(x->numel), &args));
    return 0;
}
