/* The plugin of device "far": a second device for the specs, whose memory the host cannot read.
 *
 * Each of its two devices has one memfd, mapped twice: storages hold addresses in a mapping without any access, the
 * kernels run on the other one. A kernel is the CPU's, called with shadows of the tensors that point to the readable
 * mapping, and refuses tensors on another device. So whatever of the host touches a tensor's memory on its own, or
 * lets devices mix, ends in a crash or an error, and a spec that passes here passes on the CPU with the same bits.
 *
 * $ACCELHOST_FAR_BYTES limits a device's memory; $ACCELHOST_FAR_TABLE replaces its op table's version. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status/status.h"
#include "ops/dispatch/op.h"
#include "ops/schema/table_text.h"
#include "optim/kernels.h"

enum { DEVICES = 2, CLASSES = 48, LEAST = 6, POISON = 0xff };

struct far {
    char *hidden, *open; /* the same memory: the storages' addresses, the kernels' addresses */
    size_t bytes, used;
    size_t *freed[CLASSES]; /* stacks of offsets, by power of two */
    int freed_count[CLASSES], freed_room[CLASSES];
    struct ah_memory_stats stats;
    pthread_mutex_t lock;
};

static ah_kernel kernels[AH_OP_COUNT + 1];
static const struct ah_optim_kernels optim;

/* Memory. */

static char *reach(struct ah_device *device, const void *address, size_t bytes)
{
    struct far *far = device->state;
    const char *at = address;
    if (at < far->hidden || at + bytes > far->hidden + far->bytes) {
        ah_fail(AH_ESTATE, "%s: %p is not memory of this device", device->name, address);
        return NULL;
    }
    return far->open + (at - far->hidden);
}

static int class_of(size_t bytes)
{
    return bytes <= (size_t)1 << LEAST ? LEAST : 64 - __builtin_clzll(bytes - 1);
}

static int far_count(void)
{
    return DEVICES;
}

static int far_open(struct ah_device *device)
{
    struct far *far = calloc(1, sizeof *far);
    if (!far)
        return ah_fail(AH_ENOMEM, "out of memory");
    const char *limit = getenv("ACCELHOST_FAR_BYTES");
    far->bytes = limit ? (size_t)strtoull(limit, NULL, 10) : (size_t)8 << 30;
    int fd = memfd_create("far", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)far->bytes)) {
        free(far);
        return ah_fail(AH_EIO, "%s: no memory file", device->name);
    }
    far->open = mmap(NULL, far->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    far->hidden = mmap(NULL, far->bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (far->open == MAP_FAILED || far->hidden == MAP_FAILED)
        return ah_fail(AH_ENOMEM, "%s: cannot map its memory", device->name);
    pthread_mutex_init(&far->lock, NULL);
    device->state = far;
    device->kernels = kernels;
    device->optim = &optim;
    device->table = getenv("ACCELHOST_FAR_TABLE");
    device->table = device->table ? device->table : ah_op_table_text;
    return 0;
}

static void far_close(struct ah_device *device)
{
    struct far *far = device->state;
    munmap(far->open, far->bytes);
    munmap(far->hidden, far->bytes);
    for (int i = 0; i < CLASSES; i++)
        free(far->freed[i]);
    free(far);
}

static int far_allocate(struct ah_device *device, size_t bytes, void **out)
{
    struct far *far = device->state;
    int class = class_of(bytes);
    size_t size = (size_t)1 << class, at = SIZE_MAX;
    pthread_mutex_lock(&far->lock);
    if (class >= CLASSES) {
        /* larger than the device */
    } else if (far->freed_count[class]) {
        at = far->freed[class][--far->freed_count[class]];
        far->stats.cached -= size;
    } else if (size <= far->bytes - far->used) {
        at = far->used;
        far->used += size;
        far->stats.system_calls++;
    }
    if (at != SIZE_MAX) {
        far->stats.allocations++;
        far->stats.live += size;
        far->stats.peak = far->stats.live > far->stats.peak ? far->stats.live : far->stats.peak;
        memset(far->open + at, POISON, bytes); /* memory that is not cleared is not zero */
    }
    pthread_mutex_unlock(&far->lock);
    if (at == SIZE_MAX)
        return ah_fail(AH_ENOMEM, "%s: out of memory: %zu bytes asked for, %zu live of %zu", device->name, bytes,
                       far->stats.live, far->bytes);
    *out = far->hidden + at;
    return 0;
}

static void far_release(struct ah_device *device, void *block, size_t bytes)
{
    struct far *far = device->state;
    int class = class_of(bytes);
    pthread_mutex_lock(&far->lock);
    if (far->freed_count[class] == far->freed_room[class]) {
        int room = 2 * far->freed_room[class] + 16;
        size_t *grown = realloc(far->freed[class], (size_t)room * sizeof *grown);
        if (grown) {
            far->freed[class] = grown;
            far->freed_room[class] = room;
        }
    }
    if (far->freed_count[class] < far->freed_room[class])
        far->freed[class][far->freed_count[class]++] = (size_t)((char *)block - far->hidden);
    far->stats.live -= (size_t)1 << class;
    far->stats.cached += (size_t)1 << class;
    pthread_mutex_unlock(&far->lock);
}

static int far_copy(struct ah_device *device, void *to, struct ah_device *to_device, const void *from,
                    struct ah_device *from_device, size_t bytes, void *stream)
{
    char *target = to_device == &ah_cpu ? to : reach(to_device, to, bytes);
    const char *source = from_device == &ah_cpu ? from : reach(from_device, from, bytes);
    if (!target || !source)
        return AH_ESTATE;
    if (bytes)
        memmove(target, source, bytes);
    return 0;
}

static int far_fill(struct ah_device *device, void *to, int byte, size_t bytes)
{
    char *target = reach(device, to, bytes);
    if (!target)
        return AH_ESTATE;
    memset(target, byte, bytes);
    return 0;
}

static int far_transpose(struct ah_device *device, void *to, const void *from, int64_t batch, int64_t rows,
                         int64_t columns, size_t item)
{
    size_t bytes = (size_t)(batch * rows * columns) * item;
    char *target = reach(device, to, bytes);
    const char *source = reach(device, from, bytes);
    if (!target || !source)
        return AH_ESTATE;
    return ah_cpu.type->transpose(&ah_cpu, target, source, batch, rows, columns, item);
}

static int far_synchronise(struct ah_device *device, void *stream)
{
    return 0;
}

/* The kernels draw from the CPU's generator, so that random numbers are the same here; it has been seeded already. */

static void far_seed(struct ah_device *device, uint64_t seed)
{
}

static int far_get_state(struct ah_device *device, uint8_t *state)
{
    return ah_cpu.type->get_state(&ah_cpu, state);
}

static int far_set_state(struct ah_device *device, const uint8_t *state)
{
    return ah_cpu.type->set_state(&ah_cpu, state);
}

static void far_memory_stats(struct ah_device *device, struct ah_memory_stats *stats)
{
    *stats = ((struct far *)device->state)->stats;
}

static void far_trim(struct ah_device *device)
{
}

/* Kernels. */

struct shadow {
    struct ah_tensor *real;
    struct ah_tensor tensor;
    struct shadow_storage {
        struct ah_storage *real;
        struct ah_storage storage;
        void *data;
    } * storage;
};

struct shadows {
    struct ah_device *device;
    struct shadow *at;
    struct shadow_storage *storage;
    int count, storage_count, room;
    int status;
    bool mixed; /* tensors on the CPU are meant to be there */
};

static void keep(struct ah_storage *storage)
{
}

static struct shadow_storage *shadow_storage(struct shadows *s, struct ah_storage *real)
{
    for (int i = 0; i < s->storage_count; i++)
        if (s->storage[i].real == real)
            return &s->storage[i];
    struct shadow_storage *made = &s->storage[s->storage_count++];
    char *data = reach(s->device, real->data, real->nbytes);
    if (!data)
        s->status = AH_ESTATE;
    made->real = real;
    made->data = data;
    made->storage = (struct ah_storage){.device = &ah_cpu, .channels_last = real->channels_last,
                                        .version = real->version, .data = data, .nbytes = real->nbytes,
                                        .release = keep};
    atomic_init(&made->storage.refs, 1);
    return made;
}

/* The shadow of a tensor: itself when it is a number on the CPU, or is stored there and the op allows it. */
static struct ah_tensor *shadow(struct shadows *s, struct ah_tensor *real)
{
    if (!real || (ah_on_cpu(real) && (real->ndim == 0 || s->mixed)))
        return real;
    for (int i = 0; i < s->count; i++)
        if (s->at[i].real == real)
            return &s->at[i].tensor;
    struct shadow *made = &s->at[s->count++];
    if (real->storage->device != s->device)
        s->status = ah_fail(AH_ESTATE, "%s: a kernel got a tensor on %s", s->device->name,
                            real->storage->device->name);
    made->real = real;
    made->storage = shadow_storage(s, real->storage);
    made->tensor = *real;
    made->tensor.refs = 1;
    made->tensor.storage = &made->storage->storage;
    made->tensor.grad = NULL;
    made->tensor.shared_handle = false;
    return &made->tensor;
}

static int shadows_open(struct shadows *s, struct ah_call *call, struct ah_call *near)
{
    s->room = AH_MAX_ARGS + AH_MAX_OUTS + AH_MAX_EXTRA;
    for (int i = 0; i < call->op->param_count; i++)
        if (call->arg[i].kind == AH_LIST)
            s->room += 2 * call->arg[i].list.count;
    s->at = calloc((size_t)s->room, sizeof *s->at);
    s->storage = calloc((size_t)s->room, sizeof *s->storage);
    if (!s->at || !s->storage)
        return ah_fail(AH_ENOMEM, "out of memory");
    *near = *call;
    near->device = &ah_cpu;
    near->original = NULL;
    for (int i = 0; i < call->op->param_count; i++) {
        struct ah_value *arg = &near->arg[i];
        if (arg->kind == AH_TENSOR) {
            arg->tensor = shadow(s, arg->tensor);
        } else if (arg->kind == AH_LIST) {
            arg->list.item = calloc((size_t)arg->list.count + 1, sizeof(struct ah_tensor *));
            for (int k = 0; arg->list.item && k < arg->list.count; k++)
                arg->list.item[k] = shadow(s, call->arg[i].list.item[k]);
        }
    }
    for (int k = 0; k < AH_MAX_OUTS; k++)
        near->out[k] = shadow(s, call->out[k]);
    for (int k = 0; k < AH_MAX_EXTRA; k++)
        near->extra[k] = shadow(s, call->extra[k]);
    return s->status;
}

/* Return the tensor that a kernel left in a slot that held `before`: a shadow represents its tensor, a tensor that the
 * kernel made on the CPU moves here. */
static struct ah_tensor *bring_back(struct shadows *s, struct ah_tensor *left, struct ah_tensor *before)
{
    for (int i = 0; i < s->count; i++)
        if (left == &s->at[i].tensor)
            return s->at[i].real == before ? before : ah_tensor_retain(s->at[i].real);
    if (!left || left == before)
        return left;
    struct ah_tensor *made = NULL;
    s->status = ah_tensor_empty(&made, left->size, left->ndim, left->dtype, s->device);
    if (s->status == 0) {
        s->status = ah_device_copy(made->storage->data, s->device, left->storage->data, &ah_cpu,
                                   left->storage->nbytes);
        made->storage->channels_last = left->storage->channels_last;
    }
    ah_tensor_release(left);
    return made;
}

static void shadows_close(struct shadows *s, struct ah_call *call, struct ah_call *near)
{
    for (int k = 0; k < AH_MAX_OUTS; k++)
        call->out[k] = bring_back(s, near->out[k], call->out[k]);
    for (int k = 0; k < AH_MAX_EXTRA; k++)
        call->extra[k] = bring_back(s, near->extra[k], call->extra[k]);
    call->out_count = near->out_count;
    call->state = near->state;
    for (int i = 0; i < s->storage_count; i++) {
        struct shadow_storage *storage = &s->storage[i];
        storage->real->channels_last = storage->storage.channels_last;
        storage->real->version = storage->storage.version;
        if (storage->storage.data != storage->data)
            s->status = ah_fail(AH_ESTATE, "%s: a kernel moved a storage", call->op->name);
    }
    for (int i = 0; i < call->op->param_count; i++)
        if (near->arg[i].kind == AH_LIST)
            free(near->arg[i].list.item);
    free(s->at);
    free(s->storage);
}

static int run(struct ah_call *call)
{
    struct shadows shadows = {.device = call->device, .mixed = call->op->flags & AH_ANY_DEVICE};
    struct ah_call near;
    AH_TRY(shadows_open(&shadows, call, &near));
    int status = ah_cpu.kernels[call->op->id](&near);
    shadows_close(&shadows, call, &near);
    return status < 0 ? status : shadows.status;
}

__attribute__((constructor)) static void fill_kernels(void)
{
    for (int i = 0; i < AH_OP_COUNT; i++)
        kernels[i] = ah_cpu.kernels[i] ? run : NULL;
}

/* Optimizers. */

static int far_step(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                    const struct ah_optim_segment *segment, int count, enum ah_dtype dtype)
{
    struct ah_optim_segment *near = calloc((size_t)count + 1, sizeof *near);
    int status = near ? 0 : ah_fail(AH_ENOMEM, "out of memory");
    for (int i = 0; near && i < count && status == 0; i++) {
        size_t bytes = (size_t)segment[i].n * ah_dtype_size(dtype);
        near[i] = segment[i];
        near[i].param = reach(device, segment[i].param, bytes);
        near[i].grad = reach(device, segment[i].grad, bytes);
        status = near[i].param && near[i].grad ? 0 : AH_ESTATE;
        for (int k = 0; k < AH_OPTIM_STATES; k++) {
            if (segment[i].state[k])
                near[i].state[k] = reach(device, segment[i].state[k], bytes);
            status = segment[i].state[k] && !near[i].state[k] ? AH_ESTATE : status;
        }
    }
    if (status == 0)
        status = ah_cpu.optim->step(&ah_cpu, kind, options, near, count, dtype);
    free(near);
    return status;
}

/* The runs where the CPU can read them: to be freed, NULL when there is an error. */
static struct ah_optim_run *reach_runs(struct ah_device *device, const struct ah_optim_run *run, int count,
                                       enum ah_dtype dtype)
{
    struct ah_optim_run *near = calloc((size_t)count + 1, sizeof *near);
    for (int i = 0; near && i < count; i++) {
        near[i] = (struct ah_optim_run){reach(device, run[i].x, (size_t)run[i].n * ah_dtype_size(dtype)), run[i].n};
        if (!near[i].x) {
            free(near);
            return NULL;
        }
    }
    return near;
}

static int far_norm_sum(struct ah_device *device, const struct ah_optim_run *run, int count, double p,
                        enum ah_dtype dtype, double *sum)
{
    struct ah_optim_run *near = reach_runs(device, run, count, dtype);
    int status = near ? ah_cpu.optim->norm_sum(&ah_cpu, near, count, p, dtype, sum) : AH_ESTATE;
    free(near);
    return status;
}

static int far_scale(struct ah_device *device, const struct ah_optim_run *run, int count, double factor,
                     enum ah_dtype dtype, bool *overflow)
{
    struct ah_optim_run *near = reach_runs(device, run, count, dtype);
    int status = near ? ah_cpu.optim->scale(&ah_cpu, near, count, factor, dtype, overflow) : AH_ESTATE;
    free(near);
    return status;
}

static int far_clamp(struct ah_device *device, const struct ah_optim_run *run, int count, double limit,
                     enum ah_dtype dtype)
{
    struct ah_optim_run *near = reach_runs(device, run, count, dtype);
    int status = near ? ah_cpu.optim->clamp(&ah_cpu, near, count, limit, dtype) : AH_ESTATE;
    free(near);
    return status;
}

static const struct ah_optim_kernels optim = {
    .step = far_step, .norm_sum = far_norm_sum, .scale = far_scale, .clamp = far_clamp};

extern const struct ah_device_type ah_device_plugin;
const struct ah_device_type ah_device_plugin = {
    .abi = AH_DEVICE_ABI,
    .name = "far",
    .count = far_count,
    .open = far_open,
    .close = far_close,
    .allocate = far_allocate,
    .release = far_release,
    .copy = far_copy,
    .fill = far_fill,
    .transpose = far_transpose,
    .synchronise = far_synchronise,
    .state_bytes = 5056,
    .seed = far_seed,
    .get_state = far_get_state,
    .set_state = far_set_state,
    .memory_stats = far_memory_stats,
    .trim = far_trim,
};
