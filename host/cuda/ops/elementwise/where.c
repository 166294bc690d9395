/* Elementwise ops that choose, those of three inputs, and copies (kernels/elementwise/where.cu). */
#include "base/status/status.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"

#define ALL(name) {AH_CUDA_INTEGERS("where", name), AH_CUDA_FLOATS("where", name)}

#define PAIR(name, in, out, ...)                    \
    int ah_cuda_##name(struct ah_call *c)           \
    {                                               \
        static ah_cuda_loops loops = __VA_ARGS__;   \
        enum ah_dtype dtype = in;                   \
        return ah_cuda_elementwise(c, loops, 2, dtype, out, NULL); \
    }
PAIR(maximum, ah_call_promote(c, 2), dtype, ALL("maximum"))
PAIR(minimum, ah_call_promote(c, 2), dtype, ALL("minimum"))
PAIR(eq, ah_call_promote(c, 2), AH_BOOL, ALL("eq"))
PAIR(ne, ah_call_promote(c, 2), AH_BOOL, ALL("ne"))
PAIR(lt, ah_call_promote(c, 2), AH_BOOL, ALL("lt"))
PAIR(le, ah_call_promote(c, 2), AH_BOOL, ALL("le"))
PAIR(gt, ah_call_promote(c, 2), AH_BOOL, ALL("gt"))
PAIR(ge, ah_call_promote(c, 2), AH_BOOL, ALL("ge"))
PAIR(bitwise_and, ah_call_promote(c, 2), dtype, {AH_CUDA_INTEGERS("where", "and")})
PAIR(bitwise_or, ah_call_promote(c, 2), dtype, {AH_CUDA_INTEGERS("where", "or")})
PAIR(bitwise_xor, ah_call_promote(c, 2), dtype, {AH_CUDA_INTEGERS("where", "xor")})
PAIR(logical_and, AH_BOOL, AH_BOOL, {AH_CUDA_INTEGERS("where", "and")})
PAIR(logical_or, AH_BOOL, AH_BOOL, {AH_CUDA_INTEGERS("where", "or")})
PAIR(logical_xor, AH_BOOL, AH_BOOL, {AH_CUDA_INTEGERS("where", "xor")})

static ah_cuda_loops clamp_numbers = ALL("clamp_numbers");

int ah_cuda_clamp(struct ah_call *c)
{
    static ah_cuda_loops loops = ALL("clamp");
    const struct ah_args_clamp *arg = ah_args(c, clamp);
    enum ah_dtype dtype = ah_call_promote(c, 3);
    if (!ah_dtype_is_float(dtype) || !arg->min.tensor->wrapped || !arg->max.tensor->wrapped)
        return ah_cuda_elementwise(c, loops, 3, dtype, dtype, NULL);
    double bounds[4] = {ah_tensor_get(arg->min.tensor, 0), ah_tensor_get(arg->max.tensor, 0)};
    return ah_cuda_elementwise(c, clamp_numbers, 1, dtype, dtype, bounds);
}

int ah_cuda_hardtanh(struct ah_call *c)
{
    const struct ah_args_hardtanh *arg = ah_args(c, hardtanh);
    enum ah_dtype dtype = c->out[0]->dtype;
    return ah_cuda_elementwise(c, clamp_numbers, 1, dtype, dtype,
                               (double[4]){arg->min_val.number, arg->max_val.number});
}

/* where: the first selects; masked_fill's value replaces the second. */
static int select_into(struct ah_call *c, struct ah_tensor *mask, struct ah_tensor *yes, struct ah_tensor *no)
{
    static ah_cuda_loops loops = {[AH_BOOL] = AH_CUDA_KERNEL("where", "where_u8"), AH_CUDA_INTEGERS("where", "where"),
                                  AH_CUDA_FLOATS("where", "where")};
    enum ah_dtype dtype = ah_compute_dtype(c->out[0]->dtype);
    const struct ah_cuda_operand operand[] = {{c->out[0], dtype}, {mask, AH_BOOL}, {yes, dtype}, {no, dtype}};
    return ah_cuda_iterate(c->device, c->op->name, &loops[dtype], operand, 4, NULL);
}

AH_CUDA_OP_WITH(where, where, select_into(c, arg->condition.tensor, arg->input.tensor, arg->other.tensor))
AH_CUDA_OP_WITH(masked_fill, masked_fill, select_into(c, arg->mask.tensor, arg->value.tensor, arg->input.tensor))

int ah_cuda_lerp(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("where", "lerp")};
    return ah_cuda_elementwise(c, loops, 3, c->out[0]->dtype, c->out[0]->dtype, NULL);
}

int ah_cuda_addcmul(struct ah_call *c)
{
    static ah_cuda_loops loops = ALL("addcmul");
    enum ah_dtype dtype = ah_call_promote(c, 3);
    return ah_cuda_elementwise(c, loops, 3, dtype, dtype, (double[4]){ah_args(c, addcmul)->value.number});
}

int ah_cuda_addcdiv(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("where", "addcdiv")};
    enum ah_dtype dtype = ah_call_promote(c, 3);
    return ah_cuda_elementwise(c, loops, 3, dtype, dtype, (double[4]){ah_args(c, addcdiv)->value.number});
}

int ah_cuda_dropout_backward(struct ah_call *c)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("where", "keep")};
    const struct ah_args_dropout_backward *arg = ah_args(c, dropout_backward);
    enum ah_dtype dtype = ah_compute_dtype(c->out[0]->dtype);
    const struct ah_cuda_operand operand[] = {{c->out[0], dtype}, {arg->mask.tensor, AH_BOOL},
                                              {arg->grad.tensor, dtype}};
    return ah_cuda_iterate(c->device, c->op->name, &loops[dtype], operand, 3, (double[4]){arg->scale.number});
}

/* Copies and fills. */

AH_CUDA_OP(copy_first, ah_cuda_assign(c->device, c->out[0], ah_args(c, copy_first)->input.tensor))
AH_CUDA_OP(copy_, ah_cuda_assign(c->device, c->out[0], c->arg[1].tensor))

static int where_fill(struct ah_call *c, double value)
{
    AH_OWNED struct ah_tensor *number = NULL;
    AH_TRY(ah_tensor_scalar(&number, value, c->out[0]->dtype, &ah_cpu));
    return ah_cuda_assign(c->device, c->out[0], number);
}

int ah_cuda_zero_(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    if (ah_tensor_is_contiguous(out))
        return ah_cuda_fill(c->device, ah_tensor_data(out), 0, ah_tensor_bytes(out));
    return where_fill(c, 0);
}

AH_CUDA_OP(ones, where_fill(c, 1))
AH_CUDA_OP(full, where_fill(c, ah_args(c, full)->fill_value.number))
