#include "autograd/engine.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"

void (*ah_engine_progress)(void);



/* One node in one execution. */
struct visit {
    struct ah_node *node;
    int waiting;             /* edges into it that have not delivered yet */
    int cursor;              /* next edge of the depth-first search */
    bool needed;             /* leads to something wanted */
    struct ah_tensor **grad; /* [output_count], what has arrived */
    struct ah_run *outer;    /* the execution this one interrupts, for nodes both visit */
    int outer_index;
};

struct ah_run {
    struct visit *visit;
    int count, capacity;
    int *heap; /* visits ready to run, latest sequence first */
    int heap_count;
    int *stack;
    struct ah_tensor **deferred; /* leaves whose gradient may still change in a nested backward */
    int deferred_count, deferred_capacity;
    bool defer;
    const struct ah_backward_options *options;
    struct ah_edge *wanted; /* ah_gradients: the inputs' edges */
    struct ah_tensor **captured;
    int wanted_count;
};

static int depth; /* of nested backwards */

static int visit_node(struct ah_run *run, struct ah_node *node)
{
    if (node->run == run)
        return node->run_index;
    if (run->count == run->capacity) {
        int capacity = run->capacity ? 2 * run->capacity : 64;
        struct visit *grown = realloc(run->visit, (size_t)capacity * sizeof *grown);
        if (!grown)
            return ah_fail(AH_ENOMEM, "out of memory");
        run->visit = grown;
        run->capacity = capacity;
    }
    struct visit *visit = &run->visit[run->count];
    memset(visit, 0, sizeof *visit);
    visit->grad = calloc((size_t)(node->output_count ? node->output_count : 1), sizeof *visit->grad);
    if (!visit->grad)
        return ah_fail(AH_ENOMEM, "out of memory");
    visit->node = node;
    visit->outer = node->run;
    visit->outer_index = node->run_index;
    ah_node_retain(node);
    node->run = run;
    node->run_index = run->count;
    if (node->class->reenters)
        run->defer = true;
    return run->count++;
}

static void run_free(struct ah_run *run)
{
    for (int i = 0; i < run->count; i++) {
        struct visit *visit = &run->visit[i];
        visit->node->run = visit->outer;
        visit->node->run_index = visit->outer_index;
        for (int k = 0; k < visit->node->output_count; k++)
            ah_tensor_release(visit->grad[k]);
        free(visit->grad);
    }
    for (int i = 0; i < run->count; i++)
        ah_node_release(run->visit[i].node);
    for (int i = 0; i < run->deferred_count; i++)
        ah_tensor_release(run->deferred[i]);
    free(run->deferred);
    free(run->visit);
    free(run->heap);
    free(run->stack);
}

static bool is_wanted(const struct ah_run *run, const struct ah_node *node)
{
    if (!run->wanted)
        return node->class == &ah_accumulate_class;
    for (int i = 0; i < run->wanted_count; i++)
        if (run->wanted[i].node == node)
            return true;
    return false;
}

/* Depth-first from the roots, without recursion: counts the deliveries each node waits for and, on the way back,
 * which nodes lead to something wanted. */
static int discover(struct ah_run *run, int root)
{
    int top = 0, capacity = 0;
    for (int next = root; next >= 0;) {
        if (top == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            int *grown = realloc(run->stack, (size_t)capacity * sizeof *grown);
            if (!grown)
                return ah_fail(AH_ENOMEM, "out of memory");
            run->stack = grown;
        }
        run->stack[top++] = next;
        next = -1;
        while (top > 0 && next < 0) {
            int at = run->stack[top - 1];
            struct ah_node *node = run->visit[at].node;
            if (run->visit[at].cursor == node->input_count) {
                if (is_wanted(run, node))
                    run->visit[at].needed = true;
                for (int i = 0; i < node->input_count; i++)
                    if (node->edge[i].node && run->visit[node->edge[i].node->run_index].needed)
                        run->visit[at].needed = true;
                top--;
                continue;
            }
            struct ah_node *child = node->edge[run->visit[at].cursor++].node;
            if (!child)
                continue;
            bool seen = child->run == run;
            int index = visit_node(run, child);
            AH_TRY(index);
            run->visit[index].waiting++;
            if (!seen)
                next = index;
        }
    }
    return 0;
}

static bool before(const struct ah_run *run, int a, int b)
{
    return run->visit[a].node->sequence > run->visit[b].node->sequence;
}

static void heap_push(struct ah_run *run, int index)
{
    int at = run->heap_count++;
    while (at > 0 && before(run, index, run->heap[(at - 1) / 2])) {
        run->heap[at] = run->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    run->heap[at] = index;
}

static int heap_pop(struct ah_run *run)
{
    int top = run->heap[0], last = run->heap[--run->heap_count], at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child >= run->heap_count)
            break;
        if (child + 1 < run->heap_count && before(run, run->heap[child + 1], run->heap[child]))
            child++;
        if (!before(run, run->heap[child], last))
            break;
        run->heap[at] = run->heap[child];
        at = child;
    }
    run->heap[at] = last;
    return top;
}

static bool exclusive(const struct ah_tensor *tensor)
{
    return tensor->refs == 1 && atomic_load(&tensor->storage->refs) == 1 && !tensor->storage->release &&
           ah_tensor_is_contiguous(tensor);
}

/* Add `grad` (borrowed) to *sum, in place when nobody else can see it. */
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

static int deliver(struct ah_run *run, const struct ah_edge *edge, struct ah_tensor *grad)
{
    struct visit *visit = &run->visit[edge->node->run_index];
    if (grad && visit->needed) {
        struct ah_tensor **sum = &visit->grad[edge->output];
        bool in_place = *sum && exclusive(*sum) && !run->options->create_graph && !(*sum)->storage->channels_last;
        AH_TRY(add_to(sum, grad, in_place));
    }
    if (--visit->waiting == 0 && visit->needed)
        heap_push(run, edge->node->run_index);
    return 0;
}

static int call_hooks(struct ah_hook *hook, struct ah_tensor **grad)
{
    for (struct ah_hook *next; hook; hook = next) {
        next = hook->next;
        if (grad[hook->output])
            AH_TRY(hook->call(hook, &grad[hook->output]));
    }
    return 0;
}

static int defer_ready(struct ah_run *run, struct ah_tensor *leaf)
{
    if (run->deferred_count == run->deferred_capacity) {
        int capacity = run->deferred_capacity ? 2 * run->deferred_capacity : 64;
        struct ah_tensor **grown = realloc(run->deferred, (size_t)capacity * sizeof(struct ah_tensor *));
        if (!grown)
            return ah_fail(AH_ENOMEM, "out of memory");
        run->deferred = grown;
        run->deferred_capacity = capacity;
    }
    run->deferred[run->deferred_count++] = ah_tensor_retain(leaf);
    return 0;
}

static struct ah_run *outermost;

/* grad of a leaf += what arrived; steals the tensor where it can. */
static int accumulate(struct ah_run *run, struct ah_tensor *leaf, struct ah_tensor **arrived)
{
    struct ah_grad_meta *meta = leaf->grad;
    AH_TRY(call_hooks(meta->hooks, arrived));
    struct ah_tensor *grad = *arrived;
    if (!grad)
        return 0;
    if (meta->slot) {
        if (run->options->create_graph) {
            return ah_fail(AH_ESTATE, "backward: create_graph cannot write into a prepared parameter's gradient; "
                           "use accelhost.autograd.grad");
        }
        struct ah_tensor *out;
        int count;
        const struct ah_value args[] = {AH_T(meta->slot), AH_T(grad)};
        if (*meta->has_grad)
            AH_TRY(ah_op_call(AH_OP_add, args, 2, true, &out, &count));
        else
            AH_TRY(ah_op_call(AH_OP_copy_, args, 2, false, &out, &count));
        ah_tensor_release(out);
        *meta->has_grad = true;
        if (!meta->ready)
            return 0;
        if (outermost->defer || depth > 1)
            return defer_ready(outermost, leaf);
        meta->ready(meta->ready_context, meta->ready_index);
        return 0;
    }
    if (meta->grad) {
        bool in_place = !run->options->create_graph;
        return add_to(&meta->grad, grad, in_place);
    }
    AH_TRY(ah_tensor_row_major(grad));
    if (run->options->create_graph || exclusive(grad)) {
        meta->grad = ah_tensor_retain(grad);
        return 0;
    }
    return ah_op1(AH_OP_clone, &meta->grad, AH_T(grad));
}

static int check_saved(const struct ah_node *node, const struct ah_saved *saved, const char *what, int index)
{
    if (!saved->tensor || saved->tensor->storage->version == saved->version)
        return 0;
    return ah_fail(AH_ESTATE,
                   "backward of %s: %s %d %s was changed in place after it was saved (version %u then, %u now)",
                   node->op->name, what, index, ah_shape(saved->tensor), saved->version,
                   saved->tensor->storage->version);
}

static int check_node(const struct ah_node *node)
{
    if (node->consumed) {
        return ah_fail(AH_ESTATE, "backward of %s: the graph was already used by a backward, which freed what it "
                       "saved; pass retain_graph = true to the first one", ah_node_name(node));
    }
    for (int i = 0; node->op && i < node->op->param_count; i++)
        AH_TRY(check_saved(node, &node->saved_arg[i], "argument", i + 1));
    for (int i = 0; i < AH_MAX_OUTS; i++)
        if (node->saved_out[i].tensor)
            AH_TRY(check_saved(node, &node->saved_out[i], "result", i + 1));
    return 0;
}

int ah_run_rule(struct ah_node *node, struct ah_tensor **grad_out, struct ah_tensor **grad_in)
{
    int inputs = node->input_count;
    for (int i = 0; i < inputs; i++)
        grad_in[i] = NULL;
    AH_TRY(check_node(node));
    struct ah_rule rule;
    bool needs_small[32];
    bool *needs = inputs <= 32 ? needs_small : malloc((size_t)inputs);
    struct ah_tensor *saved_out[AH_MAX_OUTS];
    if (!needs)
        return ah_fail(AH_ENOMEM, "out of memory");
    for (int i = 0; i < inputs; i++)
        needs[i] = node->edge[i].node != NULL;
    rule.node = node;
    rule.arg = node->arg;
    rule.state = node->state;
    rule.extra = node->extra;
    rule.out = saved_out;
    rule.grad_out = grad_out;
    rule.grad_in = grad_in;
    rule.needs = needs;
    rule.input_count = inputs;
    rule.output_count = node->output_count;
    rule.status = 0;
    rule.temp = rule.own_temp;
    rule.temp_count = 0;
    rule.temp_room = AH_RULE_TEMPS;
    for (int k = 0; k < AH_MAX_OUTS; k++) {
        saved_out[k] = node->saved_out[k].tensor;
        if (saved_out[k] && ah_grad_enabled) {
            /* For a second derivative the saved result must be seen as this node's result again. */
            struct ah_tensor *out;
            rule.status = ah_tensor_view(&out, saved_out[k], saved_out[k]->size, saved_out[k]->stride,
                                         saved_out[k]->ndim, saved_out[k]->offset);
            if (rule.status < 0)
                break;
            saved_out[k] = ah_rule_keep(&rule, out);
            struct ah_grad_meta *meta = ah_grad_meta(out);
            if (meta) {
                ah_node_retain(node);
                meta->fn = node;
                meta->output = k;
            }
        }
    }
    int status = rule.status < 0 ? rule.status : node->class->run(node, &rule);
    if (status == 0)
        status = rule.status;
    for (int i = 0; i < inputs; i++) {
        if (status < 0 || !needs[i])
            grad_in[i] = NULL;
        ah_tensor_retain(grad_in[i]);
    }
    for (int i = 0; i < rule.temp_count; i++)
        ah_tensor_release(rule.temp[i]);
    if (rule.temp != rule.own_temp)
        free(rule.temp);
    if (needs != needs_small)
        free(needs);
    return status;
}

static bool rule_records(const struct ah_tensor *grad)
{
    return ah_requires_grad(grad);
}

/* With create_graph every result must know its own derivative; a fused kernel without a rule does not. */
static int check_second(const struct ah_node *node, struct ah_tensor **grad_out, struct ah_tensor **grad_in)
{
    bool expected = false;
    for (int k = 0; k < node->output_count; k++)
        expected = expected || (grad_out[k] && rule_records(grad_out[k]));
    if (!expected || !node->op)
        return 0;
    for (int i = 0; i < node->input_count; i++) {
        if (grad_in[i] && !rule_records(grad_in[i])) {
            return ah_fail(AH_ENOTIMPL, "backward of %s: its second derivative is not implemented",
                           ah_node_name(node));
        }
    }
    return 0;
}

static int check_shape(const struct ah_node *node, int i, const struct ah_tensor *grad)
{
    const struct ah_input_meta *meta = &node->input[i];
    bool same = grad->ndim == meta->ndim;
    for (int d = 0; same && d < meta->ndim; d++)
        same = grad->size[d] == meta->size[d];
    if (same)
        return 0;
    return ah_fail(AH_EINVAL, "backward of %s: the gradient of input %d has shape %s, expected %s",
                   ah_node_name(node), i + 1, ah_shape(grad), ah_shape_text(meta->size, meta->ndim));
}

static void capture(struct ah_run *run, const struct visit *visit)
{
    for (int i = 0; i < run->wanted_count; i++)
        if (run->wanted[i].node == visit->node && !run->captured[i])
            run->captured[i] = ah_tensor_retain(visit->grad[run->wanted[i].output]);
}

static int run_node(struct ah_run *run, int index)
{
    struct visit *visit = &run->visit[index];
    struct ah_node *node = visit->node;
    bool leaf = node->class == &ah_accumulate_class;
    if (!leaf)
        AH_TRY(call_hooks(node->hooks, visit->grad));
    if (run->wanted)
        capture(run, visit);
    if (leaf)
        return run->wanted ? 0 : accumulate(run, node->context, &visit->grad[0]);

    struct ah_tensor *in_small[32];
    int inputs = node->input_count, status;
    struct ah_tensor **grad_in = inputs <= 32 ? in_small : calloc((size_t)inputs, sizeof *grad_in);
    if (!grad_in)
        return ah_fail(AH_ENOMEM, "out of memory");
    bool any = false, below = false;
    for (int k = 0; k < node->output_count; k++)
        any = any || visit->grad[k];
    for (int i = 0; i < inputs; i++)
        below = below || (node->edge[i].node && run->visit[node->edge[i].node->run_index].needed);
    any = any && below; /* a captured input may have nothing of interest behind it */
    if (any) {
        status = ah_run_rule(node, visit->grad, grad_in);
        if (status == 0 && run->options->create_graph)
            status = check_second(node, visit->grad, grad_in);
    } else {
        for (int i = 0; i < inputs; i++)
            grad_in[i] = NULL;
        status = 0;
    }
    if (status < 0) {
        for (int i = 0; any && i < inputs; i++)
            ah_tensor_release(grad_in[i]);
        goto out;
    }
    visit = &run->visit[index];
    for (int k = 0; k < node->output_count; k++) {
        ah_tensor_release(visit->grad[k]);
        visit->grad[k] = NULL;
    }
    if (!run->options->retain_graph && !run->options->create_graph) {
        ah_node_drop_saved(node);
        node->consumed = true;
    }
    for (int i = 0; i < inputs; i++) {
        if (node->edge[i].node) {
            if (status == 0 && grad_in[i])
                status = check_shape(node, i, grad_in[i]);
            struct ah_tensor *cast = NULL;
            if (status == 0 && grad_in[i] && grad_in[i]->dtype != node->input[i].dtype)
                status = ah_op1(AH_OP_to, &cast, AH_T(grad_in[i]), AH_D(node->input[i].dtype));
            if (cast) {
                ah_tensor_release(grad_in[i]);
                grad_in[i] = cast;
            }
            /* Ours alone from here on: the sum may then be formed in place. */
            if (status == 0)
                status = deliver(run, &node->edge[i], grad_in[i]);
        }
        ah_tensor_release(grad_in[i]);
    }
out:
    if (grad_in != in_small)
        free(grad_in);
    return status;
}

static int seed_roots(struct ah_run *run, struct ah_tensor **roots, struct ah_tensor **grads, int count,
                      struct ah_node **owned)
{
    for (int i = 0; i < count; i++) {
        struct ah_edge edge;
        AH_TRY(ah_gradient_edge(roots[i], &edge, &owned[i]));
        if (!edge.node)
            return ah_fail(AH_EINVAL, "backward: the tensor does not require grad and has no history");
        bool seen = edge.node->run == run;
        int index = visit_node(run, edge.node);
        AH_TRY(index);
        run->visit[index].waiting++; /* our own hold, let go when all roots are seeded */
        if (!seen)
            AH_TRY(discover(run, index));
    }
    for (int i = 0; i < count; i++) {
        struct ah_edge edge;
        struct ah_node *made;
        AH_TRY(ah_gradient_edge(roots[i], &edge, &made));
        struct ah_tensor *grad = grads ? grads[i] : NULL, *one = NULL;
        if (!grad) {
            if (roots[i]->numel != 1) {
                return ah_fail(AH_EINVAL, "backward: a gradient is needed for a tensor of shape %s (only scalars "
                               "have one implicitly)", ah_shape(roots[i]));
            }
            AH_TRY(ah_op1(AH_OP_ones_like, &one, AH_T(roots[i])));
            grad = one;
        } else if (!ah_same_shape(grad, roots[i])) {
            return ah_fail(AH_EINVAL, "backward: the gradient has shape %s, the tensor %s", ah_shape(grad),
                           ah_shape(roots[i]));
        }
        struct visit *visit = &run->visit[edge.node->run_index];
        int status = add_to(&visit->grad[edge.output], grad, false);
        ah_tensor_release(one);
        AH_TRY(status);
    }
    run->heap = malloc((size_t)(run->count ? run->count : 1) * sizeof *run->heap);
    if (!run->heap)
        return ah_fail(AH_ENOMEM, "out of memory");
    for (int i = 0; i < count; i++) {
        struct ah_edge edge;
        struct ah_node *made;
        AH_TRY(ah_gradient_edge(roots[i], &edge, &made));
        struct visit *visit = &run->visit[edge.node->run_index];
        if (--visit->waiting == 0)
            heap_push(run, edge.node->run_index);
    }
    return 0;
}

static int execute(struct ah_run *run, struct ah_tensor **roots, struct ah_tensor **grads, int count)
{
    struct ah_node **owned = calloc((size_t)(count ? count : 1), sizeof *owned);
    if (!owned)
        return ah_fail(AH_ENOMEM, "out of memory");
    bool enabled = ah_grad_enabled;
    ah_grad_enabled = run->options->create_graph;
    struct ah_run *previous = outermost;
    if (depth++ == 0)
        outermost = run;
    int status = seed_roots(run, roots, grads, count, owned);
    while (status == 0 && run->heap_count > 0) {
        status = run_node(run, heap_pop(run));
        if (ah_engine_progress)
            ah_engine_progress();
    }
    depth--;
    if (depth == 0 && status == 0) {
        for (int i = 0; i < run->deferred_count; i++) {
            struct ah_grad_meta *meta = run->deferred[i]->grad;
            bool again = false; /* a leaf may have been reached several times: tell once */
            for (int k = i + 1; k < run->deferred_count && !again; k++)
                again = run->deferred[k] == run->deferred[i];
            if (!again && meta->ready)
                meta->ready(meta->ready_context, meta->ready_index);
        }
    }
    outermost = previous;
    ah_grad_enabled = enabled;
    for (int i = 0; i < count; i++)
        ah_node_release(owned[i]);
    free(owned);
    return status;
}

int ah_backward(struct ah_tensor **roots, struct ah_tensor **grads, int count,
                const struct ah_backward_options *options)
{
    struct ah_run run = {.options = options};
    int status = execute(&run, roots, grads, count);
    run_free(&run);
    return status;
}

int ah_gradients(struct ah_tensor **roots, struct ah_tensor **grads, int count, struct ah_tensor **inputs,
                 int input_count, struct ah_tensor **out, const struct ah_backward_options *options)
{
    size_t slots = (size_t)(input_count ? input_count : 1);
    struct ah_run run = {.options = options, .wanted_count = input_count};
    struct ah_node **owned = calloc(slots, sizeof(struct ah_node *));
    run.wanted = calloc(slots, sizeof *run.wanted);
    run.captured = calloc(slots, sizeof *run.captured);
    int status = 0;
    if (!owned || !run.wanted || !run.captured) {
        status = ah_fail(AH_ENOMEM, "out of memory");
        goto out;
    }
    for (int i = 0; i < input_count; i++) {
        AH_TRYGO(ah_gradient_edge(inputs[i], &run.wanted[i], &owned[i]), out);
        if (!run.wanted[i].node) {
            status = ah_fail(AH_EINVAL, "grad: input %d does not require grad", i + 1);
            goto out;
        }
    }
    AH_TRYGO(execute(&run, roots, grads, count), out);
    for (int i = 0; i < input_count && !options->allow_unused; i++) {
        if (!run.captured[i]) {
            status = ah_fail(AH_EINVAL, "grad: input %d was not used by the outputs (allow_unused = true gives false)",
                             i + 1);
            goto out;
        }
    }
    for (int i = 0; i < input_count; i++) {
        out[i] = run.captured[i];
        run.captured[i] = NULL;
    }
out:
    for (int i = 0; i < input_count; i++) {
        if (run.captured)
            ah_tensor_release(run.captured[i]);
        if (owned)
            ah_node_release(owned[i]);
    }
    free(owned);
    free(run.wanted);
    free(run.captured);
    run_free(&run);
    return status;
}
