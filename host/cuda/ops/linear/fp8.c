/* 8-bit floats: codes by a kernel, their products by cuBLASLt, which reads both operands along the depth, from
 * addresses and lines that are multiples of 16: other operands are copied, each line filled up with zeros. */
#include "cuda/kernels/linear/fp8.h"

#include "base/status/status.h"
#include "cuda/driver/stream/launch.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/vendor/matmul.h"

enum { FP8_ALIGNMENT = 16 };

int ah_cuda_fp8_quantize(struct ah_call *c)
{
    static struct ah_cuda_kernel kernel[AH_DTYPE_COUNT] = {
        [AH_F16] = AH_CUDA_KERNEL("fp8", "fp8_quantize_f16"), [AH_BF16] = AH_CUDA_KERNEL("fp8", "fp8_quantize_bf16"),
        [AH_F32] = AH_CUDA_KERNEL("fp8", "fp8_quantize_f32")};
    const struct ah_args_fp8_quantize *arg = ah_args(c, fp8_quantize);
    const struct ah_tensor *amax = ah_given(&arg->amax);
    struct ah_tensor *x = arg->input.tensor;
    AH_OWNED struct ah_tensor *dense = NULL;
    AH_TRY(ah_cuda_dense(c->device, &dense, x, x->dtype));
    struct ah_fp8_args args = {.input = (uintptr_t)ah_tensor_data(dense), .codes = (uintptr_t)ah_tensor_data(c->out[0]),
                               .count = x->numel, .scale = (uintptr_t)ah_tensor_data(arg->scale.tensor),
                               .amax = amax ? (uintptr_t)ah_tensor_data(amax) : 0, .e5m2 = arg->e5m2.flag};
    args.wide = (args.input | args.codes) % 16 == 0;
    return ah_cuda_launch(c->device, &kernel[x->dtype], c->op->name,
                          ah_cuda_grid_for((x->numel + 7) / 8, AH_FP8_THREADS), &args);
}

/* Codes whose lines along the depth are `depth` long, a multiple of 16: `codes` itself, retained, or a copy. */
static int fp8_lines(struct ah_device *device, struct ah_tensor **out, struct ah_tensor *codes, int64_t depth)
{
    AH_OWNED struct ah_tensor *lines = NULL, *part = NULL;
    int64_t rows = codes->size[0], columns = codes->size[1];
    if (columns == depth && ah_tensor_is_contiguous(codes) && (uintptr_t)ah_tensor_data(codes) % FP8_ALIGNMENT == 0) {
        *out = ah_tensor_retain(codes);
        return 0;
    }
    AH_TRY(ah_tensor_empty(&lines, (int64_t[]){rows, depth}, 2, AH_U8, device));
    if (columns != depth)
        AH_TRY(device->type->fill(device, ah_tensor_data(lines), 0, (size_t)lines->numel));
    AH_TRY(ah_tensor_view(&part, lines, (int64_t[]){rows, columns}, (int64_t[]){depth, 1}, 2, 0));
    AH_TRY(ah_cuda_assign(device, part, codes));
    *out = ah_tensor_retain(lines);
    return 0;
}

static int fp8_add_bias(struct ah_call *c, struct ah_tensor *bias)
{
    static ah_cuda_loops loops = {AH_CUDA_FLOATS("pairs", "add")};
    const struct ah_cuda_operand operand[] = {{c->out[0], AH_F32}, {c->out[0], AH_F32}, {bias, AH_F32}};
    return ah_cuda_iterate(c->device, c->op->name, &loops[AH_F32], operand, 3, NULL);
}

/* Refuse a card and a size that cuBLASLt has no such product for. */
static int fp8_check(struct ah_call *c, int64_t columns)
{
    int capability = ah_cuda_state(c->device)->capability;
    if (capability < AH_CUDA_FP8_CAPABILITY) {
        return ah_fail(AH_ENOTIMPL, "%s: 8-bit floats need compute capability 8.9, %s has %d.%d", c->op->name,
                       c->device->name, capability / 10, capability % 10);
    }
    if (columns % FP8_ALIGNMENT) {
        return ah_fail(AH_EINVAL, "%s: expected a multiple of 16 result columns, got %lld", c->op->name,
                       (long long)columns);
    }
    return 0;
}

int ah_cuda_fp8_matmul(struct ah_call *c)
{
    const struct ah_args_fp8_matmul *arg = ah_args(c, fp8_matmul);
    struct ah_tensor *out = c->out[0], *bias = ah_given(&arg->bias);
    AH_OWNED struct ah_tensor *a = NULL, *b = NULL, *given = NULL;
    int64_t depth = arg->a.tensor->size[1], rows = out->size[0], columns = out->size[1];
    bool fused = bias && out->dtype != AH_F32; /* cuBLASLt reads no float32 bias here */
    AH_TRY(fp8_check(c, columns));
    if (depth == 0)
        return ah_fail(AH_EINVAL, "%s: expected a depth above 0, got 0", c->op->name);
    depth = (depth + FP8_ALIGNMENT - 1) / FP8_ALIGNMENT * FP8_ALIGNMENT;
    AH_TRY(fp8_lines(c->device, &a, arg->a.tensor, depth));
    AH_TRY(fp8_lines(c->device, &b, arg->b.tensor, depth));
    if (fused)
        AH_TRY(ah_cuda_dense(c->device, &given, bias, bias->dtype));
    struct ah_cuda_matmul product = {
        .dtype = out->dtype, .rows = rows, .columns = columns, .depth = depth, .batch = 1,
        .a = {.at = (uintptr_t)ah_tensor_data(a), .ld = depth},
        .b = {.at = (uintptr_t)ah_tensor_data(b), .transposed = true, .ld = depth},
        .out = {.at = (uintptr_t)ah_tensor_data(out), .ld = columns},
        .bias = fused ? (uintptr_t)ah_tensor_data(given) : 0,
        .a_codes = arg->a_e5m2.flag ? AH_CUDA_E5M2 : AH_CUDA_E4M3,
        .b_codes = arg->b_e5m2.flag ? AH_CUDA_E5M2 : AH_CUDA_E4M3,
        .a_scale = (uintptr_t)ah_tensor_data(arg->a_inverse.tensor),
        .b_scale = (uintptr_t)ah_tensor_data(arg->b_inverse.tensor)};
    AH_TRY(ah_cuda_multiply(c->device, c->op->name, &product));
    if (bias && !fused)
        AH_TRY(fp8_add_bias(c, bias));
    return 0;
}
