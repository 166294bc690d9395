/* Clipping is two passes over the gradients: the norm, added up in double in the order of the list, then the scaling
 * where it is needed. Unscaling is one. Each pass hands runs of equal dtype to the device in one call. */
#include "optim/clip.h"

#include <math.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "optim/kernels.h"
#include "optim/piece.h"
#include "tensor/device.h"

/* A pass's action, with its number: the order of the norm, a factor or a limit. */
struct pass {
    enum { NORM, SCALE, CLAMP, CLIP, UNSCALE } action;
    double number;
    double *sum;     /* of NORM */
    bool *overflow;  /* of SCALE, or NULL */
    double max_norm; /* of CLIP */
    void *norm;      /* of CLIP, in the device's memory */
    void *factor, *found; /* of UNSCALE, there too */
};

static int run_kernel(const struct pass *pass, struct ah_device *device, const struct ah_optim_run *run, int count,
                      enum ah_dtype dtype)
{
    switch (pass->action) {
    case NORM:
        return device->optim->norm_sum(device, run, count, pass->number, dtype, pass->sum);
    case SCALE:
        return device->optim->scale(device, run, count, pass->number, dtype, pass->overflow);
    case CLIP:
        return device->optim->clip_norm(device, run, count, pass->max_norm, pass->number, dtype, pass->norm);
    case UNSCALE:
        return device->optim->unscale(device, run, count, dtype, pass->factor, pass->found);
    default:
        return device->optim->clamp(device, run, count, pass->number, dtype);
    }
}

static bool clip_together(const struct ah_tensor *a, const struct ah_tensor *b)
{
    return a->dtype == b->dtype && a->storage->device == b->storage->device;
}

/* All of one dtype and device. */
static int run_alike(const struct pass *pass, struct ah_tensor **grad, int count, struct ah_piece *piece,
                     struct ah_optim_run *run)
{
    int opened = 0, status = 0;
    while (status == 0 && opened < count) {
        status = ah_piece_open(&piece[opened], grad[opened], pass->action != NORM);
        if (status == 0) {
            run[opened] = (struct ah_optim_run){piece[opened].data, grad[opened]->numel};
            opened++;
        }
    }
    if (status == 0)
        status = run_kernel(pass, grad[0]->storage->device, run, count, grad[0]->dtype);
    bool failed = status < 0;
    for (int i = 0; i < opened; i++) {
        int closed = ah_piece_close(&piece[i], failed);
        status = status < 0 ? status : closed;
    }
    return status;
}

static int run_pass(const struct pass *pass, struct ah_tensor **grad, int count)
{
    struct ah_piece *piece = calloc((size_t)count + 1, sizeof *piece);
    struct ah_optim_run *run = calloc((size_t)count + 1, sizeof *run);
    int status = piece && run ? 0 : ah_fail(AH_ENOMEM, "out of memory for a pass over %d gradients", count);
    for (int first = 0, next; status == 0 && first < count; first = next) {
        next = first + 1;
        while (next < count && clip_together(grad[next], grad[first]))
            next++;
        status = run_alike(pass, grad + first, next - first, piece, run);
    }
    free(piece);
    free(run);
    return status;
}

static int total_norm(struct ah_tensor **grad, int count, double p, double *out)
{
    double total = 0;
    AH_TRY(run_pass(&(struct pass){.action = NORM, .number = p, .sum = &total}, grad, count));
    *out = isinf(p) ? total : p == 2 ? sqrt(total) : pow(total, 1 / p);
    return 0;
}

/* Are they all of one device, which clips without the host, and of one dtype? */
static bool clips_itself(struct ah_tensor **grad, int count)
{
    for (int i = 1; i < count; i++)
        if (!clip_together(grad[i], grad[0]))
            return false;
    return count > 0 && grad[0]->storage->device->optim->clip_norm;
}

static int clip_there(struct ah_tensor **grad, int count, double max_norm, double p, struct ah_tensor **norm)
{
    enum ah_dtype dtype = grad[0]->dtype == AH_F64 ? AH_F64 : AH_F32;
    AH_TRY(ah_tensor_empty(norm, NULL, 0, dtype, grad[0]->storage->device));
    struct pass pass = {.action = CLIP, .number = p, .max_norm = max_norm, .norm = ah_tensor_data(*norm)};
    int status = run_pass(&pass, grad, count);
    if (status < 0) {
        ah_tensor_release(*norm);
        *norm = NULL;
    }
    return status;
}

int ah_clip_grad_norm(struct ah_tensor **grad, int count, double max_norm, double p, bool strict,
                      struct ah_tensor **norm)
{
    double total;
    if (!strict && clips_itself(grad, count))
        return clip_there(grad, count, max_norm, p, norm);
    bool all_double = count > 0;
    for (int i = 0; i < count; i++)
        all_double = all_double && grad[i]->dtype == AH_F64;
    AH_TRY(total_norm(grad, count, p, &total));
    if (strict && !isfinite(total))
        return ah_fail(AH_EINVAL,
                       "clip_grad_norm_: the total norm of order %g of the gradients is %g, so they cannot be clipped",
                       p, total);
    double factor = ah_clip_factor(max_norm, total, all_double);
    if (!(factor >= 1))
        AH_TRY(run_pass(&(struct pass){.action = SCALE, .number = factor}, grad, count));
    return ah_tensor_scalar(norm, total, all_double ? AH_F64 : AH_F32,
                            count ? grad[0]->storage->device : ah_default_device);
}

int ah_clip_grad_value(struct ah_tensor **grad, int count, double limit)
{
    return run_pass(&(struct pass){.action = CLAMP, .number = limit}, grad, count);
}

int ah_unscale_grad(struct ah_tensor **grad, int count, double factor, bool *overflow)
{
    *overflow = false;
    return run_pass(&(struct pass){.action = SCALE, .number = factor, .overflow = overflow}, grad, count);
}

bool ah_unscales_there(struct ah_tensor **grad, int count)
{
    for (int i = 1; i < count; i++)
        if (grad[i]->storage->device != grad[0]->storage->device)
            return false;
    return count > 0 && grad[0]->storage->device->optim->unscale;
}

int ah_unscale_grad_there(struct ah_tensor **grad, int count, struct ah_tensor *factor, struct ah_tensor *found)
{
    struct ah_device *device = grad[0]->storage->device;
    bool fit = factor->dtype == AH_F64 && found->dtype == AH_I32 && factor->numel == 1 && found->numel == 1;
    if (!fit || factor->storage->device != device || found->storage->device != device)
        return ah_fail(AH_EINVAL, "unscale_: the scale is not on %s, the gradients' device", device->name);
    struct pass pass = {.action = UNSCALE, .factor = ah_tensor_data(factor), .found = ah_tensor_data(found)};
    AH_TRY(device->type->fill(device, pass.found, 0, sizeof(int32_t)));
    ah_tensor_touch(found);
    return run_pass(&pass, grad, count);
}
