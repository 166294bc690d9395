/* Elementwise rows: each calls `elementwise_forward` (layout, broadcast shape, output, kernel) with the dtype of
 * PyTorch's promotion. A result never shares memory with an input, except that `elementwise_same` returns the input
 * itself. */
#include <math.h>
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/shape/shape.h"

/* Channels-last memory is only kept where every tensor of full shape has it: then all of them are flat memory in the
 * same order. Other inputs are converted to row-major first. */
static int settle_layout(struct ah_call *c, int inputs, bool *marked)
{
    int with = 0, without = 0;
    const struct ah_tensor *first = NULL;
    for (int i = 0; i < inputs; i++) {
        const struct ah_tensor *tensor = c->arg[i].kind == AH_TENSOR ? c->arg[i].tensor : NULL;
        if (!tensor || tensor->ndim == 0)
            continue;
        if (tensor->storage->channels_last && (!first || ah_same_shape(first, tensor)))
            with++;
        else
            without++;
        first = first ? first : tensor;
    }
    *marked = with > 0 && without == 0;
    if (*marked)
        return 0;
    for (int i = 0; i < inputs; i++)
        if (c->arg[i].kind == AH_TENSOR)
            AH_TRY(ah_tensor_row_major(c->arg[i].tensor));
    return 0;
}

/* Layout, broadcast shape, output of `dtype`, kernel: the common path of every row here. */
static int elementwise_forward(struct ah_call *c, int inputs, enum ah_dtype dtype)
{
    int64_t size[AH_MAX_DIMS] = {0};
    int ndim = 0;
    bool marked, any = false;
    AH_TRY(settle_layout(c, inputs, &marked));
    for (int i = 0; i < inputs; i++) {
        if (c->arg[i].kind != AH_TENSOR)
            continue;
        const struct ah_tensor *tensor = c->arg[i].tensor;
        if (!any) {
            ndim = tensor->ndim;
            memcpy(size, tensor->size, sizeof size);
            any = true;
            continue;
        }
        struct ah_tensor sofar = {.ndim = ndim};
        memcpy(sofar.size, size, sizeof size);
        AH_TRY(ah_broadcast_shapes(c->op->name, &sofar, tensor, size, &ndim));
    }
    AH_TRY(ah_call_output(c, 0, size, ndim, dtype));
    if (marked && !c->inplace)
        c->out[0]->storage->channels_last = true;
    return ah_call_kernel(c);
}

static enum ah_dtype elementwise_floating(enum ah_dtype dtype)
{
    return ah_dtype_is_float(dtype) ? dtype : ah_default_dtype;
}

/* The result is the input itself: nothing to record. */
static int elementwise_same(struct ah_call *c)
{
    c->recording = false;
    if (!c->inplace) {
        c->out[0] = ah_tensor_retain(ah_args(c, to)->input.tensor);
        c->out_count = 1;
    }
    return 0;
}

/* Families of forwards, by how the result's dtype follows from the inputs'. The inputs are the leading tensors. */

int ah_forward_promoted(struct ah_call *c)
{
    int inputs = c->op->tensor_count;
    return elementwise_forward(c, inputs, ah_call_promote(c, inputs));
}

int ah_forward_promoted_float(struct ah_call *c)
{
    int inputs = c->op->tensor_count;
    return elementwise_forward(c, inputs, elementwise_floating(ah_call_promote(c, inputs)));
}

int ah_forward_truth(struct ah_call *c)
{
    AH_TRY(ah_call_expect_promotion(c, ah_call_promote(c, c->op->tensor_count)));
    return elementwise_forward(c, c->op->tensor_count, AH_BOOL);
}

AH_FORWARD(like_input, elementwise_forward(c, c->op->tensor_count, c->arg[0].tensor->dtype))

int ah_forward_activation(struct ah_call *c)
{
    AH_TRY(ah_call_expect_float(c, 0));
    return ah_forward_like_input(c);
}

int ah_forward_softshrink(struct ah_call *c)
{
    double lambd = ah_args(c, softshrink)->lambd.number;
    if (!(lambd >= 0))
        return ah_fail(AH_EINVAL, "softshrink: lambd: expected a number of at least 0, got %g", lambd);
    return ah_forward_activation(c);
}

AH_FORWARD(kernel_only, ah_call_kernel(c))

static int refuse_bool(const struct ah_call *c, enum ah_dtype dtype, const char *instead)
{
    if (dtype != AH_BOOL)
        return 0;
    return ah_fail(AH_EINVAL, "%s: not defined for bool; use %s", c->op->name, instead);
}

static int integral_alpha(const struct ah_call *c, enum ah_dtype dtype)
{
    double alpha = ah_args(c, add)->alpha.number;
    if (ah_dtype_is_float(dtype) || (alpha == floor(alpha) && fabs(alpha) < 0x1p63))
        return 0;
    return ah_fail(AH_EINVAL, "%s: alpha must be an integer for %s, got %g", c->op->name, ah_dtype_name(dtype), alpha);
}

int ah_forward_add(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    AH_TRY(integral_alpha(c, dtype));
    return elementwise_forward(c, 2, dtype);
}

int ah_forward_sub(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    for (int i = 0; i < 2; i++)
        AH_TRY(refuse_bool(c, c->arg[i].tensor->dtype, "logical_xor or logical_not"));
    AH_TRY(integral_alpha(c, dtype));
    return elementwise_forward(c, 2, dtype);
}

int ah_forward_whole_division(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    AH_TRY(refuse_bool(c, dtype, "integers"));
    return elementwise_forward(c, 2, dtype);
}

int ah_forward_div(struct ah_call *c)
{
    const struct ah_args_div *arg = ah_args(c, div);
    if (arg->rounding_mode.kind != AH_STRING)
        return elementwise_forward(c, 2, elementwise_floating(ah_call_promote(c, 2)));
    const char *mode = arg->rounding_mode.string;
    if (strcmp(mode, "floor") && strcmp(mode, "trunc"))
        return ah_fail(AH_EINVAL, "div: rounding_mode must be 'floor' or 'trunc', got '%s'", mode);
    return ah_forward_whole_division(c);
}

int ah_forward_pow(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    const struct ah_tensor *exponent = ah_args(c, pow)->exponent.tensor;
    if (!ah_dtype_is_float(dtype) && exponent->wrapped && ah_tensor_get_int(exponent, 0) < 0)
        return ah_fail(AH_EINVAL, "pow: integers cannot be raised to the negative power %lld; convert to float first",
                       (long long)ah_tensor_get_int(exponent, 0));
    if (dtype == AH_BOOL)
        dtype = AH_I64;
    return elementwise_forward(c, 2, dtype);
}

int ah_forward_huber(struct ah_call *c)
{
    const struct ah_args_huber *arg = ah_args(c, huber);
    if (!(arg->delta.number > 0))
        return ah_fail(AH_EINVAL, "huber_loss: delta: expected a number above 0, got %g", arg->delta.number);
    return ah_forward_promoted_float(c);
}

int ah_forward_signed_like_input(struct ah_call *c)
{
    enum ah_dtype dtype = ah_args(c, signed_like_input)->input.tensor->dtype;
    AH_TRY(refuse_bool(c, dtype, "logical_not or a conversion"));
    return elementwise_forward(c, 1, dtype);
}

/* The square of a bool counts, as its power does. */
int ah_forward_square(struct ah_call *c)
{
    enum ah_dtype dtype = ah_args(c, square)->input.tensor->dtype;
    return elementwise_forward(c, 1, dtype == AH_BOOL ? AH_I64 : dtype);
}

int ah_forward_hardtanh(struct ah_call *c)
{
    const struct ah_args_hardtanh *arg = ah_args(c, hardtanh);
    enum ah_dtype dtype = arg->input.tensor->dtype;
    if (arg->min_val.number > arg->max_val.number) {
        return ah_fail(AH_EINVAL, "hardtanh: min_val %g is greater than max_val %g", arg->min_val.number,
                       arg->max_val.number);
    }
    for (int i = 1; i < 3; i++) {
        if (!ah_number_fits(c->arg[i].number, dtype) || (dtype == AH_U8 && c->arg[i].number < 0)) {
            return ah_fail(AH_EINVAL, "hardtanh: %s %g is outside the range of %s", c->op->param[i].name,
                           c->arg[i].number, ah_dtype_name(dtype));
        }
    }
    return ah_forward_signed_like_input(c);
}

int ah_forward_activation_mul(struct ah_call *c)
{
    const struct ah_args_activation_mul *arg = ah_args(c, activation_mul);
    const struct ah_tensor *x = arg->input.tensor, *y = arg->other.tensor;
    const char *activation = arg->activation.string;
    if (strcmp(activation, "silu") && strcmp(activation, "gelu") && strcmp(activation, "gelu_tanh"))
        return ah_fail(AH_EINVAL, "activation_mul: expected 'silu', 'gelu' or 'gelu_tanh', got '%s'", activation);
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->dtype != y->dtype || !ah_same_shape(x, y)) {
        return ah_fail(AH_EINVAL, "activation_mul: expected two tensors of one shape and dtype, got %s %s and %s %s",
                       ah_dtype_name(x->dtype), ah_shape(x), ah_dtype_name(y->dtype), ah_shape(y));
    }
    return elementwise_forward(c, 2, x->dtype);
}

int ah_forward_gelu(struct ah_call *c)
{
    const struct ah_args_gelu *arg = ah_args(c, gelu);
    const char *approximate = arg->approximate.string;
    if (strcmp(approximate, "none") && strcmp(approximate, "tanh"))
        return ah_fail(AH_EINVAL, "gelu: approximate must be 'none' or 'tanh', got '%s'", approximate);
    AH_TRY(ah_call_expect_float(c, 0));
    return elementwise_forward(c, 1, arg->input.tensor->dtype);
}

/* A number as the bound of whole numbers: one outside the dtype's range either bounds nothing or leaves nothing. */
static int fit_bound(const struct ah_call *c, int arg, enum ah_dtype dtype, bool low)
{
    struct ah_tensor *bound = c->arg[arg].tensor;
    int64_t least, most;
    if (c->arg[arg].kind != AH_TENSOR || !bound->wrapped || bound->dtype != AH_I64 ||
        !ah_dtype_int_range(dtype, &least, &most))
        return 0;
    int64_t *value = ah_tensor_data(bound);
    if (low ? *value > most : *value < least) {
        return ah_fail(AH_EINVAL, "%s: %s: %lld is outside the range of %s", c->op->name, low ? "min" : "max",
                       (long long)*value, ah_dtype_name(dtype));
    }
    *value = *value < least ? least : *value > most ? most : *value;
    return 0;
}

int ah_forward_clamp(struct ah_call *c)
{
    const struct ah_args_clamp *arg = ah_args(c, clamp);
    enum ah_dtype dtype = ah_call_promote(c, 3);
    AH_TRY(fit_bound(c, 1, dtype, true));
    AH_TRY(fit_bound(c, 2, dtype, false));
    bool low = arg->min.kind == AH_TENSOR, high = arg->max.kind == AH_TENSOR;
    if (low && high)
        return elementwise_forward(c, 3, ah_call_promote(c, 3));
    if (!low && !high)
        return ah_fail(AH_EINVAL, "clamp: expected min, max or both");
    /* One-sided: the dispatcher is not called again, so that in place stays in place and one node is recorded. */
    struct ah_call one = *c;
    one.op = ah_op_get(low ? AH_OP_clamp_min : AH_OP_clamp_max);
    if (!low)
        one.arg[1] = arg->max;
    int status = elementwise_forward(&one, 2, ah_call_promote(&one, 2));
    c->out[0] = one.out[0];
    c->out_count = one.out_count;
    return status;
}

int ah_forward_clamp_min(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    AH_TRY(fit_bound(c, 1, dtype, true));
    return elementwise_forward(c, 2, dtype);
}

int ah_forward_clamp_max(struct ah_call *c)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    AH_TRY(fit_bound(c, 1, dtype, false));
    return elementwise_forward(c, 2, dtype);
}

int ah_forward_lerp(struct ah_call *c)
{
    const struct ah_args_lerp *arg = ah_args(c, lerp);
    AH_TRY(ah_call_expect_float(c, 0));
    if (arg->end_.tensor->dtype != arg->input.tensor->dtype)
        return ah_fail(AH_EINVAL, "lerp: expected end of %s like input, got %s",
                       ah_dtype_name(arg->input.tensor->dtype), ah_dtype_name(arg->end_.tensor->dtype));
    return elementwise_forward(c, 3, arg->input.tensor->dtype);
}

static int expect_mask(const struct ah_call *c, int arg)
{
    enum ah_dtype dtype = c->arg[arg].tensor->dtype;
    if (dtype == AH_BOOL || (dtype == AH_U8 && c->op->id == AH_OP_where))
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected a bool %s, got %s", c->op->name, c->op->param[arg].name,
                   ah_dtype_name(dtype));
}

int ah_forward_where(struct ah_call *c)
{
    const struct ah_args_where *args = ah_args(c, where);
    AH_TRY(expect_mask(c, 0));
    struct ah_call values = {.arg = {args->input, args->other}};
    enum ah_dtype dtype = ah_call_promote(&values, 2);
    AH_TRY(ah_call_expect_promotion(c, dtype));
    return elementwise_forward(c, 3, dtype);
}

int ah_forward_masked_fill(struct ah_call *c)
{
    const struct ah_args_masked_fill *arg = ah_args(c, masked_fill);
    AH_TRY(expect_mask(c, 1));
    const struct ah_tensor *value = arg->value.tensor;
    if (value->ndim != 0)
        return ah_fail(AH_EINVAL, "masked_fill: expected a number or a 0-dim value, got shape %s", ah_shape(value));
    AH_TRY(ah_call_expect_fits(c, 2, arg->input.tensor->dtype));
    return elementwise_forward(c, 3, arg->input.tensor->dtype);
}

/* The kernel draws the mask, extra[0], in the order of the input's memory, as PyTorch, and applies it. A channels-last
 * mark is no such order: to the user that input is row-major. With `bits` the mask of a row-major input has a bit per
 * element on the CPU. p in 0..1, above 0. */
static int elementwise_drop(struct ah_call *c, struct ah_tensor *input, double p, bool bits)
{
    const char *device = c->device->type->name;
    AH_TRY(ah_call_expect_float(c, 0));
    if (bits && (!strcmp(device, "cpu") || !strcmp(device, "meta")) && ah_tensor_is_contiguous(input))
        AH_TRY(ah_tensor_empty(&c->extra[0], (int64_t[]){(input->numel + 7) / 8}, 1, AH_U8, c->device));
    else
        AH_TRY(ah_tensor_empty_ordered(&c->extra[0], input, AH_BOOL, c->device));
    /* PyTorch divides a mask of ones in the tensor's dtype. */
    double keep = 1 - p;
    switch (input->dtype) {
    case AH_F64: c->state.dropout.scale = 1 / keep; break;
    case AH_F16: c->state.dropout.scale = (double)ah_f16_to_f32(ah_f32_to_f16(1 / (float)keep)); break;
    case AH_BF16: c->state.dropout.scale = (double)ah_bf16_to_f32(ah_f32_to_bf16(1 / (float)keep)); break;
    default: c->state.dropout.scale = (double)(1 / (float)keep); break;
    }
    if (p == 1)
        c->state.dropout.scale = 0;
    return ah_call_single(c, input->size, input->ndim, input->dtype);
}

int ah_forward_dropout(struct ah_call *c)
{
    const struct ah_args_dropout *arg = ah_args(c, dropout);
    double p = arg->p.number;
    if (!(p >= 0 && p <= 1))
        return ah_fail(AH_EINVAL, "dropout: expected p in 0..1, got %g", p);
    if (!arg->training.flag || p == 0 || arg->input.tensor->numel == 0)
        return elementwise_same(c);
    return elementwise_drop(c, arg->input.tensor, p, true);
}

/* A mask of bits is row-major, as the gradient's shape is. */
int ah_forward_dropout_backward(struct ah_call *c)
{
    const struct ah_args_dropout_backward *arg = ah_args(c, dropout_backward);
    bool bits = arg->mask.tensor->dtype == AH_U8;
    return elementwise_forward(c, bits ? 1 : 2, arg->grad.tensor->dtype);
}

int ah_forward_padded_dropout(struct ah_call *c)
{
    const struct ah_args_padded_dropout *arg = ah_args(c, padded_dropout);
    const struct ah_tensor *input = arg->input.tensor, *at = arg->at.tensor;
    double p = arg->p.number;
    if (!(p >= 0 && p <= 1))
        return ah_fail(AH_EINVAL, "dropout: expected p in 0..1, got %g", p);
    AH_TRY(ah_check_padded_rows("dropout", at, input->ndim ? input->size[0] : 0, arg->rows.integer));
    if (!ah_tensor_is_contiguous(input))
        return ah_fail(AH_EINVAL, "dropout: expected packed rows in a contiguous tensor, got %s", ah_shape(input));
    if (p == 0 || input->numel == 0)
        return elementwise_same(c);
    return elementwise_drop(c, arg->input.tensor, p, false);
}

int ah_forward_bitwise(struct ah_call *c)
{
    int inputs = c->op->tensor_count;
    enum ah_dtype dtype = ah_call_promote(c, inputs);
    if (ah_dtype_is_float(dtype))
        return ah_fail(AH_EINVAL, "%s: not defined for %s", c->op->name, ah_dtype_name(dtype));
    return elementwise_forward(c, inputs, dtype);
}

int ah_forward_to(struct ah_call *c)
{
    const struct ah_args_to *arg = ah_args(c, to);
    if (arg->input.tensor->dtype == arg->dtype.dtype)
        return elementwise_same(c);
    return elementwise_forward(c, 1, arg->dtype.dtype);
}

AH_FORWARD_WITH(contiguous, contiguous,
                ah_tensor_is_contiguous(arg->input.tensor) ? elementwise_same(c)
                                                           : elementwise_forward(c, 1, arg->input.tensor->dtype))

int ah_forward_fill_(struct ah_call *c)
{
    const struct ah_args_fill_ *arg = ah_args(c, fill_);
    if (arg->value.tensor->ndim != 0)
        return ah_fail(AH_EINVAL, "fill_: expected a number or a 0-dim tensor, got shape %s",
                       ah_shape(arg->value.tensor));
    AH_TRY(ah_call_expect_fits(c, 1, arg->input.tensor->dtype));
    return ah_call_kernel(c);
}
