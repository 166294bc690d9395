/* matmul and linear by cuBLASLt (cuda/vendor/matmul.h): operands are read in place when their rows or columns are
 * dense, else from a dense copy. A stack laid out like one tall matrix is multiplied as one; other batches go by
 * strides, one call for each place of the outer ones. Integers are multiplied by a kernel of tiles. */
#include <string.h>

#include "base/status/status.h"
#include "cuda/kernels/linear/matmul.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/vendor/matmul.h"
#include "ops/dispatch/precision.h"
#include "ops/math/linear.h"

/* A stack of matrices and the order of its reads. */
struct side {
    struct ah_tensor *tensor; /* owned */
    struct ah_cuda_matrix matrix;
    int64_t rows, columns;
    int64_t stride[AH_MAX_DIMS]; /* of the result's batch dims */
};

static int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

/* Can the matrix with these strides be read in place? A stride of a dim of size 1 means nothing. */
static bool matmul_readable(struct side *s, int64_t row_stride, int64_t column_stride)
{
    bool by_rows = (column_stride == 1 || s->columns <= 1) &&
                   (row_stride >= at_least_one(s->columns) || s->rows <= 1);
    bool by_columns = (row_stride == 1 || s->rows <= 1) &&
                      (column_stride >= at_least_one(s->rows) || s->columns <= 1);
    s->matrix.transposed = !by_rows;
    if (by_rows)
        s->matrix.ld = s->rows <= 1 ? at_least_one(s->columns) : row_stride;
    else
        s->matrix.ld = s->columns <= 1 ? at_least_one(s->rows) : column_stride;
    return by_rows || by_columns;
}

/* `column`: one dim is a column instead of a row. The batch dims are stretched to `size`. */
static int open_side(struct side *s, struct ah_device *device, struct ah_tensor *tensor, bool column,
                     const int64_t *size, int dims)
{
    memset(s, 0, sizeof *s);
    s->tensor = ah_tensor_retain(tensor);
    for (int attempt = 0;; attempt++) {
        const struct ah_tensor *t = s->tensor;
        int64_t last = t->stride[t->ndim - 1], length = t->size[t->ndim - 1];
        s->rows = t->ndim > 1 ? t->size[t->ndim - 2] : column ? length : 1;
        s->columns = t->ndim > 1 ? length : column ? 1 : length;
        int64_t row_stride = t->ndim > 1 ? t->stride[t->ndim - 2] : column ? last : at_least_one(length);
        if (matmul_readable(s, row_stride, t->ndim == 1 && column ? 1 : last))
            break;
        if (attempt)
            return ah_fail(AH_ESTATE, "matmul: a dense operand cannot be read");
        struct ah_tensor *dense;
        AH_TRY(ah_tensor_empty(&dense, t->size, t->ndim, t->dtype, device));
        int status = ah_cuda_assign(device, dense, s->tensor);
        ah_tensor_release(s->tensor);
        s->tensor = dense;
        AH_TRY(status);
    }
    s->matrix.at = (uintptr_t)ah_tensor_data(s->tensor);
    int batch = s->tensor->ndim > 2 ? s->tensor->ndim - 2 : 0;
    for (int d = 0; d < dims; d++) {
        int own = d - (dims - batch);
        s->stride[d] = own < 0 || (s->tensor->size[own] == 1 && size[d] != 1) ? 0 : s->tensor->stride[own];
    }
    return 0;
}

/* Drop batch dims of size 1 and merge dims that both sides read as one. Return the number of the remaining ones. */
static int matmul_merge(int64_t *size, int dims, struct side *a, struct side *b)
{
    int n = 0;
    for (int d = 0; d < dims; d++) {
        if (size[d] == 1)
            continue;
        bool joins = n > 0 && a->stride[n - 1] == a->stride[d] * size[d] && b->stride[n - 1] == b->stride[d] * size[d];
        n -= joins;
        size[n] = joins ? size[n] * size[d] : size[d];
        a->stride[n] = a->stride[d];
        b->stride[n] = b->stride[d];
        n++;
    }
    return n;
}

/* The steps of a stack of matrices from one matrix, row and column to the next. */
static void matmul_steps(int64_t *step, const struct ah_cuda_matrix *matrix)
{
    step[0] = matrix->stride;
    step[1] = matrix->transposed ? 1 : matrix->ld;
    step[2] = matrix->transposed ? matrix->ld : 1;
}

static int multiply_integers(struct ah_call *c, const struct ah_cuda_matmul *product)
{
    static struct ah_cuda_kernel kernel[] = {AH_CUDA_INTEGERS("matmul", "matmul")};
    struct ah_matmul_integer_args args = {.a = product->a.at, .b = product->b.at, .out = product->out.at,
                                          .batch = product->batch, .rows = product->rows,
                                          .columns = product->columns, .depth = product->depth};
    matmul_steps(args.a_step, &product->a);
    matmul_steps(args.b_step, &product->b);
    args.row_tiles = (args.rows + AH_INTEGER_TILE - 1) / AH_INTEGER_TILE;
    args.column_tiles = (args.columns + AH_INTEGER_TILE - 1) / AH_INTEGER_TILE;
    double operations = 2.0 * (double)args.batch * (double)args.rows * (double)args.columns * (double)args.depth;
    return ah_cuda_launch_working(c->device, &kernel[product->dtype], c->op->name,
                                  ah_cuda_grid_each(args.batch * args.row_tiles * args.column_tiles,
                                                    AH_INTEGER_TILE * AH_INTEGER_ROWS), &args, sizeof args,
                                  (struct ah_cuda_work){.operations = operations});
}

/* The calls for all places of the outer batch dims; results follow each other. */
static int matmul_multiply(struct ah_call *c, struct side *a, struct side *b, int64_t *size, int dims)
{
    size_t item = ah_dtype_size(c->out[0]->dtype);
    struct ah_cuda_matmul product = {.dtype = c->out[0]->dtype, .rows = a->rows, .columns = b->columns,
                                      .depth = a->columns, .batch = 1, .a = a->matrix, .b = b->matrix,
                                      .tf32 = ah_precision()->matmul != AH_MATMUL_HIGHEST};
    dims = matmul_merge(size, dims, a, b);
    /* Rows that continue from one matrix to the next are rows of one. */
    if (dims == 1 && b->stride[0] == 0 && !a->matrix.transposed && a->stride[0] == a->rows * a->matrix.ld) {
        product.rows *= size[0];
        dims = 0;
    }
    product.out = (struct ah_cuda_matrix){(uintptr_t)ah_tensor_data(c->out[0]), false, product.columns,
                                          product.rows * product.columns};
    int64_t outer = 1;
    if (dims > 0) {
        product.batch = size[dims - 1];
        product.a.stride = a->stride[dims - 1];
        product.b.stride = b->stride[dims - 1];
    }
    for (int d = 0; d + 1 < dims; d++)
        outer *= size[d];
    for (int64_t i = 0; i < outer; i++) {
        int64_t rest = i, from_a = 0, from_b = 0;
        for (int d = dims - 2; d >= 0; d--) {
            from_a += rest % size[d] * a->stride[d];
            from_b += rest % size[d] * b->stride[d];
            rest /= size[d];
        }
        product.a.at = a->matrix.at + (uint64_t)from_a * item;
        product.b.at = b->matrix.at + (uint64_t)from_b * item;
        if (ah_dtype_is_float(product.dtype))
            AH_TRY(ah_cuda_multiply(c->device, c->op->name, &product));
        else
            AH_TRY(multiply_integers(c, &product));
        product.out.at += (uint64_t)(product.batch * product.out.stride) * item;
    }
    return 0;
}

static int matmul_clear(struct ah_call *c)
{
    return c->device->type->fill(c->device, ah_tensor_data(c->out[0]), 0,
                                 (size_t)c->out[0]->numel * ah_dtype_size(c->out[0]->dtype));
}

int ah_cuda_matmul(struct ah_call *c)
{
    struct ah_tensor *left = c->arg[0].tensor, *right = c->arg[1].tensor, *out = c->out[0];
    struct side a = {0}, b = {0};
    int64_t size[AH_MAX_DIMS];
    if (out->numel == 0)
        return 0;
    if (left->numel == 0)
        return matmul_clear(c);
    int dims = out->ndim - (left->ndim > 1) - (right->ndim > 1);
    memcpy(size, out->size, (size_t)dims * sizeof size[0]);
    int status = open_side(&a, c->device, left, false, size, dims);
    if (status == 0)
        status = open_side(&b, c->device, right, true, size, dims);
    if (status == 0)
        status = matmul_multiply(c, &a, &b, size, dims);
    ah_tensor_release(a.tensor);
    ah_tensor_release(b.tensor);
    return status;
}

/* out += bias, where the product does not do it. */
static int add_bias(struct ah_call *c, struct ah_tensor *bias)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("pairs", "add")};
    enum ah_dtype dtype = ah_compute_dtype(bias->dtype);
    const struct ah_cuda_operand operand[] = {{c->out[0], dtype}, {c->out[0], dtype}, {bias, dtype}};
    return ah_cuda_iterate(c->device, "linear", &loops[dtype], operand, 3, NULL);
}

/* input (..., k) times weight (n, k) transposed: the input as one matrix of rows. With `gelu` of it in out[0], and
 * itself in out[1] if that is there. */
static int multiply_linear(struct ah_call *c, struct ah_tensor *input, struct ah_tensor *weight, struct ah_tensor *bias,
                           bool gelu)
{
    struct side b = {0};
    int64_t depth = weight->size[1], columns = weight->size[0];
    struct ah_tensor *rows = NULL;
    int status = ah_cuda_dense(c->device, &rows, input, input->dtype);
    if (status == 0)
        status = open_side(&b, c->device, weight, false, NULL, 0);
    if (status == 0) {
        struct ah_cuda_matmul product = {.dtype = input->dtype, .rows = input->numel / depth, .columns = columns,
                                          .depth = depth, .batch = 1, .b = b.matrix,
                                          .tf32 = ah_precision()->matmul != AH_MATMUL_HIGHEST};
        product.a = (struct ah_cuda_matrix){.at = (uintptr_t)ah_tensor_data(rows), .ld = depth};
        product.b.transposed = !b.matrix.transposed;
        product.out = (struct ah_cuda_matrix){.at = (uintptr_t)ah_tensor_data(c->out[0]), .ld = columns};
        product.bias = bias ? (uintptr_t)ah_tensor_data(bias) : 0;
        product.epilogue = gelu ? AH_CUDA_GELU : AH_CUDA_PLAIN;
        product.aux = gelu && c->out[1] ? (uintptr_t)ah_tensor_data(c->out[1]) : 0;
        status = ah_cuda_multiply(c->device, "linear", &product);
    }
    ah_tensor_release(rows);
    ah_tensor_release(b.tensor);
    return status;
}

int ah_cuda_linear(struct ah_call *c)
{
    const struct ah_args_linear *arg = ah_args(c, linear);
    struct ah_tensor *input = arg->input.tensor, *bias = ah_given(&arg->bias);
    AH_OWNED struct ah_tensor *dense = NULL;
    bool fused = bias && bias->dtype != AH_F64;
    if (c->out[0]->numel == 0)
        return 0;
    if (input->numel == 0)
        return bias ? ah_cuda_assign(c->device, c->out[0], bias) : matmul_clear(c);
    if (fused)
        AH_TRY(ah_cuda_dense(c->device, &dense, bias, bias->dtype));
    AH_TRY(multiply_linear(c, input, arg->weight.tensor, dense, false));
    return bias && !fused ? add_bias(c, bias) : 0;
}

int ah_cuda_linear_gelu(struct ah_call *c)
{
    const struct ah_args_linear_gelu *arg = ah_args(c, linear_gelu);
    struct ah_tensor *input = arg->input.tensor, *bias = ah_given(&arg->bias), *dense = NULL;
    if (input->numel == 0 || c->out[0]->numel == 0 ||
        !ah_cuda_epilogue_fits(input->dtype, arg->weight.tensor->size[0]))
        return ah_linear_gelu_by_parts(c);
    if (bias)
        AH_TRY(ah_cuda_dense(c->device, &dense, bias, bias->dtype));
    int status = multiply_linear(c, input, arg->weight.tensor, dense, true);
    ah_tensor_release(dense);
    return status == AH_ENOTIMPL ? ah_linear_gelu_by_parts(c) : status;
}

/* a b as one product of matrices; `product` has its dtype, its place, its epilogue. */
static int multiply_matrices(struct ah_call *c, struct ah_tensor *left, struct ah_tensor *right,
                             struct ah_cuda_matmul product)
{
    struct side a = {0}, b = {0};
    int status = open_side(&a, c->device, left, false, NULL, 0);
    if (status == 0)
        status = open_side(&b, c->device, right, true, NULL, 0);
    if (status == 0) {
        product.rows = a.rows;
        product.columns = product.out.ld = b.columns;
        product.depth = a.columns;
        product.batch = 1;
        product.a = a.matrix;
        product.b = b.matrix;
        product.tf32 = ah_precision()->matmul != AH_MATMUL_HIGHEST;
        status = ah_cuda_multiply(c->device, c->op->name, &product);
    }
    ah_tensor_release(a.tensor);
    ah_tensor_release(b.tensor);
    return status;
}

int ah_cuda_linear_of_gelu_backward(struct ah_call *c)
{
    const struct ah_args_linear_of_gelu_backward *arg = ah_args(c, linear_of_gelu_backward);
    struct ah_tensor *w = arg->weight.tensor, *grad = arg->grad.tensor;
    AH_OWNED struct ah_tensor *g = NULL, *rows = NULL, *before = NULL;
    if (grad->numel == 0 || c->out[0]->numel == 0 || !ah_cuda_epilogue_fits(grad->dtype, w->size[1]))
        return ah_linear_of_gelu_backward_by_parts(c);
    AH_TRY(ah_cuda_dense(c->device, &g, grad, grad->dtype));
    AH_TRY(ah_cuda_dense(c->device, &before, arg->before.tensor, grad->dtype));
    AH_TRY(ah_tensor_view(&rows, g, (int64_t[]){g->numel / w->size[0], w->size[0]}, (int64_t[]){w->size[0], 1}, 2,
                          g->offset));
    int status = multiply_matrices(c, rows, w, (struct ah_cuda_matmul){.dtype = grad->dtype,
                                                                       .out.at = (uintptr_t)ah_tensor_data(c->out[0]),
                                                                       .epilogue = AH_CUDA_GELU_SLOPE,
                                                                       .aux = (uintptr_t)ah_tensor_data(before)});
    return status == AH_ENOTIMPL ? ah_linear_of_gelu_backward_by_parts(c) : status;
}

int ah_cuda_matmul_wide(struct ah_call *c)
{
    const struct ah_args_matmul_wide *arg = ah_args(c, matmul_wide);
    AH_OWNED struct ah_tensor *a = NULL, *b = NULL;
    AH_TRY(ah_cuda_dense(c->device, &a, arg->input.tensor, AH_F32));
    AH_TRY(ah_cuda_dense(c->device, &b, arg->other.tensor, AH_F32));
    return ah_call_part(c, AH_OP_matmul, c->out[0], AH_T(a), AH_T(b));
}

/* The gradient of a weight into `out`, stored by columns where `turned`; unless NULL, `sums` gets that of its bias, in
 * the dtype of `out`, as cuBLASLt stores it. */
static int multiply_gradient(struct ah_call *c, struct ah_tensor *grad, struct ah_tensor *input, bool turned, bool adds,
                             const struct ah_tensor *out, const struct ah_tensor *sums)
{
    AH_OWNED struct ah_tensor *left = NULL;
    AH_TRY(ah_turned(&left, turned ? input : grad));
    return multiply_matrices(c, left, turned ? grad : input, (struct ah_cuda_matmul){
        .dtype = grad->dtype, .wide = out->dtype != grad->dtype, .adds = adds,
        .out.at = (uintptr_t)ah_tensor_data(out),
        .epilogue = !sums ? AH_CUDA_PLAIN : turned ? AH_CUDA_COLUMN_SUMS : AH_CUDA_ROW_SUMS,
        .aux = sums ? (uintptr_t)ah_tensor_data(sums) : 0});
}

int ah_cuda_linear_weight_backward(struct ah_call *c)
{
    const struct ah_args_linear_weight_backward *arg = ah_args(c, linear_weight_backward);
    struct ah_tensor *g = arg->grad.tensor, *x = arg->input.tensor;
    if (g->numel == 0 || x->numel == 0 || g->dtype == AH_F64)
        return ah_linear_weight_backward_by_parts(c);
    int status = multiply_gradient(c, g, x, arg->turned.flag, false, c->out[0], c->out[1]);
    return status == AH_ENOTIMPL ? ah_linear_weight_backward_by_parts(c) : status;
}

int ah_cuda_linear_weight_backward_into(struct ah_call *c)
{
    const struct ah_args_linear_weight_backward_into *arg = ah_args(c, linear_weight_backward_into);
    struct ah_tensor *g = arg->grad.tensor, *x = arg->input.tensor, *out = c->out[0];
    if (g->numel == 0 || x->numel == 0 || (c->out[1] && g->dtype == AH_F64))
        return ah_linear_weight_backward_into_by_parts(c);
    int status = multiply_gradient(c, g, x, ah_is_by_columns(out), arg->adds.flag, out, c->out[1]);
    return status == AH_ENOTIMPL ? ah_linear_weight_backward_into_by_parts(c) : status;
}
