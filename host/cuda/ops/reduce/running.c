/* Running folds along a dim (kernels/reduce/running.cu): the choice between the two walks over the lines, and the
 * number of parts of a line where few lines would keep few blocks busy. */
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/reduce/running.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/lib/slices.h"
#include "tensor/owned.h"

/* Lines up to SHORT belong to a warp; a block's part of a line is PART elements or more, a thread's FEW, of which it
 * has as many as there are parts before it. Fewer than NARROW lines side by side are turned. */
enum { SHORT = 512, PART = 4096, PARTS = 512, BUSY = 1024, FEW = 32, WIDE_BUSY = 65536, NARROW = 16 };

enum kind { FLOATS, INTEGERS, FLOAT_EXTREMES, INTEGER_EXTREMES };

#define FAMILY(name)                                                                                              \
    {                                                                                                             \
        AH_CUDA_KERNEL("running", name "_floats"), AH_CUDA_KERNEL("running", name "_integers"),                   \
        AH_CUDA_KERNEL("running", name "_float_extremes"), AH_CUDA_KERNEL("running", name "_integer_extremes")    \
    }
static struct ah_cuda_kernel warp_kernel[] = FAMILY("running_warp"), block_kernel[] = FAMILY("running_block"),
                             parts_kernel[] = FAMILY("running_parts"), columns_kernel[] = FAMILY("running_columns"),
                             column_parts_kernel[] = FAMILY("running_column_parts");

static int64_t running_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Choose the number of parts of a line, by the sizes alone. */
static void running_cut(struct ah_running_args *args)
{
    int64_t lines = args->outer * args->inner, busy = args->inner > 1 ? WIDE_BUSY : BUSY, parts = 1, each = 1;
    if (args->inner > 1)
        while (lines * parts < busy && args->n / (parts * 2) >= FEW && args->n / (parts * 2) >= parts * 2)
            parts *= 2;
    else if (args->n >= 2 * PART && lines < busy) {
        parts = running_up(busy, lines);
        parts = parts < args->n / PART ? parts : args->n / PART;
        parts = parts < PARTS ? parts : PARTS;
        each = AH_RUNNING_THREADS * AH_RUNNING_RUN;
    }
    args->each = running_up(running_up(args->n, parts), each) * each;
    args->parts = running_up(args->n, args->each);
}

static int running_launch(struct ah_device *device, const char *op_name, struct ah_cuda_kernel *kernel, int64_t blocks,
                          const struct ah_running_args *args)
{
    return ah_cuda_launch(device, kernel, op_name, ah_cuda_grid_each(blocks, AH_RUNNING_THREADS), args);
}

/* Run over args->outer x n x inner elements, which are row-major. */
static int running_run(struct ah_device *device, const char *op_name, struct ah_running_args *args)
{
    int kind = (ah_dtype_is_float((enum ah_dtype)args->from_dtype) ? FLOATS : INTEGERS) +
               (args->fold >= AH_RUNNING_LARGEST ? FLOAT_EXTREMES : 0);
    bool columns = args->inner > 1;
    AH_CUDA_SCRATCH(states, device);
    if (args->outer * args->n * args->inner == 0)
        return 0;
    running_cut(args);
    args->wide = (args->from | args->to) % 16 == 0 && args->n % AH_RUNNING_RUN == 0;
    int64_t works = args->outer * args->parts * args->inner,
            blocks = columns ? running_up(works, AH_RUNNING_THREADS) : works;
    if (args->parts > 1) {
        AH_TRY(ah_cuda_scratch_take(&states, (size_t)works * AH_RUNNING_STATE));
        args->states = ah_cuda_address(states.at);
        AH_TRY(running_launch(device, op_name, columns ? &column_parts_kernel[kind] : &parts_kernel[kind], blocks,
                              args));
    }
    bool warps = !columns && args->n <= SHORT;
    return running_launch(device, op_name,
                          columns ? &columns_kernel[kind]
                          : warps ? &warp_kernel[kind]
                                  : &block_kernel[kind],
                          warps ? running_up(works, AH_RUNNING_THREADS / 32) : blocks, args);
}

/* Does every value of `from` remain exact in `to`, so that a kernel may read it in place? */
static bool running_keeps(enum ah_dtype from, enum ah_dtype to)
{
    if (from == to || (to == AH_F64 && ah_dtype_is_float(from)) || (to == AH_I64 && !ah_dtype_is_float(from)))
        return true;
    return to == AH_F32 && (from == AH_F16 || from == AH_BF16);
}

/* Over the lines of the first argument along the dim of the call into out[0] (and out[1]). */
static int running_fold(struct ah_call *c, enum ah_running_fold fold, bool reverse)
{
    struct ah_tensor *out = c->out[0], *index = c->out_count > 1 ? c->out[1] : NULL, *x = NULL, *y = NULL, *at = NULL;
    struct ah_tensor *input = c->arg[0].tensor;
    struct ah_running_args args = {.fold = (int32_t)fold, .reverse = reverse};
    int dim = out->ndim > 0 ? __builtin_ctz(c->state.reduce.dims) : 0, status;
    struct ah_cuda_extent extent = ah_cuda_extent(out, dim);
    bool turn = extent.inner < NARROW;
    int last = turn ? dim : out->ndim; /* the dim that is moved last, if any */
    enum ah_dtype to = out->dtype == AH_BOOL && fold < AH_RUNNING_LARGEST ? AH_I64 : out->dtype;
    AH_TRYGO(
        ah_cuda_slices(c->device, &x, input, last, running_keeps(input->dtype, out->dtype) ? input->dtype : out->dtype),
        done);
    AH_TRYGO(ah_cuda_slices_open(c->device, &y, out, last, to), done);
    if (index)
        AH_TRYGO(ah_cuda_slices_open(c->device, &at, index, last, AH_I64), done);
    args.from = ah_cuda_data(x);
    args.from_dtype = (int32_t)x->dtype;
    args.to = ah_cuda_data(y);
    args.to_dtype = (int32_t)y->dtype;
    args.index = index ? ah_cuda_data(at) : 0;
    args.outer = turn ? extent.outer * extent.inner : extent.outer;
    args.n = extent.n;
    args.inner = turn ? 1 : extent.inner;
    status = running_run(c->device, c->op->name, &args);
done:
    if (y)
        status = ah_cuda_slices_close(c->device, y, out, last, status);
    if (at)
        status = ah_cuda_slices_close(c->device, at, index, last, status);
    ah_tensor_release(x);
    return status;
}

/* The products of the elements before each one, or behind it, of rows. */
static int products_beside(struct ah_call *c, struct ah_tensor *x, enum ah_dtype dtype, bool behind,
                           struct ah_tensor **out)
{
    AH_TRY(ah_tensor_empty(out, x->size, x->ndim, dtype, c->device));
    struct ah_running_args args = {.from = ah_cuda_data(x), .from_dtype = (int32_t)x->dtype,
                                   .to = ah_cuda_data(*out), .to_dtype = (int32_t)dtype,
                                   .outer = x->size[0], .n = x->size[1], .inner = 1, .fold = AH_RUNNING_PRODUCT,
                                   .reverse = behind, .exclusive = true};
    return running_run(c->device, c->op->name, &args);
}

/* The products of all others in each row; 0 where one of these is, also where the rest overflows. */
static int running_others(struct ah_call *c, struct ah_tensor *x, struct ah_tensor **out)
{
    enum { BEFORE, BEHIND, FINITE, ALL, NONE_BEFORE, NONE_BEHIND, NONE, ZERO, PRODUCT, COUNT };
    AH_OWNED_LIST(t, COUNT);
    AH_TRY(products_beside(c, x, ah_compute_dtype(x->dtype), false, &t[BEFORE]));
    AH_TRY(products_beside(c, x, AH_F64, true, &t[BEHIND]));
    AH_TRY(ah_op1(AH_OP_isfinite, &t[FINITE], AH_T(x)));
    AH_TRY(ah_op1(AH_OP_all, &t[ALL], AH_T(t[FINITE]), AH_INTS_OF((int64_t[]){1}, 1), AH_B(true)));
    AH_TRY(ah_op1(AH_OP_eq, &t[NONE_BEFORE], AH_T(t[BEFORE]), AH_N(0)));
    AH_TRY(ah_op1(AH_OP_eq, &t[NONE_BEHIND], AH_T(t[BEHIND]), AH_N(0)));
    AH_TRY(ah_op1(AH_OP_logical_or, &t[NONE], AH_T(t[NONE_BEFORE]), AH_T(t[NONE_BEHIND])));
    AH_TRY(ah_op1(AH_OP_logical_and, &t[ZERO], AH_T(t[NONE]), AH_T(t[ALL])));
    AH_TRY(ah_op1(AH_OP_mul, &t[PRODUCT], AH_T(t[BEFORE]), AH_T(t[BEHIND])));
    return ah_op1(AH_OP_masked_fill, out, AH_T(t[PRODUCT]), AH_T(t[ZERO]), AH_N(0));
}

/* The tensor with the dims of `mask` behind the others. */
static int put_last(struct ah_tensor **out, const struct ah_tensor *tensor, uint32_t mask)
{
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    int n = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (int d = 0; d < tensor->ndim; d++) {
            if ((mask >> d & 1) != pass)
                continue;
            size[n] = tensor->size[d];
            stride[n++] = tensor->stride[d];
        }
    }
    return ah_tensor_view(out, tensor, size, stride, n, tensor->offset);
}

int ah_cuda_prod_others(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *from = NULL, *to = NULL, *dense = NULL, *rows = NULL, *y = NULL, *back = NULL;
    int64_t size[2] = {1, 1};
    for (int d = 0; d < out->ndim; d++)
        size[c->state.reduce.dims >> d & 1] *= out->size[d];
    if (out->numel == 0)
        return 0;
    AH_TRY(put_last(&from, c->arg[0].tensor, c->state.reduce.dims));
    AH_TRY(put_last(&to, out, c->state.reduce.dims));
    AH_TRY(ah_cuda_dense(c->device, &dense, from, out->dtype));
    AH_TRY(ah_tensor_view(&rows, dense, size, (int64_t[]){size[1], 1}, 2, dense->offset));
    AH_TRY(running_others(c, rows, &y));
    int64_t stride[AH_MAX_DIMS];
    ah_contiguous_strides(to->size, to->ndim, stride);
    AH_TRY(ah_tensor_view(&back, y, to->size, stride, to->ndim, y->offset));
    return ah_cuda_assign(c->device, to, back);
}

#define RUNNING(name, kind, reverse)           \
    int ah_cuda_##name(struct ah_call *c)      \
    {                                          \
        return running_fold(c, kind, reverse); \
    }
RUNNING(cumsum, AH_RUNNING_SUM, false)
RUNNING(cumsum_reverse, AH_RUNNING_SUM, true)
RUNNING(cumprod, AH_RUNNING_PRODUCT, false)
RUNNING(logcumsumexp, AH_RUNNING_LOG_SUM, false)
RUNNING(cummax, AH_RUNNING_LARGEST, false)
RUNNING(cummin, AH_RUNNING_SMALLEST, false)
