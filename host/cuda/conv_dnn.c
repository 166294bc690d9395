/* Convolutions by cuDNN's graphs: each is a graph of one operation, for which heuristics name engines, the best
 * first. The first that adds up in a fixed order, rounds nothing that it must not and can be had is the plan; the
 * last PLANS of them are kept, also those that were not to be had. Where memory is short for a plan's workspace,
 * one without is asked for. */
#include "cuda/conv.h"

#include <string.h>

#include "cuda/capture.h"
#include "cuda/dnn.h"
#include "cuda/memory.h"
#include "cuda/times.h"

enum { PLANS = 256, CHOICES = 32, PARTS = 6, NOTES = 16 };
#define WORKSPACE ((int64_t)1 << 30)

/* What tells plans apart, padding included. */
struct key {
    int64_t size[16];
    int32_t ordinal, kind, dtype, last, tf32, bare; /* bare: without workspace */
};

static struct plan {
    struct key key;
    bool made, absent; /* absent: there is none */
    uint64_t used;
    int64_t workspace;
    cudnnBackendDescriptor_t part[PARTS]; /* what it is made of, then the configuration and itself */
    cudnnBackendDescriptor_t config, itself;
} plans[PLANS];
static uint64_t uses;
static cudnnHandle_t handles[AH_CUDA_DEVICES];

/* The names of the tensors in graphs. */
enum { INPUT = 'x', WEIGHT = 'w', OUTPUT = 'y' };

/* Descriptors under construction: the first failure stays. */
struct work {
    const struct ah_cudnn *dnn;
    cudnnStatus_t status;
};

static cudnnBackendDescriptor_t create(struct work *work, int type, cudnnBackendDescriptor_t *out)
{
    *out = NULL;
    if (work->status == CUDNN_STATUS_SUCCESS)
        work->status = work->dnn->descriptor_create((cudnnBackendDescriptorType_t)type, out);
    return *out;
}

static void set(struct work *work, cudnnBackendDescriptor_t at, int name, int type, int64_t count, const void *values)
{
    if (work->status == CUDNN_STATUS_SUCCESS)
        work->status = work->dnn->attribute_set(at, (cudnnBackendAttributeName_t)name,
                                                (cudnnBackendAttributeType_t)type, count, values);
}

static void set_other(struct work *work, cudnnBackendDescriptor_t at, int name, cudnnBackendDescriptor_t other)
{
    set(work, at, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

static void finish(struct work *work, cudnnBackendDescriptor_t at)
{
    if (work->status == CUDNN_STATUS_SUCCESS)
        work->status = work->dnn->descriptor_finalize(at);
}

static void destroy(const struct ah_cudnn *dnn, cudnnBackendDescriptor_t *at)
{
    if (*at)
        dnn->descriptor_destroy(*at);
    *at = NULL;
}

static void make_tensor(struct work *work, cudnnBackendDescriptor_t *out, const struct ah_cuda_conv *conv, int64_t id,
                        const int64_t *size)
{
    const int64_t by_rows[4] = {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
    const int64_t by_pixels[4] = {by_rows[0], 1, size[3] * size[1], size[1]};
    int type = conv->dtype == AH_F16 ? CUDNN_DATA_HALF : conv->dtype == AH_BF16 ? CUDNN_DATA_BFLOAT16
                                                                                : CUDNN_DATA_FLOAT;
    int64_t alignment = 16;
    create(work, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out);
    set(work, *out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(work, *out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(work, *out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(work, *out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(work, *out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, conv->last ? by_pixels : by_rows);
    finish(work, *out);
}

static void make_geometry(struct work *work, cudnnBackendDescriptor_t *out, const struct ah_conv *s)
{
    int mode = CUDNN_CROSS_CORRELATION, compute = CUDNN_DATA_FLOAT;
    int64_t dims = 2;
    create(work, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out);
    set(work, *out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(work, *out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(work, *out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(work, *out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, s->padding);
    set(work, *out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, s->padding);
    set(work, *out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, s->stride);
    set(work, *out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, s->dilation);
    finish(work, *out);
}

/* The names of an operation's type and attributes: geometry, input, weight, output, alpha, beta. */
static const int names[][7] = {
    [AH_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [AH_CONV_GRAD_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [AH_CONV_GRAD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

/* The graph of one operation. The parts: geometry, input, weight, output, operation, graph. */
static void make_graph(struct work *work, struct plan *plan, const struct ah_cuda_conv *conv)
{
    const struct ah_conv *s = conv->shape;
    const int64_t input[4] = {s->n, s->c, s->h, s->w}, weight[4] = {s->oc, s->c / s->groups, s->kh, s->kw};
    const int64_t output[4] = {s->n, s->oc, s->oh, s->ow};
    const int *name = names[conv->kind];
    cudnnBackendDescriptor_t *part = plan->part;
    float one = 1, zero = 0;
    make_geometry(work, &part[0], s);
    make_tensor(work, &part[1], conv, INPUT, input);
    make_tensor(work, &part[2], conv, WEIGHT, weight);
    make_tensor(work, &part[3], conv, OUTPUT, output);
    create(work, name[0], &part[4]);
    for (int i = 0; i < 4; i++)
        set_other(work, part[4], name[1 + i], part[i]);
    set(work, part[4], name[5], CUDNN_TYPE_FLOAT, 1, &one);
    set(work, part[4], name[6], CUDNN_TYPE_FLOAT, 1, &zero);
    finish(work, part[4]);
    create(work, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &part[5]);
    set_other(work, part[5], CUDNN_ATTR_OPERATIONGRAPH_OPS, part[4]);
    set(work, part[5], CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handles[plan->key.ordinal]);
    finish(work, part[5]);
}

/* May this configuration's engine serve? One that tells nothing of its numbers may not. */
static bool serves(const struct ah_cudnn *dnn, const struct key *key, cudnnBackendDescriptor_t config)
{
    struct work work = {dnn, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t engine;
    int notes[NOTES];
    int64_t count = 0, one;
    create(&work, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
                                         &engine);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                         NOTES, &count, notes);
    destroy(dnn, &engine);
    bool good = work.status == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; good && i < count && i < NOTES; i++) {
        bool exact = key->dtype == AH_F32 && !key->tf32;
        good = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
               notes[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
               notes[i] != CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 &&
               (notes[i] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS || (key->dtype == AH_F32 && key->tf32)) &&
               (notes[i] != CUDNN_NUMERICAL_NOTE_TENSOR_CORE || !exact);
    }
    return good;
}

/* Make the plan of a configuration; false when it is not to be had, or wants more memory than there may be. */
static bool try_config(const struct ah_cudnn *dnn, struct plan *plan, cudnnBackendDescriptor_t config)
{
    struct work work = {dnn, CUDNN_STATUS_SUCCESS};
    int64_t one;
    if (!serves(dnn, &plan->key, config))
        return false;
    create(&work, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->itself);
    set(&work, plan->itself, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handles[plan->key.ordinal]);
    set_other(&work, plan->itself, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finish(&work, plan->itself);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(plan->itself, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                         &one, &plan->workspace);
    if (work.status == CUDNN_STATUS_SUCCESS && plan->workspace <= (plan->key.bare ? 0 : WORKSPACE))
        return true;
    destroy(dnn, &plan->itself);
    return false;
}

/* Take the first of a mode's proposals that serves. */
static bool choose(const struct ah_cudnn *dnn, struct plan *plan, int mode)
{
    struct work work = {dnn, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t heuristic, config[CHOICES] = {NULL};
    int64_t count = 0;
    create(&work, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    set_other(&work, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, plan->part[5]);
    set(&work, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(&work, heuristic);
    for (int i = 0; i < CHOICES; i++)
        create(&work, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         CHOICES, &count, config);
    bool found = false;
    for (int64_t i = 0; work.status == CUDNN_STATUS_SUCCESS && !found && i < count && i < CHOICES; i++) {
        found = try_config(dnn, plan, config[i]);
        if (found) {
            plan->config = config[i];
            config[i] = NULL;
        }
    }
    for (int i = 0; i < CHOICES; i++)
        destroy(dnn, &config[i]);
    destroy(dnn, &heuristic);
    return found;
}

static void drop(const struct ah_cudnn *dnn, struct plan *plan)
{
    destroy(dnn, &plan->itself);
    destroy(dnn, &plan->config);
    for (int i = PARTS - 1; i >= 0; i--)
        destroy(dnn, &plan->part[i]);
    *plan = (struct plan){.made = false};
}

static struct key key_of(const struct ah_cuda_device *cuda, const struct ah_cuda_conv *conv, bool bare)
{
    const struct ah_conv *s = conv->shape;
    const int64_t size[] = {s->n,          s->c,          s->h,           s->w,          s->oc,        s->oh,
                            s->ow,         s->kh,         s->kw,          s->groups,     s->stride[0], s->stride[1],
                            s->padding[0], s->padding[1], s->dilation[0], s->dilation[1]};
    struct key key;
    memset(&key, 0, sizeof key);
    memcpy(key.size, size, sizeof size);
    key.ordinal = cuda->ordinal;
    key.kind = (int32_t)conv->kind;
    key.dtype = (int32_t)conv->dtype;
    key.last = conv->last;
    key.tf32 = conv->tf32;
    key.bare = bare;
    return key;
}

/* The plan of a key: one that is kept, or a new one in the place of the one that was used longest ago. NULL when there
 * is none. */
static struct plan *find_plan(const struct ah_cudnn *dnn, const struct key *key, const struct ah_cuda_conv *conv)
{
    struct plan *plan = &plans[0];
    for (int i = 0; i < PLANS; i++) {
        if (plans[i].made && !memcmp(&plans[i].key, key, sizeof *key)) {
            plans[i].used = ++uses;
            return plans[i].absent ? NULL : &plans[i];
        }
        if (plans[i].used < plan->used)
            plan = &plans[i];
    }
    struct work work = {dnn, CUDNN_STATUS_SUCCESS};
    drop(dnn, plan);
    plan->key = *key;
    make_graph(&work, plan, conv);
    bool found = work.status == CUDNN_STATUS_SUCCESS &&
                 (choose(dnn, plan, CUDNN_HEUR_MODE_A) || choose(dnn, plan, CUDNN_HEUR_MODE_FALLBACK));
    if (!found)
        drop(dnn, plan);
    plan->key = *key;
    plan->made = true;
    plan->absent = !found;
    plan->used = ++uses;
    return found ? plan : NULL;
}

/* cuDNN with a handle on this device; NULL when it is not there or does not open, which is no error. */
static const struct ah_cudnn *open_dnn(struct ah_cuda_device *cuda)
{
    static bool closed[AH_CUDA_DEVICES]; /* it did not open before */
    const struct ah_cudnn *dnn;
    if (closed[cuda->ordinal] || ah_cudnn_open(&dnn) < 0 || ah_cuda_enter(cuda) < 0)
        return NULL;
    if (handles[cuda->ordinal])
        return dnn;
    closed[cuda->ordinal] = dnn->create(&handles[cuda->ordinal]) != CUDNN_STATUS_SUCCESS ||
                            dnn->set_stream(handles[cuda->ordinal], cuda->compute) != CUDNN_STATUS_SUCCESS;
    return closed[cuda->ordinal] ? NULL : dnn;
}

int ah_cuda_dnn_takes(struct ah_device *device, const struct ah_cuda_conv *conv)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    const struct ah_cudnn *dnn = open_dnn(cuda);
    struct key key = key_of(cuda, conv, false);
    return dnn && find_plan(dnn, &key, conv);
}

static cudnnStatus_t execute(const struct ah_cudnn *dnn, const struct plan *plan, const struct ah_cuda_conv *conv,
                             void *workspace)
{
    struct work work = {dnn, CUDNN_STATUS_SUCCESS};
    const int64_t ids[] = {INPUT, WEIGHT, OUTPUT};
    void *const places[] = {(void *)(uintptr_t)conv->input, (void *)(uintptr_t)conv->weight,
                            (void *)(uintptr_t)conv->output};
    cudnnBackendDescriptor_t pack;
    create(&work, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    set(&work, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
    set(&work, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, places);
    set(&work, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finish(&work, pack);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->execute(handles[plan->key.ordinal], plan->itself, pack);
    destroy(dnn, &pack);
    return work.status;
}

static double conv_operations(const struct ah_conv *s)
{
    double outputs = (double)s->n * (double)s->oc * (double)s->oh * (double)s->ow;
    return 2 * outputs * (double)(s->c / s->groups) * (double)s->kh * (double)s->kw;
}

int ah_cuda_dnn_convolve(struct ah_device *device, const char *who, const struct ah_cuda_conv *conv)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    const struct ah_cudnn *dnn = open_dnn(cuda);
    const struct ah_conv *s = conv->shape;
    void *workspace = NULL;
    struct key key = key_of(cuda, conv, false);
    struct plan *plan = dnn ? find_plan(dnn, &key, conv) : NULL;
    if (plan && plan->workspace) {
        int status = ah_cuda_memory_take(cuda->memory, (size_t)plan->workspace, &workspace);
        if (status < 0 && status != AH_ENOMEM)
            return status;
        key.bare = status < 0;
        if (status < 0)
            plan = find_plan(dnn, &key, conv);
    }
    if (!plan)
        return 0;
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_see(cuda, conv, sizeof *conv));
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, who, "cuDNN");
    cudnnStatus_t code = execute(dnn, plan, conv, workspace);
    ah_cuda_span_end(cuda, span, 0, conv_operations(s));
    /* In the order of the stream: who takes the block next writes it after the convolution. */
    ah_cuda_memory_give(cuda->memory, workspace);
    if (code != CUDNN_STATUS_SUCCESS)
        return ah_fail(AH_EIO, "%s: %s: cuDNN, input (%lld, %lld, %lld, %lld), weight (%lld, %lld, %lld, %lld): %s",
                       device->name, who, (long long)s->n, (long long)s->c, (long long)s->h, (long long)s->w,
                       (long long)s->oc, (long long)(s->c / s->groups), (long long)s->kh, (long long)s->kw,
                       dnn->error_text(code));
    if (cuda->waits && !cuda->capturing)
        AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: %s: cuDNN", device->name, who));
    return 1;
}

void ah_cuda_dnn_forget(const struct ah_cuda_device *cuda)
{
    const struct ah_cudnn *dnn;
    if (!handles[cuda->ordinal] || ah_cudnn_open(&dnn) < 0)
        return;
    for (int i = 0; i < PLANS; i++)
        if (plans[i].made && plans[i].key.ordinal == cuda->ordinal)
            drop(dnn, &plans[i]);
    dnn->destroy(handles[cuda->ordinal]);
    handles[cuda->ordinal] = NULL;
}
