/* Launching the kernels of windows, and the ops that are nothing else. */
#include "cuda/ops/image/patches.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "ops/nn/spatial.h"

static struct ah_cuda_kernel take_kernel[] = {
    AH_CUDA_KERNEL("patches", "im2col_1"), AH_CUDA_KERNEL("patches", "im2col_2"),
    AH_CUDA_KERNEL("patches", "im2col_4"), AH_CUDA_KERNEL("patches", "im2col_8")};
static struct ah_cuda_kernel add_kernel[] = AH_CUDA_REALS("patches", "col2im");

static int patches_launch(struct ah_device *device, const char *op_name, struct ah_cuda_kernel *kernel,
                          struct ah_patches_args *args, int64_t items)
{
    const struct ah_patches_depth *depth = &args->depth;
    const int64_t window = depth->kernel * args->kernel[0] * args->kernel[1], most = 1 << 30;
    int64_t large = args->h | args->w | depth->in | depth->kernel * depth->dilation | depth->stride | depth->padding;
    if (items == 0)
        return 0;
    for (int i = 0; i < 2; i++)
        large |= args->kernel[i] * args->dilation[i] | args->stride[i] | args->padding[i];
    args->narrow = large < 1 << 20 && args->n * args->c * depth->in * args->h * args->w < most &&
                   args->n * args->c * depth->out * args->oh * args->ow < most / window;
    args->volume = depth->in > 1 || depth->kernel > 1 || depth->out > 1;
    return ah_cuda_launch(device, kernel, op_name, ah_cuda_grid_for(items, AH_PATCHES_THREADS), args);
}

int ah_cuda_take_patches(struct ah_device *device, const char *op_name, enum ah_dtype dtype,
                         struct ah_patches_args *args)
{
    return patches_launch(device, op_name, &take_kernel[__builtin_ctz((unsigned)ah_dtype_size(dtype))], args,
                          args->n * args->c * args->depth.kernel * args->kernel[0] * args->kernel[1] *
                              args->depth.out * args->oh * args->ow);
}

int ah_cuda_add_patches(struct ah_device *device, const char *op_name, enum ah_dtype dtype,
                        struct ah_patches_args *args)
{
    return patches_launch(device, op_name, &add_kernel[dtype], args,
                          args->n * args->c * args->depth.in * args->h * args->w);
}

/* `image`: (N, C, H, W) or (C, H, W). */
static struct ah_patches_args args_of(const struct ah_patches *p, const struct ah_tensor *image)
{
    struct ah_patches_args args = {.n = image->ndim == 4 ? image->size[0] : 1, .c = image->size[image->ndim - 3],
                                   .h = p->h, .w = p->w, .oh = p->oh, .ow = p->ow, .row_step = p->oh * p->ow,
                                   .depth = AH_PATCHES_FLAT};
    memcpy(args.kernel, p->kernel, sizeof args.kernel);
    memcpy(args.dilation, p->dilation, sizeof args.dilation);
    memcpy(args.padding, p->padding, sizeof args.padding);
    memcpy(args.stride, p->stride, sizeof args.stride);
    args.image_step = args.c * p->kernel[0] * p->kernel[1] * args.row_step;
    args.plane_step = args.c * p->h * p->w;
    return args;
}

int ah_cuda_im2col(struct ah_call *c)
{
    struct ah_tensor *image = ah_args(c, im2col)->input.tensor;
    AH_OWNED struct ah_tensor *x = NULL;
    struct ah_patches p;
    AH_TRY(ah_patches_of(&p, c, 1, image->size[image->ndim - 2], image->size[image->ndim - 1]));
    AH_TRY(ah_cuda_dense(c->device, &x, image, image->dtype));
    struct ah_patches_args args = args_of(&p, image);
    args.image = ah_cuda_data(x);
    args.matrix = ah_cuda_data(c->out[0]);
    return ah_cuda_take_patches(c->device, "unfold", image->dtype, &args);
}

int ah_cuda_col2im(struct ah_call *c)
{
    struct ah_tensor *columns = ah_args(c, col2im)->input.tensor, *image = c->out[0];
    AH_OWNED struct ah_tensor *x = NULL;
    struct ah_patches p;
    AH_TRY(ah_patches_of(&p, c, 2, image->size[image->ndim - 2], image->size[image->ndim - 1]));
    AH_TRY(ah_cuda_dense(c->device, &x, columns, columns->dtype));
    struct ah_patches_args args = args_of(&p, image);
    args.image = ah_cuda_data(image);
    args.matrix = ah_cuda_data(x);
    return ah_cuda_add_patches(c->device, "fold", image->dtype, &args);
}
