/* Fuzz target: a safetensors file of a quantised weight. The first bytes are the sizes of the layer that reads it: its
 * parts are refused with an error text, or dequantised and multiplied by inside of their bytes. Tensors, arrays and
 * products of the libraries are replaced by plain ones here.
 * sources: TENSORS host/io/safetensors.c host/io/mapping.c host/base/process/signals.c WRITER host/ops/math/quantized.c
 * sources: host/cpu/linear/quantized.c host/cpu/linear/quantized_loops.c host/cpu/linear/quantized_dots.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/dense.h"
#include "io/safetensors.h"
#include "ops/dispatch/op.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int ah_forward_quantized_matmul(struct ah_call *c);
int ah_forward_dequantize(struct ah_call *c);

/* The parts of the program that the kernels call. */

bool ah_bf16_native(void)
{
    return false;
}

bool ah_gemm_pays_bf16(void)
{
    return false;
}

bool ah_bf16_pairs(void)
{
    return false;
}

int ah_call_expect_float(const struct ah_call *call, int arg)
{
    return ah_dtype_is_float(call->arg[arg].tensor->dtype) ? 0 : ah_fail(AH_EINVAL, "expected a floating tensor");
}

int ah_call_output(struct ah_call *call, int index, const int64_t *size, int ndim, enum ah_dtype dtype)
{
    return ah_tensor_empty(&call->out[index], size, ndim, dtype, &ah_cpu);
}

int ah_call_kernel(struct ah_call *call)
{
    return call->op->forward == ah_forward_dequantize ? ah_cpu_dequantize(call) : ah_cpu_quantized_matmul(call);
}

int ah_call_single(struct ah_call *call, const int64_t *size, int ndim, enum ah_dtype dtype)
{
    AH_TRY(ah_call_output(call, 0, size, ndim, dtype));
    return ah_call_kernel(call);
}

void ah_parallel_units(int64_t n, int64_t elements, enum ah_share share, ah_range_fn body, void *context)
{
    int64_t grain = ah_grain(elements, share) / 8 + 1;
    for (int64_t begin = 0; begin < n; begin += grain)
        body(context, begin, begin + grain < n ? begin + grain : n);
}

const void *ah_array_as_is(struct ah_arrays *a, struct ah_tensor *tensor)
{
    return tensor && a->status == 0 ? ah_tensor_data(tensor) : NULL;
}

void *ah_array_scratch(struct ah_arrays *a, size_t bytes)
{
    void *block = a->status == 0 ? malloc(bytes) : NULL;
    if (block)
        a->in[a->ins++].block = block;
    else
        a->status = ah_fail(AH_ENOMEM, "out of memory");
    return block;
}

const void *ah_array_in(struct ah_arrays *a, struct ah_tensor *tensor)
{
    if (!tensor || tensor->dtype == AH_F32)
        return ah_array_as_is(a, tensor);
    float *wide = ah_array_scratch(a, (size_t)tensor->numel * sizeof *wide + 1);
    for (int64_t i = 0; wide && i < tensor->numel; i++)
        wide[i] = ah_bf16_to_f32(((const uint16_t *)ah_tensor_data(tensor))[i]);
    return wide;
}

void *ah_array_out(struct ah_arrays *a, struct ah_tensor *out)
{
    return out->dtype == AH_F32 ? ah_tensor_data(out) : ah_array_scratch(a, (size_t)out->numel * sizeof(float) + 1);
}

int ah_arrays_close(struct ah_arrays *a)
{
    for (int i = 0; i < a->ins; i++)
        free(a->in[i].block);
    return a->status;
}

int ah_gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    (void)ta;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * lda + l] * (tb ? b[j * ldb + l] : b[l * ldb + j]);
            c[i * ldc + j] = alpha * sum + (beta != 0 ? beta * c[i * ldc + j] : 0);
        }
    return 0;
}

int ah_gemm_bias_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                     int64_t ldb, const float *bias, float *c, int64_t ldc)
{
    ah_gemm_f32(ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
    for (int64_t i = 0; i < m * n; i++)
        c[i / n * ldc + i % n] += bias[i % n];
    return 0;
}

int ah_gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const uint16_t *b,
                 int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb, (void)bias, (void)c;
    (void)ldc;
    abort(); /* the processor has no products of bfloat16 here */
}

/* The layer: 1 or 16 times its sizes, the block, the vectors, and the part (from 1) that lacks a number. */
struct layer {
    int64_t rows, columns, block, vectors;
    int cut;
    bool multiplies, transposed, half;
};

static struct layer layer_of(const uint8_t *bytes)
{
    int64_t scale = bytes[0] & 16 ? 16 : 1;
    return (struct layer){scale * bytes[1], scale * bytes[2], (int64_t)1 << (bytes[3] & 15), bytes[4] & 7,
                          bytes[0] >> 5, bytes[0] & 1, bytes[0] & 2, bytes[0] & 4};
}

static void release_block(struct ah_storage *storage)
{
    free(storage->owner);
}

/* Return a tensor of the file in a separate block, whose end is watched; without its last number where `cut`. */
static struct ah_value tensor_of(struct ah_safetensors *file, struct ah_mapping *mapping, const char *name, bool cut)
{
    struct ah_tensor *tensor = NULL, *own = NULL;
    void *block;
    for (size_t i = 0; i < file->tensor_count && !tensor; i++)
        if (!file->tensor[i].kind && !strcmp(file->tensor[i].name, name))
            ah_safetensors_tensor(&tensor, file, i, mapping);
    if (!tensor)
        return AH_NIL;
    int64_t numel = tensor->numel - (cut && tensor->numel);
    size_t bytes = (size_t)numel * ah_dtype_size(tensor->dtype);
    if (posix_memalign(&block, 64, bytes + !bytes))
        abort();
    memcpy(block, ah_tensor_data(tensor), bytes);
    if (ah_tensor_from_memory(&own, block, &numel, 1, tensor->dtype, &ah_cpu, release_block, block) < 0)
        abort();
    ah_tensor_release(tensor);
    return AH_T(own);
}

static void run(const struct layer *l, struct ah_safetensors *file, struct ah_mapping *mapping)
{
    static const char *const names[] = {"weight", "absmax", "code", "nested_absmax", "nested_code"};
    struct ah_value part[5];
    struct ah_tensor *input = NULL;
    int64_t size[2] = {l->vectors, l->transposed ? l->columns : l->rows};
    for (int i = 0; i < 5; i++)
        part[i] = tensor_of(file, mapping, names[i], i + 1 == l->cut);
    struct ah_op op = {.name = "fuzz", .forward = l->multiplies ? ah_forward_quantized_matmul : ah_forward_dequantize};
    struct ah_call call = {.op = &op, .device = &ah_cpu};
    if (part[0].kind == AH_TENSOR && part[1].kind == AH_TENSOR &&
        ah_tensor_empty(&input, size, 2, l->half ? AH_BF16 : AH_F32, &ah_cpu) == 0) {
        memset(ah_tensor_data(input), 0x3f, ah_tensor_bytes(input));
        call.arg[0] = AH_T(input);
        memcpy(call.arg + l->multiplies, part, sizeof part);
        struct ah_value *rest = call.arg + 5 + l->multiplies;
        if (l->multiplies) {
            struct ah_value more[] = {AH_NIL, AH_I(l->transposed ? l->rows : l->columns), AH_I(l->block), AH_N(0.5),
                                      AH_B(l->transposed)};
            memcpy(rest, more, sizeof more);
        } else {
            struct ah_value more[] = {AH_I(l->rows), AH_I(l->columns), AH_I(l->block), AH_N(0.5)};
            memcpy(rest, more, sizeof more);
        }
        int status = op.forward(&call);
        if (status < 0 ? !*ah_error_text() : !call.out[0])
            abort();
    }
    ah_tensor_release(call.out[0]);
    ah_tensor_release(input);
    for (int i = 0; i < 5; i++)
        ah_tensor_release(ah_given(&part[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < 5)
        return 0;
    struct layer layer = layer_of(bytes);
    struct ah_safetensors *file = NULL;
    count -= 5;
    uint8_t *copy = aligned_alloc(64, (count + 64) / 64 * 64);
    memcpy(copy, bytes + 5, count);
    struct ah_mapping mapping = {.refs = 1, .bytes = copy, .count = count};
    if (ah_safetensors_parse(&file, copy, count) == 0)
        run(&layer, file, &mapping);
    ah_safetensors_close(file);
    if (mapping.refs != 1)
        abort();
    free(copy);
    return 0;
}
