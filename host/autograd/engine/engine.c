/* Running backward: plant the roots' gradients, then run ready nodes, latest first; each node's hooks, its rule
 * (apply.c), and its gradients handed to the nodes behind it. Leaves accumulate into .grad or into their arena slot,
 * or, for autograd.grad, gradients are captured on the way. Invariant: a sum is formed in place only without other
 * references to it, and a node's saved values are dropped only after its rule has run. */
#include "autograd/engine/engine.h"

#include <stdlib.h>

#include "autograd/engine/destination.h"
#include "autograd/engine/run.h"
#include "autograd/graph/anomaly.h"
#include "autograd/graph/node.h"
#include "autograd/graph/rules.h"
#include "base/memory/array.h"
#include "base/trace/trace.h"
#include "ops/dispatch/autocast.h"
#include "tensor/capture.h"

static struct ah_engine_watcher *engine_watchers;

void ah_engine_watch(struct ah_engine_watcher *watcher)
{
    watcher->next = engine_watchers;
    engine_watchers = watcher;
}

void ah_engine_unwatch(struct ah_engine_watcher *watcher)
{
    struct ah_engine_watcher **at = &engine_watchers;
    while (*at && *at != watcher)
        at = &(*at)->next;
    if (*at)
        *at = watcher->next;
}

/* Backwards that are running, one inside the other. */
static int engine_depth;

/* Prepared leaves that a nested backward reached: the one around it may reach them again, so their reducers are
 * notified when the outermost ends. */
static struct {
    struct ah_tensor **leaf; /* owned */
    int count;
    size_t room;
} engine_deferred;

/* Add `grad` (borrowed) to *sum, in place when it has no other reference. */
static int add_to(struct ah_tensor **sum, struct ah_tensor *grad, bool in_place)
{
    if (!*sum) {
        *sum = ah_tensor_retain(grad);
        return 0;
    }
    struct ah_tensor *result;
    int count;
    if (in_place) {
        AH_TRY(ah_op_call(AH_OP_add, (const struct ah_value[]){AH_T(*sum), AH_T(grad)}, 2, true, &result, &count));
    } else {
        AH_TRY(ah_op1(AH_OP_add, &result, AH_T(*sum), AH_T(grad)));
    }
    ah_tensor_release(*sum);
    *sum = result;
    return 0;
}

static int engine_deliver(struct ah_run *run, const struct ah_edge *edge, struct ah_tensor *grad, struct ah_slice place)
{
    struct ah_visit *visit = &run->visit[edge->node->run_index];
    if (grad && visit->needed && place.dim >= 0) {
        AH_TRY(ah_parts_add(visit, edge->output, grad, place));
    } else if (grad && visit->needed) {
        AH_TRY(ah_parts_settle(visit, edge->output));
        struct ah_tensor **sum = &visit->grad[edge->output];
        bool in_place = *sum && ah_exclusive(*sum) && !run->options->create_graph && !(*sum)->storage->channels_last;
        AH_TRY(add_to(sum, grad, in_place));
    }
    if (--visit->waiting > 0 || !visit->needed)
        return 0;
    AH_TRY(ah_parts_settle_all(visit));
    ah_run_push(run, edge->node->run_index);
    return 0;
}

static bool is_deferred(const struct ah_tensor *leaf)
{
    for (int i = 0; i < engine_deferred.count; i++)
        if (engine_deferred.leaf[i] == leaf)
            return true;
    return false;
}

static int defer_ready(struct ah_tensor *leaf)
{
    if (is_deferred(leaf))
        return 0;
    AH_TRY(ah_grow(&engine_deferred.leaf, (size_t)engine_deferred.count + 1, &engine_deferred.room,
                   sizeof(struct ah_tensor *)));
    engine_deferred.leaf[engine_deferred.count++] = ah_tensor_retain(leaf);
    return 0;
}

static void end_deferred(bool notify)
{
    for (int i = 0; i < engine_deferred.count; i++) {
        struct ah_grad_meta *meta = engine_deferred.leaf[i]->grad;
        if (notify && meta->ready)
            meta->ready(meta->ready_context, meta->ready_index);
        ah_tensor_release(engine_deferred.leaf[i]);
    }
    engine_deferred.count = 0;
}

/* Store or add the arrived gradient in a leaf's slot, which has another one already where a rule has `written` it; no
 * gradient may have arrived then. */
static int engine_fill_slot(struct ah_run *run, struct ah_tensor *leaf, struct ah_tensor *grad, bool written)
{
    struct ah_grad_meta *meta = leaf->grad;
    if (run->options->create_graph) {
        return ah_fail(AH_ESTATE, "backward: create_graph cannot write into a prepared parameter's gradient; "
                       "use accelhost.autograd.grad");
    }
    bool adds = *meta->has_grad || written;
    if (grad) {
        struct ah_tensor *out;
        int count;
        const struct ah_value args[] = {AH_T(meta->slot), AH_T(grad)};
        AH_TRY(ah_op_call(adds ? AH_OP_add : AH_OP_copy_, args, 2, adds, &out, &count));
        ah_tensor_release(out);
    }
    *meta->has_grad = true;
    if (!meta->ready)
        return 0;
    if (engine_depth > 1 || is_deferred(leaf))
        return defer_ready(leaf);
    meta->ready(meta->ready_context, meta->ready_index);
    return 0;
}

/* Add the arrived gradient to a leaf's grad; move the tensor where possible. */
static int engine_accumulate(struct ah_run *run, struct ah_tensor *leaf, const struct ah_visit *visit)
{
    struct ah_grad_meta *meta = leaf->grad;
    struct ah_tensor *grad = visit->grad[0];
    if (!meta->requires_grad) /* frozen after the graph was made */
        return 0;
    if (meta->slot && (grad || visit->written))
        return engine_fill_slot(run, leaf, grad, visit->written);
    if (!grad)
        return 0;
    AH_TRY(ah_capture_leaf(leaf, meta->grad, false));
    if (meta->grad) {
        bool in_place = !run->options->create_graph;
        return add_to(&meta->grad, grad, in_place);
    }
    AH_TRY(ah_tensor_row_major(grad));
    if (run->options->create_graph || ah_exclusive(grad)) {
        meta->grad = ah_tensor_retain(grad);
        return 0;
    }
    return ah_op1(AH_OP_clone, &meta->grad, AH_T(grad));
}

static int check_gradient(const struct ah_node *node, int i, const struct ah_tensor *grad, struct ah_slice place)
{
    const struct ah_input_meta *meta = &node->input[i];
    bool same = grad->ndim == meta->ndim;
    for (int d = 0; same && d < meta->ndim; d++)
        same = grad->size[d] == meta->size[d] || d == place.dim;
    if (!same)
        return ah_fail(AH_EINVAL, "backward of %s: the gradient of input %d has shape %s, expected %s",
                       ah_node_name(node), i + 1, ah_shape(grad), ah_shape_text(meta->size, meta->ndim));
    if (grad->storage->device != meta->device)
        return ah_fail(AH_EINVAL, "backward of %s: the gradient of input %d is on %s, the input on %s",
                       ah_node_name(node), i + 1, grad->storage->device->name, meta->device->name);
    return 0;
}

static void engine_capture(struct ah_run *run, const struct ah_visit *visit)
{
    for (int i = 0; i < run->wanted_count; i++)
        if (run->wanted[i].node == visit->node && !run->captured[i])
            run->captured[i] = ah_tensor_retain(visit->grad[run->wanted[i].output]);
}

/* Is a gradient here, and does anything behind the node want one? A captured input may have nothing of interest
 * behind it. */
static bool has_work(const struct ah_run *run, const struct ah_visit *visit)
{
    const struct ah_node *node = visit->node;
    bool any = false;
    for (int k = 0; k < node->output_count && !any; k++)
        any = visit->grad[k] != NULL;
    for (int i = 0; i < node->input_count && any; i++)
        if (node->edge[i].node && run->visit[node->edge[i].node->run_index].needed)
            return true;
    return false;
}

/* Does an fp16 or bf16 gradient of a float32 result need no cast? So if no other gradient arrives, no hook or caller
 * sees it, and its reader converts it: the copy into a leaf's arena slot or the sum there, or a rule that declares
 * it. */
static bool reader_converts(const struct ah_run *run, const struct ah_edge *edge)
{
    const struct ah_node *node = edge->node;
    const struct ah_visit *visit = &run->visit[node->run_index];
    if (run->wanted || run->options->create_graph || visit->waiting > 1 || visit->grad[edge->output])
        return false;
    if (node->class == &ah_accumulate_class) {
        const struct ah_tensor *leaf = node->context;
        return leaf->grad->slot && !leaf->grad->hooks;
    }
    return node->op && (ah_rules[node->op->id].saves & AH_READS_HALVES) && !node->hooks;
}

/* Check one input's gradient, cast it to the input's dtype and pass it to the input's node. Consumes the reference in
 * *grad. */
static int pass_on(struct ah_run *run, const struct ah_node *node, int i, struct ah_tensor **grad,
                   struct ah_slice place)
{
    if (!node->edge[i].node)
        return 0;
    if (*grad) {
        AH_TRY(check_gradient(node, i, *grad, place));
        enum ah_dtype wanted = node->input[i].dtype;
        bool halves = wanted == AH_F32 && ((*grad)->dtype == AH_F16 || (*grad)->dtype == AH_BF16);
        if ((*grad)->dtype != wanted && !(halves && reader_converts(run, &node->edge[i]))) {
            struct ah_tensor *cast;
            AH_TRY(ah_op1(AH_OP_to, &cast, AH_T(*grad), AH_D(wanted)));
            ah_tensor_release(*grad);
            *grad = cast;
        }
    }
    return engine_deliver(run, &node->edge[i], *grad, place);
}

static int run_node(struct ah_run *run, int index)
{
    struct ah_visit *visit = &run->visit[index];
    struct ah_node *node = visit->node;
    bool leaf = node->class == &ah_accumulate_class;
    struct ah_tensor *owner = leaf ? node->context : NULL;
    bool beyond = visit->wanted && run->stop_at_wanted; /* another execution continues from here */
    if (!beyond)
        AH_TRY(ah_call_hooks(leaf ? owner->grad->hooks : node->hooks, visit->grad));
    if (visit->wanted)
        engine_capture(run, visit);
    if (leaf) {
        int status = run->wanted ? 0 : engine_accumulate(run, owner, visit);
        ah_tensor_release(visit->grad[0]);
        visit->grad[0] = NULL;
        return status;
    }

    struct ah_tensor *in_small[32];
    struct ah_slice place = {.dim = -1}, whole = place;
    int inputs = node->input_count, status = 0;
    struct ah_tensor **grad_in = inputs <= 32 ? in_small : malloc((size_t)inputs * sizeof *grad_in);
    AH_TRY_MEMORY(grad_in, "out of memory");
    bool keep = run->options->retain_graph || run->options->create_graph || node->sequence < run->keep_below;
    if (!beyond && has_work(run, visit)) {
        struct ah_destination room[AH_DESTINATIONS], *into = ah_destinations_open(run, node, room);
        status = ah_run_rule(node, !keep, visit->grad, into, grad_in, &place);
        ah_destinations_close(run, node, into);
        if (status == 0)
            status = ah_anomaly_check(node, grad_in);
    } else {
        for (int i = 0; i < inputs; i++)
            grad_in[i] = NULL;
    }
    for (int k = 0; k < node->output_count; k++) {
        ah_tensor_release(visit->grad[k]);
        visit->grad[k] = NULL;
    }
    if (status == 0 && !beyond && !keep) {
        node->consumed = ah_node_drop_saved(node);
    }
    for (int i = 0; i < inputs; i++) {
        struct ah_tensor *grad = grad_in[i];
        /* Ours alone from here on: the sum may then be formed in place. */
        if (status == 0 && !beyond)
            status = pass_on(run, node, i, &grad, i == 0 ? place : whole);
        ah_tensor_release(grad);
    }
    if (grad_in != in_small)
        free(grad_in);
    return status;
}

/* A root: where its gradient enters the graph, and that gradient. */
struct seed {
    struct ah_edge edge;
    struct ah_node *owned; /* released with the seed */
    struct ah_tensor *grad;
};

static int seed_grad(struct seed *seed, struct ah_tensor *root, struct ah_tensor *grad)
{
    if (!grad) {
        if (root->numel != 1) {
            return ah_fail(AH_EINVAL, "backward: a gradient is needed for a tensor of shape %s (only scalars have one "
                           "implicitly)", ah_shape(root));
        }
        return ah_op1(AH_OP_ones_like, &seed->grad, AH_T(root));
    }
    if (!ah_same_shape(grad, root)) {
        return ah_fail(AH_EINVAL, "backward: the gradient has shape %s, the tensor %s", ah_shape(grad),
                       ah_shape(root));
    }
    if (grad->storage->device != root->storage->device)
        return ah_fail(AH_EINVAL, "backward: the gradient is on %s, the tensor on %s", grad->storage->device->name,
                       root->storage->device->name);
    if (grad->dtype != root->dtype)
        return ah_op1(AH_OP_to, &seed->grad, AH_T(grad), AH_D(root->dtype));
    seed->grad = ah_tensor_retain(grad);
    return 0;
}

static int engine_plant(struct ah_run *run, struct seed *seed, struct ah_tensor **roots, struct ah_tensor **grads,
                        int count)
{
    for (int i = 0; i < count; i++) {
        AH_TRY(ah_gradient_edge(roots[i], &seed[i].edge, &seed[i].owned));
        if (!seed[i].edge.node)
            return ah_fail(AH_EINVAL, "backward: the tensor does not require grad and has no history");
        int index = ah_run_visit(run, seed[i].edge.node);
        AH_TRY(index);
        run->visit[index].waiting++; /* our own hold, let go when all roots are seeded */
        AH_TRY(ah_run_discover(run, index));
        AH_TRY(seed_grad(&seed[i], roots[i], grads ? grads[i] : NULL));
    }
    AH_TRY(ah_run_start(run));
    for (int i = 0; i < count; i++)
        AH_TRY(add_to(&run->visit[seed[i].edge.node->run_index].grad[seed[i].edge.output], seed[i].grad, false));
    for (int i = 0; i < count; i++) {
        int index = seed[i].edge.node->run_index;
        if (--run->visit[index].waiting == 0)
            ah_run_push(run, index);
    }
    return 0;
}

static int engine_execute(struct ah_run *run, struct ah_tensor **roots, struct ah_tensor **grads, int count)
{
    struct seed *seed = calloc((size_t)(count ? count : 1), sizeof *seed);
    AH_TRY_MEMORY(seed, "backward: out of memory");
    AH_GRAD_SCOPE(run->options->create_graph);
    AH_AUTOCAST_OFF();
    engine_depth++;
    int status = ah_run_want(run);
    if (status == 0)
        status = engine_plant(run, seed, roots, grads, count);
    for (int i = 0; i < count; i++)
        ah_tensor_release(seed[i].grad);
    while (status == 0 && run->heap_count > 0) {
        status = run_node(run, ah_run_pop(run));
        for (struct ah_engine_watcher *watcher = engine_watchers; watcher; watcher = watcher->next)
            watcher->between(watcher->context);
    }
    if (--engine_depth == 0)
        end_deferred(status == 0);
    for (int i = 0; i < count; i++)
        ah_node_release(seed[i].owned);
    free(seed);
    return ah_fail_named(status, "backward");
}

int ah_backward(struct ah_tensor **roots, struct ah_tensor **grads, int count,
                const struct ah_backward_options *options)
{
    struct ah_run run = {.options = options};
    struct ah_trace_mark mark = ah_trace_begin("backward");
    int status = engine_execute(&run, roots, grads, count);
    ah_run_close(&run);
    ah_trace_end(mark, AH_TRACE_BACKWARD, "backward");
    return status;
}

int ah_backward_leaves(struct ah_tensor **roots, int count, void (*found)(void *context, struct ah_tensor *leaf),
                       void *context)
{
    const struct ah_backward_options options = {0};
    struct ah_run run = {.options = &options};
    int status = 0;
    for (int i = 0; i < count && status == 0; i++) {
        struct ah_edge edge;
        struct ah_node *owned = NULL;
        status = ah_gradient_edge(roots[i], &edge, &owned);
        int index = status == 0 && edge.node ? ah_run_visit(&run, edge.node) : status;
        if (status == 0 && edge.node)
            status = index < 0 ? index : ah_run_discover(&run, index);
        ah_node_release(owned);
    }
    for (int i = 0; i < run.count && status == 0; i++)
        if (run.visit[i].needed && run.visit[i].node->class == &ah_accumulate_class)
            found(context, run.visit[i].node->context);
    ah_run_close(&run);
    return status;
}

/* The gradients at run->wanted, into out[]. */
static int capture_all(struct ah_run *run, struct ah_tensor **roots, struct ah_tensor **grads, int count,
                       struct ah_tensor **out)
{
    for (int i = 0; i < run->wanted_count; i++)
        out[i] = NULL;
    run->captured = out;
    int status = engine_execute(run, roots, grads, count);
    ah_run_close(run);
    for (int i = 0; status < 0 && i < run->wanted_count; i++) {
        ah_tensor_release(out[i]);
        out[i] = NULL;
    }
    return status;
}

int ah_gradients_at(struct ah_tensor **roots, struct ah_tensor **grads, int count, const struct ah_edge *edges,
                    int edge_count, uint64_t since, struct ah_tensor **out,
                    const struct ah_backward_options *options)
{
    struct ah_run run = {.options = options, .wanted = edges, .wanted_count = edge_count, .stop_at_wanted = true,
                         .keep_below = since, .of_segment = true};
    return capture_all(&run, roots, grads, count, out);
}

int ah_gradients(struct ah_tensor **roots, struct ah_tensor **grads, int count, struct ah_tensor **inputs,
                 int input_count, struct ah_tensor **out, const struct ah_backward_options *options)
{
    size_t slots = (size_t)(input_count ? input_count : 1);
    struct ah_node **owned = calloc(slots, sizeof(struct ah_node *));
    struct ah_edge *wanted = calloc(slots, sizeof *wanted);
    int status = 0;
    if (!owned || !wanted) {
        status = ah_fail(AH_ENOMEM, "out of memory");
        goto done;
    }
    for (int i = 0; i < input_count; i++) {
        AH_TRYGO(ah_gradient_edge(inputs[i], &wanted[i], &owned[i]), done);
        if (!wanted[i].node) {
            status = ah_fail(AH_EINVAL, "grad: input %d does not require grad", i + 1);
            goto done;
        }
    }
    struct ah_run run = {.options = options, .wanted = wanted, .wanted_count = input_count};
    AH_TRYGO(capture_all(&run, roots, grads, count, out), done);
    for (int i = 0; i < input_count && !options->allow_unused; i++) {
        if (out[i])
            continue;
        status = ah_fail(AH_EINVAL, "grad: input %d was not used by the outputs (allow_unused = true returns false)",
                         i + 1);
        for (int k = 0; k < input_count; k++)
            ah_tensor_release(out[k]);
        break;
    }
done:
    for (int i = 0; owned && i < input_count; i++)
        ah_node_release(owned[i]);
    free(owned);
    free(wanted);
    return status;
}
