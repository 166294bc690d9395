/* Sorting along a dim (kernels/index/sort.cu). Lines that fit a tile are sorted by a block each or several by one; the
 * first few of longer lines are selected; all else is one radix sort of all elements, by line and key together. */
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/index/sort.h"
#include "cuda/ops/index/keys.h"
#include "cuda/ops/index/radix.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/lib/slices.h"

/* A line that is longer than ALONE keeps one block busy for too long where there are fewer than FEW of them. */
enum { ALONE = 1 << 18, FEW = 16 };

static struct ah_cuda_kernel keys_kernel[] = {AH_CUDA_KERNEL("sort", "sort_keys_32"),
                                              AH_CUDA_KERNEL("sort", "sort_keys_64")};
static struct ah_cuda_kernel slices_kernel = AH_CUDA_KERNEL("sort", "sort_slices");
static struct ah_cuda_kernel take_kernel = AH_CUDA_KERNEL("sort", "sort_take");
static struct ah_cuda_kernel tile_kernel = AH_CUDA_KERNEL("sort", "sort_tile");
static struct ah_cuda_kernel select_kernel = AH_CUDA_KERNEL("sort", "sort_select");

static struct ah_cuda_grid grid_for(int64_t items)
{
    return ah_cuda_grid_for(items, AH_SORT_THREADS);
}

int ah_cuda_key_bits(enum ah_dtype dtype)
{
    return 8 * (int)ah_dtype_size(dtype);
}

int ah_cuda_make_keys(struct ah_device *device, const char *op_name, const struct ah_tensor *x, void *keys, int item)
{
    struct ah_sort_args args = {.x = ah_cuda_data(x), .keys = ah_cuda_address(keys), .lines = 1,
                                .n = x->numel, .dtype = (int32_t)x->dtype};
    return ah_cuda_launch(device, &keys_kernel[item == 8], op_name, grid_for(x->numel), &args);
}

/* Sort an order of the elements by their lines, stable. */
static int sort_by_line(struct ah_device *device, const char *op_name, const struct ah_sort_args *given,
                        const struct ah_cuda_sorted *by_key, struct ah_cuda_sorted *out)
{
    struct ah_sort_args args = *given;
    int64_t count = args.lines * args.n;
    AH_CUDA_SCRATCH(keys, device);
    AH_TRY(ah_cuda_scratch_take(&keys, (size_t)count * sizeof(uint32_t)));
    args.keys = ah_cuda_address(keys.at);
    args.order = ah_cuda_address(by_key->order);
    AH_TRY(ah_cuda_launch(device, &slices_kernel, op_name, grid_for(count), &args));
    return ah_cuda_sort_keys(device, op_name, keys.at, by_key->order, count, 4, ah_cuda_bits(args.lines), out);
}

/* All elements by one radix sort; a key that leaves room for the line holds it. */
static int sort_all(struct ah_device *device, const char *op_name, struct ah_sort_args *args)
{
    AH_CLEANUP(ah_cuda_sorted_release) struct ah_cuda_sorted by_key = {0}, by_line = {0};
    struct ah_cuda_sorted *sorted = &by_key;
    int64_t count = args->lines * args->n;
    int of_line = args->lines > 1 ? ah_cuda_bits(args->lines) : 0;
    args->with_line = of_line > 0 && args->bits + of_line <= 64;
    int bits = args->bits + (args->with_line ? of_line : 0), item = bits <= 32 ? 4 : 8;
    AH_CUDA_SCRATCH(keys, device);
    AH_TRY(ah_cuda_scratch_take(&keys, (size_t)count * (size_t)item));
    args->keys = ah_cuda_address(keys.at);
    AH_TRY(ah_cuda_launch(device, &keys_kernel[item == 8], op_name, grid_for(count), args));
    AH_TRY(ah_cuda_sort_keys(device, op_name, keys.at, NULL, count, item, bits, &by_key));
    if (of_line > 0 && !args->with_line) {
        AH_TRY(sort_by_line(device, op_name, args, &by_key, &by_line));
        sorted = &by_line;
    }
    args->order = ah_cuda_address(sorted->order);
    return ah_cuda_launch(device, &take_kernel, op_name, grid_for(args->lines * args->keep), args);
}

static int64_t power_of_two(int64_t n)
{
    int64_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

static int sort_slices(struct ah_device *device, const char *op_name, struct ah_sort_args *args)
{
    if (args->n <= AH_SORT_TILE) {
        args->padded = power_of_two(args->n);
        int64_t each = AH_SORT_TILE / args->padded, tiles = (args->lines + each - 1) / each;
        struct ah_cuda_grid grid = {ah_cuda_blocks(tiles, 1), AH_SORT_THREADS, 0};
        return ah_cuda_launch(device, &tile_kernel, op_name, grid, args);
    }
    if (args->keep <= AH_SORT_TILE && args->keep < args->n / 4 && (args->n <= ALONE || args->lines >= FEW)) {
        args->padded = power_of_two(args->keep);
        args->place_bits = (ah_cuda_bits(args->n) + 7) / 8 * 8;
        struct ah_cuda_grid grid = {ah_cuda_blocks(args->lines, 1), AH_SELECT_THREADS, 0};
        return ah_cuda_launch(device, &select_kernel, op_name, grid, args);
    }
    return sort_all(device, op_name, args);
}

/* The first `keep` of each line: their values (NULL: not wanted) and places. */
static int sort_into(struct ah_call *c, int dim, bool descending, int64_t keep, struct ah_tensor *values,
                     struct ah_tensor *indices)
{
    struct ah_tensor *input = c->arg[0].tensor, *x = NULL, *y = NULL, *at = NULL;
    int status;
    if (indices->numel == 0)
        return 0;
    AH_TRYGO(ah_cuda_slices(c->device, &x, input, dim, input->dtype), done);
    if (values)
        AH_TRYGO(ah_cuda_slices_open(c->device, &y, values, dim, values->dtype), done);
    AH_TRYGO(ah_cuda_slices_open(c->device, &at, indices, dim, AH_I64), done);
    struct ah_sort_args args = {.x = ah_cuda_data(x), .n = ah_cuda_extent(input, dim).n,
                                .values = y ? ah_cuda_data(y) : 0,
                                .indices = ah_cuda_data(at), .keep = keep,
                                .dtype = (int32_t)x->dtype, .bits = ah_cuda_key_bits(x->dtype)};
    args.lines = x->numel / args.n;
    args.flip = descending ? ~UINT64_C(0) >> (64 - args.bits) : 0;
    status = sort_slices(c->device, c->op->name, &args);
done:
    if (y)
        status = ah_cuda_slices_close(c->device, y, values, dim, status);
    if (at)
        status = ah_cuda_slices_close(c->device, at, indices, dim, status);
    ah_tensor_release(x);
    return status;
}

static int64_t sort_length(const struct ah_tensor *x, int dim)
{
    return x->ndim > 0 ? x->size[dim] : 1;
}

int ah_cuda_sort(struct ah_call *c)
{
    const struct ah_args_sort *arg = ah_args(c, sort);
    int dim = (int)arg->dim.integer;
    return sort_into(c, dim, arg->descending.flag, sort_length(arg->input.tensor, dim), c->out[0], c->out[1]);
}

int ah_cuda_argsort(struct ah_call *c)
{
    const struct ah_args_argsort *arg = ah_args(c, argsort);
    int dim = (int)arg->dim.integer;
    return sort_into(c, dim, arg->descending.flag, sort_length(arg->input.tensor, dim), NULL, c->out[0]);
}

/* Of 0 dims the result has one entry, whatever k. */
int ah_cuda_topk(struct ah_call *c)
{
    const struct ah_args_topk *arg = ah_args(c, topk);
    int64_t keep = arg->input.tensor->ndim > 0 ? arg->k.integer : 1;
    return sort_into(c, (int)arg->dim.integer, arg->largest.flag, keep, c->out[0], c->out[1]);
}

static int sort_number(int64_t value, struct ah_tensor **out)
{
    AH_TRY(ah_tensor_empty(out, NULL, 0, AH_I64, &ah_cpu));
    ah_tensor_set_int(*out, 0, value);
    (*out)->wrapped = true;
    return 0;
}

/* The places of the whole line, of which those of the ranks are picked. */
int ah_cuda_argrank(struct ah_call *c)
{
    const struct ah_args_argrank *arg = ah_args(c, argrank);
    struct ah_tensor *x = arg->input.tensor, *out = c->out[0];
    AH_OWNED struct ah_tensor *places = NULL, *ranks = NULL, *picked = NULL;
    AH_OWNED struct ah_tensor *least = NULL, *most = NULL;
    int dim = (int)arg->dim.integer;
    if (out->numel == 0)
        return 0;
    AH_TRY(sort_number(0, &least));
    AH_TRY(sort_number(x->size[dim] - 1, &most));
    AH_TRY(ah_op1(AH_OP_clamp, &ranks, arg->rank, AH_T(least), AH_T(most)));
    AH_TRY(ah_tensor_empty(&places, x->size, x->ndim, AH_I64, c->device));
    AH_TRY(sort_into(c, dim, false, x->size[dim], NULL, places));
    AH_TRY(ah_op1(AH_OP_gather, &picked, AH_T(places), AH_I(dim), AH_T(ranks)));
    return ah_cuda_assign(c->device, out, picked);
}
