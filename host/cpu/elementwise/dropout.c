/* Dropout. Its mask, drawn as PyTorch draws it, has a bit per element where the input is row-major, else a byte per
 * element in the order of the input's memory. Dropped elements are multiplied by 0, so that NaN and infinity show, as
 * in PyTorch. */
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/elementwise/elementwise.h"
#include "cpu/loop/draws.h"
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
    return ah_iterate(operand, 3, false, loop, &scale, AH_SHARE_LIGHT);
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

/* A mask that is drawn or read, and with a loop the tensors that it is applied to. The mask has a bit or a byte per
 * element; bytes may be drawn in rows, of which row i is number at[i] of `rows` for which numbers are drawn. */
struct dropout_run {
    char *out;
    const char *input;
    uint8_t *mask;
    bool packed;
    int64_t count;
    size_t size; /* of an element */
    ah_loop loop;
    double scale, keep_prob;
    struct ah_tensor *at;
    int64_t rows, width;
};

static int64_t dropout_count(const struct dropout_run *run, int64_t chunk)
{
    int64_t left = run->count - chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

static void dropout_apply(const struct dropout_run *run, int64_t first, int64_t count, uint8_t *keep)
{
    static const int64_t step[3];
    size_t at = (size_t)first * run->size;
    void *const data[] = {run->out + at, (char *)(uintptr_t)run->input + at, keep};
    run->loop(count, data, step, &run->scale);
}

static void dropout_chunks(void *context, int64_t begin, int64_t end)
{
    const struct dropout_run *run = context;
    uint8_t keep[CHUNK];
    for (int64_t chunk = begin; chunk < end; chunk++) {
        dropout_unpack(keep, run->mask + chunk * CHUNK / 8, dropout_count(run, chunk));
        dropout_apply(run, chunk * CHUNK, dropout_count(run, chunk), keep);
    }
}

static int64_t dropout_draws_before(const void *context, int64_t chunk)
{
    const struct dropout_run *run = context;
    return 2 * (chunk * CHUNK < run->count ? chunk * CHUNK : run->count);
}

static void dropout_draw(const void *context, struct ah_generator *g, int64_t begin, int64_t end)
{
    const struct dropout_run *run = context;
    uint8_t bytes[CHUNK];
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t count = dropout_count(run, chunk);
        uint8_t *keep = run->packed ? bytes : run->mask + chunk * CHUNK;
        ah_generator_fill_keep(g, keep, count, run->keep_prob);
        if (run->packed)
            dropout_pack(run->mask + chunk * CHUNK / 8, keep, count);
        if (run->loop)
            dropout_apply(run, chunk * CHUNK, count, keep);
    }
}

static int64_t dropout_chunk_count(const struct dropout_run *run)
{
    return (run->count + CHUNK - 1) / CHUNK;
}

static int64_t row_draws_before(const void *context, int64_t row)
{
    const struct dropout_run *run = context;
    return 2 * run->width * (row * run->width < run->count ? ah_tensor_get_int(run->at, row) : run->rows);
}

static void row_draw(const void *context, struct ah_generator *g, int64_t begin, int64_t end)
{
    const struct dropout_run *run = context;
    for (int64_t row = begin; row < end; row++) {
        uint8_t *keep = run->mask + row * run->width;
        ah_generator_fill_keep(g, keep, run->width, run->keep_prob);
        ah_generator_skip(g, row_draws_before(run, row + 1) - row_draws_before(run, row) - 2 * run->width);
        if (run->loop)
            dropout_apply(run, row * run->width, run->width, keep);
    }
}

/* A run of the mask; without a loop where the tensors are not arrays of one dtype. */
static struct dropout_run dropout_run_of(struct ah_tensor *out, struct ah_tensor *input, struct ah_tensor *mask,
                                         double scale)
{
    enum ah_dtype dtype = out->dtype;
    struct dropout_run run = {
        .out = ah_tensor_data(out), .input = ah_tensor_data(input), .mask = ah_tensor_data(mask),
        .packed = mask->dtype == AH_U8, .count = out->numel, .size = ah_dtype_size(dtype), .scale = scale,
    };
    bool direct = input->dtype == dtype && (dtype == AH_F32 || dtype == AH_F64 || dtype == AH_BF16);
    if (direct && ah_tensor_is_contiguous(input) && ah_tensor_is_contiguous(out) && ah_tensor_is_contiguous(mask))
        run.loop = dtype == AH_BF16 ? dropout_bf16 : dtype == AH_F64 ? dropout_f64 : dropout_f32;
    return run;
}

/* By a mask of bits. Tensors that the chunks do not fit get it as bytes. */
static int apply_bits(struct ah_tensor *out, struct ah_tensor *input, struct ah_tensor *mask, double scale)
{
    struct dropout_run run = dropout_run_of(out, input, mask, scale);
    if (run.loop) {
        ah_parallel_units(dropout_chunk_count(&run), CHUNK, AH_SHARE_LIGHT, dropout_chunks, &run);
        return 0;
    }
    AH_OWNED struct ah_tensor *bytes = NULL;
    AH_TRY(ah_tensor_empty(&bytes, input->size, input->ndim, AH_BOOL, &ah_cpu));
    uint8_t *all = ah_tensor_data(bytes), keep[CHUNK];
    for (int64_t at = 0; at < input->numel; at += CHUNK) {
        int64_t count = input->numel - at < CHUNK ? input->numel - at : CHUNK;
        dropout_unpack(keep, run.mask + at / 8, count);
        memcpy(all + at, keep, (size_t)count);
    }
    return apply_mask(out, input, bytes, scale);
}

static int apply_any(struct ah_tensor *out, struct ah_tensor *input, struct ah_tensor *mask, double scale)
{
    return (mask->dtype == AH_U8 ? apply_bits : apply_mask)(out, input, mask, scale);
}

int ah_cpu_dropout(struct ah_call *c)
{
    const struct ah_args_dropout *arg = ah_args(c, dropout);
    struct ah_tensor *mask = c->extra[0], *input = arg->input.tensor;
    double p = arg->p.number, scale = c->state.dropout.scale;
    struct dropout_run run = dropout_run_of(c->out[0], input, mask, scale);
    run.keep_prob = 1 - p;
    if (p == 1)
        memset(run.mask, 0, (size_t)mask->numel);
    else
        ah_draw_units(dropout_chunk_count(&run), dropout_draws_before, dropout_draw, &run);
    return p < 1 && run.loop ? 0 : apply_any(c->out[0], input, mask, scale);
}

int ah_cpu_padded_dropout(struct ah_call *c)
{
    const struct ah_args_padded_dropout *arg = ah_args(c, padded_dropout);
    struct ah_tensor *mask = c->extra[0], *input = arg->input.tensor;
    double p = arg->p.number, scale = c->state.dropout.scale;
    struct dropout_run run = dropout_run_of(c->out[0], input, mask, scale);
    run.keep_prob = 1 - p;
    run.at = arg->at.tensor;
    run.rows = arg->rows.integer;
    run.width = mask->numel / input->size[0];
    if (p == 1) /* as dropout, which draws nothing then */
        memset(run.mask, 0, (size_t)mask->numel);
    else
        ah_draw_units(input->size[0], row_draws_before, row_draw, &run);
    return p < 1 && run.loop ? 0 : apply_mask(c->out[0], input, mask, scale);
}

AH_CPU_OP_WITH(dropout_backward, dropout_backward,
               apply_any(c->out[0], arg->grad.tensor, arg->mask.tensor, arg->scale.number))
