/* Attention as a graph of cuDNN's operations, in the one form that its fused engines recognise: scores, scale, causal
 * mask, softmax, product with the values; backward the chain of the gradients. Knows no device, so that a test asks the
 * library itself whether it supports the graph (spec/device/cuda_attention_dnn_check.c). */
#pragma once

#include "cuda/vendor/dnn_plan.h"

/* The tensors that have memory. AH_SDPA_LSE, AH_SDPA_DELTA: float32, row-major (batch, heads,
 * queries); the latter is scratch memory of the backward graph, and AH_SDPA_SUM is that of an unordered one: float32,
 * row-major (batch, heads, queries, width). From AH_SDPA_SCALE on they are single floats passed by value. */
enum ah_sdpa_id {
    AH_SDPA_QUERY,
    AH_SDPA_KEY,
    AH_SDPA_VALUE,
    AH_SDPA_OUT,
    AH_SDPA_GRAD,
    AH_SDPA_GRAD_QUERY,
    AH_SDPA_GRAD_KEY,
    AH_SDPA_GRAD_VALUE,
    AH_SDPA_LSE,
    AH_SDPA_DELTA,
    AH_SDPA_SUM,
    AH_SDPA_SCALE,
    AH_SDPA_ONE,    /* 1 */
    AH_SDPA_LOWEST, /* -infinity */
    AH_SDPA_IDS,
};
enum { AH_SDPA_ROWS = AH_SDPA_LSE };
/* As cuDNN knows it. */
#define AH_SDPA_UNIQUE(id) ((int64_t)(id) + 1)

/* Strides in elements; items of a row are contiguous. */
struct ah_sdpa_rows {
    int64_t batch, head, token;
};

/* The computation of a graph; without padding, so that two are compared as bytes. `ordered`: the gradient of the query
 * is added up in a fixed order, which needs 2 bytes of workspace per score; else by atomic additions. */
struct ah_sdpa {
    int64_t batch, heads, groups, queries, keys; /* groups: heads of key and value */
    int64_t width, value_width;
    int64_t lse_batch, lse_head;            /* forward: strides of AH_SDPA_LSE */
    struct ah_sdpa_rows rows[AH_SDPA_ROWS]; /* by id */
    int32_t dtype;                          /* CUDNN_DATA_HALF or CUDNN_DATA_BFLOAT16 */
    int32_t backward, causal, ordered;
};

/* A graph and the descriptors that it is made of. */
enum { AH_SDPA_PARTS = 96 };
struct ah_sdpa_graph {
    cudnnBackendDescriptor_t part[AH_SDPA_PARTS];
    int count;
    cudnnBackendDescriptor_t itself;
};

/* Build and finalize a graph; the caller also drops a partial one after a failure. */
void ah_sdpa_graph_make(struct ah_dnn_work *work, cudnnHandle_t handle, const struct ah_sdpa *sdpa,
                        struct ah_sdpa_graph *out);
void ah_sdpa_graph_drop(const struct ah_cudnn *dnn, struct ah_sdpa_graph *graph);
