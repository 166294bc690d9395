/* Convolutions as products of matrices: the windows of some images at a time, as many as ROOM holds or memory allows,
 * side by side. Images of a group, or groups of an image, are a batch of products; the weight's gradient is one product
 * of all the images' pixels. */
#include "cuda/ops/linear/conv.h"

#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/ops/image/patches.h"
#include "cuda/vendor/matmul.h"

#define ROOM ((int64_t)256 << 20)

struct job {
    struct ah_device *device;
    const char *op_name;
    const struct ah_cuda_conv *conv;
    const struct ah_conv *s;
    int64_t item, outputs, window, depth, pixels; /* outputs: channels of a group; depth: rows of its matrix */
    int64_t size;   /* of a channel of the input */
    bool plain;     /* the image is its matrix */
    int64_t images; /* at a time */
    uint64_t matrix, turned; /* turned: the output's gradient, channels before images */
};

/* A 1 x 1 window that visits every pixel needs no matrix. */
static bool is_plain(const struct ah_conv *s)
{
    const struct ah_conv_dim *d = &s->depth;
    return d->kernel == 1 && d->stride == 1 && d->padding == 0 && s->kh == 1 && s->kw == 1 && s->stride[0] == 1 &&
           s->stride[1] == 1 && s->padding[0] == 0 && s->padding[1] == 0;
}

static struct ah_patches_args patches_of(const struct job *j, int64_t images, bool side_by_side)
{
    const struct ah_conv *s = j->s;
    struct ah_patches_args args = {.n = images, .c = s->c, .h = s->h, .w = s->w, .oh = s->oh, .ow = s->ow,
                                   .kernel = {s->kh, s->kw}, .matrix = j->matrix, .plane_step = s->c * j->size};
    const struct ah_conv_dim *d = &s->depth;
    args.depth = (struct ah_patches_depth){.in = d->in, .out = d->out, .kernel = d->kernel, .dilation = d->dilation,
                                           .padding = d->padding, .stride = d->stride};
    memcpy(args.dilation, s->dilation, sizeof args.dilation);
    memcpy(args.padding, s->padding, sizeof args.padding);
    memcpy(args.stride, s->stride, sizeof args.stride);
    args.image_step = side_by_side ? j->pixels : s->c * j->window * j->pixels;
    args.row_step = side_by_side ? images * j->pixels : j->pixels;
    return args;
}

static uint64_t image_at(const struct job *j, uint64_t base, int64_t image, int64_t elements)
{
    return base + (uint64_t)(image * elements * j->item);
}

/* Products for all images and groups: the longer of the two is the batch. `step`: from one group to the next in each
 * operand, then from one image to the next. */
static int multiply_all(const struct job *j, struct ah_cuda_matmul *product, int64_t images, const int64_t step[3][2])
{
    int64_t groups = j->s->groups, outer = images >= groups ? groups : images;
    int along = images >= groups ? 1 : 0;
    struct ah_cuda_matrix *matrix[] = {&product->a, &product->b, &product->out};
    product->batch = images >= groups ? images : groups;
    for (int i = 0; i < 3; i++)
        matrix[i]->stride = step[i][along];
    for (int64_t k = 0; k < outer; k++) {
        AH_TRY(ah_cuda_multiply(j->device, j->op_name, product));
        for (int i = 0; i < 3; i++)
            matrix[i]->at += (uint64_t)(step[i][!along] * j->item);
    }
    return 0;
}

static int conv_forward(const struct job *j, int64_t first, int64_t images)
{
    const struct ah_conv *s = j->s;
    uint64_t matrix = image_at(j, j->conv->input, first, s->c * j->size);
    if (!j->plain) {
        struct ah_patches_args args = patches_of(j, images, false);
        args.image = matrix;
        AH_TRY(ah_cuda_take_patches(j->device, j->op_name, j->conv->dtype, &args));
        matrix = j->matrix;
    }
    struct ah_cuda_matmul product = {
        .dtype = j->conv->dtype, .tf32 = j->conv->tf32, .rows = j->outputs, .columns = j->pixels, .depth = j->depth,
        .a = {.at = j->conv->weight, .ld = j->depth}, .b = {.at = matrix, .ld = j->pixels},
        .out = {.at = image_at(j, j->conv->output, first, s->oc * j->pixels), .ld = j->pixels}};
    const int64_t step[3][2] = {{j->outputs * j->depth, 0},
                                {j->depth * j->pixels, s->groups * j->depth * j->pixels},
                                {j->outputs * j->pixels, s->oc * j->pixels}};
    return multiply_all(j, &product, images, step);
}

static int grad_input(const struct job *j, int64_t first, int64_t images)
{
    const struct ah_conv *s = j->s;
    uint64_t image = image_at(j, j->conv->input, first, s->c * j->size);
    struct ah_cuda_matmul product = {
        .dtype = j->conv->dtype, .tf32 = j->conv->tf32, .rows = j->depth, .columns = j->pixels, .depth = j->outputs,
        .a = {.at = j->conv->weight, .ld = j->depth, .transposed = true},
        .b = {.at = image_at(j, j->conv->output, first, s->oc * j->pixels), .ld = j->pixels},
        .out = {.at = j->plain ? image : j->matrix, .ld = j->pixels}};
    const int64_t step[3][2] = {{j->outputs * j->depth, 0},
                                {j->outputs * j->pixels, s->oc * j->pixels},
                                {j->depth * j->pixels, s->groups * j->depth * j->pixels}};
    AH_TRY(multiply_all(j, &product, images, step));
    if (j->plain)
        return 0;
    struct ah_patches_args args = patches_of(j, images, false);
    args.image = image;
    return ah_cuda_add_patches(j->device, j->op_name, j->conv->dtype, &args);
}

static int grad_weight(const struct job *j, int64_t first, int64_t images)
{
    const struct ah_conv *s = j->s;
    int64_t length = images * j->pixels;
    uint64_t matrix = image_at(j, j->conv->input, first, s->c * j->size);
    uint64_t grad = image_at(j, j->conv->output, first, s->oc * j->pixels);
    if (j->matrix) {
        struct ah_patches_args args = patches_of(j, images, true);
        args.image = matrix;
        AH_TRY(ah_cuda_take_patches(j->device, j->op_name, j->conv->dtype, &args));
        matrix = j->matrix;
    }
    if (images > 1) { /* as windows of one pixel each */
        struct ah_patches_args turn = {
            .image = grad, .matrix = j->turned, .n = images, .c = s->oc, .h = j->pixels / s->ow, .w = s->ow,
            .oh = j->pixels / s->ow, .ow = s->ow, .kernel = {1, 1}, .dilation = {1, 1}, .stride = {1, 1},
            .depth = AH_PATCHES_FLAT, .image_step = j->pixels, .row_step = length,
            .plane_step = s->oc * j->pixels};
        AH_TRY(ah_cuda_take_patches(j->device, j->op_name, j->conv->dtype, &turn));
        grad = j->turned;
    }
    struct ah_cuda_matmul product = {
        .dtype = j->conv->dtype, .tf32 = j->conv->tf32, .rows = j->outputs, .columns = j->depth, .depth = length,
        .batch = s->groups, .adds = first > 0, .a = {.at = grad, .ld = length, .stride = j->outputs * length},
        .b = {.at = matrix, .ld = length, .transposed = true, .stride = j->depth * length},
        .out = {.at = j->conv->weight, .ld = j->depth, .stride = j->outputs * j->depth}};
    return ah_cuda_multiply(j->device, j->op_name, &product);
}

/* Room for the matrix of as many images as may be at a time. */
static int take_room(struct job *j, void **block)
{
    const struct ah_conv *s = j->s;
    struct ah_cuda_memory *memory = ah_cuda_state(j->device)->memory;
    bool weight = j->conv->kind == AH_CONV_GRAD_WEIGHT;
    int64_t matrix = s->c * j->window * j->pixels * j->item, turned = weight ? s->oc * j->pixels * j->item : 0;
    int64_t most = j->plain && !weight ? s->n : ROOM / (matrix + turned);
    j->images = most < 1 ? 1 : most > s->n ? s->n : most;
    for (;; j->images = (j->images + 1) / 2) {
        bool needs = !j->plain || (weight && j->images > 1);
        int64_t bytes = needs ? (j->images * matrix + 511) / 512 * 512 : 0;
        int status = 0;
        if (needs)
            status = ah_cuda_memory_take(memory, (size_t)(bytes + (j->images > 1 ? j->images * turned : 0)), block);
        if (status == 0) {
            j->matrix = (uintptr_t)*block;
            j->turned = j->matrix + (uint64_t)bytes;
            return 0;
        }
        if (status != AH_ENOMEM || j->images == 1)
            return status;
    }
}

int ah_cuda_patches_convolve(struct ah_device *device, const char *op_name, const struct ah_cuda_conv *conv)
{
    const struct ah_conv *s = conv->shape;
    struct job job = {.device = device, .op_name = op_name, .conv = conv, .s = s,
                      .item = (int64_t)ah_dtype_size(conv->dtype), .outputs = s->oc / s->groups,
                      .window = s->depth.kernel * s->kh * s->kw, .pixels = s->depth.out * s->oh * s->ow,
                      .size = s->depth.in * s->h * s->w, .plain = is_plain(s)};
    void *block = NULL;
    int status = 0;
    job.depth = s->c / s->groups * job.window;
    AH_TRY(take_room(&job, &block));
    for (int64_t first = 0; status == 0 && first < s->n; first += job.images) {
        int64_t images = s->n - first < job.images ? s->n - first : job.images;
        status = conv->kind == AH_CONV_FORWARD      ? conv_forward(&job, first, images)
                 : conv->kind == AH_CONV_GRAD_INPUT ? grad_input(&job, first, images)
                                                    : grad_weight(&job, first, images);
    }
    ah_cuda_memory_give(ah_cuda_state(device)->memory, block);
    return status;
}
