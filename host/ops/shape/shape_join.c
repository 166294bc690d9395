/* Joining and repeating: cat, stack, flip, roll, repeat. The result is new memory of a size computed here, with
 * overflow checked, because kernels trust it. */
#include <string.h>

#include "ops/dispatch/rows.h"
#include "ops/shape/shape.h"
#include "tensor/owned.h"

/* Return the result of a composite, which another op wrote to out[0]. */
static int join_give(struct ah_call *c)
{
    c->out_count = 1;
    return 0;
}

/* Like promotion of operands, over a list: dimensioned tensors decide within a category. */
static enum ah_dtype list_dtype(struct ah_tensor **item, int count)
{
    enum ah_dtype dtype = item[0]->dtype;
    for (int i = 1; i < count; i++)
        dtype = ah_dtype_promote(dtype, item[i]->dtype);
    return dtype;
}

/* As in PyTorch, cat ignores (0,) tensors, whatever the other shapes. */
static bool join_skipped(const struct ah_tensor *tensor)
{
    return tensor->ndim == 1 && tensor->size[0] == 0;
}

int ah_forward_cat(struct ah_call *c)
{
    const struct ah_args_cat *arg = ah_args(c, cat);
    struct ah_tensor **item = arg->tensors.list.item;
    int count = arg->tensors.list.count, dim = 0, first = -1;
    if (count == 0)
        return ah_fail(AH_EINVAL, "cat: expected at least one tensor");
    for (int i = 0; i < count; i++) {
        if (item[i]->ndim == 0)
            return ah_fail(AH_EINVAL, "cat: tensor %d has no dims; use stack", i);
        if (first < 0 && !join_skipped(item[i]))
            first = i;
    }
    const struct ah_tensor *like = item[first < 0 ? 0 : first];
    AH_TRY(ah_wrap_dim("cat", arg->dim.integer, like->ndim, &dim));
    int64_t size[AH_MAX_DIMS];
    memcpy(size, like->size, sizeof size);
    size[dim] = 0;
    for (int i = 0; i < count; i++) {
        bool same = item[i]->ndim == like->ndim;
        for (int d = 0; same && d < like->ndim; d++)
            same = d == dim || item[i]->size[d] == like->size[d];
        if (same) {
            if (__builtin_add_overflow(size[dim], item[i]->size[dim], &size[dim]))
                return ah_fail(AH_EINVAL, "cat: dim %d of the result is too large", dim);
        } else if (!join_skipped(item[i])) {
            return ah_fail(AH_EINVAL,
                           "cat: tensor %d has shape %s, which does not match %s outside dim %d", i,
                           ah_shape(item[i]), ah_shape(like), dim);
        }
    }
    c->state.join.dim = dim;
    enum ah_dtype dtype = list_dtype(item, count);
    AH_TRY(ah_call_expect_promotion(c, dtype));
    return ah_call_single(c, size, like->ndim, dtype);
}

int ah_forward_stack(struct ah_call *c)
{
    const struct ah_args_stack *arg = ah_args(c, stack);
    struct ah_tensor **item = arg->tensors.list.item;
    int count = arg->tensors.list.count, dim;
    if (count == 0)
        return ah_fail(AH_EINVAL, "stack: expected at least one tensor");
    AH_TRY(ah_wrap_dim("stack", arg->dim.integer, item[0]->ndim + 1, &dim));
    if (item[0]->ndim >= AH_MAX_DIMS)
        return ah_fail(AH_EINVAL, "stack: %s has no room for another dim", ah_shape(item[0]));
    for (int i = 1; i < count; i++) {
        if (!ah_same_shape(item[0], item[i])) {
            return ah_fail(AH_EINVAL, "stack: tensor %d has shape %s, tensor 0 %s", i,
                           ah_shape(item[i]), ah_shape(item[0]));
        }
    }
    int64_t size[AH_MAX_DIMS];
    for (int d = 0; d <= item[0]->ndim; d++)
        size[d] = d == dim ? count : item[0]->size[d < dim ? d : d - 1];
    c->state.join.dim = dim;
    enum ah_dtype dtype = list_dtype(item, count);
    AH_TRY(ah_call_expect_promotion(c, dtype));
    return ah_call_single(c, size, item[0]->ndim + 1, dtype);
}

int ah_forward_flip(struct ah_call *c)
{
    const struct ah_args_flip *arg = ah_args(c, flip);
    const struct ah_tensor *x = arg->input.tensor;
    unsigned seen = 0;
    for (int k = 0; k < arg->dims.ints.count; k++) {
        int dim;
        AH_TRY(ah_wrap_dim("flip", arg->dims.ints.at[k], x->ndim, &dim));
        if (seen >> dim & 1)
            return ah_fail(AH_EINVAL, "flip: dim %d is repeated", dim);
        seen |= 1u << dim;
    }
    return ah_call_single(c, x->size, x->ndim, x->dtype);
}

/* Roll one dim: the last `shift` entries become the first. */
static int roll_dim(struct ah_tensor **out, struct ah_tensor *x, int dim, int64_t shift)
{
    int64_t n = x->size[dim];
    shift = n > 0 ? (shift % n + n) % n : 0;
    AH_OWNED_LIST(part, 2);
    AH_TRY(ah_op1(AH_OP_narrow, &part[0], AH_T(x), AH_I(dim), AH_I(n - shift), AH_I(shift)));
    AH_TRY(ah_op1(AH_OP_narrow, &part[1], AH_T(x), AH_I(dim), AH_I(0), AH_I(n - shift)));
    return ah_op1(AH_OP_cat, out, AH_L(part, 2), AH_I(dim));
}

int ah_forward_roll(struct ah_call *c)
{
    const struct ah_args_roll *arg = ah_args(c, roll);
    struct ah_tensor *x = arg->input.tensor, *flat = NULL, *rolled = NULL;
    const int64_t *shifts = arg->shifts.ints.at;
    int count = arg->shifts.ints.count, status;
    if (arg->dims.kind != AH_INTS) {
        if (count != 1)
            return ah_fail(AH_EINVAL, "roll: without dims there is one shift, got %d", count);
        AH_TRY(ah_reshaped("roll", &flat, x, (const int64_t[]){-1}, 1));
        AH_TRYGO(roll_dim(&rolled, flat, 0, shifts[0]), out);
        status = ah_reshaped("roll", &c->out[0], rolled, x->size, x->ndim);
    out:
        ah_tensor_release(flat);
        ah_tensor_release(rolled);
        return status < 0 ? status : join_give(c);
    }
    if (count != arg->dims.ints.count || count == 0)
        return ah_fail(AH_EINVAL, "roll: %d shifts but %d dims", count, arg->dims.ints.count);
    rolled = ah_tensor_retain(x);
    for (int k = 0; k < count; k++) {
        struct ah_tensor *next = NULL;
        int dim;
        status = ah_wrap_dim("roll", arg->dims.ints.at[k], x->ndim, &dim);
        if (status == 0 && x->ndim == 0)
            status = ah_fail(AH_EINVAL, "roll: a 0-dim tensor has no dim to roll");
        if (status == 0)
            status = roll_dim(&next, rolled, dim, shifts[k]);
        ah_tensor_release(rolled);
        if (status < 0)
            return status;
        rolled = next;
    }
    c->out[0] = rolled;
    return join_give(c);
}

int ah_forward_repeat(struct ah_call *c)
{
    const struct ah_args_repeat *arg = ah_args(c, repeat);
    const struct ah_tensor *x = arg->input.tensor;
    int count = arg->repeats.ints.count, lead = count - x->ndim;
    int64_t size[AH_MAX_DIMS];
    if (lead < 0) {
        return ah_fail(AH_EINVAL, "repeat: expected at least %d repeats for %s, got %d", x->ndim,
                       ah_shape(x), count);
    }
    for (int d = 0; d < count; d++) {
        int64_t times = arg->repeats.ints.at[d];
        if (times < 0)
            return ah_fail(AH_EINVAL, "repeat: repeats must not be negative, got %lld",
                           (long long)times);
        if (__builtin_mul_overflow(times, d < lead ? 1 : x->size[d - lead], &size[d])) {
            return ah_fail(AH_EINVAL, "repeat: %s repeated %s times is too large", ah_shape(x),
                           ah_shape_text(arg->repeats.ints.at, count));
        }
    }
    return ah_call_single(c, size, count, x->dtype);
}

int ah_forward_tile(struct ah_call *c)
{
    const struct ah_args_tile *arg = ah_args(c, tile);
    const struct ah_tensor *x = arg->input.tensor;
    int count = arg->dims.ints.count, ndim = count > x->ndim ? count : x->ndim;
    int64_t repeats[AH_MAX_DIMS];
    for (int d = 0; d < ndim; d++)
        repeats[d] = d < ndim - count ? 1 : arg->dims.ints.at[d - (ndim - count)];
    AH_TRY(ah_op1(AH_OP_repeat, &c->out[0], arg->input, AH_INTS_OF(repeats, ndim)));
    return join_give(c);
}

/* Each entry along dim `times` times: (.., n, ..) -> (.., n, 1, ..) -> (.., n, times, ..) -> (.., n * times, ..). */
static int join_interleave(struct ah_tensor **out, struct ah_tensor *x, int dim, int64_t times)
{
    AH_OWNED struct ah_tensor *wide = NULL, *full = NULL;
    int64_t size[AH_MAX_DIMS];
    if (x->ndim >= AH_MAX_DIMS)
        return ah_fail(AH_EINVAL, "repeat_interleave: %s has too many dims", ah_shape(x));
    AH_TRY(ah_op1(AH_OP_unsqueeze, &wide, AH_T(x), AH_I(dim + 1)));
    for (int d = 0; d < wide->ndim; d++)
        size[d] = d == dim + 1 ? times : 1;
    AH_TRY(ah_op1(AH_OP_repeat, &full, AH_T(wide), AH_INTS_OF(size, wide->ndim)));
    memcpy(size, x->size, sizeof size);
    if (__builtin_mul_overflow(size[dim], times, &size[dim]))
        return ah_fail(AH_EINVAL, "repeat_interleave: dim %d of the result is too large", dim);
    return ah_reshaped("repeat_interleave", out, full, size, x->ndim);
}

/* repeats[i] copies of entry i; repeats is on the CPU. */
static int interleave_by(struct ah_tensor **out, struct ah_tensor *x, int dim,
                         struct ah_tensor *repeats)
{
    int64_t total = 0, n = x->size[dim];
    if (repeats->ndim != 1 || repeats->size[0] != n ||
        ah_dtype_category(repeats->dtype) != AH_CATEGORY_INT) {
        return ah_fail(AH_EINVAL, "repeat_interleave: repeats must be %lld integers, got %s %s",
                       (long long)n, ah_dtype_name(repeats->dtype), ah_shape(repeats));
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t times = ah_tensor_get_int(repeats, i);
        if (times < 0)
            return ah_fail(AH_EINVAL, "repeat_interleave: repeats must not be negative, got %lld",
                           (long long)times);
        if (__builtin_add_overflow(total, times, &total))
            return ah_fail(AH_EINVAL, "repeat_interleave: the repeats add up to more than fits");
    }
    AH_OWNED struct ah_tensor *index = NULL, *there = NULL;
    AH_TRY(ah_tensor_empty(&index, &total, 1, AH_I64, &ah_cpu));
    int64_t *at = ah_tensor_data(index);
    for (int64_t i = 0; i < n; i++)
        for (int64_t times = ah_tensor_get_int(repeats, i); times > 0; times--)
            *at++ = i;
    AH_TRY(ah_op1(AH_OP_to_device, &there, AH_T(index), AH_DEV(x->storage->device)));
    return ah_op1(AH_OP_index_select, out, AH_T(x), AH_I(dim), AH_T(there));
}

int ah_forward_repeat_interleave(struct ah_call *c)
{
    const struct ah_args_repeat_interleave *arg = ah_args(c, repeat_interleave);
    struct ah_tensor *x = arg->input.tensor;
    AH_OWNED struct ah_tensor *repeats = NULL, *flat = NULL;
    int dim = 0;
    if (arg->dim.kind == AH_INT)
        AH_TRY(ah_wrap_dim("repeat_interleave", arg->dim.integer, x->ndim > 0 ? x->ndim : 1, &dim));
    if (arg->dim.kind == AH_INT && x->ndim > 0) {
        flat = ah_tensor_retain(x);
    } else {
        AH_TRY(ah_reshaped("repeat_interleave", &flat, x, (const int64_t[]){-1}, 1));
    }
    AH_TRY(ah_host_copy(&repeats, arg->repeats.tensor));
    if (repeats->numel == 1 && ah_dtype_category(repeats->dtype) == AH_CATEGORY_INT) {
        int64_t times = ah_tensor_get_int(repeats, 0);
        if (times < 0)
            return ah_fail(AH_EINVAL, "repeat_interleave: repeats must not be negative, got %lld", (long long)times);
        AH_TRY(join_interleave(&c->out[0], flat, dim, times));
    } else {
        AH_TRY(interleave_by(&c->out[0], flat, dim, repeats));
    }
    if (arg->output_size.kind == AH_INT && arg->output_size.integer != c->out[0]->size[dim])
        return ah_fail(AH_EINVAL, "repeat_interleave: output_size: expected %lld, the sum of the repeats, got %lld",
                       (long long)c->out[0]->size[dim], (long long)arg->output_size.integer);
    return join_give(c);
}
