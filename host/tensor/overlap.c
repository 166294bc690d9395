/* Compares the byte ranges that tensors span: lowest to highest element, by stride and size. Must stay conservative: a
 * caller that hears "no" writes to one while it reads the other. */
#include "tensor/overlap.h"

#include "base/status/status.h"

/* First and one-past-last byte that a tensor touches. */
static void overlap_extent(const struct ah_tensor *tensor, const char **begin, const char **end)
{
    size_t item = ah_dtype_size(tensor->dtype);
    int64_t low = tensor->offset, high = tensor->offset;
    for (int d = 0; d < tensor->ndim; d++) {
        int64_t reach = (tensor->size[d] - 1) * tensor->stride[d];
        *(reach < 0 ? &low : &high) += reach;
    }
    *begin = (const char *)tensor->storage->data + low * (int64_t)item;
    *end = (const char *)tensor->storage->data + (high + 1) * (int64_t)item;
}

bool ah_same_memory(const struct ah_tensor *a, const struct ah_tensor *b)
{
    if (a->storage->data != b->storage->data || a->offset != b->offset || a->dtype != b->dtype || !ah_same_shape(a, b))
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->size[d] != 1 && a->stride[d] != b->stride[d])
            return false;
    return true;
}

static bool storages_meet(const struct ah_storage *a, const struct ah_storage *b)
{
    const char *at_a = a->data, *at_b = b->data;
    return at_a < at_b + b->nbytes && at_b < at_a + a->nbytes;
}

bool ah_memory_meets(const struct ah_tensor *a, const struct ah_tensor *b)
{
    const char *from_a, *to_a, *from_b, *to_b;
    if (a->storage != b->storage && !storages_meet(a->storage, b->storage))
        return false;
    if (a->numel == 0 || b->numel == 0 || a->storage->device != b->storage->device)
        return false;
    overlap_extent(a, &from_a, &to_a);
    overlap_extent(b, &from_b, &to_b);
    return from_a < to_b && from_b < to_a;
}

int ah_check_writable(const struct ah_tensor *out)
{
    for (int d = 0; d < out->ndim && out->numel > 0; d++)
        if (out->stride[d] == 0 && out->size[d] > 1)
            return ah_fail(AH_EINVAL, "cannot write in place into an expanded tensor of shape %s: several elements "
                           "share one place in memory; clone() it first", ah_shape(out));
    return 0;
}
