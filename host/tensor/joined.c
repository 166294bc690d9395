/* Tensors that are slices of one: equal strides, and offsets that follow each other by the length of a slice. */
#include "tensor/joined.h"

/* Do two tensors differ in nothing but offset and the size of `dim`? The stride of a dim of size 1 does not matter. */
static bool joined_alike(const struct ah_tensor *a, const struct ah_tensor *b, int dim)
{
    bool alike = a->storage == b->storage && a->dtype == b->dtype && a->ndim == b->ndim &&
                 !a->storage->channels_last;
    for (int d = 0; alike && d < a->ndim; d++)
        if (d != dim)
            alike = a->size[d] == b->size[d] && (a->size[d] == 1 || a->stride[d] == b->stride[d]);
    return alike;
}

/* The stride of `dim` in the whole; slices of length 1 show it by their distance alone. */
static int64_t joined_stride(struct ah_tensor *const *slice, int count, int dim)
{
    for (int i = 0; i < count; i++)
        if (slice[i]->size[dim] != 1)
            return slice[i]->stride[dim];
    return count > 1 ? slice[1]->offset - slice[0]->offset : slice[0]->stride[dim];
}

int ah_tensor_joined(struct ah_tensor **out, struct ah_tensor *const *slice, int count, int dim)
{
    const struct ah_tensor *first = slice[0];
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS], length = 0, step = joined_stride(slice, count, dim);
    *out = NULL;
    for (int i = 0; i < count; i++) {
        bool fits = joined_alike(first, slice[i], dim) && slice[i]->offset == first->offset + length * step &&
                    (slice[i]->size[dim] == 1 || slice[i]->stride[dim] == step);
        if (!fits)
            return 0;
        length += slice[i]->size[dim];
    }
    for (int d = 0; d < first->ndim; d++) {
        size[d] = d == dim ? length : first->size[d];
        stride[d] = d == dim ? step : first->stride[d];
    }
    return step > 0 ? ah_tensor_view(out, first, size, stride, first->ndim, first->offset) : 0;
}
