/* Convolutions by cuDNN's graphs: each is a graph of one operation, for which heuristics name engines, the best
 * first. The first that adds up in a fixed order, rounds nothing that it must not and can be had is the plan; the
 * last PLANS of them are kept, also those that were not to be had. Where memory is short for a plan's workspace,
 * one without is asked for. */
#include "cuda/ops/linear/conv.h"

#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/times.h"
#include "cuda/vendor/dnn_plan.h"
#include "tensor/tensor.h"

enum { PLANS = 256, PARTS = 6 };
#define WORKSPACE ((int64_t)1 << 30)

/* The key of a plan, padding included. */
struct key {
    int64_t size[22];
    int32_t ordinal, kind, dtype, last, tf32, bare; /* bare: without workspace */
};

static struct plan {
    struct key key;
    bool made, absent; /* absent: there is none */
    uint64_t used;
    cudnnBackendDescriptor_t part[PARTS]; /* its descriptors */
    struct ah_dnn_plan chosen;
} conv_plans[PLANS];
static uint64_t conv_uses;

/* The names of the tensors in graphs. */
enum { INPUT = 'x', WEIGHT = 'w', OUTPUT = 'y' };

struct dims {
    int64_t count, at[5];
};

/* Values of the dims of space; images have no depth. */
static struct dims dims_of(const struct ah_conv *s, int64_t depth, const int64_t *plane)
{
    return s->volume ? (struct dims){3, {depth, plane[0], plane[1]}} : (struct dims){2, {plane[0], plane[1]}};
}

static struct dims input_dims(const struct ah_conv *s)
{
    return s->volume ? (struct dims){5, {s->n, s->c, s->depth.in, s->h, s->w}}
                     : (struct dims){4, {s->n, s->c, s->h, s->w}};
}

static struct dims weight_dims(const struct ah_conv *s)
{
    int64_t channels = s->c / s->groups;
    return s->volume ? (struct dims){5, {s->oc, channels, s->depth.kernel, s->kh, s->kw}}
                     : (struct dims){4, {s->oc, channels, s->kh, s->kw}};
}

static struct dims output_dims(const struct ah_conv *s)
{
    return s->volume ? (struct dims){5, {s->n, s->oc, s->depth.out, s->oh, s->ow}}
                     : (struct dims){4, {s->n, s->oc, s->oh, s->ow}};
}

static void make_tensor(struct ah_dnn_work *work, cudnnBackendDescriptor_t *out, const struct ah_cuda_conv *conv,
                        int64_t id, struct dims size)
{
    int64_t stride[5], step = conv->last ? size.at[1] : 1;
    for (int64_t i = size.count - 1; i >= 2; step *= size.at[i], i--)
        stride[i] = step;
    stride[1] = conv->last ? 1 : step;
    stride[0] = conv->last ? step : step * size.at[1];
    int type = conv->dtype == AH_F16 ? CUDNN_DATA_HALF : conv->dtype == AH_BF16 ? CUDNN_DATA_BFLOAT16
                                                                                : CUDNN_DATA_FLOAT;
    int64_t alignment = 16;
    ah_dnn_create(work, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out);
    ah_dnn_set(work, *out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    ah_dnn_set(work, *out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    ah_dnn_set(work, *out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    ah_dnn_set(work, *out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, size.count, size.at);
    ah_dnn_set(work, *out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, size.count, stride);
    ah_dnn_finish(work, *out);
}

static void make_geometry(struct ah_dnn_work *work, cudnnBackendDescriptor_t *out, const struct ah_conv *s)
{
    int mode = CUDNN_CROSS_CORRELATION, compute = CUDNN_DATA_FLOAT;
    const struct dims padding = dims_of(s, s->depth.padding, s->padding);
    const struct dims stride = dims_of(s, s->depth.stride, s->stride);
    const struct dims dilation = dims_of(s, s->depth.dilation, s->dilation);
    const int64_t dims = padding.count;
    ah_dnn_create(work, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out);
    ah_dnn_set(work, *out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    ah_dnn_set(work, *out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    ah_dnn_set(work, *out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    ah_dnn_set(work, *out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dims, padding.at);
    ah_dnn_set(work, *out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dims, padding.at);
    ah_dnn_set(work, *out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dims, stride.at);
    ah_dnn_set(work, *out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dims, dilation.at);
    ah_dnn_finish(work, *out);
}

/* The names of an operation's type and attributes: geometry, input, weight, output, alpha, beta. */
static const int conv_names[][7] = {
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
static void make_graph(struct ah_dnn_work *work, cudnnHandle_t handle, struct plan *plan,
                       const struct ah_cuda_conv *conv)
{
    const struct ah_conv *s = conv->shape;
    const int *name = conv_names[conv->kind];
    cudnnBackendDescriptor_t *part = plan->part;
    float one = 1, zero = 0;
    make_geometry(work, &part[0], s);
    make_tensor(work, &part[1], conv, INPUT, input_dims(s));
    make_tensor(work, &part[2], conv, WEIGHT, weight_dims(s));
    make_tensor(work, &part[3], conv, OUTPUT, output_dims(s));
    ah_dnn_create(work, name[0], &part[4]);
    for (int i = 0; i < 4; i++)
        ah_dnn_set_other(work, part[4], name[1 + i], part[i]);
    ah_dnn_set(work, part[4], name[5], CUDNN_TYPE_FLOAT, 1, &one);
    ah_dnn_set(work, part[4], name[6], CUDNN_TYPE_FLOAT, 1, &zero);
    ah_dnn_finish(work, part[4]);
    ah_dnn_create(work, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &part[5]);
    ah_dnn_set_other(work, part[5], CUDNN_ATTR_OPERATIONGRAPH_OPS, part[4]);
    ah_dnn_set(work, part[5], CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    ah_dnn_finish(work, part[5]);
}

/* The notes of engines that may not serve. */
static unsigned refused_notes(const struct key *key)
{
    const unsigned always = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                            1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                            1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    const unsigned rounds = 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (key->dtype != AH_F32)
        return always | rounds;
    return key->tf32 ? always : always | rounds | 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
}

static void conv_dnn_drop(const struct ah_cudnn *dnn, struct plan *plan)
{
    ah_dnn_drop(dnn, &plan->chosen);
    for (int i = PARTS - 1; i >= 0; i--)
        ah_dnn_destroy(dnn, &plan->part[i]);
    *plan = (struct plan){.made = false};
}

static struct key key_of(const struct ah_cuda_device *cuda, const struct ah_cuda_conv *conv, bool bare)
{
    const struct ah_conv *s = conv->shape;
    const int64_t size[] = {s->n,          s->c,          s->h,           s->w,          s->oc,        s->oh,
                            s->ow,         s->kh,         s->kw,          s->groups,     s->stride[0], s->stride[1],
                            s->padding[0], s->padding[1], s->dilation[0], s->dilation[1]};
    const int64_t depth[] = {s->depth.in,     s->depth.out,     s->depth.kernel,
                             s->depth.stride, s->depth.padding, s->depth.dilation};
    struct key key;
    memset(&key, 0, sizeof key);
    memcpy(key.size, size, sizeof size);
    memcpy(key.size + 16, depth, sizeof depth);
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
static struct plan *find_plan(const struct ah_cudnn *dnn, cudnnHandle_t handle, const struct key *key,
                              const struct ah_cuda_conv *conv)
{
    struct plan *plan = &conv_plans[0];
    for (int i = 0; i < PLANS; i++) {
        if (conv_plans[i].made && !memcmp(&conv_plans[i].key, key, sizeof *key)) {
            conv_plans[i].used = ++conv_uses;
            return conv_plans[i].absent ? NULL : &conv_plans[i];
        }
        if (conv_plans[i].used < plan->used)
            plan = &conv_plans[i];
    }
    const struct ah_dnn_limits limits = {refused_notes(key), key->bare ? 0 : WORKSPACE};
    struct ah_dnn_work work = {dnn, CUDNN_STATUS_SUCCESS};
    conv_dnn_drop(dnn, plan);
    make_graph(&work, handle, plan, conv);
    bool found = work.status == CUDNN_STATUS_SUCCESS &&
                 ah_dnn_choose(dnn, handle, plan->part[5], &limits, &plan->chosen);
    if (!found)
        conv_dnn_drop(dnn, plan);
    plan->key = *key;
    plan->made = true;
    plan->absent = !found;
    plan->used = ++conv_uses;
    return found ? plan : NULL;
}

int ah_cuda_dnn_takes(struct ah_device *device, const struct ah_cuda_conv *conv)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    cudnnHandle_t handle;
    const struct ah_cudnn *dnn = ah_dnn_open(cuda, &handle);
    struct key key = key_of(cuda, conv, false);
    return dnn && find_plan(dnn, handle, &key, conv);
}

static double conv_operations(const struct ah_conv *s)
{
    double outputs = (double)s->n * (double)s->oc * (double)s->depth.out * (double)s->oh * (double)s->ow;
    return 2 * outputs * (double)(s->c / s->groups) * (double)s->depth.kernel * (double)s->kh * (double)s->kw;
}

int ah_cuda_dnn_convolve(struct ah_device *device, const char *op_name, const struct ah_cuda_conv *conv)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    const int64_t ids[] = {INPUT, WEIGHT, OUTPUT};
    void *const places[] = {(void *)(uintptr_t)conv->input, (void *)(uintptr_t)conv->weight,
                            (void *)(uintptr_t)conv->output};
    cudnnHandle_t handle;
    const struct ah_cudnn *dnn = ah_dnn_open(cuda, &handle);
    const struct ah_conv *s = conv->shape;
    void *workspace = NULL;
    struct key key = key_of(cuda, conv, false);
    struct plan *plan = dnn ? find_plan(dnn, handle, &key, conv) : NULL;
    if (plan && plan->chosen.workspace) {
        int status = ah_cuda_memory_take(cuda->memory, (size_t)plan->chosen.workspace, &workspace);
        if (status < 0 && status != AH_ENOMEM)
            return status;
        key.bare = status < 0;
        if (status < 0)
            plan = find_plan(dnn, handle, &key, conv);
    }
    if (!plan)
        return 0;
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_see(cuda, conv, sizeof *conv));
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, op_name, "cuDNN");
    cudnnStatus_t code = ah_dnn_execute(dnn, handle, &plan->chosen, 3, ids, places, workspace);
    ah_cuda_span_end(cuda, span,
                     (struct ah_cuda_work){0, conv_operations(s), ah_cuda_rate_of(conv->dtype, conv->tf32)});
    /* In the order of the stream: the next user of the block writes it after the convolution. */
    ah_cuda_memory_give(cuda->memory, workspace);
    if (code != CUDNN_STATUS_SUCCESS) {
        const struct dims input = input_dims(s), weight = weight_dims(s);
        return ah_fail(AH_EIO, "%s: %s: cuDNN, input %s, weight %s: %s", device->name, op_name,
                       ah_shape_text(input.at, (int)input.count), ah_shape_text(weight.at, (int)weight.count),
                       dnn->error_text(code));
    }
    if (cuda->waits && !cuda->capturing)
        AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: %s: cuDNN", device->name, op_name));
    return 1;
}

void ah_cuda_dnn_forget(const struct ah_cuda_device *cuda)
{
    const struct ah_cudnn *dnn;
    for (int i = 0; i < PLANS; i++)
        if (conv_plans[i].made && conv_plans[i].key.ordinal == cuda->ordinal && ah_cudnn_open(&dnn) >= 0)
            conv_dnn_drop(dnn, &conv_plans[i]);
}
