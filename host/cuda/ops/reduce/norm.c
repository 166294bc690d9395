/* Layer norm and RMS norm. */
#include "cuda/kernels/reduce/norm.h"

#include "cuda/driver/memory/memory.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/lib/rows.h"

static struct ah_cuda_row_kernels norm_kernel = AH_CUDA_ROWS("norm", "norm");
static struct ah_cuda_row_kernels add_kernel = AH_CUDA_ROWS("norm", "add_norm");
static struct ah_cuda_row_kernels backward_kernel = AH_CUDA_ROWS("norm", "norm_backward");
static struct ah_cuda_kernel affine_kernel[] = AH_CUDA_REALS("norm", "norm_affine");
static struct ah_cuda_kernel total_kernel[] = AH_CUDA_REALS("norm", "column_total");

/* A dtype relative to x's, as kernels receive it. */
static int32_t kind_beside(enum ah_dtype of, enum ah_dtype dtype)
{
    return of == dtype ? AH_NORM_SAME : of == AH_F16 ? AH_NORM_F16 : AH_NORM_BF16;
}

/* fp16 or bf16 where x is float32 is read as it is, anything else in x's dtype. */
static enum ah_dtype read_as(const struct ah_tensor *t, enum ah_dtype dtype)
{
    return dtype == AH_F32 && (t->dtype == AH_F16 || t->dtype == AH_BF16) ? t->dtype : dtype;
}

/* The input of a normalisation (with `other` added to it, to the tensor `sum`), and its parameters. */
struct normal {
    struct ah_tensor *input, *other, *weight, *bias, *sum, *mean, *inverse;
    double eps;
};

static int norm_launch(struct ah_call *c, struct ah_norm_rows_args *args, const struct normal *n,
                       struct ah_tensor *other, enum ah_dtype dtype)
{
    if (!other)
        return ah_cuda_launch_rows(c->device, &norm_kernel, c->op->name, dtype, args->rows, args->width, args,
                                   sizeof *args);
    struct ah_add_norm_args add = {.norm = *args, .other = ah_cuda_data(other), .sum = ah_cuda_data(n->sum),
                                   .kind = kind_beside(other->dtype, dtype)};
    add.norm.wide = args->wide && (add.sum | add.other) % 16 == 0;
    return ah_cuda_launch_rows(c->device, &add_kernel, c->op->name, dtype, args->rows, args->width, &add, sizeof add);
}

static int norm_forward(struct ah_call *c, const struct normal *n)
{
    enum ah_dtype dtype = n->sum ? n->sum->dtype : n->input->dtype;
    AH_CLEANUP(ah_cuda_inputs_close) struct ah_cuda_inputs in = {.device = c->device};
    struct ah_norm_rows_args args = {.y = ah_cuda_data(c->out[0]), .mean = ah_cuda_data(n->mean),
                                     .inverse = ah_cuda_data(n->inverse), .rows = n->inverse->numel, .eps = n->eps,
                                     .y_kind = kind_beside(c->out[0]->dtype, dtype)};
    if (args.rows == 0)
        return 0;
    args.width = n->input->numel / args.rows;
    args.x = ah_cuda_data(ah_cuda_input(&in, n->input, dtype));
    struct ah_tensor *other = ah_cuda_input(&in, n->other, n->other ? n->other->dtype : dtype);
    args.weight = ah_cuda_data(ah_cuda_input(&in, n->weight, dtype));
    args.bias = ah_cuda_data(ah_cuda_input(&in, n->bias, dtype));
    args.wide = ah_cuda_rows_wide(args.width, dtype, args.x | args.y, args.weight, args.bias);
    AH_TRY(in.status);
    return norm_launch(c, &args, n, other, dtype);
}

int ah_cuda_layer_norm(struct ah_call *c)
{
    const struct ah_args_layer_norm *arg = ah_args(c, layer_norm);
    const struct normal n = {.input = arg->input.tensor, .weight = ah_given(&arg->weight),
                             .bias = ah_given(&arg->bias), .mean = c->extra[0], .inverse = c->extra[1],
                             .eps = arg->eps.number};
    return norm_forward(c, &n);
}

/* The wider of the two is x. */
int ah_cuda_add_layer_norm(struct ah_call *c)
{
    const struct ah_args_add_layer_norm *arg = ah_args(c, add_layer_norm);
    bool turned = arg->input.tensor->dtype != c->out[1]->dtype;
    const struct normal n = {.input = turned ? arg->other.tensor : arg->input.tensor,
                             .other = turned ? arg->input.tensor : arg->other.tensor, .weight = ah_given(&arg->weight),
                             .bias = ah_given(&arg->bias), .sum = c->out[1], .mean = c->extra[0],
                             .inverse = c->extra[1], .eps = arg->eps.number};
    return norm_forward(c, &n);
}

int ah_cuda_rms_norm(struct ah_call *c)
{
    const struct ah_args_rms_norm *arg = ah_args(c, rms_norm);
    const struct normal n = {.input = arg->input.tensor, .weight = ah_given(&arg->weight), .inverse = c->extra[0],
                             .eps = c->state.root.eps};
    return norm_forward(c, &n);
}

/* out[1] and, unless there is none, out[2]: the gradients of weight and bias. */
static int norm_affine(struct ah_call *c, struct ah_norm_affine_args *args, enum ah_dtype dtype)
{
    struct ah_device *device = c->device;
    struct ah_tensor *out[2] = {c->out[1], c->out[2]};
    int outs = out[1] ? 2 : 1;
    AH_CUDA_SCRATCH(parts, device);
    args->width = out[0]->numel;
    args->chunks = (args->rows + AH_NORM_CHUNK - 1) / AH_NORM_CHUNK;
    size_t part = (size_t)(args->chunks * args->width) * ah_dtype_size(ah_compute_dtype(dtype));
    int64_t strips = (args->width + AH_ROW_THREADS - 1) / AH_ROW_THREADS;
    AH_TRY(ah_cuda_scratch_take(&parts, (size_t)outs * part));
    args->weight_parts = ah_cuda_address(parts.at);
    args->bias_parts = outs == 2 ? args->weight_parts + part : 0;
    AH_TRY(args->chunks == 0 ? 0 : ah_cuda_launch(device, &affine_kernel[dtype], c->op->name,
                                                  ah_cuda_grid_each(strips * args->chunks, AH_ROW_THREADS), args));
    for (int i = 0; i < outs; i++) {
        struct ah_column_total_args total = {i == 0 ? args->weight_parts : args->bias_parts, ah_cuda_data(out[i]),
                                             args->width, args->chunks};
        struct ah_cuda_grid grid = {ah_cuda_blocks(args->width, AH_NORM_COLUMNS), AH_ROW_THREADS, 0};
        AH_TRY(ah_cuda_launch(device, &total_kernel[dtype], c->op->name, grid, &total));
    }
    return 0;
}

static int norm_backward(struct ah_call *c, struct ah_tensor *grad, struct ah_tensor *input, struct ah_tensor *weight,
                         struct ah_tensor *mean, struct ah_tensor *inverse, bool with_weight, struct ah_tensor *added)
{
    enum ah_dtype dtype = input->dtype, read = read_as(grad, dtype);
    struct ah_cuda_inputs in = {.device = c->device};
    struct ah_norm_backward_args args = {.gx = ah_cuda_data(c->out[0]), .mean = ah_cuda_data(mean),
                                         .inverse = ah_cuda_data(inverse), .rows = inverse->numel,
                                         .also = ah_cuda_data(c->out[3])};
    args.g = ah_cuda_data(ah_cuda_input(&in, grad, read));
    args.g_kind = kind_beside(read, dtype);
    args.also_kind = c->out[3] ? kind_beside(c->out[3]->dtype, dtype) : AH_NORM_SAME;
    args.x = ah_cuda_data(ah_cuda_input(&in, input, dtype));
    args.weight = ah_cuda_data(ah_cuda_input(&in, weight, dtype));
    args.more = ah_cuda_data(ah_cuda_input(&in, added, dtype));
    args.width = args.rows ? input->numel / args.rows : 0;
    args.wide = ah_cuda_rows_wide(args.width, dtype, args.g | args.x, args.gx | args.more | args.also, args.weight);
    if (in.status == 0 && args.rows > 0)
        in.status = ah_cuda_launch_rows(c->device, &backward_kernel, c->op->name, dtype, args.rows, args.width, &args,
                                        sizeof args);
    if (in.status == 0 && with_weight) {
        struct ah_norm_affine_args parts = {.g = args.g, .x = args.x, .mean = args.mean, .inverse = args.inverse,
                                            .rows = args.rows, .g_kind = args.g_kind};
        in.status = norm_affine(c, &parts, dtype);
    }
    return ah_cuda_inputs_close(&in);
}

AH_CUDA_OP_WITH(layer_norm_backward, layer_norm_backward,
                norm_backward(c, arg->grad.tensor, arg->input.tensor, ah_given(&arg->weight), arg->mean.tensor,
                              arg->inverse.tensor, arg->with_weight.flag, ah_given(&arg->more)))
AH_CUDA_OP_WITH(rms_norm_backward, rms_norm_backward,
                norm_backward(c, arg->grad.tensor, arg->input.tensor, ah_given(&arg->weight), NULL, arg->inverse.tensor,
                              arg->with_weight.flag, NULL))
