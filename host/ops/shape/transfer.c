/* Moving tensors between devices: the rows to_device and copy_, and the copy on the CPU that host code reads. The
 * source is first made dense by a kernel of its device; the bytes then go through ah_device_copy. Nothing
 * here is recorded but the rows themselves. */
#include "ops/dispatch/rows.h"
#include "tensor/capture.h"

/* The same window without history, so that ops on it leave no nodes. */
static int transfer_window(struct ah_tensor **out, const struct ah_tensor *tensor)
{
    return ah_tensor_view(out, tensor, tensor->size, tensor->stride, tensor->ndim, tensor->offset);
}

/* A dense tensor with the values of `tensor`, which is row-major, in memory of `device`. */
static int transfer_bring(struct ah_tensor **out, const struct ah_tensor *tensor, struct ah_device *device)
{
    AH_OWNED struct ah_tensor *plain = NULL, *dense = NULL, *there = NULL;
    AH_TRY(transfer_window(&plain, tensor));
    AH_TRY(ah_op1(AH_OP_contiguous, &dense, AH_T(plain)));
    AH_TRY(ah_tensor_empty(&there, dense->size, dense->ndim, dense->dtype, device));
    AH_TRY(ah_device_copy(ah_tensor_data(there), device, ah_tensor_data(dense), dense->storage->device,
                          ah_tensor_bytes(dense)));
    *out = ah_tensor_retain(there);
    return 0;
}

int ah_host_copy(struct ah_tensor **out, struct ah_tensor *tensor)
{
    if (!tensor->wrapped && ah_on_cpu(tensor))
        AH_TRY(ah_capture_refuse(NULL, "reading values", "return the tensor from the step and read it afterwards"));
    AH_TRY(ah_tensor_row_major(tensor));
    if (!ah_on_cpu(tensor))
        return transfer_bring(out, tensor, &ah_cpu);
    *out = ah_tensor_retain(tensor);
    return 0;
}

int ah_forward_to_device(struct ah_call *c)
{
    struct ah_tensor *input = ah_args(c, to_device)->input.tensor;
    if (input->storage->device == c->device) {
        c->recording = false;
        c->out[0] = ah_tensor_retain(input);
    } else {
        AH_TRY(transfer_bring(&c->out[0], input, c->device));
    }
    c->out_count = 1;
    return 0;
}

int ah_forward_copy_(struct ah_call *c)
{
    const struct ah_tensor *out = ah_args(c, copy_)->input.tensor, *src = c->arg[1].tensor;
    int64_t size[AH_MAX_DIMS];
    int ndim;
    AH_TRY(ah_broadcast_shapes("copy_", out, src, size, &ndim));
    bool fits = ndim == out->ndim;
    for (int d = 0; fits && d < ndim; d++)
        fits = size[d] == out->size[d];
    if (!fits)
        return ah_fail(AH_EINVAL, "copy_: a source of shape %s does not broadcast to %s", ah_shape(src), ah_shape(out));
    if (src->storage->device == c->device)
        return ah_call_kernel(c);
    struct ah_call here = *c;
    AH_OWNED struct ah_tensor *brought = NULL;
    AH_TRY(transfer_bring(&brought, src, c->device));
    here.arg[1].tensor = brought;
    return ah_call_kernel(&here);
}
