/* Calls are copied with references to their tensors. A fused op is repeated as the op whose part the result is, on the
 * other result; both have the same kernel. */
#include "autograd/graph/recompute.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/graph/node.h"

/* Gates from 1 MiB on: decoders have two of them a layer and lose no time. ViT-Ti loses 7 % of its step where the GELUs
 * between 1 and 4 MiB are repeated too. */
static bool recompute_pays(const struct ah_call *call)
{
    size_t least = call->op->id == AH_OP_activation_mul ? AH_RECOMPUTE_BYTES / 4 : AH_RECOMPUTE_BYTES;
    if (call->out[0]->storage->nbytes <= least || call->inplace || call->float_result || call->stored_dtype)
        return false;
    const char *device = call->device->type->name;
    return !strcmp(device, "cpu") || !strcmp(device, "meta");
}

/* One of the names that an op knows, which lives as long as the program. */
static struct ah_value recompute_name(const struct ah_value *name)
{
    static const char *const known[] = {"tanh", "none", "silu", "gelu", "gelu_tanh"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name->string, known[i]))
            return AH_S(known[i]);
    return AH_NIL;
}

/* Set the op and its arguments, borrowed; false if the call has no cheap repetition. */
static bool recompute_fill(struct ah_recompute *r, const struct ah_call *c)
{
    switch (c->op->id) {
    case AH_OP_gelu:
        r->op = AH_OP_gelu;
        r->count = 2;
        r->arg[0] = c->arg[0];
        r->arg[1] = recompute_name(&c->arg[1]);
        return true;
    case AH_OP_activation_mul:
        r->op = AH_OP_activation_mul;
        r->count = 3;
        memcpy(r->arg, c->arg, 2 * sizeof *r->arg);
        r->arg[2] = recompute_name(&c->arg[2]);
        return true;
    case AH_OP_linear_gelu:
        r->op = AH_OP_gelu;
        r->count = 2;
        r->arg[0] = AH_T(c->out_count > 1 ? c->out[1] : NULL);
        r->arg[1] = AH_S("tanh");
        return c->out_count > 1 && c->out[1];
    case AH_OP_layer_norm:
    case AH_OP_layer_norm_to:
        r->op = c->op->id;
        r->count = c->op->param_count;
        memcpy(r->arg, c->arg, (size_t)r->count * sizeof *r->arg);
        return true;
    case AH_OP_add_layer_norm: {
        const struct ah_args_add_layer_norm *arg = ah_args(c, add_layer_norm);
        const struct ah_value own[] = {AH_T(c->out[1]), arg->normalized_shape, arg->weight, arg->bias, arg->eps,
                                       arg->dtype};
        r->op = arg->dtype.kind == AH_DTYPE ? AH_OP_layer_norm_to : AH_OP_layer_norm;
        r->count = arg->dtype.kind == AH_DTYPE ? 6 : 5;
        memcpy(r->arg, own, (size_t)r->count * sizeof *r->arg);
        return c->out_count > 1;
    }
    default:
        return false;
    }
}

struct ah_recompute *ah_recompute_new(const struct ah_call *call)
{
    if (!recompute_pays(call))
        return NULL;
    struct ah_recompute filled = {.refs = 1}; /* 520 bytes are set: not for every call that is recorded */
    if (!recompute_fill(&filled, call))
        return NULL;
    struct ah_recompute *made = malloc(sizeof *made);
    if (!made)
        return NULL;
    filled.result_version = ah_tensor_version(call->out[0]);
    *made = filled;
    made->count = 0;
    for (int i = 0; i < filled.count; i++, made->count++) {
        struct ah_value *arg = &made->arg[i];
        if (arg->kind != AH_TENSOR)
            continue;
        made->version[i] = ah_tensor_version(arg->tensor);
        /* Other results of the call would hold its node, and it them. */
        if (ah_alias(&arg->tensor, arg->tensor) < 0) {
            ah_recompute_release(made);
            return NULL;
        }
    }
    return made;
}

void ah_recompute_release(struct ah_recompute *recompute)
{
    if (!recompute || --recompute->refs > 0)
        return;
    for (int i = 0; i < recompute->count; i++)
        if (recompute->arg[i].kind == AH_TENSOR)
            ah_tensor_release(recompute->arg[i].tensor);
    free(recompute);
}

int ah_recompute_run(const struct ah_recompute *recompute, const char *reader, struct ah_tensor **out)
{
    for (int i = 0; i < recompute->count; i++) {
        const struct ah_value *arg = &recompute->arg[i];
        if (arg->kind == AH_TENSOR && ah_tensor_version(arg->tensor) != recompute->version[i])
            return ah_fail(AH_ESTATE, "backward of %s: argument %d of %s, whose result it reads, was changed in place "
                           "since (version %u then, %u now)", reader, i + 1, ah_op_get(recompute->op)->name,
                           recompute->version[i], ah_tensor_version(arg->tensor));
    }
    AH_GRAD_SCOPE(false);
    int made;
    return ah_op_call(recompute->op, recompute->arg, recompute->count, false, out, &made);
}
