/* Rules of arithmetic, activations, choices and copies, and second derivatives of the fused gradients. A rule is an
 * expression over ops; ah_r_give converts it to its input's shape and dtype. Invariant: a saved argument that may be a
 * Lua number (wrapped) is used as a number, never as a tensor, which would participate in promotion. */
#include <math.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

/* Constants, steps, and inputs that an in-place write replaces. */
void ah_backward_zero(struct ah_rule *r)
{
    for (int k = 0; k < r->input_count; k++)
        ah_r_give(r, k, ah_r_zeros_input(r, k));
}

/* Arithmetic. */

void ah_backward_add(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0];
    ah_r_give(r, 0, g);
    ah_r_give(r, 1, ah_r_scale(r, g, ah_args(r, add)->alpha.number));
}

void ah_backward_sub(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0];
    ah_r_give(r, 0, g);
    ah_r_give(r, 1, ah_r_scale(r, g, -ah_args(r, sub)->alpha.number));
}

void ah_backward_mul(struct ah_rule *r)
{
    const struct ah_args_mul *arg = ah_args(r, mul);
    struct ah_tensor *g = r->grad_out[0];
    ah_r_give(r, 0, ah_r_mul(r, g, ah_given(&arg->other)));
    ah_r_give(r, 1, ah_r_mul(r, g, ah_given(&arg->input)));
}

void ah_backward_div(struct ah_rule *r)
{
    const struct ah_args_div *arg = ah_args(r, div);
    if (arg->rounding_mode.kind == AH_STRING) {
        ah_backward_zero(r);
        return;
    }
    struct ah_tensor *g = r->grad_out[0], *a = ah_given(&arg->input), *b = ah_given(&arg->other);
    ah_r_give(r, 0, ah_r_div(r, g, b));
    ah_r_give(r, 1, ah_r_neg(r, ah_r_mul(r, g, ah_r_div(r, ah_r_div(r, a, b), b))));
}

/* Whole numbers in the result's dtype: functions of them would be float32. */
static struct ah_tensor *in_dtype(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *like)
{
    return !x || x->wrapped || ah_dtype_is_float(x->dtype) ? x : ah_r(r, AH_OP_to, AH_T(x), AH_D(like->dtype));
}

void ah_backward_pow(struct ah_rule *r)
{
    const struct ah_args_pow *arg = ah_args(r, pow);
    struct ah_tensor *g = r->grad_out[0], *a = ah_given(&arg->input), *b = ah_given(&arg->exponent);
    a = in_dtype(r, a, g);
    b = in_dtype(r, b, g);
    if (r->needs[0]) {
        if (b->wrapped) {
            double e = ah_tensor_get(b, 0);
            struct ah_tensor *lower = e == 0 || e == 2 ? a : ah_r(r, AH_OP_pow, AH_T(a), AH_N(e - 1));
            ah_r_give(r, 0, e == 0 ? ah_r_zeros_input(r, 0) : ah_r_mul(r, g, ah_r_scale(r, lower, e)));
        } else {
            struct ah_tensor *slope = ah_r_mul(r, b, ah_r(r, AH_OP_pow, AH_T(a), AH_T(ah_r_shift(r, b, -1))));
            struct ah_tensor *moving = ah_r_compare(r, AH_OP_ne, b, 0);
            ah_r_give(r, 0, ah_r_where(r, moving, ah_r_mul(r, g, slope), AH_N(0)));
        }
    }
    if (r->needs[1]) {
        /* A number is kept in double: as a tensor it would become float32. */
        struct ah_tensor *power = ah_r(r, AH_OP_pow, AH_T(a), AH_T(b));
        struct ah_tensor *slope = a->wrapped ? ah_r_scale(r, power, log(ah_tensor_get(a, 0)))
                                             : ah_r_mul(r, power, ah_r_unary(r, AH_OP_log, a));
        /* The derivative of 0^b is 0 for b >= 0, though log 0 is infinite. */
        struct ah_tensor *flat =
            ah_r(r, AH_OP_logical_and, AH_T(ah_r_compare(r, AH_OP_eq, a, 0)), AH_T(ah_r_compare(r, AH_OP_ge, b, 0)));
        ah_r_give(r, 1, ah_r_where(r, ah_r_unary(r, AH_OP_logical_not, flat), ah_r_mul(r, g, slope), AH_N(0)));
    }
}

/* remainder and fmod: a - b * whole(a / b). */
void ah_backward_remainder(struct ah_rule *r)
{
    const struct ah_args_remainder *arg = ah_args(r, remainder);
    struct ah_tensor *g = r->grad_out[0];
    ah_r_give(r, 0, g);
    if (r->needs[1]) {
        const char *mode = r->node->op->id == AH_OP_fmod ? "trunc" : "floor";
        struct ah_tensor *whole = ah_r(r, AH_OP_div, arg->input, arg->other, AH_S(mode));
        ah_r_give(r, 1, ah_r_neg(r, ah_r_mul(r, g, whole)));
    }
}

/* Functions of one input: grad * slope, the slope from the saved tensors. */
#define X ah_given(&arg->input)
#define OUT r->out[0]

AH_UNARY_RULE(neg, ah_r_neg(r, g))
AH_UNARY_RULE(abs, ah_r_mul(r, g, ah_r_unary(r, AH_OP_sign, X)))
AH_UNARY_RULE(square, ah_r_mul(r, g, ah_r_scale(r, X, 2)))
AH_UNARY_RULE(reciprocal, ah_r_neg(r, ah_r_mul(r, g, ah_r_mul(r, OUT, OUT))))
AH_UNARY_RULE(sqrt, ah_r_div(r, g, ah_r_scale(r, OUT, 2)))
AH_UNARY_RULE(rsqrt, ah_r_mul(r, ah_r_scale(r, g, -0.5), ah_r(r, AH_OP_pow, AH_T(OUT), AH_N(3))))
AH_UNARY_RULE(exp, ah_r_mul(r, g, OUT))
AH_UNARY_RULE(expm1, ah_r_mul(r, g, ah_r_shift(r, OUT, 1)))
AH_UNARY_RULE(log, ah_r_div(r, g, X))
AH_UNARY_RULE(log1p, ah_r_div(r, g, ah_r_shift(r, X, 1)))
AH_UNARY_RULE(log2, ah_r_div(r, g, ah_r_scale(r, X, M_LN2)))
AH_UNARY_RULE(log10, ah_r_div(r, g, ah_r_scale(r, X, M_LN10)))
AH_UNARY_RULE(sin, ah_r_mul(r, g, ah_r_unary(r, AH_OP_cos, X)))
AH_UNARY_RULE(cos, ah_r_neg(r, ah_r_mul(r, g, ah_r_unary(r, AH_OP_sin, X))))
AH_UNARY_RULE(tan, ah_r_mul(r, g, ah_r_shift(r, ah_r_mul(r, OUT, OUT), 1)))
AH_UNARY_RULE(atan, ah_r_div(r, g, ah_r_shift(r, ah_r_mul(r, X, X), 1)))
AH_UNARY_RULE(erf,
              ah_r_mul(r, g, ah_r_scale(r, ah_r_unary(r, AH_OP_exp, ah_r_neg(r, ah_r_mul(r, X, X))), M_2_SQRTPI)))
AH_UNARY_RULE(tanh, ah_r(r, AH_OP_tanh_backward, AH_T(g), AH_T(OUT)))
AH_UNARY_RULE(sigmoid, ah_r(r, AH_OP_sigmoid_backward, AH_T(g), AH_T(OUT)))
AH_UNARY_RULE(relu, ah_r(r, AH_OP_relu_backward, AH_T(g), AH_T(OUT)))
AH_UNARY_RULE(gelu, ah_r(r, AH_OP_gelu_backward, AH_T(g), AH_T(X), AH_S(arg->approximate.string)))
AH_UNARY_RULE(silu, ah_r(r, AH_OP_silu_backward, AH_T(g), AH_T(X)))
AH_UNARY_RULE(hardswish, ah_r(r, AH_OP_hardswish_backward, AH_T(g), AH_T(X)))
AH_UNARY_RULE(leaky_relu, ah_r(r, AH_OP_leaky_relu_backward, AH_T(g), AH_T(X), AH_N(arg->negative_slope.number)))

void ah_backward_softplus(struct ah_rule *r)
{
    const struct ah_args_softplus *arg = ah_args(r, softplus);
    struct ah_tensor *g = r->grad_out[0], *scaled = ah_r_scale(r, ah_given(&arg->input), arg->beta.number);
    struct ah_tensor *linear = ah_r_compare(r, AH_OP_gt, scaled, arg->threshold.number);
    struct ah_tensor *curved = ah_r_mul(r, g, ah_r_unary(r, AH_OP_sigmoid, scaled));
    ah_r_give(r, 0, ah_r(r, AH_OP_where, AH_T(linear), AH_T(g), AH_T(curved)));
}

/* Is low < x < high? The bounds themselves count as outside. */
static struct ah_tensor *elementwise_between(struct ah_rule *r, struct ah_tensor *x, double low, double high)
{
    return ah_r(r, AH_OP_logical_and, AH_T(ah_r_compare(r, AH_OP_gt, x, low)),
                AH_T(ah_r_compare(r, AH_OP_lt, x, high)));
}

void ah_backward_hardtanh(struct ah_rule *r)
{
    const struct ah_args_hardtanh *arg = ah_args(r, hardtanh);
    struct ah_tensor *inside = elementwise_between(r, ah_given(&arg->input), arg->min_val.number, arg->max_val.number);
    ah_r_give(r, 0, ah_r_where(r, inside, r->grad_out[0], AH_N(0)));
}

void ah_backward_hardsigmoid(struct ah_rule *r)
{
    struct ah_tensor *inside = elementwise_between(r, ah_given(&ah_args(r, hardsigmoid)->input), -3, 3);
    ah_r_give(r, 0, ah_r_where(r, inside, ah_r_scale(r, r->grad_out[0], 1.0 / 6), AH_N(0)));
}

/* Three inputs. */

void ah_backward_lerp(struct ah_rule *r)
{
    const struct ah_args_lerp *arg = ah_args(r, lerp);
    struct ah_tensor *g = r->grad_out[0], *weight = ah_given(&arg->weight);
    ah_r_give(r, 0, ah_r_sub(r, g, ah_r_mul(r, g, weight)));
    ah_r_give(r, 1, ah_r_mul(r, g, weight));
    ah_r_give(r, 2, ah_r_mul(r, g, ah_r_sub(r, ah_given(&arg->end_), ah_given(&arg->input))));
}

void ah_backward_addcmul(struct ah_rule *r)
{
    const struct ah_args_addcmul *arg = ah_args(r, addcmul);
    struct ah_tensor *g = r->grad_out[0];
    double value = arg->value.number;
    ah_r_give(r, 0, g);
    ah_r_give(r, 1, ah_r_mul(r, g, ah_r_scale(r, ah_given(&arg->tensor2), value)));
    ah_r_give(r, 2, ah_r_mul(r, g, ah_r_scale(r, ah_given(&arg->tensor1), value)));
}

void ah_backward_addcdiv(struct ah_rule *r)
{
    const struct ah_args_addcdiv *arg = ah_args(r, addcdiv);
    struct ah_tensor *g = r->grad_out[0], *above = ah_given(&arg->tensor1), *below = ah_given(&arg->tensor2);
    double value = arg->value.number;
    ah_r_give(r, 0, g);
    ah_r_give(r, 1, ah_r_div(r, ah_r_scale(r, g, value), below));
    ah_r_give(r, 2, ah_r_mul(r, ah_r_scale(r, g, -value), ah_r_div(r, ah_r_div(r, above, below), below)));
}

void ah_backward_where(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0], *condition = ah_given(&ah_args(r, where)->condition);
    ah_r_give(r, 1, ah_r_where(r, condition, g, AH_N(0)));
    ah_r_give(r, 2, ah_r(r, AH_OP_where, AH_T(condition), AH_N(0), AH_T(g)));
}

void ah_backward_masked_fill(struct ah_rule *r)
{
    struct ah_tensor *g = r->grad_out[0], *mask = ah_given(&ah_args(r, masked_fill)->mask);
    ah_r_give(r, 0, ah_r(r, AH_OP_masked_fill, AH_T(g), AH_T(mask), AH_N(0)));
    ah_r_give(r, 2, ah_r_where(r, mask, g, AH_N(0)));
}

/* The mask is the forward's extra, the factor its state. */
void ah_backward_dropout(struct ah_rule *r)
{
    struct ah_value scale = AH_N(r->state->dropout.scale);
    ah_r_give(r, 0, ah_r(r, AH_OP_dropout_backward, AH_T(r->grad_out[0]), AH_T(r->extra[0]), scale));
}

AH_BACKWARD(padded_dropout, ah_backward_dropout(r))

void ah_backward_dropout_backward(struct ah_rule *r)
{
    const struct ah_args_dropout_backward *arg = ah_args(r, dropout_backward);
    ah_r_give(r, 0, ah_r(r, AH_OP_dropout_backward, AH_T(r->grad_out[0]), arg->mask, AH_N(arg->scale.number)));
}

/* Conversion, copies, fills. */

/* The gradient unchanged, converted to the input's shape and dtype. */
AH_BACKWARD(same, ah_r_give(r, 0, r->grad_out[0]))

/* The engine casts gradients to the input's dtype, or the copy into the leaf's slot does. */
AH_GRADIENT(to, r->grad_out[0])

/* The overwritten input has no influence any more: its gradient is 0. */
void ah_backward_copy_(struct ah_rule *r)
{
    ah_r_give(r, 0, ah_r_zeros_input(r, 0));
    ah_r_give(r, 1, r->grad_out[0]);
}

/* Second derivatives of the fused gradients: input 0 is the gradient, input 1 the tensor that the forward saved. */

void ah_backward_relu_backward(struct ah_rule *r)
{
    ah_r_give(r, 0, ah_r(r, AH_OP_relu_backward, AH_T(r->grad_out[0]), ah_args(r, relu_backward)->out));
    ah_r_give(r, 1, ah_r_zeros_input(r, 1));
}

/* The slope is straight between -3 and 3, constant elsewhere. */
void ah_backward_hardswish_backward(struct ah_rule *r)
{
    const struct ah_args_hardswish_backward *arg = ah_args(r, hardswish_backward);
    struct ah_tensor *gg = r->grad_out[0], *x = ah_given(&arg->input);
    ah_r_give(r, 0, ah_r(r, AH_OP_hardswish_backward, AH_T(gg), AH_T(x)));
    ah_r_give(r, 1,
              ah_r_where(r, elementwise_between(r, x, -3, 3),
                         ah_r_scale(r, ah_r_mul(r, gg, ah_given(&arg->grad)), 1.0 / 3), AH_N(0)));
}

void ah_backward_leaky_relu_backward(struct ah_rule *r)
{
    const struct ah_args_leaky_relu_backward *arg = ah_args(r, leaky_relu_backward);
    ah_r_give(r, 0, ah_r(r, AH_OP_leaky_relu_backward, AH_T(r->grad_out[0]), arg->input,
                    AH_N(arg->negative_slope.number)));
    ah_r_give(r, 1, ah_r_zeros_input(r, 1));
}

void ah_backward_tanh_backward(struct ah_rule *r)
{
    const struct ah_args_tanh_backward *arg = ah_args(r, tanh_backward);
    struct ah_tensor *gg = r->grad_out[0], *out = ah_given(&arg->out);
    ah_r_give(r, 0, ah_r(r, AH_OP_tanh_backward, AH_T(gg), AH_T(out)));
    ah_r_give(r, 1, ah_r_scale(r, ah_r_mul(r, ah_r_mul(r, gg, ah_given(&arg->grad)), out), -2));
}

void ah_backward_sigmoid_backward(struct ah_rule *r)
{
    const struct ah_args_sigmoid_backward *arg = ah_args(r, sigmoid_backward);
    struct ah_tensor *gg = r->grad_out[0], *out = ah_given(&arg->out);
    ah_r_give(r, 0, ah_r(r, AH_OP_sigmoid_backward, AH_T(gg), AH_T(out)));
    if (r->needs[1]) {
        struct ah_tensor *slope = ah_r_shift(r, ah_r_scale(r, out, -2), 1);
        ah_r_give(r, 1, ah_r_mul(r, ah_r_mul(r, gg, ah_given(&arg->grad)), slope));
    }
}

/* The activation of x, and g times its slope there, by ops that have gradients. */
static struct ah_tensor *gate_of(struct ah_rule *r, const char *activation, struct ah_tensor *x)
{
    if (!strcmp(activation, "silu"))
        return ah_r_unary(r, AH_OP_silu, x);
    return ah_r(r, AH_OP_gelu, AH_T(x), AH_S(strcmp(activation, "gelu") ? "tanh" : "none"));
}

static struct ah_tensor *gate_back(struct ah_rule *r, const char *activation, struct ah_tensor *g, struct ah_tensor *x)
{
    if (!strcmp(activation, "silu"))
        return ah_r(r, AH_OP_silu_backward, AH_T(g), AH_T(x));
    return ah_r(r, AH_OP_gelu_backward, AH_T(g), AH_T(x), AH_S(strcmp(activation, "gelu") ? "tanh" : "none"));
}

/* The gradient of the other factor is a gated gradient. */
void ah_backward_activation_mul(struct ah_rule *r)
{
    const struct ah_args_activation_mul *arg = ah_args(r, activation_mul);
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&arg->input), *y = ah_given(&arg->other);
    const char *activation = arg->activation.string;
    if (ah_grad_enabled) {
        if (r->needs[1])
            r->grad_in[1] = ah_r_mul(r, g, gate_of(r, activation, x));
        if (r->needs[0])
            r->grad_in[0] = gate_back(r, activation, ah_r_mul(r, g, y), x);
        return;
    }
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_activation_mul, AH_T(x), AH_T(g), arg->activation);
    if (r->needs[0])
        r->grad_in[0] = ah_r_over(r, AH_OP_activation_mul_backward, AH_T(y), AH_T(g), AH_T(x), arg->activation);
}

/* x sigma(x): the second derivative is sigma' (2 + x (1 - 2 sigma)). */
void ah_backward_silu_backward(struct ah_rule *r)
{
    const struct ah_args_silu_backward *arg = ah_args(r, silu_backward);
    struct ah_tensor *gg = r->grad_out[0], *x = ah_given(&arg->input);
    ah_r_give(r, 0, ah_r(r, AH_OP_silu_backward, AH_T(gg), AH_T(x)));
    if (r->needs[1]) {
        struct ah_tensor *s = ah_r_unary(r, AH_OP_sigmoid, x);
        struct ah_tensor *ds = ah_r_mul(r, s, ah_r(r, AH_OP_sub, AH_N(1), AH_T(s)));
        struct ah_tensor *bend = ah_r_shift(r, ah_r_mul(r, x, ah_r_shift(r, ah_r_scale(r, s, -2), 1)), 2);
        ah_r_give(r, 1, ah_r_mul(r, ah_r_mul(r, gg, ah_given(&arg->grad)), ah_r_mul(r, ds, bend)));
    }
}

/* erf form: pdf(x) (2 - x^2). tanh form, with u = k (x + c x^3), t = tanh u:
 * (1 - t^2) (u' + x u''/2 - x t u'^2). */
static struct ah_tensor *gelu_bend(struct ah_rule *r, struct ah_tensor *x, bool tanh_form)
{
    struct ah_tensor *square = ah_r_mul(r, x, x);
    if (!tanh_form) {
        const double scale = M_2_SQRTPI * M_SQRT1_2 / 2;
        struct ah_tensor *pdf = ah_r_scale(r, ah_r_unary(r, AH_OP_exp, ah_r_scale(r, square, -0.5)), scale);
        return ah_r_mul(r, pdf, ah_r_shift(r, ah_r_neg(r, square), 2));
    }
    const double k = M_2_SQRTPI * M_SQRT1_2, c = 0.044715;
    struct ah_tensor *u = ah_r_mul(r, x, ah_r_shift(r, ah_r_scale(r, square, k * c), k));
    struct ah_tensor *t = ah_r_unary(r, AH_OP_tanh, u);
    struct ah_tensor *du = ah_r_shift(r, ah_r_scale(r, square, 3 * k * c), k);
    struct ah_tensor *half_x_ddu = ah_r_scale(r, square, 3 * k * c);
    struct ah_tensor *pull = ah_r_mul(r, ah_r_mul(r, x, t), ah_r_mul(r, du, du));
    struct ah_tensor *sum = ah_r_sub(r, ah_r_add(r, du, half_x_ddu), pull);
    return ah_r_mul(r, ah_r_shift(r, ah_r_neg(r, ah_r_mul(r, t, t)), 1), sum);
}

void ah_backward_gelu_backward(struct ah_rule *r)
{
    const struct ah_args_gelu_backward *arg = ah_args(r, gelu_backward);
    struct ah_tensor *gg = r->grad_out[0], *x = ah_given(&arg->input);
    const char *form = arg->approximate.string;
    ah_r_give(r, 0, ah_r(r, AH_OP_gelu_backward, AH_T(gg), AH_T(x), AH_S(form)));
    ah_r_give(r, 1, ah_r_mul(r, ah_r_mul(r, gg, ah_given(&arg->grad)), gelu_bend(r, x, !strcmp(form, "tanh"))));
}
