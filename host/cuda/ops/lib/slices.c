/* Views with a dim moved last, and copies through them. */
#include "cuda/ops/lib/slices.h"

#include "base/status/status.h"
#include "cuda/ops/lib/elementwise.h"

struct ah_cuda_extent ah_cuda_extent(const struct ah_tensor *tensor, int dim)
{
    struct ah_cuda_extent extent = {1, 1, 1};
    for (int d = 0; d < tensor->ndim; d++)
        *(d < dim ? &extent.outer : d == dim ? &extent.n : &extent.inner) *= tensor->size[d];
    return extent;
}

int ah_cuda_turned(struct ah_tensor **out, struct ah_tensor *tensor, int dim)
{
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    int n = 0;
    if (dim >= tensor->ndim - 1) {
        *out = ah_tensor_retain(tensor);
        return 0;
    }
    for (int k = 0; k < tensor->ndim; k++) {
        int d = k < tensor->ndim - 1 ? k + (k >= dim) : dim;
        size[n] = tensor->size[d];
        stride[n++] = tensor->stride[d];
    }
    return ah_tensor_view(out, tensor, size, stride, n, tensor->offset);
}

int ah_cuda_slices(struct ah_device *device, struct ah_tensor **out, struct ah_tensor *tensor, int dim,
                   enum ah_dtype dtype)
{
    AH_OWNED struct ah_tensor *turned = NULL;
    AH_TRY(ah_cuda_turned(&turned, tensor, dim));
    return ah_cuda_dense(device, out, turned, dtype);
}

int ah_cuda_slices_open(struct ah_device *device, struct ah_tensor **room, struct ah_tensor *out, int dim,
                        enum ah_dtype dtype)
{
    AH_OWNED struct ah_tensor *turned = NULL;
    AH_TRY(ah_cuda_turned(&turned, out, dim));
    if (turned->dtype == dtype && ah_tensor_is_contiguous(turned))
        *room = ah_tensor_retain(turned);
    else
        AH_TRY(ah_tensor_empty(room, turned->size, turned->ndim, dtype, device));
    return 0;
}

int ah_cuda_slices_close(struct ah_device *device, struct ah_tensor *room, struct ah_tensor *out, int dim, int status)
{
    struct ah_tensor *turned = NULL;
    if (status == 0)
        status = ah_cuda_turned(&turned, out, dim);
    if (status == 0)
        status = ah_cuda_assign(device, turned, room);
    ah_tensor_release(turned);
    ah_tensor_release(room);
    return status;
}
