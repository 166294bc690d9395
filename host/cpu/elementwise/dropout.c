/* Dropout. Its mask, drawn as PyTorch draws it, has a bit per element where the input is row-major, else a byte per
 * element in the order of the input's memory. Dropped elements are multiplied by 0, so that NaN and infinity show, as
 * in PyTorch. */
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/elementwise/elementwise.h"
#include "ops/dispatch/op.h"
#include "tensor/rng.h"

enum { CHUNK = 1024 }; /* elements whose bits are bytes at a time */

/* A loop over numbers of type `type`, computed as `real`: `value` is the result of x[i] and the factor. */
#define DROPOUT(suffix, type, real, value)                                                                       \
    static void dropout_##suffix(int64_t n, void *const *data, const int64_t *step, const void *context)         \
    {                                                                                                            \
        const real scale = (real) * (const double *)context;                                                     \
        type *y = data[0];                                                                                       \
        const type *x = data[1];                                                                                 \
        const uint8_t *keep = data[2];                                                                           \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                      \
        {                                                                                                        \
            real factor = keep[i] ? scale : 0;                                                                   \
            y[i] = value;                                                                                        \
        }                                                                                                        \
    }
DROPOUT(f32, float, float, x[i] * factor)
DROPOUT(f64, double, double, x[i] * factor)
DROPOUT(bf16, uint16_t, float, ah_f32_to_bf16(ah_bf16_to_f32(x[i]) * factor))

static int apply_mask(struct ah_tensor *out, struct ah_tensor *input, struct ah_tensor *mask, double scale)
{
    bool bf16 = out->dtype == AH_BF16 && input->dtype == AH_BF16;
    enum ah_dtype dtype = bf16 ? AH_BF16 : ah_compute_dtype(out->dtype);
    const struct ah_operand operand[] = {{out, dtype}, {input, dtype}, {mask, AH_BOOL}};
    ah_loop loop = bf16 ? dropout_bf16 : dtype == AH_F64 ? dropout_f64 : dropout_f32;
    return ah_iterate(operand, 3, false, loop, &scale);
}

/* Set 8 bytes, of which byte i is 0 where bit i is. */
static void dropout_unpack(uint8_t *keep, const uint8_t *bits, int64_t count)
{
    for (int64_t i = 0; i < (count + 7) / 8; i++) {
        uint64_t bytes = (bits[i] * 0x0101010101010101u) & 0x8040201008040201u;
        memcpy(keep + 8 * i, &bytes, 8);
    }
}

/* The bits of bytes that are 0 or 1; those behind the last byte are 0. */
static void dropout_pack(uint8_t *bits, uint8_t *keep, int64_t count)
{
    memset(keep + count, 0, (size_t)((8 - count % 8) % 8));
    for (int64_t i = 0; i < (count + 7) / 8; i++) {
        uint64_t bytes;
        memcpy(&bytes, keep + 8 * i, 8);
        bits[i] = (uint8_t)((bytes * 0x0102040810204080u) >> 56);
    }
}

struct dropout_run {
    char *out;
    const char *input;
    const uint8_t *bits;
    int64_t count;
    size_t size; /* of an element */
    ah_loop loop;
    double scale;
};

static void dropout_chunks(void *context, int64_t begin, int64_t end)
{
    static const int64_t step[3];
    const struct dropout_run *run = context;
    uint8_t keep[CHUNK];
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t at = chunk * CHUNK, count = run->count - at < CHUNK ? run->count - at : CHUNK;
        void *const data[] = {run->out + (size_t)at * run->size, (char *)(uintptr_t)run->input + (size_t)at * run->size,
                              keep};
        dropout_unpack(keep, run->bits + at / 8, count);
        run->loop(count, data, step, &run->scale);
    }
}

/* By a mask of bits. Tensors that the chunks do not fit get it as bytes. */
static int apply_bits(struct ah_tensor *out, struct ah_tensor *input, struct ah_tensor *mask, double scale)
{
    enum ah_dtype dtype = out->dtype;
    bool direct = input->dtype == dtype && (dtype == AH_F32 || dtype == AH_F64 || dtype == AH_BF16);
    if (direct && ah_tensor_is_contiguous(input) && ah_tensor_is_contiguous(out)) {
        struct dropout_run run = {
            ah_tensor_data(out), ah_tensor_data(input), ah_tensor_data(mask), out->numel, ah_dtype_size(dtype),
            dtype == AH_BF16 ? dropout_bf16 : dtype == AH_F64 ? dropout_f64 : dropout_f32, scale,
        };
        ah_parallel_for((out->numel + CHUNK - 1) / CHUNK, ah_grain(CHUNK, AH_SHARE_LIGHT), dropout_chunks, &run);
        return 0;
    }
    AH_OWNED struct ah_tensor *bytes = NULL;
    AH_TRY(ah_tensor_empty(&bytes, input->size, input->ndim, AH_BOOL, &ah_cpu));
    uint8_t *all = ah_tensor_data(bytes), keep[CHUNK];
    for (int64_t at = 0; at < input->numel; at += CHUNK) {
        int64_t count = input->numel - at < CHUNK ? input->numel - at : CHUNK;
        dropout_unpack(keep, (uint8_t *)ah_tensor_data(mask) + at / 8, count);
        memcpy(all + at, keep, (size_t)count);
    }
    return apply_mask(out, input, bytes, scale);
}

static int apply_any(struct ah_tensor *out, struct ah_tensor *input, struct ah_tensor *mask, double scale)
{
    return (mask->dtype == AH_U8 ? apply_bits : apply_mask)(out, input, mask, scale);
}

static void draw_bits(struct ah_tensor *mask, int64_t count, double keep_prob)
{
    uint8_t *bits = ah_tensor_data(mask), keep[CHUNK];
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        ah_generator_fill_keep(ah_default_generator(), keep, n, keep_prob);
        dropout_pack(bits + at / 8, keep, n);
    }
}

int ah_cpu_dropout(struct ah_call *c)
{
    const struct ah_args_dropout *arg = ah_args(c, dropout);
    struct ah_tensor *mask = c->extra[0];
    double p = arg->p.number;
    if (p == 1)
        memset(ah_tensor_data(mask), 0, (size_t)mask->numel);
    else if (mask->dtype == AH_U8)
        draw_bits(mask, arg->input.tensor->numel, 1 - p);
    else
        ah_generator_fill_keep(ah_default_generator(), ah_tensor_data(mask), mask->numel, 1 - p);
    return apply_any(c->out[0], arg->input.tensor, mask, c->state.dropout.scale);
}

int ah_cpu_padded_dropout(struct ah_call *c)
{
    const struct ah_args_padded_dropout *arg = ah_args(c, padded_dropout);
    struct ah_tensor *mask = c->extra[0];
    uint8_t *keep = ah_tensor_data(mask);
    int64_t n = arg->input.tensor->size[0], width = mask->numel / n, row = 0;
    double p = arg->p.number;
    if (p == 1) { /* as dropout, which draws nothing then */
        memset(keep, 0, (size_t)mask->numel);
        return apply_mask(c->out[0], arg->input.tensor, mask, c->state.dropout.scale);
    }
    for (int64_t i = 0; i < n; i++, row++, keep += width) {
        int64_t at = ah_tensor_get_int(arg->at.tensor, i);
        ah_generator_skip(ah_default_generator(), 2 * width * (at - row));
        ah_generator_fill_keep(ah_default_generator(), keep, width, 1 - p);
        row = at;
    }
    ah_generator_skip(ah_default_generator(), 2 * width * (arg->rows.integer - row));
    return apply_mask(c->out[0], arg->input.tensor, mask, c->state.dropout.scale);
}

AH_CPU_OP_WITH(dropout_backward, dropout_backward,
               apply_any(c->out[0], arg->grad.tensor, arg->mask.tensor, arg->scale.number))
