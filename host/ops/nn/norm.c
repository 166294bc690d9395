/* Normalisation and embedding: shapes and dtypes of weights and statistics. Statistics are kept for the rule in the
 * kernels' dtype (float32 for fp16 and bf16). group_norm and add_layer_norm are compositions where their kernels do not
 * fit. */
#include <float.h>
#include <string.h>

#include "ops/dispatch/autocast.h"
#include "ops/dispatch/rows.h"
#include "tensor/owned.h"

/* One number of `dtype` per channel of x. */
static int check_vector(const char *op, const char *name, const struct ah_tensor *t, const struct ah_tensor *x,
                        enum ah_dtype dtype)
{
    if (!t || (t->ndim == 1 && t->size[0] == x->size[1] && t->dtype == dtype))
        return 0;
    return ah_fail(AH_EINVAL, "%s: expected %s %s (%lld,) for input %s, got %s %s", op, name, ah_dtype_name(dtype),
                   (long long)x->size[1], ah_shape(x), ah_dtype_name(t->dtype), ah_shape(t));
}

/* For the rule: the input numbers of weight and bias (arguments at, at + 1), 0 when absent. */
static void note_affine(struct ah_call *c, int at)
{
    int input = 0;
    for (int i = 0; i <= at + 1; i++) {
        bool given = c->arg[i].kind == AH_TENSOR;
        if (i >= at)
            *(i == at ? &c->state.affine.weight : &c->state.affine.bias) = given ? input : 0;
        input += given;
    }
}

/* A half input with weights and statistics in float32, as autocast leaves them: the arguments up to `end`. */
static bool is_mixed_to(const struct ah_call *c, int end)
{
    enum ah_dtype dtype = c->arg[0].tensor->dtype;
    bool any = false;
    for (int i = 1; i < end; i++) {
        if (c->arg[i].kind == AH_TENSOR && c->arg[i].tensor->dtype != AH_F32)
            return false;
        any = any || c->arg[i].kind == AH_TENSOR;
    }
    return any && (dtype == AH_F16 || dtype == AH_BF16);
}

static bool is_mixed(const struct ah_call *c)
{
    return is_mixed_to(c, c->op->param_count);
}

/* Report whether the kernels read such an input as it is: those of the CPU do, and write gradients of the weight's
 * dtype. Weight and bias are the arguments at, at + 1. */
static bool norm_is_mixed_natively(const struct ah_call *c, int at)
{
    bool weight = c->arg[at].kind == AH_TENSOR, bias = c->arg[at + 1].kind == AH_TENSOR;
    return is_mixed_to(c, at + 2) && c->device == &ah_cpu && (weight || !bias);
}

/* The same op on the input in float32, rounded once at the end: other ops, which record themselves. */
static int in_float32(struct ah_call *c)
{
    AH_OWNED struct ah_tensor *wide = NULL, *result = NULL;
    struct ah_value arg[AH_MAX_ARGS];
    c->recording = false;
    memcpy(arg, c->arg, sizeof arg);
    AH_TRY(ah_op1(AH_OP_to, &wide, c->arg[0], AH_D(AH_F32)));
    arg[0] = AH_T(wide);
    AH_TRY(ah_op_call1(c->op->id, &result, arg, c->op->param_count));
    AH_TRY(ah_op1(AH_OP_to, &c->out[0], AH_T(result), AH_D(c->arg[0].tensor->dtype)));
    c->out_count = 1;
    return 0;
}

int ah_forward_batch_norm(struct ah_call *c)
{
    bool mixed = norm_is_mixed_natively(c, 3);
    if (!mixed && is_mixed(c))
        return in_float32(c);
    const struct ah_args_batch_norm *arg = ah_args(c, batch_norm);
    const struct ah_tensor *x = arg->input.tensor;
    bool training = arg->training.flag;
    static const char *const name[] = {"", "running_mean", "running_var", "weight", "bias"};
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim < 2)
        return ah_fail(AH_EINVAL, "batch_norm: expected input (N, C, ...), got %s", ah_shape(x));
    for (int i = 1; i < 5; i++)
        AH_TRY(check_vector("batch_norm", name[i], c->arg[i].tensor, x, mixed ? AH_F32 : x->dtype));
    if (!training && (!arg->running_mean.tensor || !arg->running_var.tensor))
        return ah_fail(AH_EINVAL, "batch_norm: running_mean and running_var are needed when training is false");
    if (training && !(arg->eps.number > 0))
        return ah_fail(AH_EINVAL, "batch_norm: eps: expected a number above 0 in training, got %g", arg->eps.number);
    if (training && x->size[1] > 0 && x->numel / x->size[1] == 1) {
        return ah_fail(AH_EINVAL, "batch_norm: expected more than 1 value per channel in training, got input %s",
                       ah_shape(x));
    }
    enum ah_dtype dtype = ah_compute_dtype(x->dtype);
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    AH_TRY(ah_tensor_empty(&c->extra[0], &x->size[1], 1, dtype, c->device));
    AH_TRY(ah_tensor_empty(&c->extra[1], &x->size[1], 1, dtype, c->device));
    note_affine(c, 3);
    return ah_call_kernel(c);
}

/* Store the gradient channels-last where the input is, so that the kernel and all ops before it in the graph keep that
 * order: else a row-major gradient, as of a mean over the image, has each block of a residual network converted. Memory
 * with views and that of other owners stays as it is. */
static int follow_input_order(struct ah_tensor *grad, const struct ah_tensor *x)
{
    struct ah_storage *storage = grad->storage;
    if (!x->storage->channels_last || storage->channels_last || storage->device != &ah_cpu || storage->release ||
        atomic_load(&storage->refs) != 1 || grad->ndim != 4 || !ah_tensor_is_contiguous(grad) ||
        storage->nbytes != ah_tensor_bytes(grad))
        return 0;
    return ah_tensor_channels_last(grad, false);
}

int ah_forward_batch_norm_backward(struct ah_call *c)
{
    const struct ah_args_batch_norm_backward *arg = ah_args(c, batch_norm_backward);
    const struct ah_tensor *x = arg->input.tensor;
    enum ah_dtype affine = ah_given(&arg->weight) ? arg->weight.tensor->dtype : x->dtype;
    AH_TRY(follow_input_order(arg->grad.tensor, x));
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    AH_TRY(ah_call_output(c, 1, &x->size[1], 1, affine));
    AH_TRY(ah_call_output(c, 2, &x->size[1], 1, affine));
    for (int k = 1; k <= 2 && x->numel == 0; k++) /* an empty batch has no statistics */
        AH_TRY(c->device->type->fill(c->device, ah_tensor_data(c->out[k]), 0, c->out[k]->storage->nbytes));
    return x->numel == 0 ? 0 : ah_call_kernel(c);
}

/* Can one kernel replace the ops? Convolutions in float32 and bfloat16 on a CPU leave such inputs. */
static bool can_norm_and_relu(const struct ah_call *c)
{
    const struct ah_args_batch_norm_relu *arg = ah_args(c, batch_norm_relu);
    const struct ah_tensor *x = arg->input.tensor, *other = ah_given(&arg->other);
    if (is_mixed_to(c, 5) && !norm_is_mixed_natively(c, 3))
        return false;
    return c->device == &ah_cpu && (x->dtype == AH_F32 || x->dtype == AH_BF16) && x->ndim == 4 && x->numel > 0 &&
           x->storage->channels_last && (!other || (other->dtype == x->dtype && ah_same_shape(x, other)));
}

static int batch_norm_relu_by_ops(struct ah_call *c)
{
    const struct ah_args_batch_norm_relu *arg = ah_args(c, batch_norm_relu);
    AH_OWNED struct ah_tensor *normal = NULL, *sum = NULL;
    c->recording = false;
    AH_TRY(ah_op_call1(AH_OP_batch_norm, &normal, c->arg, 8));
    if (arg->other.kind == AH_TENSOR)
        AH_TRY(ah_op1(AH_OP_add, &sum, AH_T(normal), arg->other));
    AH_TRY(ah_op1(AH_OP_relu, &c->out[0], AH_T(sum ? sum : normal)));
    c->out_count = 1;
    return 0;
}

int ah_forward_batch_norm_relu(struct ah_call *c)
{
    if (!can_norm_and_relu(c))
        return batch_norm_relu_by_ops(c);
    AH_TRY(ah_forward_batch_norm(c));
    int inputs = 0;
    for (int i = 0; i < c->op->param_count; i++)
        inputs += c->arg[i].kind == AH_TENSOR;
    c->state.affine.other = ah_args(c, batch_norm_relu)->other.kind == AH_TENSOR ? inputs - 1 : 0;
    return 0;
}

int ah_forward_batch_norm_relu_backward(struct ah_call *c)
{
    const struct ah_args_batch_norm_relu_backward *arg = ah_args(c, batch_norm_relu_backward);
    const struct ah_tensor *x = arg->input.tensor;
    enum ah_dtype affine = ah_given(&arg->weight) ? arg->weight.tensor->dtype : x->dtype;
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    AH_TRY(ah_call_output(c, 1, &x->size[1], 1, affine));
    AH_TRY(ah_call_output(c, 2, &x->size[1], 1, affine));
    if (arg->with_other.flag)
        AH_TRY(ah_call_output(c, 3, x->size, x->ndim, x->dtype));
    return ah_call_kernel(c);
}

static bool has_shape(const struct ah_tensor *t, const struct ah_value *shape)
{
    return t->ndim == shape->ints.count &&
           !memcmp(t->size, shape->ints.at, (size_t)t->ndim * sizeof *t->size);
}

/* normalized_shape, argument 1, is the input's last dims; weight and a further argument have that shape. */
static int check_last_dims(const struct ah_call *c, int affine)
{
    const struct ah_tensor *x = c->arg[0].tensor;
    const struct ah_value *shape = &c->arg[1];
    AH_TRY(ah_call_expect_float(c, 0));
    int count = shape->ints.count, lead = x->ndim - count;
    if (count < 1 || lead < 0 || memcmp(x->size + lead, shape->ints.at, (size_t)count * sizeof *x->size)) {
        return ah_fail(AH_EINVAL, "%s: normalized_shape %s is not how input %s ends", c->op->name,
                       ah_shape_text(shape->ints.at, count), ah_shape(x));
    }
    for (int i = 2; i < 2 + affine; i++) {
        const struct ah_tensor *t = c->arg[i].tensor;
        if (t && (!has_shape(t, shape) || t->dtype != x->dtype)) {
            return ah_fail(AH_EINVAL, "%s: expected %s %s %s, got %s %s", c->op->name, c->op->param[i].name,
                           ah_dtype_name(x->dtype), ah_shape_text(shape->ints.at, count), ah_dtype_name(t->dtype),
                           ah_shape(t));
        }
    }
    return 0;
}

/* With the result in `dtype`. */
static int layer_norm_as(struct ah_call *c, enum ah_dtype dtype)
{
    const struct ah_tensor *x = c->arg[0].tensor;
    AH_TRY(check_last_dims(c, 2));
    int lead = x->ndim - c->arg[1].ints.count;
    enum ah_dtype kept = ah_compute_dtype(x->dtype);
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, dtype));
    AH_TRY(ah_tensor_empty(&c->extra[0], x->size, lead, kept, c->device));
    AH_TRY(ah_tensor_empty(&c->extra[1], x->size, lead, kept, c->device));
    note_affine(c, 2);
    return ah_call_kernel(c);
}

AH_FORWARD(layer_norm, is_mixed(c) ? in_float32(c) : layer_norm_as(c, ah_args(c, layer_norm)->input.tensor->dtype))

static bool is_half(enum ah_dtype dtype)
{
    return dtype == AH_F16 || dtype == AH_BF16;
}

int ah_forward_layer_norm_to(struct ah_call *c)
{
    const struct ah_args_layer_norm_to *arg = ah_args(c, layer_norm_to);
    const struct ah_tensor *x = arg->input.tensor;
    AH_OWNED struct ah_tensor *normal = NULL;
    if (x->dtype == AH_F32 && is_half(arg->dtype.dtype))
        return layer_norm_as(c, arg->dtype.dtype);
    c->recording = false;
    AH_TRY(ah_op1(AH_OP_layer_norm, &normal, arg->input, arg->normalized_shape, arg->weight, arg->bias, arg->eps));
    AH_TRY(ah_op1(AH_OP_to, &c->out[0], AH_T(normal), arg->dtype));
    c->out_count = 1;
    return 0;
}

/* Can one kernel replace the two ops? A float32 and an fp16 or bf16 tensor are the usual inputs of a residual under
 * autocast. */
static bool can_add_and_norm(const struct ah_call *c)
{
    const struct ah_args_add_layer_norm *arg = ah_args(c, add_layer_norm);
    const struct ah_tensor *x = arg->input.tensor, *other = arg->other.tensor;
    const struct ah_value *shape = &arg->normalized_shape;
    enum ah_dtype dtype = ah_dtype_promote(x->dtype, other->dtype);
    int count = shape->ints.count, lead = x->ndim - count;
    if (!ah_same_shape(x, other) || !ah_dtype_is_float(x->dtype) || !ah_dtype_is_float(other->dtype) || count < 1 ||
        lead < 0 || memcmp(x->size + lead, shape->ints.at, (size_t)count * sizeof *x->size))
        return false;
    for (int i = 3; i < 5; i++) {
        const struct ah_tensor *t = c->arg[i].tensor;
        if (t && (!has_shape(t, shape) || t->dtype != dtype))
            return false;
    }
    if (is_half(dtype) && ah_autocast.enabled) /* which may want the norm in float32 */
        return false;
    if (arg->dtype.kind == AH_DTYPE && !(dtype == AH_F32 && is_half(arg->dtype.dtype)))
        return false;
    return x->dtype == other->dtype ||
           (dtype == AH_F32 && (is_half(x->dtype) || x->dtype == dtype) &&
            (is_half(other->dtype) || other->dtype == dtype));
}

static int add_layer_norm_by_ops(struct ah_call *c)
{
    const struct ah_args_add_layer_norm *arg = ah_args(c, add_layer_norm);
    c->recording = false;
    AH_TRY(ah_op1(AH_OP_add, &c->out[1], arg->input, arg->other));
    if (arg->dtype.kind == AH_DTYPE)
        AH_TRY(ah_op1(AH_OP_layer_norm_to, &c->out[0], AH_T(c->out[1]), arg->normalized_shape, arg->weight, arg->bias,
                      arg->eps, arg->dtype));
    else
        AH_TRY(ah_op1(AH_OP_layer_norm, &c->out[0], AH_T(c->out[1]), arg->normalized_shape, arg->weight, arg->bias,
                      arg->eps));
    c->out_count = 2;
    return 0;
}

int ah_forward_add_layer_norm(struct ah_call *c)
{
    const struct ah_args_add_layer_norm *arg = ah_args(c, add_layer_norm);
    const struct ah_tensor *x = arg->input.tensor;
    if (!can_add_and_norm(c))
        return add_layer_norm_by_ops(c);
    int lead = x->ndim - arg->normalized_shape.ints.count;
    enum ah_dtype dtype = ah_dtype_promote(x->dtype, arg->other.tensor->dtype), kept = ah_compute_dtype(dtype);
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, arg->dtype.kind == AH_DTYPE ? arg->dtype.dtype : dtype));
    AH_TRY(ah_call_output(c, 1, x->size, x->ndim, dtype));
    AH_TRY(ah_tensor_empty(&c->extra[0], x->size, lead, kept, c->device));
    AH_TRY(ah_tensor_empty(&c->extra[1], x->size, lead, kept, c->device));
    note_affine(c, 3);
    return ah_call_kernel(c);
}

int ah_forward_layer_norm_backward(struct ah_call *c)
{
    const struct ah_args_layer_norm_backward *arg = ah_args(c, layer_norm_backward);
    const struct ah_tensor *x = arg->input.tensor, *mean = arg->mean.tensor;
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    if (arg->with_weight.flag) {
        AH_TRY(ah_call_output(c, 1, x->size + mean->ndim, x->ndim - mean->ndim, x->dtype));
        AH_TRY(ah_call_output(c, 2, x->size + mean->ndim, x->ndim - mean->ndim, x->dtype));
    }
    if (arg->also.kind == AH_DTYPE)
        AH_TRY(ah_call_output(c, 3, x->size, x->ndim, arg->also.dtype));
    return ah_call_kernel(c);
}

int ah_forward_rms_norm(struct ah_call *c)
{
    if (is_mixed(c))
        return in_float32(c);
    const struct ah_args_rms_norm *arg = ah_args(c, rms_norm);
    const struct ah_tensor *x = arg->input.tensor;
    AH_TRY(check_last_dims(c, 1));
    enum ah_dtype dtype = ah_compute_dtype(x->dtype);
    c->state.root.eps = arg->eps.kind != AH_NONE ? arg->eps.number : dtype == AH_F32 ? FLT_EPSILON : DBL_EPSILON;
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    AH_TRY(ah_tensor_empty(&c->extra[0], x->size, x->ndim - arg->normalized_shape.ints.count, dtype, c->device));
    return ah_call_kernel(c);
}

int ah_forward_rms_norm_backward(struct ah_call *c)
{
    const struct ah_args_rms_norm_backward *arg = ah_args(c, rms_norm_backward);
    const struct ah_tensor *x = arg->input.tensor, *inverse = arg->inverse.tensor;
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    if (arg->with_weight.flag)
        AH_TRY(ah_call_output(c, 1, x->size + inverse->ndim, x->ndim - inverse->ndim, x->dtype));
    return ah_call_kernel(c);
}

/* Every group of channels of one sample is a row of a layer norm. */
static int group_norm_by_ops(struct ah_call *c)
{
    const struct ah_args_group_norm *arg = ah_args(c, group_norm);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t rows = x->size[0] * arg->num_groups.integer, row = rows > 0 ? x->numel / rows : 0;
    int64_t flat[2] = {rows, row}, wide[AH_MAX_DIMS] = {x->size[1]};
    for (int d = 1; d < x->ndim - 1; d++)
        wide[d] = 1;
    AH_OWNED_LIST(made, 8);
    struct ah_tensor *result;
    const bool affine = ah_given(&arg->weight) && ah_given(&arg->bias);
    int n = 0;
    c->recording = false;
    AH_TRY(ah_op1(AH_OP_reshape, &made[n++], arg->input, AH_INTS_OF(flat, 2)));
    AH_TRY(ah_op1(AH_OP_layer_norm, &made[n++], AH_T(made[0]), AH_INTS_OF(&row, 1), AH_NIL, AH_NIL, arg->eps));
    AH_TRY(ah_op1(AH_OP_reshape, &made[n++], AH_T(made[1]), AH_INTS_OF(x->size, x->ndim)));
    result = made[2];
    for (int i = 0; i < 2; i++) {
        if (!c->arg[2 + i].tensor)
            continue;
        AH_TRY(ah_op1(AH_OP_reshape, &made[n++], c->arg[2 + i], AH_INTS_OF(wide, x->ndim - 1)));
        if (affine && i == 0)
            continue;
        if (affine) { /* in one pass, which rounds once */
            AH_TRY(ah_op1(AH_OP_addcmul, &made[n], AH_T(made[n - 1]), AH_T(result), AH_T(made[n - 2])));
            result = made[n++];
            break;
        }
        AH_TRY(ah_op1(i ? AH_OP_add : AH_OP_mul, &made[n], AH_T(result), AH_T(made[n - 1])));
        result = made[n++];
    }
    c->out[0] = ah_tensor_retain(result);
    c->out_count = 1;
    return 0;
}

int ah_forward_group_norm(struct ah_call *c)
{
    bool mixed = norm_is_mixed_natively(c, 2);
    if (!mixed && is_mixed(c))
        return in_float32(c);
    const struct ah_args_group_norm *arg = ah_args(c, group_norm);
    const struct ah_tensor *x = arg->input.tensor;
    int64_t groups = arg->num_groups.integer;
    AH_TRY(ah_call_expect_float(c, 0));
    if (x->ndim < 2 || groups < 1 || x->size[1] < 1 || x->size[1] % groups) {
        return ah_fail(AH_EINVAL, "group_norm: the channels of input %s do not make %lld groups", ah_shape(x),
                       (long long)groups);
    }
    AH_TRY(check_vector("group_norm", "weight", arg->weight.tensor, x, mixed ? AH_F32 : x->dtype));
    AH_TRY(check_vector("group_norm", "bias", arg->bias.tensor, x, mixed ? AH_F32 : x->dtype));
    if (c->device != &ah_cpu || x->numel == 0)
        return group_norm_by_ops(c);
    enum ah_dtype dtype = ah_compute_dtype(x->dtype);
    int64_t size[2] = {x->size[0], groups};
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    AH_TRY(ah_tensor_empty(&c->extra[0], size, 2, dtype, c->device));
    AH_TRY(ah_tensor_empty(&c->extra[1], size, 2, dtype, c->device));
    note_affine(c, 2);
    return ah_call_kernel(c);
}

int ah_forward_group_norm_backward(struct ah_call *c)
{
    const struct ah_args_group_norm_backward *arg = ah_args(c, group_norm_backward);
    const struct ah_tensor *x = arg->input.tensor;
    enum ah_dtype affine = ah_given(&arg->weight) ? arg->weight.tensor->dtype : x->dtype;
    AH_TRY(follow_input_order(arg->grad.tensor, x));
    AH_TRY(ah_call_output(c, 0, x->size, x->ndim, x->dtype));
    if (arg->with_weight.flag) {
        AH_TRY(ah_call_output(c, 1, &x->size[1], 1, affine));
        AH_TRY(ah_call_output(c, 2, &x->size[1], 1, affine));
    }
    return ah_call_kernel(c);
}

/* Embedding. */

int ah_forward_embedding(struct ah_call *c)
{
    const struct ah_args_embedding *arg = ah_args(c, embedding);
    const struct ah_tensor *index = arg->input.tensor, *w = arg->weight.tensor;
    if (index->dtype != AH_I64 && index->dtype != AH_I32 && index->dtype != AH_U8) {
        return ah_fail(AH_EINVAL, "embedding: expected integer indices as input, got %s (is the order input, weight?)",
                       ah_dtype_name(index->dtype));
    }
    if (w->ndim != 2)
        return ah_fail(AH_EINVAL, "embedding: expected weight (rows, width), got %s", ah_shape(w));
    if (index->ndim + 1 > AH_MAX_DIMS)
        return ah_fail(AH_EINVAL, "embedding: input %s has too many dimensions", ah_shape(index));
    int64_t size[AH_MAX_DIMS];
    memcpy(size, index->size, sizeof size);
    size[index->ndim] = w->size[1];
    return ah_call_single(c, size, index->ndim + 1, w->dtype);
}

int ah_forward_bag_sum(struct ah_call *c)
{
    const struct ah_args_bag_sum *arg = ah_args(c, bag_sum);
    const struct ah_tensor *w = arg->weight.tensor, *scale = ah_given(&arg->scale), *starts = arg->starts.tensor;
    if (w->ndim != 2)
        return ah_fail(AH_EINVAL, "embedding_bag: expected weight (rows, width), got %s", ah_shape(w));
    AH_TRY(ah_call_expect_float(c, 1));
    if (scale && scale->dtype != w->dtype)
        return ah_fail(AH_EINVAL, "embedding_bag: per_sample_weights: expected %s like weight, got %s",
                       ah_dtype_name(w->dtype), ah_dtype_name(scale->dtype));
    return ah_call_single(c, (int64_t[]){starts->size[0] - 1, w->size[1]}, 2, w->dtype);
}

AH_FORWARD_WITH(bag_sum_backward, bag_sum_backward,
                ah_call_single(c, arg->size.ints.at, arg->size.ints.count, arg->grad.tensor->dtype))
AH_FORWARD_WITH(embedding_backward, embedding_backward,
                ah_call_single(c, arg->size.ints.at, arg->size.ints.count, arg->grad.tensor->dtype))

int ah_forward_embedding_backward_add(struct ah_call *c)
{
    const struct ah_args_embedding_backward_add *arg = ah_args(c, embedding_backward_add);
    const struct ah_tensor *into = arg->into.tensor, *g = arg->grad.tensor;
    if (into->dtype != g->dtype || into->dtype == AH_F16 || !ah_tensor_is_contiguous(into))
        return ah_fail(AH_EINVAL, "%s: expected a contiguous float32, float64 or bfloat16 tensor of the gradient's "
                       "dtype %s, got %s %s", c->op->name, ah_dtype_name(g->dtype), ah_dtype_name(into->dtype),
                       ah_shape(into));
    AH_TRY(ah_call_expect_float(c, 0));
    return ah_call_single(c, into->size, into->ndim, into->dtype);
}
