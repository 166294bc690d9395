/* The runner of elementwise kernels: picks the loop of a dtype and has ah_iterate handle strides, broadcasting and
 * conversion. The result of an element must not depend on its position in a run. */
#include "cpu/elementwise/elementwise.h"

#include <string.h>

#include "base/status/status.h"
#include "ops/dispatch/op.h"

/* Report whether all tensors of the call have one half dtype, and the table has a loop on its bits. */
static bool elementwise_has_bit_loop(const struct ah_call *c, int inputs, enum ah_dtype in, enum ah_dtype out,
                          const ah_loop *loops)
{
    bool all = loops[in] && in == out && c->out[0]->dtype == in && ah_compute_dtype(in) != in;
    for (int i = 0; i < inputs; i++)
        all = all && c->arg[i].tensor->dtype == in;
    return all;
}

/* Set c0 and c1 of the loops to the first number arguments. */
static const double *elementwise_numbers(const struct ah_call *c, double *numbers)
{
    int count = 0;
    for (int i = 0; i < c->op->param_count && count < 2; i++)
        if (c->arg[i].kind == AH_NUMBER)
            numbers[count++] = c->arg[i].number;
    return numbers;
}

/* Ops of an instruction or two move numbers, most of the time. */
static enum ah_share elementwise_share(const struct ah_call *c)
{
    switch (c->op->id) {
    case AH_OP_add:
    case AH_OP_sub:
    case AH_OP_mul:
    case AH_OP_neg:
    case AH_OP_abs:
    case AH_OP_square:
    case AH_OP_relu:
    case AH_OP_maximum:
    case AH_OP_minimum: return AH_SHARE_LIGHT;
    default: return AH_SHARE_MIDDLE;
    }
}

int ah_elementwise(struct ah_call *c, int inputs, enum ah_dtype in, enum ah_dtype out, const ah_loop *loops,
                   const double *numbers)
{
    double own[2] = {0};
    if (!elementwise_has_bit_loop(c, inputs, in, out, loops)) {
        in = ah_compute_dtype(in);
        out = ah_compute_dtype(out);
    }
    if (!loops[in])
        return ah_fail(AH_ENOTIMPL, "%s: not defined for %s", c->op->name, ah_dtype_name(in));
    struct ah_operand operand[AH_ITER_OPERANDS] = {{c->out[0], out}};
    for (int i = 0; i < inputs; i++)
        operand[i + 1] = (struct ah_operand){c->arg[i].tensor, in};
    return ah_iterate(operand, inputs + 1, inputs == 2, loops[in], numbers ? numbers : elementwise_numbers(c, own),
                      elementwise_share(c));
}

/* Two operands of which one is a number: the loop over the other one's bits receives it in float32. */
struct elementwise_number {
    ah_loop loop;
    const double *numbers;
    float value;
    int at;
};

static void elementwise_number_loop(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    const struct elementwise_number *number = context;
    void *all[3] = {data[0], data[1], data[1]};
    int64_t steps[3] = {step[0], step[1], step[1]};
    all[number->at + 1] = (void *)(uintptr_t)&number->value;
    steps[number->at + 1] = AH_STEP_NUMBER;
    number->loop(n, all, steps, number->numbers);
}

int ah_elementwise_of_two(struct ah_call *c, enum ah_dtype dtype, const ah_loop *loops, const double *numbers)
{
    double own[2] = {0};
    struct elementwise_number number = {loops[dtype], numbers ? numbers : elementwise_numbers(c, own), 0, 0};
    bool half = number.loop && ah_compute_dtype(dtype) != dtype && c->out[0]->dtype == dtype;
    for (int i = 0; half && i < 2; i++) {
        struct ah_tensor *t = c->arg[i].tensor, *other = c->arg[!i].tensor;
        if (t->ndim > 0 || t->dtype == dtype || other->dtype != dtype)
            continue;
        number.at = i;
        ah_cast(1, &number.value, AH_F32, 1, ah_tensor_data(t), t->dtype, 1);
        const struct ah_operand operand[] = {{c->out[0], dtype}, {other, dtype}};
        return ah_iterate(operand, 2, false, elementwise_number_loop, &number, AH_SHARE_LIGHT);
    }
    return ah_elementwise(c, 2, dtype, dtype, loops, numbers);
}

int ah_elementwise_result(struct ah_call *c, int inputs, const ah_loop *loops)
{
    return ah_elementwise(c, inputs, c->out[0]->dtype, c->out[0]->dtype, loops, NULL);
}

int ah_elementwise_promoted(struct ah_call *c, int inputs, const ah_loop *loops)
{
    enum ah_dtype dtype = ah_call_promote(c, inputs);
    return ah_elementwise(c, inputs, dtype, dtype, loops, NULL);
}

int ah_elementwise_of_floats(struct ah_call *c, const ah_loop *loops)
{
    return ah_dtype_is_float(c->out[0]->dtype) ? ah_elementwise_result(c, 1, loops)
                                               : ah_copy(c->out[0], c->arg[0].tensor);
}

int ah_elementwise_test(struct ah_call *c, const ah_loop *loops)
{
    static const double none[2], zero[1] = {0};
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    if (ah_dtype_is_float(dtype) || loops[AH_I64])
        return ah_elementwise(c, 1, ah_dtype_is_float(dtype) || loops[dtype] ? dtype : AH_I64, AH_BOOL, loops, NULL);
    uint8_t answer; /* that of 0 is the one of all */
    loops[AH_F64](1, (void *[]){&answer, (void *)(uintptr_t)zero}, (int64_t[]){1, 1}, none);
    memset(ah_tensor_data(c->out[0]), answer, (size_t)c->out[0]->numel);
    return 0;
}

int ah_elementwise_compare(struct ah_call *c, const ah_loop *loops, bool exchanged)
{
    static const double none[2];
    enum ah_dtype dtype = ah_compute_dtype(ah_call_promote(c, 2));
    const struct ah_operand operand[] = {
        {c->out[0], AH_BOOL}, {c->arg[exchanged].tensor, dtype}, {c->arg[!exchanged].tensor, dtype}};
    return ah_iterate(operand, 3, true, loops[dtype], none, AH_SHARE_LIGHT);
}

/* Integers have no infinity: PyTorch raises, and the hardware would trap. The divisor is checked as the loops see it:
 * 256 is 0 in uint8. */
static int elementwise_refuse_zero(const struct ah_call *c, enum ah_dtype dtype)
{
    AH_OWNED struct ah_tensor *divisor = NULL;
    AH_TRY(ah_contiguous_as(&divisor, ah_args(c, div)->other.tensor, dtype));
    size_t item = ah_dtype_size(dtype);
    const char *at = ah_tensor_data(divisor);
    static const char zero[sizeof(int64_t)];
    int64_t i = 0;
    while (i < divisor->numel && memcmp(at + (size_t)i * item, zero, item) != 0)
        i++;
    if (i < divisor->numel && c->out[0]->numel > 0) {
        return ah_fail(AH_EINVAL, "%s: division of integers by zero (the divisor in %s, at position %lld)",
                       c->op->name, ah_dtype_name(dtype), (long long)i);
    }
    return 0;
}

int ah_elementwise_divide(struct ah_call *c, const ah_loop *loops)
{
    enum ah_dtype dtype = ah_call_promote(c, 2);
    if (!ah_dtype_is_float(dtype))
        AH_TRY(elementwise_refuse_zero(c, dtype));
    return ah_elementwise(c, 2, dtype, dtype, loops, NULL);
}

bool ah_elementwise_has(const struct ah_call *c, const char *name)
{
    for (int i = 0; i < c->op->param_count; i++)
        if (c->arg[i].kind == AH_STRING && !strcmp(c->arg[i].string, name))
            return true;
    return false;
}
