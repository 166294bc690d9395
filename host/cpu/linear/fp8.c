/* 8-bit floats on the CPU: numbers as a GPU computes them, not its speed. Codes are decoded to float32 and multiplied
 * there; products of two codes are exact. */
#include "base/numeric/fp8.h"

#include <math.h>
#include <stdatomic.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

struct quantize {
    const float *from;
    uint8_t *to;
    float scale;
    bool e5m2;
    _Atomic uint32_t amax; /* the bits of a float without sign are ordered as it is, NaN last */
};

static void quantize_range(void *context, int64_t begin, int64_t end)
{
    struct quantize *q = context;
    uint32_t largest = 0;
    for (int64_t i = begin; i < end; i++) {
        uint32_t size = ah_fp8_bits(q->from[i]) & 0x7fffffff;
        largest = size > largest ? size : largest;
        q->to[i] = ah_fp8_encode(q->from[i] * q->scale, q->e5m2);
    }
    uint32_t seen = atomic_load(&q->amax);
    while (largest > seen && !atomic_compare_exchange_weak(&q->amax, &seen, largest))
        ;
}

int ah_cpu_fp8_quantize(struct ah_call *c)
{
    const struct ah_args_fp8_quantize *arg = ah_args(c, fp8_quantize);
    const struct ah_tensor *amax = ah_given(&arg->amax);
    AH_CLEANUP(ah_dense_close) struct ah_dense in = {0};
    AH_TRY(ah_dense_open(&in, arg->input.tensor));
    struct quantize q = {.from = in.data, .to = ah_tensor_data(c->out[0]), .e5m2 = arg->e5m2.flag,
                         .scale = *(const float *)ah_tensor_data(arg->scale.tensor),
                         .amax = amax ? ah_fp8_bits(*(const float *)ah_tensor_data(amax)) : 0};
    ah_parallel_units(c->out[0]->numel, 1, AH_SHARE_MIDDLE, quantize_range, &q);
    if (amax)
        *(float *)ah_tensor_data(amax) = ah_fp8_of_bits(q.amax);
    return 0;
}

/* The numbers of codes as a new row-major tensor of float32. */
static int fp8_decoded(struct ah_tensor **out, struct ah_call *c, struct ah_tensor *codes, bool e5m2)
{
    AH_CLEANUP(ah_dense_close) struct ah_dense in = {0};
    float number[256];
    for (int i = 0; i < 256; i++)
        number[i] = ah_fp8_decode((uint8_t)i, e5m2);
    AH_TRY(ah_tensor_empty(out, codes->size, codes->ndim, AH_F32, c->device));
    AH_TRY(ah_dense_open_as_is(&in, codes));
    const uint8_t *from = in.data;
    float *to = ah_tensor_data(*out);
    for (int64_t i = 0; i < codes->numel; i++)
        to[i] = number[from[i]];
    return 0;
}

int ah_cpu_fp8_matmul(struct ah_call *c)
{
    const struct ah_args_fp8_matmul *arg = ah_args(c, fp8_matmul);
    const float *inverse[] = {ah_tensor_data(arg->a_inverse.tensor), ah_tensor_data(arg->b_inverse.tensor)};
    AH_OWNED struct ah_tensor *a = NULL, *b = NULL, *product = NULL;
    struct ah_arrays arrays = {0};
    int64_t columns = c->out[0]->size[1];
    AH_TRY(fp8_decoded(&a, c, arg->a.tensor, arg->a_e5m2.flag));
    AH_TRY(fp8_decoded(&b, c, arg->b.tensor, arg->b_e5m2.flag));
    AH_TRY(ah_tensor_empty(&product, c->out[0]->size, 2, AH_F32, c->device));
    AH_TRY(ah_call_part(c, AH_OP_linear, product, AH_T(a), AH_T(b), AH_NIL));
    const float *from = ah_array_in(&arrays, product), *bias = ah_array_in(&arrays, ah_given(&arg->bias));
    float *to = ah_array_out(&arrays, c->out[0]), scale = *inverse[0] * *inverse[1];
    for (int64_t i = 0; arrays.status == 0 && i < product->numel; i++)
        to[i] = from[i] * scale + (bias ? bias[i % columns] : 0);
    return ah_arrays_close(&arrays);
}
