/* Descriptors, handles and the choice of an engine. */
#include "cuda/vendor/dnn_plan.h"

enum { CHOICES = 32, NOTES = 16 };

static cudnnHandle_t dnn_handles[AH_CUDA_DEVICES];

cudnnBackendDescriptor_t ah_dnn_create(struct ah_dnn_work *work, int type, cudnnBackendDescriptor_t *out)
{
    *out = NULL;
    if (work->status == CUDNN_STATUS_SUCCESS)
        work->status = work->dnn->descriptor_create((cudnnBackendDescriptorType_t)type, out);
    return *out;
}

void ah_dnn_set(struct ah_dnn_work *work, cudnnBackendDescriptor_t at, int name, int type, int64_t count,
                const void *values)
{
    if (work->status == CUDNN_STATUS_SUCCESS)
        work->status = work->dnn->attribute_set(at, (cudnnBackendAttributeName_t)name,
                                                (cudnnBackendAttributeType_t)type, count, values);
}

void ah_dnn_set_other(struct ah_dnn_work *work, cudnnBackendDescriptor_t at, int name, cudnnBackendDescriptor_t other)
{
    ah_dnn_set(work, at, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

void ah_dnn_finish(struct ah_dnn_work *work, cudnnBackendDescriptor_t at)
{
    if (work->status == CUDNN_STATUS_SUCCESS)
        work->status = work->dnn->descriptor_finalize(at);
}

void ah_dnn_destroy(const struct ah_cudnn *dnn, cudnnBackendDescriptor_t *at)
{
    if (*at)
        dnn->descriptor_destroy(*at);
    *at = NULL;
}

const struct ah_cudnn *ah_dnn_open(struct ah_cuda_device *cuda, cudnnHandle_t *handle)
{
    static bool closed[AH_CUDA_DEVICES]; /* it did not open before */
    cudnnHandle_t *kept = &dnn_handles[cuda->ordinal];
    const struct ah_cudnn *dnn;
    if (closed[cuda->ordinal] || ah_cudnn_open(&dnn) < 0 || ah_cuda_enter(cuda) < 0)
        return NULL;
    if (!*kept)
        closed[cuda->ordinal] =
            dnn->create(kept) != CUDNN_STATUS_SUCCESS || dnn->set_stream(*kept, cuda->compute) != CUDNN_STATUS_SUCCESS;
    *handle = *kept;
    return closed[cuda->ordinal] ? NULL : dnn;
}

void ah_dnn_close(const struct ah_cuda_device *cuda)
{
    const struct ah_cudnn *dnn;
    if (!dnn_handles[cuda->ordinal] || ah_cudnn_open(&dnn) < 0)
        return;
    dnn->destroy(dnn_handles[cuda->ordinal]);
    dnn_handles[cuda->ordinal] = NULL;
}

/* Are this configuration's engine's notes within the limits? An engine without numerical notes is not. */
static bool plan_serves(const struct ah_cudnn *dnn, const struct ah_dnn_limits *limits, cudnnBackendDescriptor_t config)
{
    struct ah_dnn_work work = {dnn, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t engine;
    int notes[NOTES];
    int64_t count = 0, one;
    ah_dnn_create(&work, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status =
            dnn->attribute_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES,
                                         &count, notes);
    ah_dnn_destroy(dnn, &engine);
    bool good = work.status == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; good && i < count && i < NOTES; i++)
        good = !(limits->notes >> notes[i] & 1);
    return good;
}

/* Make the plan of a configuration; false when it is not to be had, or wants more memory than there may be. */
static bool plan_try(const struct ah_cudnn *dnn, cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                     const struct ah_dnn_limits *limits, struct ah_dnn_plan *plan)
{
    struct ah_dnn_work work = {dnn, CUDNN_STATUS_SUCCESS};
    int64_t one;
    if (!plan_serves(dnn, limits, config))
        return false;
    ah_dnn_create(&work, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->itself);
    ah_dnn_set(&work, plan->itself, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    ah_dnn_set_other(&work, plan->itself, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    ah_dnn_finish(&work, plan->itself);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(plan->itself, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                         &one, &plan->workspace);
    if (work.status == CUDNN_STATUS_SUCCESS && plan->workspace <= limits->workspace)
        return true;
    ah_dnn_destroy(dnn, &plan->itself);
    return false;
}

/* Choose the first supported one of a mode's proposals. */
static bool plan_choose_by(const struct ah_cudnn *dnn, cudnnHandle_t handle, cudnnBackendDescriptor_t graph, int mode,
                           const struct ah_dnn_limits *limits, struct ah_dnn_plan *plan)
{
    struct ah_dnn_work work = {dnn, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t heuristic, config[CHOICES] = {NULL};
    int64_t count = 0;
    ah_dnn_create(&work, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    ah_dnn_set_other(&work, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    ah_dnn_set(&work, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    ah_dnn_finish(&work, heuristic);
    for (int i = 0; i < CHOICES; i++)
        ah_dnn_create(&work, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         CHOICES, &count, config);
    bool found = false;
    for (int64_t i = 0; work.status == CUDNN_STATUS_SUCCESS && !found && i < count && i < CHOICES; i++) {
        found = plan_try(dnn, handle, config[i], limits, plan);
        if (found) {
            plan->config = config[i];
            config[i] = NULL;
        }
    }
    for (int i = 0; i < CHOICES; i++)
        ah_dnn_destroy(dnn, &config[i]);
    ah_dnn_destroy(dnn, &heuristic);
    return found;
}

bool ah_dnn_choose(const struct ah_cudnn *dnn, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                   const struct ah_dnn_limits *limits, struct ah_dnn_plan *out)
{
    return plan_choose_by(dnn, handle, graph, CUDNN_HEUR_MODE_A, limits, out) ||
           plan_choose_by(dnn, handle, graph, CUDNN_HEUR_MODE_FALLBACK, limits, out);
}

void ah_dnn_drop(const struct ah_cudnn *dnn, struct ah_dnn_plan *plan)
{
    ah_dnn_destroy(dnn, &plan->itself);
    ah_dnn_destroy(dnn, &plan->config);
    plan->workspace = 0;
}

cudnnStatus_t ah_dnn_execute(const struct ah_cudnn *dnn, cudnnHandle_t handle, const struct ah_dnn_plan *plan,
                             int64_t count, const int64_t *ids, void *const *places, void *workspace)
{
    struct ah_dnn_work work = {dnn, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t pack;
    ah_dnn_create(&work, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    ah_dnn_set(&work, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    ah_dnn_set(&work, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, places);
    ah_dnn_set(&work, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    ah_dnn_finish(&work, pack);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->execute(handle, plan->itself, pack);
    ah_dnn_destroy(dnn, &pack);
    return work.status;
}
