/* Rows that are added to rows that an index names, or written over them: the index is sorted by its destination, so
 * that each has one owner. */
#include "cuda/ops/index/row_fold.h"

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/index/radix.h"

static struct ah_cuda_kernel row_keys_kernel = AH_CUDA_KERNEL("index", "row_keys");
static struct ah_cuda_kernel rows_last_kernel[] = AH_CUDA_INDEX_EVERY("rows_last");
static struct ah_cuda_kernel rows_add_kernel[] = AH_CUDA_INDEX_EVERY("rows_add");
static struct ah_cuda_kernel rows_join_kernel[] = AH_CUDA_INDEX_EVERY("rows_join");
static struct ah_cuda_kernel bag_add_kernel[] = AH_CUDA_REALS("index", "bag_add");

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_INDEX_THREADS);
}

/* The index sorted by rows: those out of range and `skip` become n and are last. */
static int sort_rows(struct ah_call *c, const struct ah_tensor *at, int64_t n, int64_t skip,
                     struct ah_cuda_sorted *sorted, struct ah_cuda_scratch *keys)
{
    AH_TRY(ah_cuda_scratch_take(keys, (size_t)at->numel * sizeof(uint32_t)));
    struct ah_row_keys_args args = {ah_cuda_address(keys->at), ah_cuda_data(at), at->numel, n, skip};
    AH_TRY(ah_cuda_launch(c->device, &row_keys_kernel, c->op->name, grid_for(at->numel), &args));
    return ah_cuda_sort_keys(c->device, c->op->name, keys->at, NULL, at->numel, 4, ah_cuda_bits(n + 1), sorted);
}

static int launch_rows(struct ah_call *c, struct ah_cuda_kernel *kernel, int64_t places,
                       const struct ah_rows_fold_args *args)
{
    int64_t warps = args->outer * places * ((args->inner + 31) / 32);
    return ah_cuda_launch(c->device, kernel, c->op->name, grid_for(warps * 32), args);
}

int ah_cuda_add_rows(struct ah_call *c, enum ah_dtype dtype, struct ah_rows_fold_args *args)
{
    AH_CUDA_SCRATCH(parts, c->device);
    args->stretches = (args->count + AH_INDEX_PIECE - 1) / AH_INDEX_PIECE;
    if (args->stretches > 1) {
        size_t sums = (size_t)(args->outer * args->stretches * 2 * args->inner);
        AH_TRY(ah_cuda_scratch_take(&parts, sums * sizeof(double)));
        args->parts = ah_cuda_address(parts.at);
    }
    struct ah_cuda_kernel *add = args->map ? &bag_add_kernel[dtype] : &rows_add_kernel[dtype];
    AH_TRY(launch_rows(c, add, args->count, args));
    if (parts.at)
        AH_TRY(launch_rows(c, &rows_join_kernel[dtype], args->stretches - 1, args));
    return 0;
}

int ah_cuda_fold_rows(struct ah_call *c, struct ah_tensor *to, const struct ah_tensor *from, const struct ah_tensor *at,
                     struct ah_cuda_rows rows, struct ah_cuda_row_fold fold)
{
    AH_CLEANUP(ah_cuda_sorted_release) struct ah_cuda_sorted sorted = {0};
    AH_CUDA_SCRATCH(keys, c->device);
    if (at->numel == 0 || rows.inner == 0 || rows.outer == 0)
        return 0;
    if (rows.n >= INT64_C(0xffffffff))
        return ah_fail(AH_EINVAL, "%s: a dim of %lld is too large to be indexed on %s", c->op->name,
                       (long long)rows.n, c->device->name);
    AH_TRY(sort_rows(c, at, rows.n, fold.skip, &sorted, &keys));
    struct ah_rows_fold_args args = {
        .to = ah_cuda_data(to), .from = ah_cuda_data(from), .keys = ah_cuda_address(sorted.keys),
        .order = ah_cuda_address(sorted.order), .outer = rows.outer, .n = rows.n, .count = at->numel,
        .inner = rows.inner, .from_row = fold.single ? 0 : rows.inner, .alpha = fold.alpha, .fresh = fold.fresh,
        .map = fold.map, .scale = fold.scale, .sources = from->size[0]};
    return fold.fold == AH_INDEX_ADD ? ah_cuda_add_rows(c, to->dtype, &args)
                                     : launch_rows(c, &rows_last_kernel[to->dtype], args.count, &args);
}
