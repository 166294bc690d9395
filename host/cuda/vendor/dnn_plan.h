/* Shared by the plugin's uses of cuDNN's graphs: descriptors, a handle per device, and the choice of an engine.
 *
 * Lua thread only. */
#pragma once

#include "cuda/driver/api/device.h"
#include "cuda/vendor/dnn.h"

/* Descriptors under construction: after the first failure, which is kept, nothing more is done. */
struct ah_dnn_work {
    const struct ah_cudnn *dnn;
    cudnnStatus_t status;
};

/* Create a descriptor of a type (CUDNN_BACKEND_*): *out, which is returned; NULL after a failure. */
cudnnBackendDescriptor_t ah_dnn_create(struct ah_dnn_work *work, int type, cudnnBackendDescriptor_t *out);
/* Set an attribute (CUDNN_ATTR_*) to `count` values of a type (CUDNN_TYPE_*). */
void ah_dnn_set(struct ah_dnn_work *work, cudnnBackendDescriptor_t at, int name, int type, int64_t count,
                const void *values);
/* Set an attribute to another descriptor. */
void ah_dnn_set_other(struct ah_dnn_work *work, cudnnBackendDescriptor_t at, int name, cudnnBackendDescriptor_t other);
/* Finalize a descriptor. */
void ah_dnn_finish(struct ah_dnn_work *work, cudnnBackendDescriptor_t at);
/* Destroy a descriptor, if there is one, and make it NULL. */
void ah_dnn_destroy(const struct ah_cudnn *dnn, cudnnBackendDescriptor_t *at);

/* cuDNN, with a handle whose stream is the device's compute stream; NULL if it is missing or fails to open, which is
 * no error. */
const struct ah_cudnn *ah_dnn_open(struct ah_cuda_device *cuda, cudnnHandle_t *handle);
/* Destroy the handle of a device that is closed; plans with it are destroyed before. */
void ah_dnn_close(const struct ah_cuda_device *cuda);

/* An engine's configuration as an execution plan. */
struct ah_dnn_plan {
    cudnnBackendDescriptor_t config, itself;
    int64_t workspace; /* bytes */
};

/* Limits of an engine: excluded bits 1 << CUDNN_NUMERICAL_NOTE_*, and a workspace of more than `workspace` bytes. */
struct ah_dnn_limits {
    unsigned notes;
    int64_t workspace;
};

/* The first configuration that the heuristics name for a finalized graph, and after them the fallback, within the
 * limits; false if there is none. */
bool ah_dnn_choose(const struct ah_cudnn *dnn, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                   const struct ah_dnn_limits *limits, struct ah_dnn_plan *out);
void ah_dnn_drop(const struct ah_cudnn *dnn, struct ah_dnn_plan *plan);

/* Execute a plan: `count` unique ids of tensors, their addresses (of values passed by value: on the host) and the
 * workspace. */
cudnnStatus_t ah_dnn_execute(const struct ah_cudnn *dnn, cudnnHandle_t handle, const struct ah_dnn_plan *plan,
                             int64_t count, const int64_t *ids, void *const *places, void *workspace);
