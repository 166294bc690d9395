/* Attention that keeps no scores (kernels/linear/attention*.cu): rows of any strides, as long as their items are
 * contiguous; a tensor that a kernel cannot read as it is becomes dense first. Heads wider than the kernels have
 * registers for (256; float64 128) are AH_ENOTIMPL: scaled_dot_product_attention then computes products and a
 * softmax. */
#include "ops/nn/attention.h"

#include "base/status/status.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/philox.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/linear/attention.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/host_kernel.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/linear/attention_dnn.h"

/* Kernels of a shape: those for calls with nothing to do between products and exponents, and those for all others. */
enum { PLAIN, FULL, VARIANTS };
struct tiles {
    enum ah_dtype dtype;
    int width, rows, threads;
    unsigned shared_bytes;
    struct ah_cuda_kernel kernel[3][VARIANTS];
};

#define AH_DTYPE_bf16 AH_BF16
#define AH_DTYPE_f16 AH_F16
#define AH_DTYPE_f32 AH_F32
#define AH_DTYPE_f64 AH_F64
enum { SIZE_bf16 = 2, SIZE_f16 = 2, SIZE_f32 = 4, SIZE_f64 = 8 };
#define TILES(dtype, width, tall, others, warps, own, ...)                           \
    {AH_DTYPE_##dtype, width, (warps) * (tall) * 16, (warps) * 32,                   \
     AH_ATTENTION_SHARED(SIZE_##dtype, width, tall, others, warps, own), {__VA_ARGS__}},
#define KERNELS(file, name, dtype, width)                                            \
    {AH_CUDA_KERNEL(file, #name "_" #dtype "_" #width), AH_CUDA_KERNEL(file, #name "_" #dtype "_" #width "_full")}
#define FORWARD(dtype, type, width, tall, others, warps, ...) \
    TILES(dtype, width, tall, others, warps, 1, KERNELS("attention", attention, dtype, width))
static struct tiles forward_tiles[] = {AH_ATTENTION_FORWARD(FORWARD)};

#define VALUE_0(dtype, width) {{0}}
#define VALUE_1(dtype, width) KERNELS("attention_key", attention_value, dtype, width)
enum { QUERY, KEY, VALUE };
#define BACKWARD(dtype, type, width, tall, others, warps, query_step, query_held, step, held, full_step, apart) \
    TILES(dtype, width, tall, others, warps, 2, KERNELS("attention_query", attention_query, dtype, width),      \
          KERNELS("attention_key", attention_key, dtype, width), VALUE_##apart(dtype, width))
static struct tiles backward_tiles[] = {AH_ATTENTION_BACKWARD(BACKWARD)};

static struct ah_cuda_kernel delta_kernel[] = AH_CUDA_REALS("attention_query", "attention_delta");
static struct ah_cuda_kernel draw_kernel = AH_CUDA_KERNEL("attention", "attention_draw");
static struct ah_cuda_kernel keep_kernel[] = AH_CUDA_REALS("attention", "attention_keep");

/* Kernels count rows, and places before and behind them, in 32 bits, as they do the bytes from a row to the next. */
enum { LONGEST = 1 << 29 };
#define LONGEST_STEP INT32_MAX

/* Bytes that stay in the cache of a card while blocks of several heads are under way. */
enum { CACHED = 16 << 20 };

/* The narrowest tiles of a dtype for heads of query and value; NULL, with an error text, when there are none. */
static struct tiles *tiles_for(const struct ah_call *c, struct tiles *tiles, size_t count,
                               const struct ah_tensor *query, const struct ah_tensor *value)
{
    int64_t rows = query->ndim == 4 ? query->size[0] * query->size[1] : query->size[0], widest = 0;
    int64_t width = query->size[query->ndim - 1], other = value->size[value->ndim - 1];
    for (size_t i = 0; i < count; i++) {
        if (tiles[i].dtype != query->dtype || tiles[i].shared_bytes > (unsigned)ah_cuda_state(c->device)->shared_limit)
            continue;
        if (tiles[i].width >= width && tiles[i].width >= other && rows < LONGEST &&
            value->size[value->ndim - 3] < LONGEST)
            return &tiles[i];
        widest = tiles[i].width;
    }
    ah_fail(AH_ENOTIMPL, "%s: expected fewer than %d rows of %s heads of at most %lld on %s, got query %s and value %s",
            c->op->name, LONGEST, ah_dtype_name(query->dtype), (long long)widest, c->device->name, ah_shape(query),
            ah_shape(value));
    return NULL;
}
#define TILES_FOR(c, tiles, query, value) \
    tiles_for(c, tiles, sizeof(tiles) / sizeof *(tiles), query, value)

/* The tensors that a call holds until its kernels are launched. */
struct call {
    struct ah_attention_args args;
    struct ah_tensor *held[8];
    int held_count;
};

static void attention_release(struct call *call)
{
    while (call->held_count > 0)
        ah_tensor_release(call->held[--call->held_count]);
}

/* Does every row begin at a multiple of 16 bytes, and end at one? */
static bool is_wide(const struct ah_attention_rows *rows, const struct ah_tensor *t)
{
    uint64_t item = ah_dtype_size(t->dtype);
    uint64_t strides = (uint64_t)rows->batch | (uint64_t)rows->head | (uint32_t)rows->token | (uint32_t)rows->width;
    return (strides * item | rows->at) % 16 == 0;
}

/* Heads' rows of a tensor ([batch,] tokens, heads, width). */
static int open_rows(struct call *call, struct ah_device *device, struct ah_attention_rows *rows, struct ah_tensor *t)
{
    int n = t->ndim;
    struct ah_tensor *dense = t;
    int64_t item = (int64_t)ah_dtype_size(t->dtype);
    if ((t->stride[n - 1] != 1 && t->size[n - 1] > 1) || t->stride[n - 3] > LONGEST_STEP / item) {
        AH_TRY(ah_cuda_dense(device, &dense, t, t->dtype));
        call->held[call->held_count++] = dense;
    } else {
        AH_TRY(ah_tensor_row_major(t));
    }
    *rows = (struct ah_attention_rows){.at = ah_cuda_data(dense),
                                       .batch = n == 4 ? dense->stride[0] : 0,
                                       .token = (int32_t)dense->stride[n - 3],
                                       .head = dense->stride[n - 2],
                                       .width = (int32_t)dense->size[n - 1]};
    rows->wide = is_wide(rows, dense);
    return 0;
}

/* The mask, stretched to (batch, heads, queries, keys), its keys next to each other. */
static int open_mask(struct call *call, struct ah_device *device, struct ah_tensor *mask,
                     const struct ah_tensor *query, const struct ah_tensor *key)
{
    struct ah_attention_args *a = &call->args;
    const int64_t size[] = {query->size[0], query->size[2], query->size[1], key->size[1]};
    int64_t stride[4];
    AH_TRY(ah_tensor_row_major(mask));
    ah_broadcast_strides(mask, size, 4, stride);
    if (stride[3] != 1 && size[3] > 1) {
        struct ah_tensor *whole = NULL, *dense = NULL;
        AH_TRY(ah_tensor_view(&whole, mask, size, stride, 4, mask->offset));
        int status = ah_cuda_dense(device, &dense, whole, mask->dtype);
        ah_tensor_release(whole);
        AH_TRY(status);
        call->held[call->held_count++] = mask = dense;
        ah_broadcast_strides(mask, size, 4, stride);
    }
    a->mask = ah_cuda_data(mask);
    a->boolean = mask->dtype == AH_BOOL;
    a->mask_batch = stride[0];
    a->mask_head = stride[1];
    a->mask_query = stride[2];
    return 0;
}

/* Open the inputs of both forward and backward. */
static int open_call(struct call *call, struct ah_device *device, struct ah_tensor *query, struct ah_tensor *key,
                     struct ah_tensor *value, struct ah_tensor *mask, struct ah_tensor *spans)
{
    struct ah_attention_args *a = &call->args;
    int n = query->ndim;
    a->heads = (int32_t)query->size[n - 2];
    a->group = key->size[n - 2] ? (int32_t)(a->heads / key->size[n - 2]) : 1;
    a->queries = query->size[n - 3];
    a->keys = key->size[n - 3];
    a->batch = spans ? spans->size[0] : query->size[0];
    a->rows = spans ? a->queries : a->batch * a->queries;
    a->spans = spans ? ah_cuda_data(spans) : 0;
    AH_TRY(open_rows(call, device, &a->query, query));
    AH_TRY(open_rows(call, device, &a->key, key));
    AH_TRY(open_rows(call, device, &a->value, value));
    return mask ? open_mask(call, device, mask, query, key) : 0;
}

/* A side of the window; a side that is longer than any sequence sees all. */
static int32_t attention_side(int64_t keys)
{
    return keys < 0 || keys >= LONGEST ? -1 : (int32_t)keys;
}

static void set_numbers(struct ah_attention_args *a, const struct ah_value *window, double scale, double p)
{
    bool given = window->ints.count == 2;
    a->left = given ? attention_side(window->ints.at[0]) : -1;
    a->right = given ? attention_side(window->ints.at[1]) : -1;
    a->scale = scale;
    a->keep_scale = 1 / (1 - p);
    a->scale_single = (float)a->scale;
    a->keep_scale_single = (float)a->keep_scale;
}

/* Under a causal mask blocks have unequally much to do, and the longest of several heads begin first: of as many heads
 * as have their inputs in the cache. */
static int64_t section_of(const struct ah_attention_args *a, enum ah_dtype dtype, bool of_keys)
{
    if (a->right < 0 || a->left >= 0)
        return 1;
    int64_t group = of_keys ? a->group : 1, rows = of_keys ? a->queries : a->keys;
    int64_t bytes = group * rows * (a->query.width + a->value.width) * (int64_t)ah_dtype_size(dtype);
    int64_t heads = bytes > 0 ? CACHED / bytes : 1;
    return heads > 1 ? heads : 1;
}

/* The operations of kernel `which` of `tiles`, without a window, or under a causal mask of as many keys as queries; 0
 * of other calls. The query's kernel of backward makes scores and their gradients again. */
static struct ah_cuda_work work_of(const struct ah_attention_args *a, const struct tiles *tiles, int which,
                                   bool backward)
{
    double width = a->query.width, other = a->value.width;
    double pairs = (double)a->batch * (double)a->heads * (double)a->queries * (double)a->keys;
    struct ah_cuda_work none = {0};
    if (a->spans || a->left >= 0 || a->right > 0 || (a->right == 0 && a->queries != a->keys))
        return none;
    if (a->right == 0)
        pairs *= 0.5 + 0.5 / (double)a->queries;
    bool values = which == KEY && !tiles->kernel[VALUE][PLAIN].name;
    double each = !backward ? width + other
                  : which == QUERY ? 2 * width + other : which == KEY ? 2 * width + other + (values ? other : 0)
                                                                      : width + other;
    return (struct ah_cuda_work){0, 2 * pairs * each, ah_cuda_rate_of(tiles->dtype, false)};
}

/* The largest grid of one launch; a card allows 2^31 - 1 blocks. */
enum { GRID = 1 << 30 };

/* Launch one block for each unit of `tiles` rows; where only the device knows the sequences, for the largest number of
 * units there can be. */
static int attention_launch(struct ah_call *c, struct call *call, struct tiles *tiles, int which, bool of_keys,
                            bool backward)
{
    struct ah_attention_args *a = &call->args;
    int64_t rows = of_keys ? a->keys : a->queries;
    int64_t blocks = a->spans ? rows / tiles->rows + a->batch
                              : (rows + tiles->rows - 1) / tiles->rows * a->batch;
    const int64_t units = blocks * (of_keys ? a->heads / a->group : a->heads);
    a->section = section_of(a, tiles->dtype, of_keys);
    bool plain = !a->mask && !a->keep && a->scale > 0;
    struct ah_cuda_work work = work_of(a, tiles, which, backward), none = {0};
    for (a->first = 0; a->first < units; a->first += GRID) {
        const int64_t rest = units - a->first;
        struct ah_cuda_grid grid = {(unsigned)(rest < GRID ? rest : GRID), (unsigned)tiles->threads,
                                    tiles->shared_bytes};
        AH_TRY(ah_cuda_launch_working(c->device, &tiles->kernel[which][plain ? PLAIN : FULL], c->op->name, grid, a,
                                      sizeof *a, a->first ? none : work));
    }
    return 0;
}

/* The words of dropout. */
static int attention_draw(struct ah_call *c, struct ah_tensor *words, double p)
{
    if (words->numel == 0)
        return 0;
    const struct ah_attention_draw_args args = {
        .words = ah_cuda_data(words),
        .count = words->numel,
        .place = ah_cuda_philox_take(ah_cuda_state(c->device), AH_ATTENTION_WORD),
        .below = (uint64_t)((1 - p) * 0x1p32),
    };
    const struct ah_cuda_grid grid = {(unsigned)((words->numel + AH_ATTENTION_KEEP_THREADS - 1) /
                                                 AH_ATTENTION_KEEP_THREADS), AH_ATTENTION_KEEP_THREADS, 0};
    return ah_cuda_launch(c->device, &draw_kernel, c->op->name, grid, &args);
}

int ah_cuda_attention(struct ah_call *c)
{
    const struct ah_args_attention *arg = ah_args(c, attention);
    struct ah_tensor *query = arg->query.tensor, *key = arg->key.tensor, *value = arg->value.tensor;
    struct call call = {0};
    double p = arg->dropout_p.number;
    int status;
    struct tiles *tiles = TILES_FOR(c, forward_tiles, query, value);
    if (p > 0 && ah_cuda_state(c->device)->generator.of_cpu)
        return ah_cuda_on_host(c);
    if (!tiles)
        return ah_attention_wide(c);
    set_numbers(&call.args, &arg->window, arg->scale.number, p);
    AH_TRYGO(open_call(&call, c->device, query, key, value, ah_given(&arg->mask), c->extra[0]), out);
    AH_TRYGO(open_rows(&call, c->device, &call.args.out, c->out[0]), out);
    call.args.lse = ah_cuda_data(c->out[1]);
    if (p > 0) {
        AH_TRYGO(attention_draw(c, c->extra[1], p), out);
        call.args.keep = ah_cuda_data(c->extra[1]);
    }
    status = ah_cuda_attention_dnn(c, &call.args, query->dtype, c->out[1]);
    if (status == 0)
        status = attention_launch(c, &call, tiles, 0, false, false);
out:
    attention_release(&call);
    return status < 0 ? status : 0;
}

static int launch_back(struct ah_call *c, struct call *call, struct tiles *tiles, enum ah_dtype dtype)
{
    struct ah_attention_args *a = &call->args;
    struct ah_cuda_grid grid = {ah_cuda_blocks(a->rows * a->heads, AH_ATTENTION_DELTA_THREADS / 32),
                                AH_ATTENTION_DELTA_THREADS, 0};
    AH_TRY(ah_cuda_launch(c->device, &delta_kernel[dtype], c->op->name, grid, a));
    AH_TRY(attention_launch(c, call, tiles, QUERY, false, true));
    AH_TRY(attention_launch(c, call, tiles, KEY, true, true));
    return tiles->kernel[VALUE][PLAIN].name ? attention_launch(c, call, tiles, VALUE, true, true) : 0;
}

int ah_cuda_attention_backward(struct ah_call *c)
{
    const struct ah_args_attention_backward *arg = ah_args(c, attention_backward);
    struct ah_tensor *query = arg->query.tensor, *key = arg->key.tensor, *value = arg->value.tensor, *delta = NULL;
    struct ah_tensor *lse = arg->lse.tensor;
    struct call call = {0};
    struct ah_attention_args *a = &call.args;
    int status;
    struct tiles *tiles = TILES_FOR(c, backward_tiles, query, value);
    if (!tiles || !TILES_FOR(c, forward_tiles, query, value)) /* which stored no logarithms */
        return ah_attention_wide_backward(c);
    set_numbers(a, &arg->window, arg->scale.number, arg->dropout_p.number);
    AH_TRYGO(open_call(&call, c->device, query, key, value, ah_given(&arg->mask), ah_given(&arg->spans)), out);
    AH_TRYGO(open_rows(&call, c->device, &a->out, arg->output.tensor), out);
    AH_TRYGO(open_rows(&call, c->device, &a->grad, arg->grad.tensor), out);
    AH_TRYGO(open_rows(&call, c->device, &a->grad_query, c->out[0]), out);
    AH_TRYGO(open_rows(&call, c->device, &a->grad_key, c->out[1]), out);
    AH_TRYGO(open_rows(&call, c->device, &a->grad_value, c->out[2]), out);
    AH_TRYGO(ah_tensor_empty(&delta, lse->size, lse->ndim, lse->dtype, c->device), out);
    a->lse = ah_cuda_data(lse);
    a->delta = ah_cuda_data(delta);
    a->keep = ah_given(&arg->keep) ? ah_cuda_data(arg->keep.tensor) : 0;
    status = ah_cuda_attention_dnn(c, a, query->dtype, lse);
    if (status == 0)
        status = launch_back(c, &call, tiles, query->dtype);
out:
    ah_tensor_release(delta);
    attention_release(&call);
    return status < 0 ? status : 0;
}

int ah_cuda_attention_keep(struct ah_call *c)
{
    const struct ah_args_attention_keep *arg = ah_args(c, attention_keep);
    struct ah_tensor *out = c->out[0];
    if (out->numel == 0)
        return 0;
    const struct ah_attention_keep_args args = {
        .words = ah_cuda_data(arg->keep.tensor),
        .out = ah_cuda_data(out),
        .count = out->numel,
        .queries = out->size[out->ndim - 2],
        .keys = out->size[out->ndim - 1],
        .kept = 1 / (1 - arg->p.number),
    };
    const struct ah_cuda_grid grid = {ah_cuda_blocks(out->numel, AH_ATTENTION_KEEP_THREADS), AH_ATTENTION_KEEP_THREADS,
                                      0};
    return ah_cuda_launch(c->device, &keep_kernel[out->dtype], c->op->name, grid, &args);
}
