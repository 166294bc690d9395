/* Sums of bags of rows: the positions of the list are folded by their bags, and for the gradient of the table by their
 * rows (row_fold.h). */
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/index/row_fold.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

static struct ah_cuda_kernel places_kernel = AH_CUDA_KERNEL("index", "bag_places");

struct bags {
    struct ah_tensor *at, *starts, *scale; /* row-major; scale may be NULL */
    void *bag, *row;                       /* of each position */
};

static void bags_close(struct ah_call *c, struct bags *bags)
{
    struct ah_cuda_memory *memory = ah_cuda_state(c->device)->memory;
    ah_cuda_memory_give(memory, bags->bag);
    ah_cuda_memory_give(memory, bags->row);
    ah_tensor_release(bags->at);
    ah_tensor_release(bags->starts);
    ah_tensor_release(bags->scale);
}

/* `rows`: number of the table's rows. */
static int bags_open(struct ah_call *c, struct bags *bags, struct ah_tensor *index, struct ah_tensor *starts,
                     struct ah_tensor *scale, const struct ah_value *padding, int64_t rows)
{
    struct ah_cuda_memory *memory = ah_cuda_state(c->device)->memory;
    size_t bytes = (size_t)index->numel * sizeof(uint32_t);
    if (rows >= AH_INDEX_NONE || starts->size[0] >= AH_INDEX_NONE)
        return ah_fail(AH_EINVAL, "embedding_bag: %lld rows or %lld bags are too many on %s", (long long)rows,
                       (long long)starts->size[0] - 1, c->device->name);
    AH_TRY(ah_cuda_dense(c->device, &bags->at, index, AH_I64));
    AH_TRY(ah_cuda_dense(c->device, &bags->starts, starts, AH_I64));
    if (scale)
        AH_TRY(ah_cuda_dense(c->device, &bags->scale, scale, c->out[0]->dtype));
    struct ah_cuda_bounds numbers = {.op_name = "embedding", .what = "index", .high = rows - 1};
    struct ah_cuda_bounds offsets = {.op_name = "embedding_bag", .what = "offset", .high = index->numel};
    AH_TRY(ah_cuda_expect_within(c->device, &numbers, bags->at));
    AH_TRY(ah_cuda_expect_within(c->device, &offsets, bags->starts));
    AH_TRY(ah_cuda_memory_take(memory, bytes, &bags->bag));
    AH_TRY(ah_cuda_memory_take(memory, bytes, &bags->row));
    struct ah_bag_args args = {.bag = ah_cuda_address(bags->bag), .row = ah_cuda_address(bags->row),
                               .at = ah_cuda_data(bags->at), .starts = ah_cuda_data(bags->starts),
                               .count = index->numel, .bags = starts->size[0] - 1, .n = rows, .skip = -1};
    if (padding->kind != AH_NONE)
        args.skip = padding->integer + (padding->integer < 0 ? rows : 0);
    if (args.count == 0)
        return 0;
    struct ah_cuda_grid grid = {ah_cuda_blocks(args.count, AH_INDEX_THREADS), AH_INDEX_THREADS, 0};
    return ah_cuda_launch(c->device, &places_kernel, c->op->name, grid, &args);
}

static int embedding_bag_clear(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    return c->device->type->fill(c->device, ah_tensor_data(out), 0, ah_tensor_bytes(out));
}

int ah_cuda_bag_sum(struct ah_call *c)
{
    const struct ah_args_bag_sum *arg = ah_args(c, bag_sum);
    struct ah_tensor *w = arg->weight.tensor, *out = c->out[0], *table = NULL;
    struct bags bags = {0};
    int status;
    AH_TRYGO(bags_open(c, &bags, arg->input.tensor, arg->starts.tensor, ah_given(&arg->scale), &arg->padding_idx,
                       w->size[0]), out);
    AH_TRYGO(ah_cuda_dense(c->device, &table, w, w->dtype), out);
    AH_TRYGO(embedding_bag_clear(c), out);
    if (out->numel == 0 || bags.at->numel == 0)
        goto out;
    struct ah_rows_fold_args args = {
        .to = ah_cuda_data(out), .from = ah_cuda_data(table), .keys = ah_cuda_address(bags.bag),
        .map = ah_cuda_address(bags.row), .scale = ah_cuda_data(bags.scale), .sources = w->size[0], .outer = 1,
        .n = out->size[0], .count = bags.at->numel, .inner = w->size[1], .fresh = true};
    status = ah_cuda_add_rows(c, out->dtype, &args);
out:
    ah_tensor_release(table);
    bags_close(c, &bags);
    return status;
}

int ah_cuda_bag_sum_backward(struct ah_call *c)
{
    const struct ah_args_bag_sum_backward *arg = ah_args(c, bag_sum_backward);
    struct ah_tensor *out = c->out[0], *grad = NULL;
    struct ah_cuda_rows rows = {1, out->size[0], out->size[1]};
    struct ah_cuda_row_fold fold = {.fold = AH_INDEX_ADD, .alpha = 1, .skip = -1, .fresh = true};
    struct bags bags = {0};
    int status;
    AH_TRYGO(bags_open(c, &bags, arg->input.tensor, arg->starts.tensor, ah_given(&arg->scale), &arg->padding_idx,
                       rows.n), out);
    AH_TRYGO(ah_cuda_dense(c->device, &grad, arg->grad.tensor, out->dtype), out);
    AH_TRYGO(embedding_bag_clear(c), out);
    if (arg->padding_idx.kind != AH_NONE)
        fold.skip = arg->padding_idx.integer + (arg->padding_idx.integer < 0 ? rows.n : 0);
    fold.map = ah_cuda_address(bags.bag);
    fold.scale = ah_cuda_data(bags.scale);
    status = ah_cuda_fold_rows(c, out, grad, bags.at, rows, fold);
out:
    ah_tensor_release(grad);
    bags_close(c, &bags);
    return status;
}
