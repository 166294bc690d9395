/* Clipping is two passes over the gradients: the norm, added up in double in the order of the list, then the scaling
 * where it is needed. Unscaling is one. */
#include "optim/clip.h"

#include <math.h>

#include "optim/kernels.h"
#include "optim/piece.h"
#include "tensor/device.h"

/* Close a piece after a kernel that ended with `status`. */
static int closed(struct ah_piece *piece, int status)
{
    int at_end = ah_piece_close(piece, status < 0);
    return status < 0 ? status : at_end;
}

static int total_norm(struct ah_tensor **grad, int count, double p, double *out)
{
    double total = 0;
    for (int i = 0; i < count && !isnan(total); i++) {
        struct ah_piece piece;
        AH_TRY(ah_piece_open(&piece, grad[i], false));
        struct ah_device *device = grad[i]->storage->device;
        double part = 0;
        int status = device->optim->norm_sum(device, piece.data, grad[i]->numel, p, grad[i]->dtype, &part);
        AH_TRY(closed(&piece, status));
        if (!isinf(p))
            total += part;
        else if (part > total || isnan(part))
            total = part;
    }
    *out = isinf(p) ? total : p == 2 ? sqrt(total) : pow(total, 1 / p);
    return 0;
}

int ah_clip_grad_norm(struct ah_tensor **grad, int count, double max_norm, double p, bool strict,
                      struct ah_tensor **norm)
{
    double total;
    bool all_double = count > 0;
    for (int i = 0; i < count; i++)
        all_double = all_double && grad[i]->dtype == AH_F64;
    AH_TRY(total_norm(grad, count, p, &total));
    if (strict && !isfinite(total))
        return ah_fail(AH_EINVAL,
                       "clip_grad_norm_: the total norm of order %g of the gradients is %g, so they cannot be clipped",
                       p, total);
    /* PyTorch computes max_norm / (norm + 1e-6) as a reciprocal and a product, in the gradients' dtype. */
    double factor = all_double ? 1 / (total + 1e-6) * max_norm
                               : (double)(1 / ((float)total + 1e-6f) * (float)max_norm);
    for (int i = 0; i < count && !(factor >= 1); i++) {
        struct ah_piece piece;
        AH_TRY(ah_piece_open(&piece, grad[i], true));
        struct ah_device *device = grad[i]->storage->device;
        AH_TRY(closed(&piece, device->optim->scale(device, piece.data, grad[i]->numel, factor, grad[i]->dtype, NULL)));
    }
    return ah_tensor_scalar(norm, total, all_double ? AH_F64 : AH_F32,
                            count ? grad[0]->storage->device : ah_default_device);
}

int ah_clip_grad_value(struct ah_tensor **grad, int count, double limit)
{
    for (int i = 0; i < count; i++) {
        struct ah_piece piece;
        AH_TRY(ah_piece_open(&piece, grad[i], true));
        struct ah_device *device = grad[i]->storage->device;
        AH_TRY(closed(&piece, device->optim->clamp(device, piece.data, grad[i]->numel, limit, grad[i]->dtype)));
    }
    return 0;
}

int ah_unscale_grad(struct ah_tensor **grad, int count, double factor, bool *overflow)
{
    *overflow = false;
    for (int i = 0; i < count; i++) {
        struct ah_piece piece;
        AH_TRY(ah_piece_open(&piece, grad[i], true));
        struct ah_device *device = grad[i]->storage->device;
        AH_TRY(closed(&piece, device->optim->scale(device, piece.data, grad[i]->numel, factor, grad[i]->dtype,
                                                   overflow)));
    }
    return 0;
}
