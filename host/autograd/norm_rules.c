#include "autograd/graph.h"
#include "autograd/rule.h"
#include "ops/rows.h"

static struct ah_tensor *saved(const struct ah_rule *r, int i)
{
    return r->arg[i].kind == AH_TENSOR ? r->arg[i].tensor : NULL;
}

int ah_backward_masked_softmax(struct ah_rule *r)
{
    struct ah_tensor *g = ah_r(r, AH_OP_softmax_backward, AH_T(r->grad_out[0]), AH_T(r->out[0]), AH_I(-1));
    r->grad_in[0] = g;
    if (r->input_count > 1 && r->needs[1])
        r->grad_in[1] = ah_r_to_input(r, g, 1);
    return r->status;
}

/* Absent tensors take no place among the inputs: the forward notes in state[0] and state[1] which input weight and bias
 * are, 0 for absent. */
int ah_backward_batch_norm(struct ah_rule *r)
{
    struct ah_tensor *out[3];
    const struct ah_value args[] = {AH_T(r->grad_out[0]), AH_T(saved(r, 0)), AH_T(saved(r, 3)), AH_T(r->extra[0]),
                                    AH_T(r->extra[1]), r->arg[5]};
    ah_rule_ops(r, AH_OP_batch_norm_backward, args, 6, out, 3);
    r->grad_in[0] = out[0];
    int weight = (int)r->state[0], bias = (int)r->state[1];
    if (weight > 0 && r->needs[weight])
        r->grad_in[weight] = out[1];
    if (bias > 0 && r->needs[bias])
        r->grad_in[bias] = out[2];
    return r->status;
}

static struct ah_tensor *mean_keep(struct ah_rule *r, struct ah_tensor *t, struct ah_value dims)
{
    return ah_r(r, AH_OP_mean, AH_T(t), dims, AH_B(true));
}

/* With higher derivatives wanted: everything from the input again, by ops that have them. */
static int layer_norm_by_ops(struct ah_rule *r, int weight, int bias)
{
    struct ah_tensor *g = r->grad_out[0], *x = saved(r, 0), *w = saved(r, 2);
    int64_t dims[AH_MAX_DIMS];
    int count = r->arg[1].ints.count;
    for (int d = 0; d < count; d++)
        dims[d] = d - count;
    struct ah_value over = AH_INTS_OF(dims, count);
    struct ah_tensor *centred = ah_r_sub(r, x, mean_keep(r, x, over));
    struct ah_tensor *variance = mean_keep(r, ah_r_mul(r, centred, centred), over);
    struct ah_tensor *inverse = ah_r(r, AH_OP_rsqrt, AH_T(ah_r_shift(r, variance, r->arg[4].number)));
    struct ah_tensor *normal = ah_r_mul(r, centred, inverse);
    if (r->needs[0]) {
        struct ah_tensor *gn = w ? ah_r_mul(r, g, w) : g;
        struct ah_tensor *along = ah_r_mul(r, normal, mean_keep(r, ah_r_mul(r, gn, normal), over));
        struct ah_tensor *rest = ah_r_sub(r, ah_r_sub(r, gn, mean_keep(r, gn, over)), along);
        r->grad_in[0] = ah_r_mul(r, rest, inverse);
    }
    if (weight > 0 && r->needs[weight])
        r->grad_in[weight] = ah_r_to_input(r, ah_r_mul(r, g, normal), weight);
    if (bias > 0 && r->needs[bias])
        r->grad_in[bias] = ah_r_to_input(r, g, bias);
    return r->status;
}

int ah_backward_layer_norm(struct ah_rule *r)
{
    int weight = (int)r->state[0], bias = (int)r->state[1];
    if (ah_grad_enabled)
        return layer_norm_by_ops(r, weight, bias);
    bool affine = (weight > 0 && r->needs[weight]) || (bias > 0 && r->needs[bias]);
    struct ah_tensor *out[3];
    const struct ah_value args[] = {AH_T(r->grad_out[0]), AH_T(saved(r, 0)), AH_T(saved(r, 2)), AH_T(r->extra[0]),
                                    AH_T(r->extra[1]), AH_B(affine)};
    ah_rule_ops(r, AH_OP_layer_norm_backward, args, 6, out, 3);
    r->grad_in[0] = out[0];
    if (weight > 0 && r->needs[weight])
        r->grad_in[weight] = out[1];
    if (bias > 0 && r->needs[bias])
        r->grad_in[bias] = out[2];
    return r->status;
}

int ah_backward_embedding(struct ah_rule *r)
{
    const struct ah_input_meta *meta = ah_rule_input(r, 1);
    if (r->needs[1])
        r->grad_in[1] = ah_r(r, AH_OP_embedding_backward, AH_T(r->grad_out[0]), AH_T(saved(r, 0)),
                             AH_INTS_OF(meta->size, meta->ndim), r->arg[2]);
    return r->status;
}

int ah_backward_embedding_backward(struct ah_rule *r)
{
    struct ah_tensor *index = saved(r, 1);
    struct ah_tensor *rows = ah_r(r, AH_OP_embedding, AH_T(index), AH_T(r->grad_out[0]));
    if (r->arg[3].kind != AH_NONE) {
        int64_t padding = r->arg[3].integer;
        padding += padding < 0 ? r->arg[2].ints.at[0] : 0;
        struct ah_tensor *kept = ah_r(r, AH_OP_ne, AH_T(index), AH_I(padding));
        kept = ah_r(r, AH_OP_unsqueeze, AH_T(kept), AH_I(-1));
        rows = ah_r_mul(r, rows, kept);
    }
    r->grad_in[0] = rows;
    return r->status;
}
