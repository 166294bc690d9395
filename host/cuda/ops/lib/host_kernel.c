/* The CPU's kernel is called with shadows of the tensors, which are in copies of their storages. Whole storages are
 * copied, so that views of one still share it, and all of them back, since a kernel may write into its arguments. */
#include "cuda/ops/lib/host_kernel.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cuda/driver/stream/capture.h"

struct shadow {
    struct ah_tensor *real;
    struct ah_tensor tensor;
};

struct shadow_storage {
    struct ah_storage *real;
    struct ah_storage storage;
};

struct shadows {
    struct ah_device *device;
    struct shadow *at;
    struct shadow_storage *storage;
    int count, storage_count;
    int status;
};

static void host_kernel_keep(struct ah_storage *storage)
{
}

static struct shadow_storage *shadow_storage(struct shadows *s, struct ah_storage *real)
{
    for (int i = 0; i < s->storage_count; i++)
        if (s->storage[i].real == real)
            return &s->storage[i];
    struct shadow_storage *made = &s->storage[s->storage_count++];
    made->real = real;
    made->storage = (struct ah_storage){.device = &ah_cpu, .channels_last = real->channels_last,
                                        .version = real->version, .nbytes = real->nbytes, .release = host_kernel_keep};
    atomic_init(&made->storage.refs, 1);
    int status = ah_block_alloc(real->nbytes, &made->storage.data);
    if (status == 0)
        status = ah_device_copy(made->storage.data, &ah_cpu, real->data, s->device, real->nbytes);
    s->status = status < 0 ? status : s->status;
    return made;
}

/* The shadow of a tensor: itself when it is a number on the CPU. */
static struct ah_tensor *host_kernel_shadow(struct shadows *s, struct ah_tensor *real)
{
    if (!real || ah_on_cpu(real))
        return real;
    for (int i = 0; i < s->count; i++)
        if (s->at[i].real == real)
            return &s->at[i].tensor;
    struct shadow *made = &s->at[s->count++];
    made->real = real;
    made->tensor = *real;
    made->tensor.refs = 1;
    made->tensor.storage = &shadow_storage(s, real->storage)->storage;
    made->tensor.grad = NULL;
    made->tensor.shared_handle = false;
    return &made->tensor;
}

static int open_shadows(struct shadows *s, struct ah_call *call, struct ah_call *near)
{
    int room = AH_MAX_ARGS + AH_MAX_OUTS + AH_MAX_EXTRA;
    for (int i = 0; i < call->op->param_count; i++)
        if (call->arg[i].kind == AH_LIST)
            room += call->arg[i].list.count;
    *near = *call;
    near->device = &ah_cpu;
    near->original = NULL;
    s->at = calloc((size_t)room, sizeof *s->at);
    s->storage = calloc((size_t)room, sizeof *s->storage);
    if (!s->at || !s->storage)
        s->status = ah_fail(AH_ENOMEM, "out of memory");
    for (int i = 0; i < call->op->param_count; i++) {
        struct ah_value *arg = &near->arg[i];
        if (arg->kind == AH_LIST) {
            arg->list.item = calloc((size_t)arg->list.count + 1, sizeof(struct ah_tensor *));
            if (!arg->list.item)
                s->status = ah_fail(AH_ENOMEM, "out of memory");
        }
        if (s->status < 0)
            continue;
        if (arg->kind == AH_TENSOR)
            arg->tensor = host_kernel_shadow(s, arg->tensor);
        for (int k = 0; arg->kind == AH_LIST && k < arg->list.count; k++)
            arg->list.item[k] = host_kernel_shadow(s, call->arg[i].list.item[k]);
    }
    for (int k = 0; s->status == 0 && k < AH_MAX_OUTS; k++)
        near->out[k] = host_kernel_shadow(s, call->out[k]);
    for (int k = 0; s->status == 0 && k < AH_MAX_EXTRA; k++)
        near->extra[k] = host_kernel_shadow(s, call->extra[k]);
    return s->status;
}

/* The result of a kernel in a slot that held `before`: a shadow is replaced by its tensor, a tensor that the kernel
 * made on the CPU moves to the device. */
static struct ah_tensor *bring_back(struct shadows *s, struct ah_tensor *left, struct ah_tensor *before)
{
    for (int i = 0; i < s->count; i++)
        if (left == &s->at[i].tensor)
            return s->at[i].real == before ? before : ah_tensor_retain(s->at[i].real);
    if (!left || left == before)
        return left;
    struct ah_tensor *made = NULL;
    int status = ah_tensor_empty(&made, left->size, left->ndim, left->dtype, s->device);
    if (status == 0) {
        made->storage->channels_last = left->storage->channels_last;
        status = ah_device_copy(made->storage->data, s->device, left->storage->data, &ah_cpu, left->storage->nbytes);
    }
    s->status = status < 0 ? status : s->status;
    ah_tensor_release(left);
    return made;
}

static void write_back(struct shadows *s, bool worked)
{
    for (int i = 0; i < s->storage_count; i++) {
        struct shadow_storage *storage = &s->storage[i];
        storage->real->channels_last = storage->storage.channels_last;
        storage->real->version = storage->storage.version;
        if (worked && s->status == 0)
            s->status = ah_device_copy(storage->real->data, s->device, storage->storage.data, &ah_cpu,
                                       storage->real->nbytes);
        ah_block_free(storage->storage.data, storage->real->nbytes);
    }
}

static void close_shadows(struct shadows *s, struct ah_call *call, struct ah_call *near, bool worked)
{
    write_back(s, worked);
    for (int k = 0; s->at && k < AH_MAX_OUTS; k++)
        call->out[k] = bring_back(s, near->out[k], call->out[k]);
    for (int k = 0; s->at && k < AH_MAX_EXTRA; k++)
        call->extra[k] = bring_back(s, near->extra[k], call->extra[k]);
    call->out_count = near->out_count;
    call->state = near->state;
    for (int i = 0; i < call->op->param_count; i++)
        if (near->arg[i].kind == AH_LIST)
            free(near->arg[i].list.item);
    free(s->at);
    free(s->storage);
}

int ah_cuda_on_host(struct ah_call *call)
{
    struct shadows shadows = {.device = call->device};
    struct ah_call near;
    AH_TRY(ah_cuda_capture_refuse(ah_cuda_state(call->device), "an op that runs on the CPU",
                                "do it outside of the step"));
    int status = open_shadows(&shadows, call, &near);
    bool opened = status == 0;
    if (opened)
        status = ah_cpu.kernels[call->op->id](&near);
    close_shadows(&shadows, call, &near, opened && status == 0);
    if (ah_tracing) {
        char text[64];
        snprintf(text, sizeof text, "host %s", call->op->name);
        ah_trace_set_kernel(text);
    }
    return status < 0 ? status : shadows.status;
}
