/* Tensors, storages and shapes. Headers are kept for reuse, since every op makes one. Invariant: size and stride
 * describe elements inside the storage, and a storage marked channels-last has no views. */
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/alloc.h"
#include "base/status/status.h"
#include "base/trace/trace.h"

void (*ah_tensor_release_grad)(struct ah_grad_meta *meta);

/* Every op allocates and frees tensor headers: keep freed ones in a list. */
enum { KEPT_HEADERS = 1024 };
static struct ah_tensor *kept_headers[KEPT_HEADERS];
static int kept_count;

static struct ah_tensor *new_header(void)
{
    struct ah_tensor *tensor = kept_count ? kept_headers[--kept_count] : malloc(sizeof *tensor);
    if (tensor)
        memset(tensor, 0, sizeof *tensor);
    return tensor;
}

static void free_header(struct ah_tensor *tensor)
{
    if (AH_KEEPS_FREED && kept_count < KEPT_HEADERS)
        kept_headers[kept_count++] = tensor;
    else
        free(tensor);
}

int ah_storage_new(struct ah_storage **out, size_t nbytes, struct ah_device *device)
{
    struct ah_storage *storage = malloc(sizeof *storage); /* calloc does not use glibc's cache of freed blocks */
    AH_TRY_MEMORY(storage, "out of memory");
    memset(storage, 0, sizeof *storage);
    int status = ah_device_allocate(device, nbytes, &storage->data);
    if (status < 0) {
        free(storage);
        return status;
    }
    atomic_init(&storage->refs, 1);
    storage->device = device;
    storage->nbytes = nbytes;
    *out = storage;
    return 0;
}

struct ah_storage *ah_storage_retain(struct ah_storage *storage)
{
    /* Relaxed: the caller holds a reference, so the count cannot reach 0 meanwhile. */
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

void ah_storage_release(struct ah_storage *storage)
{
    /* Released for the last holder, which acquires the accesses of all others before it frees the memory. */
    if (!storage || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (storage->release)
        storage->release(storage);
    else
        storage->device->type->release(storage->device, storage->data, storage->nbytes);
    free(storage);
}

int64_t ah_contiguous_strides(const int64_t *size, int ndim, int64_t *stride)
{
    int64_t count = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = count;
        count *= size[d];
    }
    return count;
}

/* The header for a shape, with checked sizes; storage still NULL. */
static int shaped_header(struct ah_tensor **out, const int64_t *size, int ndim, enum ah_dtype dtype, size_t *nbytes)
{
    if (ndim < 0 || ndim > AH_MAX_DIMS)
        return ah_fail(AH_EINVAL, "tensors have 0 to %d dimensions, got %d", AH_MAX_DIMS, ndim);
    int64_t count = 1;
    bool overflow = false;
    for (int d = 0; d < ndim; d++) {
        if (size[d] < 0)
            return ah_fail(AH_EINVAL, "negative size in shape %s", ah_shape_text(size, ndim));
        overflow = __builtin_mul_overflow(count, size[d] > 0 ? size[d] : 1, &count) || overflow;
    }
    int64_t bytes;
    if (overflow || __builtin_mul_overflow(count, (int64_t)ah_dtype_size(dtype), &bytes))
        return ah_fail(AH_EINVAL, "shape %s is too large", ah_shape_text(size, ndim));
    struct ah_tensor *tensor = new_header();
    AH_TRY_MEMORY(tensor, "out of memory");
    tensor->refs = 1;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    for (int d = 0; d < ndim; d++)
        tensor->size[d] = size[d];
    tensor->numel = ah_contiguous_strides(size, ndim, tensor->stride);
    *nbytes = (size_t)tensor->numel * ah_dtype_size(dtype);
    *out = tensor;
    return 0;
}

/* Describe a tensor's block in the memory log. */
static void tensor_describe(const struct ah_tensor *tensor)
{
    char text[192];
    snprintf(text, sizeof text, "%s %s", ah_dtype_name(tensor->dtype), ah_shape_text(tensor->size, tensor->ndim));
    ah_trace_describe(tensor->storage->data, text);
}

int ah_tensor_empty(struct ah_tensor **out, const int64_t *size, int ndim, enum ah_dtype dtype,
                    struct ah_device *device)
{
    struct ah_tensor *tensor = NULL;
    size_t nbytes = 0;
    AH_TRY(shaped_header(&tensor, size, ndim, dtype, &nbytes));
    int status = ah_storage_new(&tensor->storage, nbytes, device);
    if (status < 0) {
        free_header(tensor);
        return status;
    }
    if (__builtin_expect(ah_tracing && ah_trace_options.memory, 0))
        tensor_describe(tensor);
    *out = tensor;
    return 0;
}

int ah_tensor_empty_like(struct ah_tensor **out, const struct ah_tensor *like)
{
    return ah_tensor_empty(out, like->size, like->ndim, like->dtype, like->storage->device);
}

int ah_tensor_empty_ordered(struct ah_tensor **out, const struct ah_tensor *like, enum ah_dtype dtype,
                            struct ah_device *device)
{
    int order[AH_MAX_DIMS] = {0}; /* dims, the one with the largest stride first; those of size 1 stay in place */
    int64_t stride[AH_MAX_DIMS], next = 1;
    bool ordered = like->numel > 0;
    for (int d = 0; d < like->ndim; d++) {
        int k = d;
        for (; k > 0 && like->size[d] != 1 && like->stride[order[k - 1]] < like->stride[d]; k--)
            order[k] = order[k - 1];
        order[k] = d;
    }
    for (int k = like->ndim - 1; k >= 0; k--) {
        int d = order[k];
        ordered = ordered && (like->size[d] == 1 || like->stride[d] > 0);
        stride[d] = next;
        next *= like->size[d];
    }
    AH_TRY(ah_tensor_empty(out, like->size, like->ndim, dtype, device));
    if (ordered)
        memcpy((*out)->stride, stride, sizeof stride);
    return 0;
}

/* Release a fresh tensor if a step failed. */
static int keep_if(int status, struct ah_tensor **tensor)
{
    if (status < 0) {
        ah_tensor_release(*tensor);
        *tensor = NULL;
    }
    return status;
}

int ah_tensor_zeros(struct ah_tensor **out, const int64_t *size, int ndim, enum ah_dtype dtype,
                    struct ah_device *device)
{
    AH_TRY(ah_tensor_empty(out, size, ndim, dtype, device));
    struct ah_storage *storage = (*out)->storage;
    return keep_if(device->type->fill(device, storage->data, 0, storage->nbytes), out);
}

int ah_tensor_scalar(struct ah_tensor **out, double value, enum ah_dtype dtype, struct ah_device *device)
{
    AH_OWNED struct ah_tensor *number = NULL;
    AH_TRY(ah_tensor_empty(&number, NULL, 0, dtype, &ah_cpu));
    ah_tensor_set(number, 0, value);
    if (device == &ah_cpu) {
        *out = ah_tensor_retain(number);
        return 0;
    }
    AH_TRY(ah_tensor_empty(out, NULL, 0, dtype, device));
    return keep_if(ah_device_copy((*out)->storage->data, device, number->storage->data, &ah_cpu,
                                  ah_dtype_size(dtype)), out);
}

int ah_tensor_from_memory(struct ah_tensor **out, void *data, const int64_t *size, int ndim, enum ah_dtype dtype,
                          struct ah_device *device, void (*release)(struct ah_storage *), void *owner)
{
    struct ah_tensor *tensor = NULL;
    size_t nbytes = 0;
    AH_TRY(shaped_header(&tensor, size, ndim, dtype, &nbytes));
    tensor->storage = calloc(1, sizeof *tensor->storage);
    if (!tensor->storage) {
        free_header(tensor);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    atomic_init(&tensor->storage->refs, 1);
    tensor->storage->device = device;
    tensor->storage->data = data;
    tensor->storage->nbytes = nbytes;
    tensor->storage->release = release;
    tensor->storage->owner = owner;
    *out = tensor;
    return 0;
}

int ah_tensor_view(struct ah_tensor **out, const struct ah_tensor *base, const int64_t *size, const int64_t *stride,
                   int ndim, int64_t offset)
{
    struct ah_tensor *tensor = NULL;
    size_t nbytes = 0;
    AH_TRY(shaped_header(&tensor, size, ndim, base->dtype, &nbytes));
    for (int d = 0; d < ndim; d++)
        tensor->stride[d] = stride[d];
    tensor->offset = offset;
    tensor->storage = ah_storage_retain(base->storage);
    tensor->counter = base->counter;
    if (tensor->counter)
        tensor->counter->refs++;
    *out = tensor;
    return 0;
}

static void release_counter(struct ah_version_count *counter)
{
    if (counter && --counter->refs == 0)
        free(counter);
}

int ah_tensor_own_version(struct ah_tensor *tensor)
{
    struct ah_version_count *counter = calloc(1, sizeof *counter);
    AH_TRY_MEMORY(counter, "out of memory");
    counter->refs = 1;
    release_counter(tensor->counter);
    tensor->counter = counter;
    return 0;
}

struct ah_tensor *ah_tensor_retain(struct ah_tensor *tensor)
{
    if (tensor)
        tensor->refs++;
    return tensor;
}

void ah_tensor_release(struct ah_tensor *tensor)
{
    if (!tensor || --tensor->refs > 0)
        return;
    if (tensor->grad)
        ah_tensor_release_grad(tensor->grad);
    release_counter(tensor->counter);
    ah_storage_release(tensor->storage);
    free_header(tensor);
}

bool ah_tensor_is_contiguous(const struct ah_tensor *tensor)
{
    int64_t expected = 1;
    if (tensor->numel == 0)
        return true;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->size[d] != 1 && tensor->stride[d] != expected)
            return false;
        expected *= tensor->size[d];
    }
    return true;
}

bool ah_same_shape(const struct ah_tensor *a, const struct ah_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->size[d] != b->size[d])
            return false;
    return true;
}

int ah_wrap_dim(const char *op, int64_t dim, int ndim, int *out)
{
    int range = ndim > 0 ? ndim : 1;
    if (dim < -range || dim >= range) {
        return ah_fail(AH_EINVAL, "%s: dim %lld is out of range (expected %d..%d)", op, (long long)dim, -range,
                       range - 1);
    }
    *out = (int)(dim < 0 ? dim + range : dim);
    return 0;
}

int ah_broadcast_shapes(const char *op, const struct ah_tensor *a, const struct ah_tensor *b, int64_t *size, int *ndim)
{
    int n = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 1; d <= n; d++) { /* from the right */
        int64_t x = d <= a->ndim ? a->size[a->ndim - d] : 1;
        int64_t y = d <= b->ndim ? b->size[b->ndim - d] : 1;
        if (x != y && x != 1 && y != 1)
            return ah_fail(AH_EINVAL, "%s: shapes do not broadcast: %s and %s", op, ah_shape(a), ah_shape(b));
        size[n - d] = x == 1 ? y : x;
    }
    *ndim = n;
    return 0;
}

void ah_broadcast_strides(const struct ah_tensor *tensor, const int64_t *size, int ndim, int64_t *stride)
{
    int lead = ndim - tensor->ndim;
    for (int d = 0; d < ndim; d++) {
        bool stretched = d < lead || (tensor->size[d - lead] == 1 && size[d] != 1);
        stride[d] = stretched ? 0 : tensor->stride[d - lead];
    }
}

const char *ah_shape_text(const int64_t *size, int ndim)
{
    static _Thread_local char buffers[8][128];
    static _Thread_local int next;
    char *text = buffers[next++ % 8];
    int used = snprintf(text, 128, "(");
    for (int d = 0; d < ndim && used < 100; d++)
        used += snprintf(text + used, 128 - (size_t)used, d ? ", %lld" : "%lld", (long long)size[d]);
    snprintf(text + used, 128 - (size_t)used, ndim == 1 ? ",)" : ")");
    return text;
}

/* Transpose the matrices [rows, columns] of each sample in memory. */
static int tensor_reorder(struct ah_tensor *tensor, int64_t rows, int64_t columns)
{
    struct ah_storage *storage = tensor->storage;
    struct ah_device *device = storage->device;
    void *fresh;
    AH_TRY(ah_device_allocate(device, storage->nbytes, &fresh));
    int status = device->type->transpose(device, fresh, storage->data, tensor->size[0], rows, columns,
                                         ah_dtype_size(tensor->dtype));
    void *unused = fresh;
    if (status == 0 && storage->release) { /* another owner's memory stays in place */
        status = ah_device_copy(storage->data, device, fresh, device, storage->nbytes);
    } else if (status == 0) {
        unused = storage->data;
        storage->data = fresh;
    }
    device->type->release(device, unused, storage->nbytes);
    return status;
}

int (*ah_storage_fetch)(struct ah_storage *storage);

int ah_tensor_row_major(struct ah_tensor *tensor)
{
    if (tensor->storage->absent)
        AH_TRY(ah_storage_fetch(tensor->storage));
    if (!tensor->storage->channels_last)
        return 0;
    AH_TRY(tensor_reorder(tensor, tensor->size[2] * tensor->size[3], tensor->size[1]));
    tensor->storage->channels_last = false;
    return 0;
}

int ah_tensor_channels_last(struct ah_tensor *tensor, bool unset)
{
    int64_t pixels = tensor->size[2] * tensor->size[3];
    if (tensor->storage->channels_last || tensor->numel == 0 || tensor->size[1] == 1 || pixels == 1)
        return 0;
    if (!unset)
        AH_TRY(tensor_reorder(tensor, tensor->size[1], pixels));
    tensor->storage->channels_last = true;
    return 0;
}

/* Address of the element with the given flat row-major index. */
static void *tensor_element(const struct ah_tensor *tensor, int64_t flat)
{
    int64_t at = tensor->offset;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        at += flat % tensor->size[d] * tensor->stride[d];
        flat /= tensor->size[d];
    }
    return (char *)tensor->storage->data + (size_t)at * ah_dtype_size(tensor->dtype);
}

double ah_tensor_get(const struct ah_tensor *tensor, int64_t flat)
{
    const void *p = tensor_element(tensor, flat);
    switch (tensor->dtype) {
    case AH_BOOL: return *(const uint8_t *)p != 0;
    case AH_U8: return *(const uint8_t *)p;
    case AH_I8: return *(const int8_t *)p;
    case AH_I16: return *(const int16_t *)p;
    case AH_U16: return *(const uint16_t *)p;
    case AH_U32: return *(const uint32_t *)p;
    case AH_U64: return (double)*(const uint64_t *)p;
    case AH_I32: return *(const int32_t *)p;
    case AH_I64: return (double)*(const int64_t *)p;
    case AH_F16: return (double)ah_f16_to_f32(*(const uint16_t *)p);
    case AH_BF16: return (double)ah_bf16_to_f32(*(const uint16_t *)p);
    case AH_F32: return (double)*(const float *)p;
    case AH_F64: return *(const double *)p;
    case AH_DTYPE_COUNT: break;
    }
    return 0;
}

int64_t ah_tensor_get_int(const struct ah_tensor *tensor, int64_t flat)
{
    if (tensor->dtype == AH_I64 || tensor->dtype == AH_U64)
        return *(const int64_t *)tensor_element(tensor, flat);
    return (int64_t)ah_tensor_get(tensor, flat);
}

void ah_tensor_set(struct ah_tensor *tensor, int64_t flat, double value)
{
    void *p = tensor_element(tensor, flat);
    switch (tensor->dtype) {
    case AH_BOOL: *(uint8_t *)p = value != 0; break;
    case AH_U8: *(uint8_t *)p = (uint8_t)(int64_t)value; break;
    case AH_I8: *(int8_t *)p = (int8_t)(int64_t)value; break;
    case AH_I16: *(int16_t *)p = (int16_t)(int64_t)value; break;
    case AH_U16: *(uint16_t *)p = (uint16_t)(int64_t)value; break;
    case AH_U32: *(uint32_t *)p = (uint32_t)(int64_t)value; break;
    case AH_U64: *(uint64_t *)p = ah_u64_of(value); break;
    case AH_I32: *(int32_t *)p = (int32_t)(int64_t)value; break;
    case AH_I64: *(int64_t *)p = (int64_t)value; break;
    case AH_F16: *(uint16_t *)p = ah_f32_to_f16((float)value); break;
    case AH_BF16: *(uint16_t *)p = ah_f32_to_bf16((float)value); break;
    case AH_F32: *(float *)p = (float)value; break;
    case AH_F64: *(double *)p = value; break;
    case AH_DTYPE_COUNT: break;
    }
}

void ah_tensor_set_int(struct ah_tensor *tensor, int64_t flat, int64_t value)
{
    if (tensor->dtype == AH_I64 || tensor->dtype == AH_U64)
        *(int64_t *)tensor_element(tensor, flat) = value;
    else
        ah_tensor_set(tensor, flat, (double)value);
}
