/* cuDNN's backend descriptors. A descriptor keeps its attributes as they were set; finalizing an operation creates a
 * convolution or a step of it, which is copied to graph, engine, configuration and plan, so that none needs another
 * after it was finalized. */
#include "dnn_descriptor.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string.h>

using namespace sim;

struct cudnnContext {
    CUcontext context;
    CUstream stream;
};

namespace
{
/* The engines, as the heuristics order them. A graph that one does not support has no plan with it. */
enum { HASTY, TENSOR_CORES, THOROUGH, PLAIN, ENGINES };
const struct {
    int64_t workspace;
    std::vector<int> notes;
} engines[ENGINES] = {{0, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}}, /* its results differ from run to run */
                      {512, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}},    /* for channels-last tensors */
                      {4096, {}},
                      {0, {}}}; /* the fallback's engines */

size_t size_of_attribute(int type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

int finish_tensor(Descriptor &d)
{
    Dnn_tensor &t = d.tensor;
    auto id = d.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1);
    auto type = d.get<int>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1);
    auto alignment = d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1);
    int64_t ndim = d.count(CUDNN_ATTR_TENSOR_DIMENSIONS);
    auto size = d.get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, ndim);
    auto stride = d.get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, ndim);
    if (!id || !type || !alignment || !size || !stride || ndim < 3 || ndim > DIMS)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor needs id, type, alignment, and 3 to 5 sizes and strides");
    auto is_virtual = d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1);
    auto by_value = d.get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1);
    bool integer = *type == CUDNN_DATA_INT32 || *type == CUDNN_DATA_BOOLEAN;
    if (*type != CUDNN_DATA_FLOAT && *type != CUDNN_DATA_DOUBLE && *type != CUDNN_DATA_HALF &&
        *type != CUDNN_DATA_BFLOAT16 && !(integer && is_virtual))
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a tensor's type that is not simulated");
    t = {*id,  *alignment, *type, (int)ndim, {1, 1, 1, 1, 1}, {0, 0, 0, 0, 0}, is_virtual && *is_virtual,
         by_value && *by_value};
    if (t.by_value && (t.is_virtual || *type != CUDNN_DATA_FLOAT || *std::max_element(size, size + ndim) > 1))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a value that is not one float");
    for (int64_t i = 0; i < ndim; i++) {
        int64_t dim = i < 2 ? i : i + DIMS - ndim;
        t.size[dim] = size[i];
        t.stride[dim] = stride[i];
        if (size[i] < 1)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor without elements");
    }
    return CUDNN_STATUS_SUCCESS;
}

int finish_geometry(Descriptor &d)
{
    Convolution &c = d.convolution;
    auto mode = d.get<int>(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1);
    auto compute = d.get<int>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1);
    auto dims = d.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1);
    if (!mode || !compute || !dims || *dims < 1 || *dims > SPATIAL)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a convolution needs mode, compute type and 1 to 3 spatial dims");
    const struct {
        int name;
        int64_t *to, otherwise;
    } rows[] = {{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.before, 0},
                {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.after, 0},
                {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.step, 1},
                {CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilation, 1}};
    for (auto row : rows) {
        auto values = d.get<int64_t>(row.name, CUDNN_TYPE_INT64, *dims);
        if (!values)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a convolution needs paddings, strides and dilations of each dim");
        for (int i = 0; i < SPATIAL; i++) {
            int64_t given = i + *dims - SPATIAL;
            row.to[i] = given >= 0 ? values[given] : row.otherwise;
            if (row.to[i] < row.otherwise)
                return refuse(CUDNN_STATUS_BAD_PARAM, "a padding, stride or dilation that is too small");
        }
    }
    c.flips = *mode == CUDNN_CONVOLUTION;
    c.spatial = (int)*dims;
    return CUDNN_STATUS_SUCCESS;
}

/* The names of an operation's attributes are in one order, which differs by kind. */
int finish_operation(Descriptor &d)
{
    static const int names[3][6] = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}};
    const int *name = names[d.type - CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR];
    const Descriptor *geometry = d.other(name[0], CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), *tensors[3];
    for (int i = 0; i < 3; i++)
        tensors[i] = d.other(name[1 + i], CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!geometry || !tensors[0] || !tensors[1] || !tensors[2])
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an operation without a convolution or a tensor of its");
    Convolution c = geometry->convolution;
    c.kind = d.type;
    c.x = tensors[0]->tensor;
    c.w = tensors[1]->tensor;
    c.y = tensors[2]->tensor;
    double numbers[2] = {1, 0};
    for (int i = 0; i < 2; i++) {
        if (auto value = d.get<float>(name[4 + i], CUDNN_TYPE_FLOAT, 1))
            numbers[i] = *value;
        else if (auto wide = d.get<double>(name[4 + i], CUDNN_TYPE_DOUBLE, 1))
            numbers[i] = *wide;
    }
    c.alpha = numbers[0];
    c.beta = numbers[1];
    d.convolution = c;
    if (c.x.ndim != 2 + c.spatial || c.w.ndim != c.x.ndim || c.y.ndim != c.x.ndim)
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "tensors of other dims than the convolution's");
    const char *refused = refuse_convolution(c);
    return refused ? refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, refused) : CUDNN_STATUS_SUCCESS;
}

/* Copy the convolution or the steps of the descriptor that an attribute names. */
int inherit(Descriptor &d, int name, int type)
{
    const Descriptor *from = d.other(name, type);
    if (!from)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that needs another, which is not finalized");
    d.convolution = from->convolution;
    d.graph = from->graph;
    d.engine = from->engine;
    return CUDNN_STATUS_SUCCESS;
}

int finish_graph(Descriptor &d)
{
    auto at = d.get<Descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1);
    if (!at || !*at || !(*at)->finalized || (*at)->step.kind)
        return finish_steps(d);
    d.convolution = (*at)->convolution;
    return CUDNN_STATUS_SUCCESS;
}

int finish_engine(Descriptor &d)
{
    auto index = d.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
    int status = inherit(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (index && (*index < 0 || *index >= ENGINES))
        return refuse(CUDNN_STATUS_BAD_PARAM, "an engine that there is not");
    d.engine = index ? (int)*index : PLAIN;
    return status;
}

int finish_heuristic(Descriptor &d)
{
    if (fault_now(FAULT_DNN))
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no heuristics, as was asked for");
    return inherit(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
}

int finish_plan(Descriptor &d)
{
    int status = inherit(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    Convolution &c = d.convolution;
    for (const Dnn_tensor *tensor : {&c.x, &c.w, &c.y})
        if (!d.graph && d.engine == TENSOR_CORES && tensor->stride[1] != 1 && tensor->size[1] > 1)
            return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an engine for channels-last tensors");
    c.rounds = d.engine == TENSOR_CORES && settings.tf32;
    return status;
}

int finish(Descriptor &d)
{
    switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return finish_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return finish_geometry(d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return finish_operation(d);
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        return finish_how(d);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return finish_step(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return finish_graph(d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return finish_engine(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return finish_heuristic(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return inherit(d, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return finish_plan(d);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

/* Finalize a descriptor that the caller made to be filled, as one of `type`. */
int fill(void *made, int type, const Descriptor &from, int engine)
{
    Descriptor *to = static_cast<Descriptor *>(made);
    if (!to || to->type != type)
        return CUDNN_STATUS_BAD_PARAM;
    to->convolution = from.convolution;
    to->graph = from.graph;
    to->engine = engine;
    to->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

int propose(const Descriptor &d, int64_t wanted, int64_t *count, void **configs)
{
    auto mode = d.get<int>(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1);
    bool fallback = mode && *mode == CUDNN_HEUR_MODE_FALLBACK;
    int first = fallback ? PLAIN : HASTY, end = fallback ? ENGINES : PLAIN;
    *count = end - first;
    for (int i = 0; i < *count && i < wanted; i++)
        if (int status = fill(configs[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, d, first + i))
            return status;
    return CUDNN_STATUS_SUCCESS;
}

int answer(const Descriptor &d, int name, int type, int64_t wanted, int64_t *count, void *values)
{
    int64_t ignored;
    count = count ? count : &ignored;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return propose(d, wanted, count, static_cast<void **>(values));
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR && wanted == 1) {
        *count = 1;
        return fill(*static_cast<void **>(values), CUDNN_BACKEND_ENGINE_DESCRIPTOR, d, d.engine);
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
        const std::vector<int> &notes = engines[d.engine].notes;
        *count = (int64_t)notes.size();
        for (int64_t i = 0; i < *count && i < wanted; i++)
            static_cast<int *>(values)[i] = notes[(size_t)i];
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && wanted == 1) {
        *static_cast<int64_t *>(values) = engines[d.engine].workspace;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that is not simulated");
}

bool is_memory(CUcontext context, const char *at, size_t bytes)
{
    std::lock_guard<std::mutex> running(context->run);
    return at && context->memory.find(at, bytes);
}

/* The address that a pack has for a tensor; null when it has none, or not device memory of that size and alignment, or,
 * of a value, memory of the host. */
char *address_of(CUcontext context, const Descriptor &pack, const Dnn_tensor &tensor)
{
    int64_t count = pack.count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    auto ids = pack.get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count);
    auto places = pack.get<char *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count);
    for (int64_t i = 0; ids && places && i < count; i++)
        if (ids[i] == tensor.id &&
            (tensor.by_value ? places[i] && !device_of(places[i])
                             : is_memory(context, places[i], bytes_of(tensor)) &&
                                   (uintptr_t)places[i] % (uintptr_t)tensor.alignment == 0))
            return places[i];
    return nullptr;
}
} // namespace

SIM_API size_t cudnnGetVersion()
{
    return 91900;
}

SIM_API const char *cudnnGetErrorString(cudnnStatus_t status)
{
    const char *text = nullptr;
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text);
        return text;
    }
}

SIM_API cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    Api hold(api);
    CUcontext context;
    if (current(&context) || fault_now(FAULT_DNN))
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext{context, nullptr};
    return CUDNN_STATUS_SUCCESS;
}

SIM_API cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

SIM_API cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream)
{
    if (!handle || (stream && stream->context != handle->context))
        return CUDNN_STATUS_BAD_PARAM;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

SIM_API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    Descriptor *made = new Descriptor;
    made->type = type;
    *out = made;
    return CUDNN_STATUS_SUCCESS;
}

SIM_API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    delete static_cast<Descriptor *>(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

SIM_API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    if (!descriptor)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    Descriptor &d = *static_cast<Descriptor *>(descriptor);
    int status = finish(d);
    d.finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

SIM_API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                               cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (!descriptor || (count && !values))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    Descriptor &d = *static_cast<Descriptor *>(descriptor);
    if (d.finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute of a descriptor that is finalized");
    const char *from = static_cast<const char *>(values);
    d.values[name] = {type, count, std::vector<char>(from, from + (size_t)count * size_of_attribute(type))};
    return CUDNN_STATUS_SUCCESS;
}

SIM_API cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                               cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                               int64_t wanted, int64_t *count, void *values)
{
    const Descriptor *d = static_cast<const Descriptor *>(descriptor);
    if (!d || !d->finalized)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    return answer(*d, name, type, wanted, count, values);
}

/* Return the work of a convolution or steps on the stream's thread; empty when a tensor has no fitting address. */
static std::function<void()> work_of(CUcontext context, const Descriptor &plan, const Descriptor &pack)
{
    static std::atomic<uint64_t> runs;
    std::map<int64_t, char *> places;
    std::map<int64_t, float> values;
    Convolution c = plan.convolution;
    Dnn_tensors tensors;
    if (plan.graph)
        tensors = tensors_of(*plan.graph);
    else
        tensors = {{c.x.id, c.x}, {c.w.id, c.w}, {c.y.id, c.y}};
    if (pack.count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) != (int64_t)tensors.size())
        return {};
    for (const auto &tensor : tensors) {
        char *at = address_of(context, pack, tensor.second);
        if (!at)
            return {};
        if (tensor.second.by_value)
            memcpy(&values[tensor.first], at, sizeof(float));
        else
            places[tensor.first] = at;
    }
    if (plan.graph)
        return [graph = plan.graph, places, values] { run_graph(*graph, places, values); };
    c.noise = plan.engine == HASTY ? settings.seed + ++runs : 0;
    return [=] { convolve(c, places.at(c.x.id), places.at(c.w.id), places.at(c.y.id)); };
}

SIM_API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                          cudnnBackendDescriptor_t pack)
{
    Api hold(api);
    CUstream stream;
    const Descriptor *p = static_cast<const Descriptor *>(plan), *given = static_cast<const Descriptor *>(pack);
    if (!handle || !p || !given || !p->finalized || !given->finalized)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (stream_of(handle->stream, &stream))
        return CUDNN_STATUS_EXECUTION_FAILED;
    size_t scratch = (size_t)engines[p->engine].workspace;
    auto room = given->get<char *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1);
    std::function<void()> compute = work_of(stream->context, *p, *given);
    if (!compute)
        return refuse(CUDNN_STATUS_BAD_PARAM,
                      "a tensor without an address in device memory that holds it with the declared alignment");
    char *at = room ? *room : nullptr;
    if (scratch && !is_memory(stream->context, at, scratch))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a workspace that is not device memory of the size of the plan");
    if (fault_now(FAULT_DNN))
        return CUDNN_STATUS_EXECUTION_FAILED;
    auto work = [=] {
        if (scratch)
            memset(at, 0xff, scratch);
        compute();
    };
    return stream_give(stream, {work, true}) ? CUDNN_STATUS_EXECUTION_FAILED
                                                                      : CUDNN_STATUS_SUCCESS;
}
