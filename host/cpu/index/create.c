/* Filling new tensors: constants, sequences, the identity, triangles, one-hot rows. Sequences are computed from the
 * index, never by adding up, so that their last element is right. */
#include <math.h>
#include <string.h>

#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "ops/dispatch/op.h"

static int create_fill(struct ah_tensor *out, double value)
{
    AH_OWNED struct ah_tensor *number = NULL;
    AH_TRY(ah_tensor_scalar(&number, value, out->dtype, &ah_cpu));
    return ah_copy(out, number);
}

AH_CPU_OP(ones, create_fill(c->out[0], 1))
AH_CPU_OP(full, create_fill(c->out[0], ah_args(c, full)->fill_value.number))

int ah_cpu_arange(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    double start = c->state.sequence.start, step = c->state.sequence.step;
    if (out->dtype == AH_I64) {
        int64_t *y = ah_tensor_data(out);
        for (int64_t i = 0; i < out->numel; i++)
            y[i] = (int64_t)start + i * (int64_t)step;
        return 0;
    }
    for (int64_t i = 0; i < out->numel; i++)
        ah_tensor_set(out, i, start + (double)i * step);
    return 0;
}

/* Counted from both ends, so that both ends are exact; rounded once, as PyTorch's compilers do it. */
static double create_linear(enum ah_dtype dtype, double from, double step, int64_t i)
{
    if (dtype == AH_F32)
        return fmaf((float)step, (float)i, (float)from);
    return fma(step, (double)i, from);
}

int ah_cpu_linspace(struct ah_call *c)
{
    const struct ah_args_linspace *arg = ah_args(c, linspace);
    struct ah_tensor *out = c->out[0];
    double start = arg->start.number, end = arg->end_.number;
    int64_t n = out->numel;
    double step = n > 1 ? (end - start) / (double)(n - 1) : 0;
    if (out->dtype == AH_F32 && n > 1)
        step = ((float)end - (float)start) / (float)(n - 1);
    for (int64_t i = 0; i < n; i++)
        ah_tensor_set(out, i, i < n / 2 || n == 1 ? create_linear(out->dtype, start, step, i)
                                                  : create_linear(out->dtype, end, -step, n - 1 - i));
    return 0;
}

int ah_cpu_eye(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    ah_cpu_zero_(c);
    for (int64_t i = 0; i < out->size[0] && i < out->size[1]; i++)
        ah_tensor_set(out, i * out->size[1] + i, 1);
    return 0;
}

/* Copy, then clear the part of each row before `from` or from there on. */
static int create_triangle(struct ah_call *c, bool upper)
{
    const struct ah_args_tril *arg = ah_args(c, tril);
    struct ah_tensor *out = c->out[0], *target = out;
    int64_t rows = out->size[out->ndim - 2], columns = out->size[out->ndim - 1], diagonal = arg->diagonal.integer;
    size_t item = ah_dtype_size(out->dtype);
    if (out->numel == 0)
        return 0;
    bool dense = ah_tensor_is_contiguous(out);
    if (!dense)
        AH_TRY(ah_tensor_empty_like(&target, out));
    int status = ah_copy(target, arg->input.tensor);
    char *row = ah_tensor_data(target);
    for (int64_t r = 0; status == 0 && r < out->numel / columns; r++, row += (size_t)columns * item) {
        int64_t edge = r % rows + diagonal + !upper;
        edge = edge < 0 ? 0 : edge > columns ? columns : edge;
        if (upper)
            memset(row, 0, (size_t)edge * item);
        else
            memset(row + (size_t)edge * item, 0, (size_t)(columns - edge) * item);
    }
    if (!dense) {
        if (status == 0)
            status = ah_copy(out, target);
        ah_tensor_release(target);
    }
    return status;
}

AH_CPU_OP(tril, create_triangle(c, false))
AH_CPU_OP(triu, create_triangle(c, true))

int ah_cpu_one_hot(struct ah_call *c)
{
    struct ah_tensor *out = c->out[0];
    const struct ah_tensor *input = ah_args(c, one_hot)->input.tensor;
    int64_t classes = out->size[out->ndim - 1], *y = ah_tensor_data(out);
    ah_cpu_zero_(c);
    for (int64_t i = 0; i < input->numel; i++) {
        int64_t value = ah_tensor_get_int(input, i);
        if (value < 0 || value >= classes)
            return ah_fail(AH_EINVAL, "one_hot: class %lld at position %lld is outside 0..%lld", (long long)value,
                           (long long)i, (long long)classes - 1);
        y[i * classes + value] = 1;
    }
    return 0;
}
