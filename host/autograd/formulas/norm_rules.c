/* Rules of normalisations, masked softmax and embeddings. Fused kernels compute first derivatives; for higher ones
 * (gradients are recorded) the same is computed by ops. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

void ah_backward_masked_softmax(struct ah_rule *r)
{
    struct ah_tensor *g = ah_r(r, AH_OP_softmax_backward, AH_T(r->grad_out[0]), AH_T(r->out[0]), AH_I(-1));
    r->grad_in[0] = g;
    if (r->input_count > 1 && r->needs[1])
        r->grad_in[1] = ah_r_to_input(r, g, 1);
}

static struct ah_tensor *mean_keep(struct ah_rule *r, struct ah_tensor *t, struct ah_value dims)
{
    return ah_r(r, AH_OP_mean, AH_T(t), dims, AH_B(true));
}

/* A normalisation over the dims `over`, by differentiable ops: for higher derivatives. */
struct normal {
    struct ah_tensor *x, *g;
    struct ah_tensor *weight;         /* broadcasts against x, or NULL */
    struct ah_tensor *mean, *inverse; /* given ones are constants, else NULL: computed from x */
    struct ah_value over;
    double eps;
    struct ah_tensor *value;          /* the normalised x */
};

static struct ah_tensor *normal_gradient(struct ah_rule *r, struct normal *n)
{
    bool constant = n->mean != NULL;
    struct ah_tensor *mean = constant ? n->mean : mean_keep(r, n->x, n->over), *inverse = n->inverse;
    struct ah_tensor *centred = ah_r_sub(r, n->x, mean), *gn = n->weight ? ah_r_mul(r, n->g, n->weight) : n->g;
    if (!constant) {
        struct ah_tensor *variance = mean_keep(r, ah_r_mul(r, centred, centred), n->over);
        inverse = ah_r(r, AH_OP_rsqrt, AH_T(ah_r_shift(r, variance, n->eps)));
    }
    n->value = ah_r_mul(r, centred, inverse);
    if (constant)
        return ah_r_mul(r, gn, inverse);
    struct ah_tensor *along = ah_r_mul(r, n->value, mean_keep(r, ah_r_mul(r, gn, n->value), n->over));
    return ah_r_mul(r, ah_r_sub(r, ah_r_sub(r, gn, mean_keep(r, gn, n->over)), along), inverse);
}

/* Input numbers of weight and bias: absent tensors are not counted among the inputs, 0 is absent. */
struct affine {
    int weight, bias;
};

static struct affine affine_of(const struct ah_rule *r)
{
    return (struct affine){r->state->affine.weight, r->state->affine.bias};
}

static bool norm_wants(const struct ah_rule *r, int input)
{
    return input > 0 && r->needs[input];
}

/* Statistics are per channel, dim 1; the reduced types are computed in float32. */
static void batch_norm_by_ops(struct ah_rule *r, struct ah_tensor *grad)
{
    const struct ah_args_batch_norm *arg = ah_args(r, batch_norm);
    struct affine affine = affine_of(r);
    int64_t row[AH_MAX_DIMS], over[AH_MAX_DIMS];
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    enum ah_dtype dtype = meta->dtype == AH_F64 ? AH_F64 : AH_F32;
    int count = 0;
    for (int d = 0; d < meta->ndim; d++) {
        row[d] = d == 1 ? meta->size[1] : 1;
        if (d != 1)
            over[count++] = d;
    }
    struct ah_value shape = AH_INTS_OF(row, meta->ndim);
    struct normal n = {.x = ah_r(r, AH_OP_to, arg->input, AH_D(dtype)),
                       .g = ah_r(r, AH_OP_to, AH_T(grad), AH_D(dtype)),
                       .over = AH_INTS_OF(over, count), .eps = arg->eps.number};
    if (ah_given(&arg->weight))
        n.weight = ah_r(r, AH_OP_reshape, arg->weight, shape);
    if (!arg->training.flag) {
        n.mean = ah_r(r, AH_OP_reshape, AH_T(r->extra[0]), shape);
        n.inverse = ah_r(r, AH_OP_reshape, AH_T(r->extra[1]), shape);
    }
    r->grad_in[0] = ah_r_to_input(r, normal_gradient(r, &n), 0);
    if (norm_wants(r, affine.weight)) {
        struct ah_tensor *sum = ah_r(r, AH_OP_sum, AH_T(ah_r_mul(r, n.g, n.value)), n.over);
        r->grad_in[affine.weight] = ah_r_to_input(r, sum, affine.weight);
    }
    if (norm_wants(r, affine.bias))
        r->grad_in[affine.bias] = ah_r_to_input(r, ah_r(r, AH_OP_sum, AH_T(n.g), n.over), affine.bias);
}

/* out[1] and out[2] of a fused kernel are the gradients of weight and bias. */
static void give_affine(struct ah_rule *r, struct ah_tensor **out)
{
    struct affine affine = affine_of(r);
    if (norm_wants(r, affine.weight))
        r->grad_in[affine.weight] = out[1];
    if (norm_wants(r, affine.bias))
        r->grad_in[affine.bias] = out[2];
}

/* Return the three gradients, which the fused kernels compute at once. */
static void give_three(struct ah_rule *r, enum ah_opid op, const struct ah_value *args, int count)
{
    struct ah_tensor *out[3];
    ah_rule_ops(r, op, args, count, out, 3);
    r->grad_in[0] = out[0];
    give_affine(r, out);
}

void ah_backward_batch_norm(struct ah_rule *r)
{
    const struct ah_args_batch_norm *arg = ah_args(r, batch_norm);
    if (ah_grad_enabled) {
        batch_norm_by_ops(r, r->grad_out[0]);
        return;
    }
    const struct ah_value args[] = {AH_T(r->grad_out[0]), arg->input, arg->weight, AH_T(r->extra[0]),
                                    AH_T(r->extra[1]), arg->training};
    give_three(r, AH_OP_batch_norm_backward, args, 6);
}

void ah_backward_batch_norm_relu(struct ah_rule *r)
{
    const struct ah_args_batch_norm_relu *arg = ah_args(r, batch_norm_relu);
    int other = r->state->affine.other;
    if (ah_grad_enabled) {
        struct ah_tensor *grad = ah_r(r, AH_OP_relu_backward, AH_T(r->grad_out[0]), AH_T(r->out[0]));
        if (other > 0)
            ah_r_give(r, other, grad);
        batch_norm_by_ops(r, grad);
        return;
    }
    const struct ah_value args[] = {AH_T(r->grad_out[0]), AH_T(r->out[0]), arg->input, arg->weight, arg->bias,
                                    AH_T(r->extra[0]), AH_T(r->extra[1]), arg->training, AH_B(other > 0)};
    struct ah_tensor *out[4] = {NULL};
    ah_rule_ops(r, AH_OP_batch_norm_relu_backward, args, 9, out, other > 0 ? 4 : 3);
    r->grad_in[0] = out[0];
    give_affine(r, out);
    if (other > 0)
        ah_r_give(r, other, out[3]);
}

/* Statistics are per group of channels: of (N, groups, channels of a group, pixels) over the last two dims. */
static void group_norm_by_ops(struct ah_rule *r)
{
    const struct ah_args_group_norm *arg = ah_args(r, group_norm);
    struct affine affine = affine_of(r);
    const struct ah_input_meta *meta = ah_rule_input(r, 0);
    enum ah_dtype dtype = meta->dtype == AH_F64 ? AH_F64 : AH_F32;
    int64_t groups = arg->num_groups.integer, each = meta->size[1] / groups, pixels = 1;
    for (int d = 2; d < meta->ndim; d++)
        pixels *= meta->size[d];
    const int64_t grouped[4] = {meta->size[0], groups, each, pixels}, factors[4] = {1, groups, each, 1};
    const int64_t over[2] = {2, 3}, samples[2] = {0, 3};
    struct ah_value size = AH_INTS_OF(grouped, 4), summed = AH_INTS_OF(samples, 2);
    struct ah_tensor *x = ah_r(r, AH_OP_to, arg->input, AH_D(dtype));
    struct ah_tensor *g = ah_r(r, AH_OP_to, AH_T(r->grad_out[0]), AH_D(dtype));
    struct normal n = {.x = ah_r(r, AH_OP_reshape, AH_T(x), size), .g = ah_r(r, AH_OP_reshape, AH_T(g), size),
                       .over = AH_INTS_OF(over, 2), .eps = arg->eps.number};
    if (ah_given(&arg->weight))
        n.weight = ah_r(r, AH_OP_reshape, arg->weight, AH_INTS_OF(factors, 4));
    struct ah_tensor *grad = ah_r(r, AH_OP_reshape, AH_T(normal_gradient(r, &n)), AH_INTS_OF(meta->size, meta->ndim));
    r->grad_in[0] = ah_r_to_input(r, grad, 0);
    struct ah_value channels = AH_INTS_OF(&meta->size[1], 1);
    if (norm_wants(r, affine.weight)) {
        struct ah_tensor *sum = ah_r(r, AH_OP_sum, AH_T(ah_r_mul(r, n.g, n.value)), summed);
        r->grad_in[affine.weight] = ah_r_to_input(r, ah_r(r, AH_OP_reshape, AH_T(sum), channels), affine.weight);
    }
    if (norm_wants(r, affine.bias)) {
        struct ah_tensor *sum = ah_r(r, AH_OP_sum, AH_T(n.g), summed);
        r->grad_in[affine.bias] = ah_r_to_input(r, ah_r(r, AH_OP_reshape, AH_T(sum), channels), affine.bias);
    }
}

void ah_backward_group_norm(struct ah_rule *r)
{
    const struct ah_args_group_norm *arg = ah_args(r, group_norm);
    if (ah_grad_enabled) {
        group_norm_by_ops(r);
        return;
    }
    struct affine affine = affine_of(r);
    const struct ah_value args[] = {
        AH_T(r->grad_out[0]), arg->input, arg->num_groups, arg->weight, AH_T(r->extra[0]), AH_T(r->extra[1]),
        AH_B(norm_wants(r, affine.weight) || norm_wants(r, affine.bias))};
    give_three(r, AH_OP_group_norm_backward, args, 7);
}

/* Return the gradient of the normalised input, and store those of weight and bias. */
static struct ah_tensor *layer_norm_by_ops(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *weight, int count,
                                           double eps)
{
    struct affine affine = affine_of(r);
    int64_t over[AH_MAX_DIMS];
    for (int d = 0; d < count; d++)
        over[d] = d - count;
    struct normal n = {.x = x, .g = r->grad_out[0], .weight = weight, .over = AH_INTS_OF(over, count), .eps = eps};
    struct ah_tensor *grad = normal_gradient(r, &n);
    if (norm_wants(r, affine.weight))
        r->grad_in[affine.weight] = ah_r_to_input(r, ah_r_mul(r, n.g, n.value), affine.weight);
    if (norm_wants(r, affine.bias))
        r->grad_in[affine.bias] = ah_r_to_input(r, n.g, affine.bias);
    return grad;
}

void ah_backward_layer_norm(struct ah_rule *r)
{
    const struct ah_args_layer_norm *arg = ah_args(r, layer_norm);
    if (ah_grad_enabled) {
        r->grad_in[0] = layer_norm_by_ops(r, ah_given(&arg->input), ah_given(&arg->weight),
                                          arg->normalized_shape.ints.count, arg->eps.number);
        return;
    }
    struct affine affine = affine_of(r);
    const struct ah_value args[] = {
        AH_T(r->grad_out[0]), arg->input, arg->weight, AH_T(r->extra[0]), AH_T(r->extra[1]),
        AH_B(norm_wants(r, affine.weight) || norm_wants(r, affine.bias))};
    give_three(r, AH_OP_layer_norm_backward, args, 6);
}

/* The half among the inputs of a float32 sum, whose gradient then leaves the kernel in both dtypes; else none. */
static struct ah_value half_beside_float(const struct ah_rule *r)
{
    enum ah_dtype sum = r->node->output[1].dtype;
    for (int i = 0; i < 2 && sum == AH_F32; i++)
        if (r->needs[i] && ah_rule_input(r, i)->dtype != sum)
            return AH_D(ah_rule_input(r, i)->dtype);
    return AH_NIL;
}

/* The sum's gradient is its own incoming gradient plus that through the norm; both inputs receive it. */
void ah_backward_add_layer_norm(struct ah_rule *r)
{
    const struct ah_args_add_layer_norm *arg = ah_args(r, add_layer_norm);
    struct affine affine = affine_of(r);
    struct ah_tensor *g = r->grad_out[0], *more = r->grad_out[1], *sum = r->out[1], *grad, *out[4] = {NULL};
    if (!g) {
        grad = more;
    } else if (ah_grad_enabled) {
        grad = layer_norm_by_ops(r, sum, ah_given(&arg->weight), arg->normalized_shape.ints.count, arg->eps.number);
        grad = more ? ah_r_add(r, grad, more) : grad;
    } else {
        const struct ah_value args[] = {AH_T(g), AH_T(sum), arg->weight, AH_T(r->extra[0]), AH_T(r->extra[1]),
                                        AH_B(norm_wants(r, affine.weight) || norm_wants(r, affine.bias)), AH_T(more),
                                        half_beside_float(r)};
        ah_rule_ops(r, AH_OP_layer_norm_backward, args, 8, out, 4);
        give_affine(r, out);
        grad = out[0];
    }
    for (int i = 0; i < 2; i++)
        ah_r_give(r, i, out[3] && out[3]->dtype == ah_rule_input(r, i)->dtype ? out[3] : grad);
}

static void rms_norm_by_ops(struct ah_rule *r)
{
    const struct ah_args_rms_norm *arg = ah_args(r, rms_norm);
    int64_t over[AH_MAX_DIMS];
    int count = arg->normalized_shape.ints.count;
    enum ah_dtype dtype = ah_rule_input(r, 0)->dtype == AH_F64 ? AH_F64 : AH_F32;
    for (int d = 0; d < count; d++)
        over[d] = d - count;
    struct ah_value dims = AH_INTS_OF(over, count);
    struct ah_tensor *x = ah_r(r, AH_OP_to, arg->input, AH_D(dtype)), *w = ah_given(&arg->weight);
    struct ah_tensor *g = ah_r(r, AH_OP_to, AH_T(r->grad_out[0]), AH_D(dtype)), *gn = w ? ah_r_mul(r, g, w) : g;
    struct ah_tensor *square = mean_keep(r, ah_r_mul(r, x, x), dims);
    struct ah_tensor *inverse = ah_r(r, AH_OP_rsqrt, AH_T(ah_r_shift(r, square, r->state->root.eps)));
    struct ah_tensor *value = ah_r_mul(r, x, inverse);
    struct ah_tensor *along = ah_r_mul(r, value, mean_keep(r, ah_r_mul(r, gn, value), dims));
    r->grad_in[0] = ah_r_to_input(r, ah_r_mul(r, inverse, ah_r_sub(r, gn, along)), 0);
    if (w && r->needs[1])
        r->grad_in[1] = ah_r_to_input(r, ah_r_mul(r, g, value), 1);
}

void ah_backward_rms_norm(struct ah_rule *r)
{
    const struct ah_args_rms_norm *arg = ah_args(r, rms_norm);
    if (ah_grad_enabled) {
        rms_norm_by_ops(r);
        return;
    }
    bool with_weight = r->input_count > 1 && r->needs[1];
    const struct ah_value args[] = {AH_T(r->grad_out[0]), arg->input, arg->weight, AH_T(r->extra[0]),
                                    AH_B(with_weight)};
    struct ah_tensor *out[2] = {NULL};
    ah_rule_ops(r, AH_OP_rms_norm_backward, args, 5, out, 1 + with_weight);
    r->grad_in[0] = out[0];
    if (with_weight)
        r->grad_in[1] = out[1];
}

/* Add the gradient of a table of rows to its slot, where the table has other uses: as a language model's output. */
static bool embedding_added(struct ah_rule *r)
{
    const struct ah_args_embedding *arg = ah_args(r, embedding);
    struct ah_destination *to = r->into ? &r->into[1] : NULL;
    struct ah_tensor *g = r->grad_out[0], *sum;
    int count;
    if (!to || !to->slot || !to->adds || !to->exact || to->slot->dtype != g->dtype || g->dtype == AH_F16 ||
        !ah_tensor_is_contiguous(to->slot) || !to->slot->storage->device->kernels[AH_OP_embedding_backward_add])
        return false;
    const struct ah_value args[] = {AH_T(to->slot), AH_T(g), arg->input, arg->padding_idx};
    r->status = ah_op_call(AH_OP_embedding_backward_add, args, 4, true, &sum, &count);
    if (r->status == 0)
        ah_tensor_release(sum);
    to->written = r->status == 0;
    return true;
}

void ah_backward_embedding(struct ah_rule *r)
{
    const struct ah_args_embedding *arg = ah_args(r, embedding);
    const struct ah_input_meta *meta = ah_rule_input(r, 1);
    if (r->needs[1] && !embedding_added(r))
        ah_r_place(r, 1, AH_OP_embedding_backward, AH_T(r->grad_out[0]), arg->input,
                   AH_INTS_OF(meta->size, meta->ndim), arg->padding_idx);
}

void ah_backward_embedding_backward(struct ah_rule *r)
{
    const struct ah_args_embedding_backward *arg = ah_args(r, embedding_backward);
    struct ah_tensor *index = ah_given(&arg->input);
    struct ah_tensor *rows = ah_r(r, AH_OP_embedding, AH_T(index), AH_T(r->grad_out[0]));
    if (arg->padding_idx.kind != AH_NONE) {
        int64_t padding = arg->padding_idx.integer;
        padding += padding < 0 ? arg->size.ints.at[0] : 0;
        struct ah_tensor *kept = ah_r(r, AH_OP_ne, AH_T(index), AH_I(padding));
        kept = ah_r(r, AH_OP_unsqueeze, AH_T(kept), AH_I(-1));
        rows = ah_r_mul(r, rows, kept);
    }
    r->grad_in[0] = rows;
}
