/* A linear map of gelu's result, which is made in blocks of rows: it is never stored as a whole, neither by the forward
 * nor for the gradients, and a block is in the cache when the product reads it. */
#include "ops/math/gelu_linear.h"

#include "ops/dispatch/rows.h"
#include "ops/math/linear.h"

/* A smaller block costs products, which libraries compute at 0.9 of their rate below LEAST_ROWS; a larger one costs
 * memory. */
enum { BLOCK_BYTES = 4 << 20, LEAST_ROWS = 1024, ROWS_MULTIPLE = 64 };

static int64_t width_of(const struct ah_tensor *x)
{
    return x->size[x->ndim - 1];
}

static int64_t row_count(const struct ah_tensor *x)
{
    return width_of(x) ? x->numel / width_of(x) : 0;
}

/* Halves are one block: the gradients of several would be rounded before they are added. */
static int64_t rows_per_block(const struct ah_tensor *x)
{
    int64_t rows = row_count(x), row_bytes = (int64_t)ah_dtype_size(x->dtype) * (width_of(x) ? width_of(x) : 1);
    int64_t fitting = BLOCK_BYTES / row_bytes > LEAST_ROWS ? BLOCK_BYTES / row_bytes : LEAST_ROWS;
    if (x->dtype == AH_F16 || x->dtype == AH_BF16 || rows <= fitting)
        return rows;
    int64_t blocks = (rows + fitting - 1) / fitting, each = (rows + blocks - 1) / blocks;
    return (each + ROWS_MULTIPLE - 1) / ROWS_MULTIPLE * ROWS_MULTIPLE;
}

bool ah_gelu_linear_has_blocks(const struct ah_tensor *x)
{
    return rows_per_block(x) < row_count(x);
}

/* Rows from `start` on of a contiguous tensor, as a matrix. */
static int rows_of(struct ah_tensor **out, const struct ah_tensor *x, int64_t start, int64_t count)
{
    return ah_tensor_view(out, x, (int64_t[]){count, width_of(x)}, (int64_t[]){width_of(x), 1}, 2,
                          x->offset + start * width_of(x));
}

/* The part of an op that is done for a block: x, y and z are its rows of gelu's input, of a buffer for gelu's result or
 * its gradient, and of the op's other tensor. */
typedef int block_fn(struct ah_call *c, struct ah_tensor *x, struct ah_tensor *y, struct ah_tensor *z, bool first);

static int each_block(struct ah_call *c, const struct ah_tensor *x, const struct ah_tensor *z, block_fn *run)
{
    int64_t rows = row_count(x), each = rows_per_block(x);
    AH_OWNED struct ah_tensor *buffer = NULL;
    AH_TRY(ah_tensor_empty(&buffer, (int64_t[]){each, width_of(x)}, 2, x->dtype, c->device));
    for (int64_t start = 0; start < rows; start += each) {
        int64_t count = rows - start < each ? rows - start : each;
        AH_OWNED struct ah_tensor *part_x = NULL, *part_y = NULL, *part_z = NULL;
        AH_TRY(rows_of(&part_x, x, start, count));
        AH_TRY(rows_of(&part_y, buffer, 0, count));
        AH_TRY(rows_of(&part_z, z, start, count));
        AH_TRY(run(c, part_x, part_y, part_z, start == 0));
    }
    return 0;
}

/* Ops that record themselves compute it of a tensor without whole rows in memory. */
static int gelu_linear_by_ops(struct ah_call *c)
{
    const struct ah_args_gelu_linear *arg = ah_args(c, gelu_linear);
    AH_OWNED struct ah_tensor *y = NULL, *weight = NULL;
    c->recording = false;
    AH_TRY(ah_op1(AH_OP_to, &weight, arg->weight, AH_D(arg->input.tensor->dtype)));
    AH_TRY(ah_op1(AH_OP_gelu, &y, arg->input, arg->approximate));
    AH_TRY(ah_op1(AH_OP_linear, &c->out[0], AH_T(y), AH_T(weight), arg->bias));
    c->out_count = 1;
    return 0;
}

int ah_forward_gelu_linear(struct ah_call *c)
{
    const struct ah_args_gelu_linear *arg = ah_args(c, gelu_linear);
    const struct ah_tensor *x = arg->input.tensor, *w = arg->weight.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(ah_check_linear(c, x, w, ah_given(&arg->bias)));
    if (!ah_tensor_is_contiguous(x))
        return gelu_linear_by_ops(c);
    AH_TRY(ah_linear_output(c, 0, x, w->size[0]));
    return ah_call_kernel(c);
}

static int block_forward(struct ah_call *c, struct ah_tensor *x, struct ah_tensor *y, struct ah_tensor *z, bool first)
{
    const struct ah_args_gelu_linear *arg = ah_args(c, gelu_linear);
    AH_TRY(ah_call_part(c, AH_OP_gelu, y, AH_T(x), arg->approximate));
    return ah_call_part(c, AH_OP_linear, z, AH_T(y), arg->weight, arg->bias);
}

int ah_gelu_linear_in_blocks(struct ah_call *c)
{
    return each_block(c, ah_args(c, gelu_linear)->input.tensor, c->out[0], block_forward);
}

int ah_forward_gelu_linear_backward(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, gelu_linear_backward)->input.tensor;
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}

/* The gradient may be written over x. */
static int block_backward(struct ah_call *c, struct ah_tensor *x, struct ah_tensor *y, struct ah_tensor *z, bool first)
{
    const struct ah_args_gelu_linear_backward *arg = ah_args(c, gelu_linear_backward);
    AH_OWNED struct ah_tensor *out = NULL;
    AH_TRY(rows_of(&out, c->out[0], (x->offset - arg->input.tensor->offset) / width_of(x), x->size[0]));
    AH_TRY(ah_call_part(c, ah_product_with(z, arg->weight.tensor), y, AH_T(z), arg->weight));
    return ah_call_part(c, AH_OP_gelu_backward, out, AH_T(y), AH_T(x), arg->approximate);
}

int ah_gelu_linear_backward_in_blocks(struct ah_call *c)
{
    const struct ah_args_gelu_linear_backward *arg = ah_args(c, gelu_linear_backward);
    return each_block(c, arg->input.tensor, arg->grad.tensor, block_backward);
}

int ah_forward_gelu_linear_weight_backward(struct ah_call *c)
{
    const struct ah_args_gelu_linear_weight_backward *arg = ah_args(c, gelu_linear_weight_backward);
    return ah_call_single(c, (int64_t[]){width_of(arg->grad.tensor), width_of(arg->input.tensor)}, 2,
                          arg->grad.tensor->dtype);
}

static int block_weight(struct ah_call *c, struct ah_tensor *x, struct ah_tensor *y, struct ah_tensor *z, bool first)
{
    AH_OWNED struct ah_tensor *columns = NULL, *more = NULL;
    AH_TRY(ah_call_part(c, AH_OP_gelu, y, AH_T(x), ah_args(c, gelu_linear_weight_backward)->approximate));
    AH_TRY(ah_turned(&columns, z));
    if (first)
        return ah_call_part(c, AH_OP_matmul, c->out[0], AH_T(columns), AH_T(y));
    AH_TRY(ah_tensor_empty_like(&more, c->out[0]));
    AH_TRY(ah_call_part(c, AH_OP_matmul, more, AH_T(columns), AH_T(y)));
    return ah_call_part(c, AH_OP_add, c->out[0], AH_T(c->out[0]), AH_T(more), AH_N(1));
}

int ah_gelu_linear_weight_backward_in_blocks(struct ah_call *c)
{
    const struct ah_args_gelu_linear_weight_backward *arg = ah_args(c, gelu_linear_weight_backward);
    return each_block(c, arg->input.tensor, arg->grad.tensor, block_weight);
}
