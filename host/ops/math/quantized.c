/* Products with quantised weights, and the conversions to and from them: all sizes are checked here, since they may be
 * those of a file. */
#include <string.h>

#include "ops/dispatch/op.h"
#include "ops/dispatch/rows.h"

enum { NESTED_BLOCK = 256, CODES_4BIT = 16, CODES_8BIT = 256, LEAST_BLOCK = 32, LARGEST_BLOCK = 4096 };

static int quantized_expect(const struct ah_call *c, const char *name, const struct ah_tensor *t, enum ah_dtype dtype,
                            int64_t numel)
{
    if (t && t->dtype == dtype && t->numel == numel)
        return 0;
    if (!t)
        return ah_fail(AH_EINVAL, "%s: %s: expected %lld %s numbers, got none", c->op->name, name, (long long)numel,
                       ah_dtype_name(dtype));
    return ah_fail(AH_EINVAL, "%s: %s: expected %lld %s numbers, got %s of shape %s", c->op->name, name,
                   (long long)numel, ah_dtype_name(dtype), ah_dtype_name(t->dtype), ah_shape(t));
}

static int quantized_check_block(const struct ah_call *c, int64_t block)
{
    if (block >= LEAST_BLOCK && block <= LARGEST_BLOCK && (block & (block - 1)) == 0)
        return 0;
    return ah_fail(AH_EINVAL, "%s: block_size: expected a power of two of %d to %d, got %lld", c->op->name, LEAST_BLOCK,
                   LARGEST_BLOCK, (long long)block);
}

/* The parts of a weight, as the ops that read one have them. */
struct quantized_parts {
    const struct ah_tensor *weight, *absmax, *code, *nested_absmax, *nested_code;
    int64_t rows, columns, block;
};

/* Do the parts have the dtypes and sizes of a weight of `rows` x `columns`? */
static int quantized_check(const struct ah_call *c, const struct quantized_parts *p)
{
    if (p->rows < 1 || p->columns < 1 || p->rows > INT64_MAX / 8 / p->columns)
        return ah_fail(AH_EINVAL, "%s: expected a weight of at least 1 x 1, got %lld x %lld", c->op->name,
                       (long long)p->rows, (long long)p->columns);
    int64_t numel = p->rows * p->columns;
    if ((p->nested_absmax && !p->code) || (p->nested_code && !p->nested_absmax))
        return ah_fail(AH_EINVAL, "%s: expected code, nested_absmax and nested_code, or the first of them, or none",
                       c->op->name);
    if (!p->code) {
        AH_TRY(quantized_expect(c, "weight", p->weight, AH_I8, numel));
        return quantized_expect(c, "absmax", p->absmax, AH_F32, p->rows);
    }
    AH_TRY(quantized_check_block(c, p->block));
    AH_TRY(quantized_expect(c, "weight", p->weight, AH_U8, (numel + 1) / 2));
    AH_TRY(quantized_expect(c, "code", p->code, AH_F32, CODES_4BIT));
    int64_t blocks = (numel + p->block - 1) / p->block;
    if (!p->nested_absmax)
        return quantized_expect(c, "absmax", p->absmax, AH_F32, blocks);
    AH_TRY(quantized_expect(c, "absmax", p->absmax, AH_U8, blocks));
    AH_TRY(quantized_expect(c, "nested_absmax", p->nested_absmax, AH_F32, (blocks + NESTED_BLOCK - 1) / NESTED_BLOCK));
    return quantized_expect(c, "nested_code", p->nested_code, AH_F32, CODES_8BIT);
}

int ah_forward_quantized_matmul(struct ah_call *c)
{
    const struct ah_args_quantized_matmul *arg = ah_args(c, quantized_matmul);
    const struct ah_tensor *x = arg->input.tensor, *bias = ah_given(&arg->bias);
    if (x->dtype != AH_F32 && x->dtype != AH_BF16 && x->dtype != AH_F16)
        return ah_fail(AH_EINVAL, "quantized_matmul: input: expected float32, bfloat16 or float16, got %s",
                       ah_dtype_name(x->dtype));
    if (x->ndim == 0)
        return ah_fail(AH_EINVAL, "quantized_matmul: input: expected at least one dim, got a number");
    int64_t width = x->size[x->ndim - 1], features = arg->features.integer;
    struct quantized_parts parts = {arg->weight.tensor, arg->absmax.tensor, ah_given(&arg->code),
                                    ah_given(&arg->nested_absmax), ah_given(&arg->nested_code),
                                    arg->transposed.flag ? features : width, arg->transposed.flag ? width : features,
                                    arg->block_size.integer};
    AH_TRY(quantized_check(c, &parts));
    if (bias && (!arg->transposed.flag || bias->dtype != x->dtype || bias->ndim != 1 || bias->size[0] != features))
        return ah_fail(AH_EINVAL, "quantized_matmul: bias: expected %s of shape (%lld), got %s of shape %s",
                       ah_dtype_name(x->dtype), (long long)features, ah_dtype_name(bias->dtype), ah_shape(bias));
    c->state.affine.bias = bias ? 3 + (parts.code != NULL) + 2 * (parts.nested_absmax != NULL) : 0;
    int64_t size[AH_MAX_DIMS];
    memcpy(size, x->size, sizeof size);
    size[x->ndim - 1] = features;
    return ah_call_single(c, size, x->ndim, x->dtype);
}

int ah_forward_dequantize(struct ah_call *c)
{
    const struct ah_args_dequantize *arg = ah_args(c, dequantize);
    struct quantized_parts parts = {arg->weight.tensor, arg->absmax.tensor, ah_given(&arg->code),
                                    ah_given(&arg->nested_absmax), ah_given(&arg->nested_code), arg->rows.integer,
                                    arg->columns.integer, arg->block_size.integer};
    AH_TRY(quantized_check(c, &parts));
    return ah_call_single(c, (int64_t[]){parts.rows, parts.columns}, 2, AH_F32);
}

int ah_forward_quantize_int8(struct ah_call *c)
{
    const struct ah_tensor *x = ah_args(c, quantize_int8)->input.tensor;
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim != 2)
        return ah_fail(AH_EINVAL, "quantize_int8: input: expected a matrix, got shape %s", ah_shape(x));
    AH_TRY(ah_call_output(c, 0, x->size, 2, AH_I8));
    AH_TRY(ah_call_output(c, 1, x->size, 1, AH_F32));
    return ah_call_kernel(c);
}

/* `codes` 8-bit items, and a number for each block. */
static int quantized_outputs(struct ah_call *c, const struct ah_tensor *x, const int64_t *size, int ndim, int64_t block)
{
    AH_TRY(ah_call_expect_float(c, 0));
    AH_TRY(quantized_check_block(c, block));
    int64_t blocks = (x->numel + block - 1) / block;
    AH_TRY(ah_call_output(c, 0, size, ndim, AH_U8));
    AH_TRY(ah_call_output(c, 1, &blocks, 1, AH_F32));
    return ah_call_kernel(c);
}

int ah_forward_quantize_4bit(struct ah_call *c)
{
    const struct ah_args_quantize_4bit *arg = ah_args(c, quantize_4bit);
    AH_TRY(quantized_expect(c, "code", arg->code.tensor, AH_F32, CODES_4BIT));
    const struct ah_tensor *x = arg->input.tensor;
    return quantized_outputs(c, x, (int64_t[]){(x->numel + 1) / 2, 1}, 2, arg->block_size.integer);
}

int ah_forward_quantize_blockwise(struct ah_call *c)
{
    const struct ah_args_quantize_blockwise *arg = ah_args(c, quantize_blockwise);
    const struct ah_tensor *x = arg->input.tensor;
    AH_TRY(quantized_expect(c, "code", arg->code.tensor, AH_F32, CODES_8BIT));
    return quantized_outputs(c, x, x->size, x->ndim, arg->block_size.integer);
}
