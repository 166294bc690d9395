/* Filling tensors by random numbers: the kernel of a distribution, its numbers as the tensor's dtype has them, and how
 * far each thread draws. Tensors are filled in the order of their memory. */
#include "cuda/ops/random/random.h"

#include "base/status/status.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/kernels/random/random.h"
#include "cuda/ops/lib/ops.h"

unsigned ah_cuda_random_blocks(const struct ah_cuda_device *cuda, int64_t n)
{
    int64_t blocks = (n + AH_RANDOM_THREADS - 1) / AH_RANDOM_THREADS;
    return (unsigned)(blocks < cuda->resident_blocks ? blocks : cuda->resident_blocks);
}

/* Launch a kernel whose threads fill `each` elements from a group of four words. */
static int random_launch(struct ah_call *c, struct ah_cuda_kernel *kernel, struct ah_random_args *args, int each)
{
    struct ah_cuda_device *cuda = ah_cuda_state(c->device);
    unsigned blocks = ah_cuda_random_blocks(cuda, args->iter.numel);
    uint64_t groups = ((uint64_t)args->iter.numel - 1) / ((uint64_t)blocks * AH_RANDOM_THREADS * (unsigned)each) + 1;
    args->place = ah_cuda_philox_take(cuda, 4 * groups);
    return ah_cuda_launch(c->device, kernel, c->op->name, ah_cuda_grid_of(blocks, AH_RANDOM_THREADS, 0), args);
}

static int fill_with(struct ah_call *c, struct ah_tensor *out, struct ah_cuda_kernel *kernel, int each,
                     const struct ah_random_args *with)
{
    struct ah_random_args args = *with;
    AH_CLEANUP(ah_cuda_iter_close) struct ah_cuda_iter iter = {0};
    const struct ah_cuda_operand operand[] = {{out, out->dtype}};
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_cuda_iter_open(&iter, c->device, operand, 1, with->iter.number));
    args.iter = iter.args;
    return random_launch(c, kernel, &args, each);
}

/* Fill with a distribution of floats: float64 has a separate kernel. */
static int random_fill(struct ah_call *c, struct ah_tensor *out, ah_cuda_loops kernels, double c0, double c1, double c2)
{
    bool wide = out->dtype == AH_F64;
    const struct ah_random_args with = {.iter.number = {c0, c1, c2}};
    return fill_with(c, out, &kernels[wide ? AH_F64 : AH_F32], wide ? 2 : 4, &with);
}

/* A number as a floating dtype holds it. */
static double random_held(double x, enum ah_dtype dtype)
{
    switch (dtype) {
    case AH_F64: return x;
    case AH_F16: case AH_BF16: return (double)ah_half_to_f32(ah_f32_to_half((float)x, dtype), dtype);
    default: return (double)(float)x;
    }
}

static int random_uniform(struct ah_call *c, double from, double to)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("random", "random_uniform")};
    enum ah_dtype dtype = c->out[0]->dtype;
    double begin = random_held(from, dtype), end = random_held(to, dtype);
    return random_fill(c, c->out[0], kernels, random_held(end - begin, dtype), begin, end);
}

AH_CUDA_OP(draw_rand, random_uniform(c, 0, 1))
AH_CUDA_OP_WITH(draw_uniform_, uniform_, random_uniform(c, arg->from.number, arg->to.number))

static ah_cuda_loops normal_kernels = {AH_CUDA_FLOATS("random", "random_normal")};

AH_CUDA_OP(draw_randn, random_fill(c, c->out[0], normal_kernels, 0, 1, 0))
AH_CUDA_OP_WITH(draw_normal_, normal_, random_fill(c, c->out[0], normal_kernels, arg->mean.number, arg->std.number, 0))

int ah_cuda_draw_log_normal_(struct ah_call *c)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("random", "random_log_normal")};
    const struct ah_args_log_normal_ *arg = ah_args(c, log_normal_);
    return random_fill(c, c->out[0], kernels, arg->mean.number, arg->std.number, 0);
}

int ah_cuda_draw_cauchy_(struct ah_call *c)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("random", "random_cauchy")};
    const struct ah_args_cauchy_ *arg = ah_args(c, cauchy_);
    return random_fill(c, c->out[0], kernels, arg->median.number, arg->sigma.number, 0);
}

static ah_cuda_loops exponential_kernels = {AH_CUDA_FLOATS("random", "random_exponential")};

int ah_cuda_draw_exponential_(struct ah_call *c)
{
    return random_fill(c, c->out[0], exponential_kernels, ah_args(c, exponential_)->lambd.number, 0, 0);
}

int ah_cuda_fill_exponential(struct ah_call *c, struct ah_tensor *out)
{
    return random_fill(c, out, exponential_kernels, 1, 0, 0);
}

int ah_cuda_draw_geometric_(struct ah_call *c)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("random", "random_geometric")};
    return random_fill(c, c->out[0], kernels, ah_args(c, geometric_)->p.number, 0, 0);
}

int ah_cuda_draw_bernoulli_(struct ah_call *c)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("random", "random_bernoulli")};
    return random_fill(c, c->out[0], kernels, ah_args(c, bernoulli_)->p.number, 0, 0);
}

/* Launch a kernel that reads a number for each element, whose threads draw at most `numbers`. */
static int fill_from(struct ah_call *c, struct ah_cuda_kernel *kernels, struct ah_tensor *from,
                     struct ah_cuda_grid grid, uint64_t numbers)
{
    struct ah_tensor *out = c->out[0];
    enum ah_dtype dtype = out->dtype == AH_F64 ? AH_F64 : AH_F32;
    const struct ah_cuda_operand operand[] = {{out, out->dtype}, {from, dtype}};
    AH_CLEANUP(ah_cuda_iter_close) struct ah_cuda_iter iter = {0};
    AH_TRY(ah_cuda_iter_open(&iter, c->device, operand, 2, NULL));
    struct ah_random_args args = {.iter = iter.args,
                                  .place = ah_cuda_philox_take(ah_cuda_state(c->device), numbers)};
    return ah_cuda_launch(c->device, &kernels[dtype], c->op->name, grid, &args);
}

/* One probability per element. */
int ah_cuda_draw_bernoulli(struct ah_call *c)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("random", "random_shares")};
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *shares = NULL;
    int64_t blocks = (out->numel + 4 * AH_SHARES_THREADS - 1) / (4 * AH_SHARES_THREADS);
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &shares, ah_args(c, bernoulli)->input.tensor, out->dtype));
    AH_TRY(ah_cuda_expect_numbers(c->device, "bernoulli", "probabilities in 0..1", 1, shares));
    return fill_from(c, kernels, shares, ah_cuda_grid_of((unsigned)blocks, AH_SHARES_THREADS, 0), 10);
}

/* One rate per element. PyTorch reserves 20 numbers, and larger rates need more than that. */
int ah_cuda_draw_poisson(struct ah_call *c)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("sample", "poisson")};
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *rates = NULL;
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_cuda_dense(c->device, &rates, ah_args(c, poisson)->input.tensor, out->dtype));
    unsigned blocks = ah_cuda_blocks(out->numel, AH_RANDOM_THREADS);
    AH_TRY(ah_cuda_expect_numbers(c->device, "poisson", "finite rates of 0 or more", INT64_MAX, rates));
    return fill_from(c, kernels, rates, ah_cuda_grid_of(blocks, AH_RANDOM_THREADS, 0), 256);
}

/* Whole numbers, from one word or two. */

static struct ah_cuda_kernel whole_kernel = AH_CUDA_KERNEL("random", "random_whole_u32");
static struct ah_cuda_kernel long_whole_kernel = AH_CUDA_KERNEL("random", "random_whole_u64");

static int fill_whole(struct ah_call *c, struct ah_tensor *out, uint64_t range, int64_t base, bool two)
{
    const struct ah_random_args with = {.range = range, .base = base, .mask = UINT64_MAX};
    return fill_with(c, out, two ? &long_whole_kernel : &whole_kernel, two ? 2 : 4, &with);
}

static int fill_range(struct ah_call *c, int64_t low, int64_t high)
{
    uint64_t range = (uint64_t)high - (uint64_t)low;
    return fill_whole(c, c->out[0], range, low, range >= 1u << 28);
}

AH_CUDA_OP_WITH(draw_randint, randint, fill_range(c, arg->low.integer, arg->high.integer))

/* Without bounds: every whole number the dtype holds exactly. */
int ah_cuda_draw_random_(struct ah_call *c)
{
    static const uint64_t range[AH_DTYPE_COUNT] = {
        [AH_BOOL] = 2,             [AH_U8] = 1u << 8,        [AH_I32] = 1ull << 31,       [AH_I64] = 1ull << 63,
        [AH_F16] = (1u << 11) + 1, [AH_BF16] = (1u << 8) + 1, [AH_F32] = (1u << 24) + 1, [AH_F64] = (1ull << 53) + 1};
    const struct ah_args_random_ *arg = ah_args(c, random_);
    const struct ah_value *from = &arg->from, *to = &arg->to;
    enum ah_dtype dtype = c->out[0]->dtype;
    if (to->kind == AH_INT)
        return fill_range(c, from->kind == AH_INT ? from->integer : 0, to->integer);
    if (from->kind == AH_INT)
        return fill_range(c, 0, from->integer);
    return fill_whole(c, c->out[0], range[dtype], 0, dtype == AH_I64 || dtype == AH_F64);
}

int ah_cuda_fill_keys(struct ah_call *c, struct ah_tensor *keys, uint64_t mask)
{
    const struct ah_random_args with = {.range = keys->dtype == AH_I64 ? UINT64_MAX : UINT32_MAX, .mask = mask};
    return fill_with(c, keys, &long_whole_kernel, 2, &with);
}
