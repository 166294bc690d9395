/* The operations and their tensors. Keys are read as (batch, heads, width, keys), by strides alone; a tensor without
 * memory is virtual, of float32 unless it is a factor of a product. */
#include "cuda/ops/linear/attention_graph.h"

#include <string.h>

enum { OPERATIONS = 32, FIRST_VIRTUAL = 100 };

struct build {
    struct ah_dnn_work *work;
    const struct ah_sdpa *a;
    struct ah_sdpa_graph *graph;
    int64_t next; /* id of the next virtual tensor */
    cudnnBackendDescriptor_t op[OPERATIONS];
    int op_count;
};

/* A tensor, with the sizes and strides for views of it. */
struct node {
    cudnnBackendDescriptor_t at;
    int64_t size[4], stride[4];
};

enum memory { STORED, VIRTUAL, VALUE };

/* A new descriptor of the graph; NULL after a failure. */
static cudnnBackendDescriptor_t graph_part(struct build *b, int type)
{
    cudnnBackendDescriptor_t made;
    if (b->graph->count == AH_SDPA_PARTS)
        b->work->status = CUDNN_STATUS_NOT_SUPPORTED;
    ah_dnn_create(b->work, type, &made);
    if (made)
        b->graph->part[b->graph->count++] = made;
    return made;
}

static void graph_operation(struct build *b, cudnnBackendDescriptor_t op)
{
    ah_dnn_finish(b->work, op);
    if (b->op_count < OPERATIONS)
        b->op[b->op_count++] = op;
    else
        b->work->status = CUDNN_STATUS_NOT_SUPPORTED;
}

static void graph_set_int(struct build *b, cudnnBackendDescriptor_t at, int name, int type, int value)
{
    ah_dnn_set(b->work, at, name, type, 1, &value);
}

static struct node graph_tensor(struct build *b, int64_t id, int type, enum memory memory, const int64_t *size,
                                const int64_t *stride)
{
    struct node node = {.at = graph_part(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    int64_t alignment = 16, unique = AH_SDPA_UNIQUE(id);
    bool yes = true;
    memcpy(node.size, size, sizeof node.size);
    memcpy(node.stride, stride, sizeof node.stride);
    graph_set_int(b, node.at, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    ah_dnn_set(b->work, node.at, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    ah_dnn_set(b->work, node.at, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    ah_dnn_set(b->work, node.at, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &unique);
    ah_dnn_set(b->work, node.at, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (memory == VIRTUAL)
        ah_dnn_set(b->work, node.at, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (memory == VALUE)
        ah_dnn_set(b->work, node.at, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    ah_dnn_finish(b->work, node.at);
    return node;
}

/* Row-major (batch, heads of the query, rows, width). */
static struct node graph_dense(struct build *b, int64_t id, int type, enum memory memory, int64_t rows, int64_t width)
{
    const int64_t size[] = {b->a->batch, b->a->heads, rows, width};
    const int64_t stride[] = {size[1] * rows * width, rows * width, width, 1};
    return graph_tensor(b, id, type, memory, size, stride);
}

static struct node graph_scores(struct build *b, int type)
{
    return graph_dense(b, b->next++, type, VIRTUAL, b->a->queries, b->a->keys);
}

/* A number per query. */
static struct node graph_column(struct build *b)
{
    return graph_dense(b, b->next++, CUDNN_DATA_FLOAT, VIRTUAL, b->a->queries, 1);
}

static struct node graph_value(struct build *b, enum ah_sdpa_id id)
{
    const int64_t ones[] = {1, 1, 1, 1};
    return graph_tensor(b, id, CUDNN_DATA_FLOAT, VALUE, ones, ones);
}

/* Rows of a tensor in memory; `turned`: as columns. */
static struct node graph_rows(struct build *b, enum ah_sdpa_id id, bool turned)
{
    const struct ah_sdpa *a = b->a;
    bool of_keys = id == AH_SDPA_KEY || id == AH_SDPA_VALUE || id == AH_SDPA_GRAD_KEY || id == AH_SDPA_GRAD_VALUE;
    bool of_values = id == AH_SDPA_VALUE || id == AH_SDPA_OUT || id == AH_SDPA_GRAD || id == AH_SDPA_GRAD_VALUE;
    int64_t count = of_keys ? a->keys : a->queries, width = of_values ? a->value_width : a->width;
    int64_t token = a->rows[id].token;
    const int64_t size[] = {a->batch, of_keys ? a->groups : a->heads, turned ? width : count, turned ? count : width};
    const int64_t stride[] = {a->rows[id].batch, a->rows[id].head, turned ? 1 : token, turned ? token : 1};
    return graph_tensor(b, id, a->dtype, STORED, size, stride);
}

static void graph_multiply(struct build *b, struct node x, struct node y, struct node out)
{
    cudnnBackendDescriptor_t how = graph_part(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    graph_set_int(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    ah_dnn_finish(b->work, how);
    cudnnBackendDescriptor_t op = graph_part(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x.at);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y.at);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out.at);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    graph_operation(b, op);
}

/* The attributes of a pointwise operation. */
struct pointwise {
    int mode, precision;
    int64_t axis; /* of an index; 0: none */
    cudnnBackendDescriptor_t other, mask;
};

static struct node graph_pointwise(struct build *b, const struct pointwise *p, struct node x, struct node out)
{
    const float one = 1;
    cudnnBackendDescriptor_t how = graph_part(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    graph_set_int(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, p->mode);
    graph_set_int(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, p->precision);
    if (p->axis)
        ah_dnn_set(b->work, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    ah_dnn_finish(b->work, how);
    cudnnBackendDescriptor_t op = graph_part(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.at);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.at);
    if (p->other)
        ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->other);
    if (p->mask)
        ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->mask);
    ah_dnn_set(b->work, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    ah_dnn_set(b->work, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    graph_operation(b, op);
    return out;
}

static struct node graph_apply(struct build *b, int mode, struct node x, struct node out)
{
    const struct pointwise p = {.mode = mode, .precision = CUDNN_DATA_FLOAT};
    return graph_pointwise(b, &p, x, out);
}

static struct node graph_combine(struct build *b, int mode, struct node x, struct node y, struct node out)
{
    const struct pointwise p = {.mode = mode, .precision = CUDNN_DATA_FLOAT, .other = y.at};
    return graph_pointwise(b, &p, x, out);
}

/* Sums or maxima along the dims in which the output is smaller. */
static struct node graph_reduce(struct build *b, int operator, struct node x, struct node out)
{
    bool ordered = true;
    cudnnBackendDescriptor_t how = graph_part(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    graph_set_int(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operator);
    graph_set_int(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    ah_dnn_set(b->work, how, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1, &ordered);
    ah_dnn_finish(b->work, how);
    cudnnBackendDescriptor_t op = graph_part(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.at);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out.at);
    graph_operation(b, op);
    return out;
}

/* The two inner dims exchanged, as a factor of a product. */
static struct node graph_turn(struct build *b, struct node x)
{
    const int64_t size[] = {x.size[0], x.size[1], x.size[3], x.size[2]};
    const int64_t stride[] = {x.stride[0], x.stride[1], x.stride[3], x.stride[2]};
    struct node out = graph_tensor(b, b->next++, b->a->dtype, VIRTUAL, size, stride);
    cudnnBackendDescriptor_t op = graph_part(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.at);
    ah_dnn_set_other(b->work, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out.at);
    graph_operation(b, op);
    return out;
}

/* Scores where the query's index is at least the key's, -infinity elsewhere. */
static struct node graph_mask_causally(struct build *b, struct node x)
{
    const struct pointwise of_query = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, NULL, NULL};
    const struct pointwise of_key = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, NULL, NULL};
    struct node lowest = graph_value(b, AH_SDPA_LOWEST);
    struct node query = graph_pointwise(b, &of_query, x, graph_scores(b, CUDNN_DATA_INT32));
    struct node key = graph_pointwise(b, &of_key, x, graph_scores(b, CUDNN_DATA_INT32));
    const struct pointwise reaches = {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, key.at, NULL};
    struct node mask = graph_pointwise(b, &reaches, query, graph_scores(b, CUDNN_DATA_BOOLEAN));
    const struct pointwise select = {CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, lowest.at, mask.at};
    return graph_pointwise(b, &select, x, graph_scores(b, CUDNN_DATA_FLOAT));
}

static void graph_forward(struct build *b)
{
    const struct ah_sdpa *a = b->a;
    const int64_t size[] = {a->batch, a->heads, a->queries, 1}, stride[] = {a->lse_batch, a->lse_head, 1, 1};
    struct node lse = graph_tensor(b, AH_SDPA_LSE, CUDNN_DATA_FLOAT, STORED, size, stride);
    struct node scale = graph_value(b, AH_SDPA_SCALE), x = graph_scores(b, CUDNN_DATA_FLOAT);
    graph_multiply(b, graph_rows(b, AH_SDPA_QUERY, false), graph_rows(b, AH_SDPA_KEY, true), x);
    x = graph_combine(b, CUDNN_POINTWISE_MUL, x, scale, graph_scores(b, CUDNN_DATA_FLOAT));
    if (a->causal)
        x = graph_mask_causally(b, x);
    struct node largest = graph_reduce(b, CUDNN_REDUCE_TENSOR_MAX, x, graph_column(b));
    x = graph_combine(b, CUDNN_POINTWISE_SUB, x, largest, graph_scores(b, CUDNN_DATA_FLOAT));
    x = graph_apply(b, CUDNN_POINTWISE_EXP, x, graph_scores(b, CUDNN_DATA_FLOAT));
    struct node sum = graph_reduce(b, CUDNN_REDUCE_TENSOR_ADD, x, graph_column(b));
    struct node logarithm = graph_apply(b, CUDNN_POINTWISE_LOG, sum, graph_column(b));
    graph_combine(b, CUDNN_POINTWISE_ADD, largest, logarithm, lse);
    x = graph_combine(b, CUDNN_POINTWISE_DIV, x, sum, graph_scores(b, a->dtype));
    graph_multiply(b, x, graph_rows(b, AH_SDPA_VALUE, false), graph_rows(b, AH_SDPA_OUT, false));
}

/* A gradient of keys or values: of each head of the query, added up over those that share one. */
static void graph_multiply_to_group(struct build *b, struct node x, struct node y, struct node out)
{
    if (b->a->heads == b->a->groups) {
        graph_multiply(b, x, y, out);
        return;
    }
    struct node each = graph_dense(b, b->next++, b->a->dtype, VIRTUAL, out.size[2], out.size[3]);
    graph_multiply(b, x, y, each);
    graph_reduce(b, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

/* The query's gradient: of the scores' one and the keys. */
static void graph_query_gradient(struct build *b, struct node step, struct node key)
{
    struct node out = graph_rows(b, AH_SDPA_GRAD_QUERY, false), keys = graph_turn(b, key);
    if (b->a->ordered) {
        graph_multiply(b, step, keys, out);
        return;
    }
    struct node sum = graph_dense(b, AH_SDPA_SUM, CUDNN_DATA_FLOAT, STORED, b->a->queries, b->a->width);
    graph_multiply(b, step, keys, sum);
    graph_apply(b, CUDNN_POINTWISE_IDENTITY, sum, out);
}

static void graph_backward(struct build *b)
{
    const struct ah_sdpa *a = b->a;
    struct node query = graph_rows(b, AH_SDPA_QUERY, false), key = graph_rows(b, AH_SDPA_KEY, true);
    struct node grad = graph_rows(b, AH_SDPA_GRAD, false), scale = graph_value(b, AH_SDPA_SCALE);
    struct node lse = graph_dense(b, AH_SDPA_LSE, CUDNN_DATA_FLOAT, STORED, a->queries, 1);
    /* delta: the sum over a row of output times its gradient. */
    struct node x = graph_dense(b, b->next++, CUDNN_DATA_FLOAT, VIRTUAL, a->queries, a->value_width);
    x = graph_reduce(b, CUDNN_REDUCE_TENSOR_ADD,
                     graph_combine(b, CUDNN_POINTWISE_MUL, grad, graph_rows(b, AH_SDPA_OUT, false), x),
                     graph_column(b));
    struct node delta = graph_combine(b, CUDNN_POINTWISE_MUL, x, graph_value(b, AH_SDPA_ONE),
                                      graph_dense(b, AH_SDPA_DELTA, CUDNN_DATA_FLOAT, STORED, a->queries, 1));
    /* The weights again. */
    x = graph_scores(b, CUDNN_DATA_FLOAT);
    graph_multiply(b, query, key, x);
    x = graph_combine(b, CUDNN_POINTWISE_MUL, x, scale, graph_scores(b, CUDNN_DATA_FLOAT));
    x = graph_combine(b, CUDNN_POINTWISE_SUB, x, lse, graph_scores(b, CUDNN_DATA_FLOAT));
    if (a->causal)
        x = graph_mask_causally(b, x);
    struct node weights = graph_apply(b, CUDNN_POINTWISE_EXP, x, graph_scores(b, CUDNN_DATA_FLOAT));
    graph_multiply_to_group(b, graph_turn(b, weights), grad, graph_rows(b, AH_SDPA_GRAD_VALUE, false));
    /* The gradient of the scores. */
    x = graph_scores(b, CUDNN_DATA_FLOAT);
    graph_multiply(b, grad, graph_rows(b, AH_SDPA_VALUE, true), x);
    x = graph_combine(b, CUDNN_POINTWISE_SUB, x, delta, graph_scores(b, CUDNN_DATA_FLOAT));
    x = graph_combine(b, CUDNN_POINTWISE_MUL, x, weights, graph_scores(b, CUDNN_DATA_FLOAT));
    x = graph_combine(b, CUDNN_POINTWISE_MUL, x, scale, graph_scores(b, CUDNN_DATA_FLOAT));
    graph_multiply_to_group(b, graph_turn(b, x), query, graph_rows(b, AH_SDPA_GRAD_KEY, false));
    graph_query_gradient(b, x, key);
}

void ah_sdpa_graph_make(struct ah_dnn_work *work, cudnnHandle_t handle, const struct ah_sdpa *sdpa,
                        struct ah_sdpa_graph *out)
{
    struct build b = {.work = work, .a = sdpa, .graph = out, .next = FIRST_VIRTUAL};
    out->count = 0;
    if (sdpa->backward)
        graph_backward(&b);
    else
        graph_forward(&b);
    ah_dnn_create(work, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &out->itself);
    ah_dnn_set(work, out->itself, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b.op_count, b.op);
    if (handle)
        ah_dnn_set(work, out->itself, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    ah_dnn_finish(work, out->itself);
}

void ah_sdpa_graph_drop(const struct ah_cudnn *dnn, struct ah_sdpa_graph *graph)
{
    ah_dnn_destroy(dnn, &graph->itself);
    while (graph->count > 0)
        ah_dnn_destroy(dnn, &graph->part[--graph->count]);
}
