/* Nodes: made in one block with their edges, arguments and saved tensors; released iteratively. Invariant: freeing
 * never recurses along the graph. */
#include "autograd/graph/node.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/graph/anomaly.h"
#include "base/memory/alloc.h"

static uint64_t next_sequence;

/* Freed nodes by size, in steps of NODE_STEP bytes: a collection frees those of many steps, and as many are made after
 * it. calloc, which does not use glibc's cache of freed blocks, would search the heap for each. */
enum { NODE_STEP = 128, NODE_SIZES = 16, MOST_KEPT = 1024 };
static struct ah_node *kept_nodes[NODE_SIZES];
static int kept_count;

/* Zeroed; NULL when out of memory. */
static struct ah_node *node_allocate(size_t size)
{
    size_t class = (size + NODE_STEP - 1) / NODE_STEP;
    struct ah_node *node;
    if (class >= NODE_SIZES) {
        class = 0;
        node = calloc(1, size);
    } else if (kept_nodes[class]) {
        node = kept_nodes[class];
        kept_nodes[class] = node->next_freed;
        kept_count--;
        memset(node, 0, size);
    } else {
        node = calloc(1, class * NODE_STEP);
    }
    if (node)
        node->size_class = (uint8_t)class;
    return node;
}

static void node_release_memory(struct ah_node *node)
{
    int class = node->size_class;
    if (!AH_KEEPS_FREED || class == 0 || kept_count == MOST_KEPT) {
        free(node);
        return;
    }
    node->next_freed = kept_nodes[class];
    kept_nodes[class] = node;
    kept_count++;
}

uint64_t ah_next_sequence(void)
{
    return next_sequence;
}

struct ah_node *ah_node_new(const struct ah_node_class *class, const struct ah_op *op, int inputs, int outputs)
{
    int params = op ? op->param_count : 0;
    size_t size = sizeof(struct ah_node) + (size_t)inputs * (sizeof(struct ah_edge) + sizeof(struct ah_input_meta)) +
                  (size_t)outputs * sizeof(struct ah_input_meta) +
                  (size_t)params * (sizeof(struct ah_value) + sizeof(struct ah_saved));
    struct ah_node *node = node_allocate(size);
    if (!node)
        return NULL;
    char *at = (char *)(node + 1);
    node->edge = (struct ah_edge *)(void *)at;
    at += (size_t)inputs * sizeof(struct ah_edge);
    node->input = (struct ah_input_meta *)(void *)at;
    at += (size_t)inputs * sizeof(struct ah_input_meta);
    node->output = (struct ah_input_meta *)(void *)at;
    at += (size_t)outputs * sizeof(struct ah_input_meta);
    node->arg = (struct ah_value *)(void *)at;
    at += (size_t)params * sizeof(struct ah_value);
    node->saved_arg = (struct ah_saved *)(void *)at;
    node->refs = 1;
    node->class = class;
    node->op = op;
    node->input_count = inputs;
    node->output_count = outputs;
    node->sequence = next_sequence++;
    if (ah_anomaly_mark(node) < 0) {
        node_release_memory(node);
        return NULL;
    }
    return node;
}

void ah_node_retain(struct ah_node *node)
{
    if (node)
        node->refs++;
}

static bool node_drop(struct ah_tensor **tensor)
{
    if (!*tensor)
        return false;
    ah_tensor_release(*tensor);
    *tensor = NULL;
    return true;
}

bool ah_node_drop_saved(struct ah_node *node)
{
    if (node->consumed)
        return true;
    bool kept = node->class->drop_saved != NULL;
    for (int i = 0; i < AH_MAX_EXTRA; i++)
        kept |= node_drop(&node->extra[i]);
    for (int i = 0; i < AH_MAX_OUTS; i++)
        kept |= node_drop(&node->saved_out[i].tensor);
    for (int i = 0; node->op && i < node->op->param_count; i++) {
        struct ah_value *arg = &node->arg[i];
        kept |= node->saved_arg[i].recompute != NULL;
        ah_recompute_release(node->saved_arg[i].recompute);
        node->saved_arg[i].recompute = NULL;
        kept |= node_drop(&node->saved_arg[i].tensor) || arg->kind == AH_LIST || arg->kind == AH_STRING;
        if (arg->kind == AH_LIST) {
            for (int k = 0; k < arg->list.count; k++)
                ah_tensor_release(arg->list.item[k]);
            free(arg->list.item);
            arg->list.item = NULL;
            arg->list.count = 0;
        } else if (arg->kind == AH_STRING) {
            free((char *)(uintptr_t)arg->string);
            arg->string = NULL;
        }
    }
    if (node->class->drop_saved)
        node->class->drop_saved(node);
    return kept;
}

static void node_free(struct ah_node *node)
{
    ah_node_drop_saved(node);
    ah_free_hooks(&node->hooks);
    for (int i = 0; i < node->input_count; i++)
        ah_node_release(node->edge[i].node);
    if (node->class->free)
        node->class->free(node);
    free(node->site);
    node_release_memory(node);
}

/* A chain of 100,000 nodes must not recurse: nested releases only queue nodes, which the outermost one frees. */
void ah_node_release(struct ah_node *node)
{
    static struct ah_node *queue;
    static bool draining;
    if (!node || --node->refs > 0)
        return;
    node->next_freed = queue;
    queue = node;
    if (draining)
        return;
    draining = true;
    while (queue) {
        struct ah_node *first = queue;
        queue = first->next_freed;
        node_free(first);
    }
    draining = false;
}

const char *ah_node_name(const struct ah_node *node)
{
    return node->class->name ? node->class->name : node->op->name;
}

void ah_describe(struct ah_input_meta *meta, const struct ah_tensor *tensor)
{
    meta->ndim = tensor->ndim;
    meta->dtype = tensor->dtype;
    meta->device = tensor->storage->device;
    for (int d = 0; d < tensor->ndim; d++)
        meta->size[d] = tensor->size[d];
}

/* Same window on the same storage, with no history: keeps values without keeping the graph. */
int ah_alias(struct ah_tensor **out, const struct ah_tensor *tensor)
{
    return ah_tensor_view(out, tensor, tensor->size, tensor->stride, tensor->ndim, tensor->offset);
}

bool ah_exclusive(const struct ah_tensor *tensor)
{
    return tensor->refs == 1 && atomic_load(&tensor->storage->refs) == 1 && !tensor->storage->release &&
           ah_tensor_is_contiguous(tensor);
}

int ah_node_add_input(struct ah_node *node, int *index, struct ah_tensor *tensor)
{
    struct ah_node *owned;
    AH_TRY(ah_gradient_edge(tensor, &node->edge[*index], &owned));
    if (!owned)
        ah_node_retain(node->edge[*index].node);
    ah_describe(&node->input[*index], tensor);
    ++*index;
    return 0;
}
