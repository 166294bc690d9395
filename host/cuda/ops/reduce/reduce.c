/* Reductions (kernels/reduce/reduce.cu): which dims are kept and which are folded, how the threads of a block share
 * them, and whether an output's inputs are cut into parts, whose results a second launch folds. */
#include <math.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/kernels/reduce/reduce.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

enum { PART = 8192, PARTS = 512, BUSY = 2048 };

/* By enum ah_reduce_fold. */
#define FLOATS(name) AH_CUDA_KERNEL("reduce", "fold_float_" name)
#define INTEGERS(name) AH_CUDA_KERNEL("reduce", "fold_integer_" name)
static struct ah_cuda_kernel fold_float[] = {
    [AH_REDUCE_SUM] = FLOATS("sum"), [AH_REDUCE_NANSUM] = FLOATS("nansum"), [AH_REDUCE_PROD] = FLOATS("prod"),
    [AH_REDUCE_MAX] = FLOATS("max"), [AH_REDUCE_MIN] = FLOATS("min"), [AH_REDUCE_COUNT] = FLOATS("count"),
    [AH_REDUCE_ABS] = FLOATS("abs"), [AH_REDUCE_SQUARES] = FLOATS("squares"), [AH_REDUCE_POWERS] = FLOATS("powers"),
    [AH_REDUCE_ABS_MAX] = FLOATS("abs_max"), [AH_REDUCE_ABS_MIN] = FLOATS("abs_min")};
/* Whole numbers have no NaN, and no norms. */
static struct ah_cuda_kernel fold_integer[] = {
    [AH_REDUCE_SUM] = INTEGERS("sum"), [AH_REDUCE_NANSUM] = INTEGERS("sum"), [AH_REDUCE_PROD] = INTEGERS("prod"),
    [AH_REDUCE_MAX] = INTEGERS("max"), [AH_REDUCE_MIN] = INTEGERS("min"), [AH_REDUCE_COUNT] = INTEGERS("count")};

/* Append a dim to a list, or let it continue the one before. */
static void reduce_append(int64_t *size, int64_t *stride, int32_t *dims, int64_t extent, int64_t step)
{
    if (extent == 1)
        return;
    if (*dims > 0 && stride[*dims - 1] == step * extent) {
        size[*dims - 1] *= extent;
        stride[*dims - 1] = step;
        return;
    }
    size[*dims] = extent;
    stride[(*dims)++] = step;
}

static void set_dims(struct ah_reduce_args *args, const struct ah_tensor *input, uint32_t mask)
{
    args->outputs = args->folded = 1;
    for (int d = 0; d < input->ndim; d++) {
        if (mask >> d & 1) {
            reduce_append(args->size, args->stride, &args->dims, input->size[d], input->stride[d]);
            args->folded *= input->size[d];
        } else {
            reduce_append(args->kept_size, args->kept_stride, &args->kept_dims, input->size[d], input->stride[d]);
            args->outputs *= input->size[d];
        }
    }
    for (int32_t *dims = &args->dims; dims; dims = dims == &args->dims ? &args->kept_dims : NULL)
        if (*dims == 0)
            *dims = 1; /* of stride 0 */
    args->parts = 1;
    args->each = args->inputs = args->folded;
}

static void reduce_share(struct ah_reduce_args *args)
{
    int64_t kept = args->kept_stride[args->kept_dims - 1], inner = args->stride[args->dims - 1];
    args->across = args->outputs > 1 && kept != 0 && (inner == 0 || kept < inner);
    args->columns = 1;
    if (args->across)
        args->columns = args->outputs < 32 ? 8 : 32;
    else
        while (args->columns < AH_REDUCE_THREADS && args->folded * args->columns * 2 <= AH_REDUCE_THREADS)
            args->columns *= 2;
}

static int reduce_launch(struct ah_call *c, struct ah_cuda_kernel *kernel, struct ah_reduce_args *args)
{
    int64_t groups = (args->outputs + args->columns - 1) / args->columns;
    return ah_cuda_launch(c->device, kernel, c->op->name, ah_cuda_grid_each(groups * args->parts, AH_REDUCE_THREADS),
                          args);
}

/* Does a launch read 16 bytes at a time? */
static bool is_wide(const struct ah_reduce_args *args)
{
    uint64_t item = ah_dtype_size((enum ah_dtype)args->from_dtype), places = args->from;
    if (args->across || args->dims != 1 || args->stride[0] != 1)
        return false;
    for (int d = 0; d < args->kept_dims; d++)
        places |= (uint64_t)args->kept_stride[d] * item;
    return places % 16 == 0;
}

/* Fold in parts: few outputs of many inputs would keep few blocks busy. The number of parts depends on sizes alone. */
static int fold_in_parts(struct ah_call *c, struct ah_cuda_kernel *kernel, struct ah_reduce_args *args)
{
    int64_t parts = (args->folded + PART - 1) / PART;
    AH_CUDA_SCRATCH(partial, c->device);
    parts = parts < PARTS ? parts : PARTS;
    args->each = (args->folded + parts * 16 - 1) / (parts * 16) * 16;
    args->parts = (args->folded + args->each - 1) / args->each;
    AH_TRY(ah_cuda_scratch_take(&partial, (size_t)(args->outputs * args->parts) * AH_REDUCE_STATE));
    args->partial = (uintptr_t)partial.at;
    AH_TRY(reduce_launch(c, kernel, args));
    struct ah_reduce_args last = *args;
    last.joining = true;
    last.wide = last.across = false;
    last.columns = 1;
    last.each = last.folded = args->parts;
    last.parts = 1;
    while (last.columns < AH_REDUCE_THREADS && last.folded * last.columns * 2 <= AH_REDUCE_THREADS)
        last.columns *= 2;
    return reduce_launch(c, kernel, &last);
}

/* By one launch or by two. */
static int reduce_run(struct ah_call *c, struct ah_cuda_kernel *kernel, struct ah_reduce_args *args)
{
    int64_t groups = (args->outputs + args->columns - 1) / args->columns;
    if (args->outputs == 0)
        return 0;
    args->wide = is_wide(args);
    return args->folded > PART && groups < BUSY ? fold_in_parts(c, kernel, args) : reduce_launch(c, kernel, args);
}

static struct ah_reduce_args reduce_prepare(struct ah_call *c, const struct ah_tensor *input)
{
    struct ah_reduce_args args = {.from_dtype = (int32_t)input->dtype, .to_dtype = (int32_t)c->out[0]->dtype};
    args.from = (uintptr_t)ah_tensor_data(input);
    args.to = (uintptr_t)ah_tensor_data(c->out[0]);
    set_dims(&args, input, c->state.reduce.dims);
    reduce_share(&args);
    return args;
}

static int reduce_fold(struct ah_call *c, struct ah_tensor *input, enum ah_reduce_fold how,
                       enum ah_reduce_finish finish, double number)
{
    struct ah_reduce_args args = reduce_prepare(c, input);
    args.fold = how;
    args.finish = finish;
    args.number = finish == AH_FINISH_DIVIDE || finish == AH_FINISH_ALL ? (double)args.folded : number;
    return reduce_run(c, ah_dtype_is_float(input->dtype) ? &fold_float[how] : &fold_integer[how], &args);
}

/* Reductions without further arguments. */
#define FOLD(name, fold_of, finish)                                     \
    int ah_cuda_##name(struct ah_call *c)                               \
    {                                                                   \
        return reduce_fold(c, c->arg[0].tensor, fold_of, finish, 0);    \
    }
FOLD(sum_to, AH_REDUCE_SUM, AH_FINISH_NONE)
FOLD(amax, AH_REDUCE_MAX, AH_FINISH_NONE)
FOLD(amin, AH_REDUCE_MIN, AH_FINISH_NONE)
FOLD(any, AH_REDUCE_COUNT, AH_FINISH_ANY)
FOLD(all, AH_REDUCE_COUNT, AH_FINISH_ALL)
FOLD(count_nonzero, AH_REDUCE_COUNT, AH_FINISH_NONE)

/* The input, converted first where the row was asked for a dtype. */
static int fold_as(struct ah_call *c, enum ah_reduce_fold how, enum ah_reduce_finish finish,
                   const struct ah_value *dtype)
{
    struct ah_tensor *input = c->arg[0].tensor;
    AH_OWNED struct ah_tensor *converted = NULL;
    if (dtype->kind != AH_DTYPE || dtype->dtype == input->dtype)
        return reduce_fold(c, input, how, finish, 0);
    AH_TRY(ah_cuda_dense(c->device, &converted, input, dtype->dtype));
    return reduce_fold(c, converted, how, finish, 0);
}

AH_CUDA_OP(sum, fold_as(c, AH_REDUCE_SUM, AH_FINISH_NONE, &ah_args(c, sum)->dtype))

int ah_cuda_nansum(struct ah_call *c)
{
    const struct ah_args_sum *arg = ah_args(c, sum);
    struct ah_tensor *input = arg->input.tensor;
    AH_OWNED struct ah_tensor *rows = NULL, *whole = NULL;
    if (!ah_dtype_is_float(input->dtype) || ah_dtype_is_float(c->out[0]->dtype))
        return fold_as(c, AH_REDUCE_NANSUM, AH_FINISH_NONE, &arg->dtype);
    /* Whole numbers hold no NaN: it becomes 0 before the conversion. */
    AH_TRY(ah_op1(AH_OP_nan_to_num, &rows, AH_T(input), AH_N(0), AH_N(INFINITY), AH_N(-INFINITY)));
    AH_TRY(ah_cuda_dense(c->device, &whole, rows, c->out[0]->dtype));
    return reduce_fold(c, whole, AH_REDUCE_SUM, AH_FINISH_NONE, 0);
}

AH_CUDA_OP(prod, fold_as(c, AH_REDUCE_PROD, AH_FINISH_NONE, &ah_args(c, prod)->dtype))

int ah_cuda_mean(struct ah_call *c)
{
    struct ah_value dtype = {.kind = AH_DTYPE, .dtype = c->out[0]->dtype};
    return fold_as(c, AH_REDUCE_SUM, AH_FINISH_DIVIDE, &dtype);
}

int ah_cuda_norm(struct ah_call *c)
{
    double p = ah_args(c, norm)->p.number;
    struct ah_tensor *input = c->arg[0].tensor;
    if (p == 2)
        return reduce_fold(c, input, AH_REDUCE_SQUARES, AH_FINISH_ROOT, 0);
    if (p == 1)
        return reduce_fold(c, input, AH_REDUCE_ABS, AH_FINISH_NONE, 0);
    if (p == 0)
        return reduce_fold(c, input, AH_REDUCE_COUNT, AH_FINISH_NONE, 0);
    if (isinf(p))
        return reduce_fold(c, input, p > 0 ? AH_REDUCE_ABS_MAX : AH_REDUCE_ABS_MIN, AH_FINISH_NONE, 0);
    return reduce_fold(c, input, AH_REDUCE_POWERS, AH_FINISH_POWER, p);
}

static int reduce_whole(struct ah_call *c, struct ah_cuda_kernel *kernel, enum ah_reduce_finish finish, double number)
{
    struct ah_reduce_args args = reduce_prepare(c, c->arg[0].tensor);
    args.finish = finish;
    args.number = number;
    args.single = ah_cuda_state(c->device)->slow_double || ah_dtype_size(c->arg[0].tensor->dtype) == 2;
    return reduce_run(c, kernel, &args);
}

int ah_cuda_var(struct ah_call *c)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("reduce", "variance");
    return reduce_whole(c, &kernel, AH_FINISH_NONE, c->state.reduce.correction);
}

int ah_cuda_std(struct ah_call *c)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("reduce", "variance");
    return reduce_whole(c, &kernel, AH_FINISH_ROOT, c->state.reduce.correction);
}

int ah_cuda_logsumexp(struct ah_call *c)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("reduce", "log_sum_exp");
    struct ah_tensor *input = c->arg[0].tensor, *given = input;
    if (!ah_dtype_is_float(input->dtype))
        AH_TRY(ah_cuda_dense(c->device, &c->arg[0].tensor, input, AH_F32));
    int status = reduce_whole(c, &kernel, AH_FINISH_NONE, 0);
    if (c->arg[0].tensor != given)
        ah_tensor_release(c->arg[0].tensor);
    c->arg[0].tensor = given;
    return status;
}

static int reduce_extreme(struct ah_call *c, enum ah_reduce_fold how, const struct ah_tensor *value,
                          struct ah_tensor *index)
{
    static struct ah_cuda_kernel of_floats = AH_CUDA_KERNEL("reduce", "extreme_float");
    static struct ah_cuda_kernel of_doubles = AH_CUDA_KERNEL("reduce", "extreme_double");
    static struct ah_cuda_kernel of_integers = AH_CUDA_KERNEL("reduce", "extreme_integer");
    struct ah_reduce_args args = reduce_prepare(c, c->arg[0].tensor);
    args.fold = how;
    args.to = value ? (uintptr_t)ah_tensor_data(value) : 0;
    args.index = (uintptr_t)ah_tensor_data(index);
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    return reduce_run(c, !ah_dtype_is_float(dtype) ? &of_integers : dtype == AH_F64 ? &of_doubles : &of_floats, &args);
}

AH_CUDA_OP(max_dim, reduce_extreme(c, AH_REDUCE_MAX, c->out[0], c->out[1]))
AH_CUDA_OP(min_dim, reduce_extreme(c, AH_REDUCE_MIN, c->out[0], c->out[1]))
AH_CUDA_OP(argmax, reduce_extreme(c, AH_REDUCE_MAX, NULL, c->out[0]))
AH_CUDA_OP(argmin, reduce_extreme(c, AH_REDUCE_MIN, NULL, c->out[0]))

int ah_cuda_column_sum(struct ah_call *c)
{
    c->state.reduce.dims = (1u << (c->arg[0].tensor->ndim - 1)) - 1;
    return reduce_fold(c, c->arg[0].tensor, AH_REDUCE_SUM, AH_FINISH_NONE, 0);
}

int ah_cuda_channel_sum(struct ah_call *c)
{
    struct ah_tensor *input = c->arg[0].tensor;
    if (input->storage->channels_last) { /* rows of channels */
        struct ah_tensor rows = *input;
        rows.ndim = 2;
        rows.size[0] = input->size[0] * input->size[2] * input->size[3];
        rows.size[1] = rows.stride[0] = input->size[1];
        rows.stride[1] = 1;
        c->state.reduce.dims = 1;
        return reduce_fold(c, &rows, AH_REDUCE_SUM, AH_FINISH_NONE, 0);
    }
    c->state.reduce.dims = ((1u << input->ndim) - 1) & ~(1u << (input->ndim - 3));
    return reduce_fold(c, input, AH_REDUCE_SUM, AH_FINISH_NONE, 0);
}
