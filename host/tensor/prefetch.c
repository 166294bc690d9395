/* Both kinds of tensors are storages whose memory is returned to the device that allocated it. */
#include "tensor/prefetch.h"

#include "base/status/status.h"

static void prefetch_unpin(struct ah_storage *storage)
{
    struct ah_device *device = storage->owner;
    device->type->prefetch->unpin(device, storage->data);
}

static void prefetch_drop(struct ah_storage *storage)
{
    storage->device->type->prefetch->drop(storage->device, storage->data);
}

static size_t bytes_of(const int64_t *size, int ndim, enum ah_dtype dtype)
{
    size_t bytes = ah_dtype_size(dtype);
    for (int d = 0; d < ndim; d++)
        bytes *= (size_t)size[d];
    return bytes;
}

int ah_tensor_empty_pinned(struct ah_tensor **out, const int64_t *size, int ndim, enum ah_dtype dtype,
                           struct ah_device *device)
{
    void *block;
    if (!device->type->prefetch)
        return ah_fail(AH_EINVAL, "memory is not pinned for device \"%s\"", device->name);
    AH_TRY(device->type->prefetch->pin(device, bytes_of(size, ndim, dtype), &block));
    int status = ah_tensor_from_memory(out, block, size, ndim, dtype, &ah_cpu, prefetch_unpin, device);
    if (status < 0)
        device->type->prefetch->unpin(device, block);
    return status;
}

bool ah_tensor_is_pinned(const struct ah_tensor *tensor)
{
    return tensor->storage->release == prefetch_unpin;
}

int ah_prefetch_tensor(struct ah_tensor **out, const struct ah_tensor *tensor, struct ah_device *device)
{
    void *block;
    size_t bytes = bytes_of(tensor->size, tensor->ndim, tensor->dtype);
    /* Another device would not report to this one when it has finished with the block. */
    bool pinned = ah_tensor_is_pinned(tensor) && tensor->storage->owner == device;
    AH_TRY(device->type->prefetch->fetch(device, &block, ah_tensor_data(tensor), bytes, pinned));
    int status =
        ah_tensor_from_memory(out, block, tensor->size, tensor->ndim, tensor->dtype, device, prefetch_drop, NULL);
    if (status < 0)
        device->type->prefetch->drop(device, block);
    return status;
}

int ah_prefetch_join(struct ah_device *device)
{
    return device->type->prefetch->join(device);
}
