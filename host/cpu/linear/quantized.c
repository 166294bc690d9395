/* Products with quantised weights, and quantising. Few vectors are multiplied with the codes themselves
 * (quantized_loops.h); for more of them a panel of the weight at a time is dequantised and multiplied by the libraries,
 * in bfloat16 where the input is and the processor has products of it. */
#include "cpu/linear/quantized_loops.h"

#include <math.h>
#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/trace/trace.h"
#include "cpu/kernels.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

enum {
    PANEL = 1 << 19, /* numbers of a panel: the caches hold it */
    RUN = 512,       /* numbers that are dequantised at a time where they are rounded to bfloat16 */
};

static int quantized_shift(int64_t block)
{
    int shift = 0;
    while ((int64_t)1 << shift < block)
        shift++;
    return shift;
}

/* The arrays of a weight. `nested_absmax` is NULL where the absmax of the blocks is float32. */
static struct ah_quantized quantized_open(struct ah_arrays *a, struct ah_tensor *weight, struct ah_tensor *absmax,
                                          struct ah_tensor *code, struct ah_tensor *nested_absmax,
                                          struct ah_tensor *nested_code)
{
    struct ah_quantized q = {.codes = ah_array_as_is(a, weight), .four_bit = code != NULL};
    const void *scales = ah_array_as_is(a, absmax), *table = ah_array_as_is(a, code);
    q.nested_absmax = ah_array_as_is(a, nested_absmax);
    q.nested_code = ah_array_as_is(a, nested_code);
    if (table)
        memcpy(q.code, table, sizeof q.code);
    if (nested_absmax)
        q.nested = scales;
    else
        q.absmax = scales;
    return q;
}

/* A panel: `count` numbers of each of some rows, from `column` on, in float32 or bfloat16. */
struct panel {
    const struct ah_quantized *q;
    int64_t row, column, count;
    void *out;
    bool half;
};

static void panel_rows(void *context, int64_t begin, int64_t end)
{
    const struct panel *p = context;
    for (int64_t i = begin; i < end; i++) {
        if (!p->half) {
            ah_quantized_run(p->q, p->row + i, p->column, p->count, (float *)p->out + i * p->count);
            continue;
        }
        for (int64_t at = 0; at < p->count; at += RUN) {
            float numbers[RUN];
            int64_t count = p->count - at < RUN ? p->count - at : RUN;
            uint16_t *out = (uint16_t *)p->out + i * p->count + at;
            ah_quantized_run(p->q, p->row + i, p->column + at, count, numbers);
            for (int64_t j = 0; j < count; j++)
                out[j] = ah_f32_to_bf16(numbers[j]);
        }
    }
}

static void panel_fill(const struct panel *p, int64_t rows)
{
    ah_parallel_units(rows, p->count, AH_SHARE_LIGHT, panel_rows, (void *)(uintptr_t)p);
}

/* A product: y [m, n] = x [m, k] times the weight or its transpose. */
struct quantized_product {
    struct ah_quantized q;
    int64_t m, n, k;
    const void *x, *bias;
    void *y, *panel;
    bool transposed, half;
};

static int64_t panel_columns(const struct quantized_product *p)
{
    int64_t width = PANEL / p->k;
    width = width < 64 ? 64 : width / 64 * 64;
    return width < p->n ? width : p->n;
}

/* Columns begin to begin + count - 1 of y, for which the panel is ready. Returns 1, 0 where oneDNN declines, or a
 * negative status. */
static int product_columns(const struct quantized_product *p, int64_t begin, int64_t count)
{
    int64_t ldb = p->transposed ? p->k : count;
    if (p->half)
        return ah_gemm_bf16(false, p->transposed, p->m, count, p->k, p->x, p->k, p->panel, ldb,
                            p->bias ? (const uint16_t *)p->bias + begin : NULL, (uint16_t *)p->y + begin, p->n);
    float *y = (float *)p->y + begin;
    int status = p->bias ? ah_gemm_bias_f32(false, p->transposed, p->m, count, p->k, p->x, p->k, p->panel, ldb,
                                            (const float *)p->bias + begin, y, p->n)
                         : ah_gemm_f32(false, p->transposed, p->m, count, p->k, 1, p->x, p->k, p->panel, ldb, 0, y,
                                       p->n);
    return status < 0 ? status : 1;
}

/* Returns as product_columns; after 0 nothing was written. */
static int product_by_panels(const struct quantized_product *p)
{
    int64_t width = panel_columns(p);
    for (int64_t begin = 0; begin < p->n; begin += width) {
        int64_t count = p->n - begin < width ? p->n - begin : width;
        struct panel panel = {&p->q, p->transposed ? begin : 0, p->transposed ? 0 : begin,
                              p->transposed ? p->k : count, p->panel, p->half};
        panel_fill(&panel, p->transposed ? count : p->k);
        int status = product_columns(p, begin, count);
        if (status != 1)
            return status;
    }
    return 1;
}

struct few_vectors {
    const struct quantized_product *p;
    const char *x;
    float *y;
    int count;
};

static void few_rows(void *context, int64_t begin, int64_t end)
{
    const struct few_vectors *v = context;
    ah_quantized_rows(&v->p->q, v->x, v->count, v->p->bias, v->y, v->p->n, begin, end);
}

/* The product of few vectors in the dtype of the way, with a result in float32; `ordered` has room for
 * AH_QUANTIZED_MOST of them, or for all. */
static void product_by_rows(const struct quantized_product *p, char *ordered)
{
    size_t bytes = ah_quantized_vector_bytes(&p->q), item = p->q.way == AH_QUANTIZED_PAIRS ? 2 : sizeof(float);
    ah_trace_kernel(p->q.four_bit ? "own rows 4 bits" : "own rows int8");
    for (int64_t i = 0; i < p->m; i += AH_QUANTIZED_MOST) {
        int count = p->m - i < AH_QUANTIZED_MOST ? (int)(p->m - i) : AH_QUANTIZED_MOST;
        for (int r = 0; r < count; r++)
            ah_quantized_vector(&p->q, (const char *)p->x + (size_t)((i + r) * p->k) * item,
                                ordered + (size_t)r * bytes);
        struct few_vectors v = {p, ordered, (float *)p->y + i * p->n, count};
        ah_parallel_units(p->n, p->k * count, AH_SHARE_COPY, few_rows, &v);
    }
}

/* Native bfloat16, from and to the tensors' own memory. */
static int product_half(struct ah_call *c, struct quantized_product *p)
{
    const struct ah_args_quantized_matmul *arg = ah_args(c, quantized_matmul);
    struct ah_arrays a = {0};
    p->half = true;
    p->x = ah_array_as_is(&a, arg->input.tensor);
    p->bias = ah_array_as_is(&a, ah_given(&arg->bias));
    p->y = ah_tensor_data(c->out[0]);
    int done = a.status == 0 ? product_by_panels(p) : a.status;
    ah_arrays_close(&a);
    p->half = false;
    return done;
}

/* The product of one small vector of bfloat16 without a bias, as of a decoder's next token, with its copies on the
 * stack: 0 done, 1 it is another one. */
static int product_one(struct ah_call *c, struct quantized_product *p)
{
    _Alignas(64) char room[16384];
    struct ah_tensor *x = ah_args(c, quantized_matmul)->input.tensor;
    size_t bytes = ah_quantized_vector_bytes(&p->q), wide = ((size_t)p->k * sizeof(float) + 63) / 64 * 64;
    bool pairs = p->q.way == AH_QUANTIZED_PAIRS;
    if (p->m != 1 || x->dtype != AH_BF16 || ah_given(&ah_args(c, quantized_matmul)->bias) ||
        !ah_tensor_is_contiguous(x) || bytes + wide + (size_t)p->n * sizeof(float) > sizeof room)
        return 1;
    AH_TRY(ah_tensor_row_major(x));
    float *numbers = (float *)(void *)(room + bytes), *y = (float *)(void *)(room + bytes + wide);
    const uint16_t *half = ah_tensor_data(x);
    uint16_t *out = ah_tensor_data(c->out[0]);
    for (int64_t i = 0; !pairs && i < p->k; i++)
        numbers[i] = ah_bf16_to_f32(half[i]);
    p->x = pairs ? (const void *)half : numbers;
    p->y = y;
    product_by_rows(p, room);
    for (int64_t i = 0; i < p->n; i++)
        out[i] = ah_f32_to_bf16(y[i]);
    return 0;
}

static int product_float(struct ah_call *c, struct quantized_product *p, bool few)
{
    const struct ah_args_quantized_matmul *arg = ah_args(c, quantized_matmul);
    struct ah_arrays a = {0};
    if (few) {
        ah_quantized_choose(&p->q, arg->input.tensor->dtype == AH_BF16, ah_bf16_pairs());
        int done = product_one(c, p);
        if (done <= 0)
            return done;
    }
    bool pairs = few && p->q.way == AH_QUANTIZED_PAIRS;
    p->x = pairs ? ah_array_as_is(&a, arg->input.tensor) : ah_array_in(&a, arg->input.tensor);
    p->bias = ah_array_in(&a, ah_given(&arg->bias));
    p->y = ah_array_out(&a, c->out[0]);
    if (a.status == 0 && few) {
        char *ordered = ah_array_scratch(&a, ah_quantized_vector_bytes(&p->q) * AH_QUANTIZED_MOST);
        if (ordered)
            product_by_rows(p, ordered);
    } else if (a.status == 0) {
        int done = product_by_panels(p);
        a.status = done < 0 ? done : 0;
    }
    return ah_arrays_close(&a);
}

int ah_cpu_quantized_matmul(struct ah_call *c)
{
    const struct ah_args_quantized_matmul *arg = ah_args(c, quantized_matmul);
    struct ah_tensor *x = arg->input.tensor;
    if (c->out[0]->numel == 0)
        return 0;
    struct ah_arrays a = {0};
    struct quantized_product p = {
        .q = quantized_open(&a, arg->weight.tensor, arg->absmax.tensor, ah_given(&arg->code),
                            ah_given(&arg->nested_absmax), ah_given(&arg->nested_code)),
        .n = arg->features.integer, .k = x->size[x->ndim - 1], .transposed = arg->transposed.flag};
    p.m = x->numel / p.k;
    p.q.rows = p.transposed ? p.n : p.k;
    p.q.columns = p.transposed ? p.k : p.n;
    p.q.block_shift = quantized_shift(arg->block_size.integer);
    p.q.offset = (float)arg->nested_offset.number;
    bool few = p.transposed && p.m <= AH_QUANTIZED_MOST;
    if (!few)
        p.panel = ah_array_scratch(&a, (size_t)(panel_columns(&p) * p.k) * sizeof(float));
    int done = 0;
    if (a.status == 0 && !few && x->dtype == AH_BF16 && ah_gemm_pays_bf16())
        done = product_half(c, &p);
    if (a.status == 0)
        a.status = done < 0 ? done : done ? 0 : product_float(c, &p, few);
    return ah_arrays_close(&a);
}

int ah_cpu_dequantize(struct ah_call *c)
{
    const struct ah_args_dequantize *arg = ah_args(c, dequantize);
    struct ah_arrays a = {0};
    struct ah_quantized q = quantized_open(&a, arg->weight.tensor, arg->absmax.tensor, ah_given(&arg->code),
                                           ah_given(&arg->nested_absmax), ah_given(&arg->nested_code));
    q.rows = arg->rows.integer;
    q.columns = arg->columns.integer;
    q.block_shift = quantized_shift(arg->block_size.integer);
    q.offset = (float)arg->nested_offset.number;
    if (a.status == 0)
        panel_fill(&(struct panel){&q, 0, 0, q.columns, ah_tensor_data(c->out[0]), false}, q.rows);
    return ah_arrays_close(&a);
}

/* Quantising. */

static float quantized_largest(const float *x, int64_t count)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    return largest;
}

/* x, at least -1 (NaN too) and at most 1. */
static float quantized_clamp(float x)
{
    return x >= -1 ? x <= 1 ? x : 1 : -1;
}

/* The numbers to be quantised: rows of a matrix, or blocks. */
struct quantizing {
    const float *x, *code;
    int64_t numel, block;
    uint8_t *codes;
    float *absmax;
    float bounds[255];      /* between neighbouring numbers of the table */
    uint8_t order[16];      /* of 4-bit codes: those of the numbers in rising order */
};

static void quantize_int8_rows(void *context, int64_t begin, int64_t end)
{
    const struct quantizing *z = context;
    for (int64_t row = begin; row < end; row++) {
        const float *x = z->x + row * z->block;
        int8_t *codes = (int8_t *)z->codes + row * z->block;
        float largest = quantized_largest(x, z->block), factor = largest > 0 ? 1.0f / largest * 127.0f : 0;
        z->absmax[row] = largest;
        for (int64_t i = 0; i < z->block; i++) {
            float scaled = x[i] * factor; /* infinite where the reciprocal of a subnormal number is */
            codes[i] = scaled == scaled ? (int8_t)rintf(scaled < -127 ? -127 : scaled > 127 ? 127 : scaled) : 0;
        }
    }
}

int ah_cpu_quantize_int8(struct ah_call *c)
{
    struct ah_tensor *x = ah_args(c, quantize_int8)->input.tensor;
    struct ah_arrays a = {0};
    struct quantizing z = {.x = ah_array_in(&a, x), .block = x->size[1], .codes = ah_tensor_data(c->out[0]),
                           .absmax = ah_tensor_data(c->out[1])};
    if (a.status == 0)
        ah_parallel_units(x->size[0], z.block, AH_SHARE_MIDDLE, quantize_int8_rows, &z);
    return ah_arrays_close(&a);
}

/* Write the codes of a table's numbers in rising order. */
static void quantized_sort(const float *code, uint8_t *order)
{
    for (int i = 0; i < 16; i++) {
        int at = i;
        for (; at > 0 && code[order[at - 1]] > code[i]; at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)i;
    }
}

static inline uint8_t quantized_4bit_of(const struct quantizing *z, float x)
{
    int place = 0;
    for (int i = 0; i < 15; i++)
        place += z->bounds[i] < x;
    return z->order[place];
}

/* bitsandbytes multiplies whole blocks by the reciprocal, and divides the last one where it is shorter. */
static void quantize_4bit_blocks(void *context, int64_t begin, int64_t end)
{
    const struct quantizing *z = context;
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * z->block, count = z->numel - first < z->block ? z->numel - first : z->block;
        float largest = quantized_largest(z->x + first, count), divisor = largest > 1e-38f ? largest : 1e-38f;
        float reciprocal = 1.0f / divisor;
        z->absmax[block] = count == z->block ? largest : divisor;
        for (int64_t i = 0; i < count; i += 2) {
            const float *x = z->x + first + i;
            float other = i + 1 < count ? x[1] : 0;
            float upper = count == z->block ? x[0] * reciprocal : x[0] / divisor;
            float lower = count == z->block ? other * reciprocal : other / divisor;
            z->codes[(first + i) / 2] = (uint8_t)(quantized_4bit_of(z, quantized_clamp(upper)) << 4 |
                                                  quantized_4bit_of(z, quantized_clamp(lower)));
        }
    }
}

int ah_cpu_quantize_4bit(struct ah_call *c)
{
    const struct ah_args_quantize_4bit *arg = ah_args(c, quantize_4bit);
    struct ah_tensor *x = arg->input.tensor;
    struct ah_arrays a = {0};
    struct quantizing z = {.x = ah_array_in(&a, x), .code = ah_array_as_is(&a, arg->code.tensor), .numel = x->numel,
                           .block = arg->block_size.integer, .codes = ah_tensor_data(c->out[0]),
                           .absmax = ah_tensor_data(c->out[1])};
    if (a.status == 0) {
        quantized_sort(z.code, z.order);
        for (int i = 0; i < 15; i++)
            z.bounds[i] = (z.code[z.order[i]] + z.code[z.order[i + 1]]) / 2;
        ah_parallel_units(c->out[1]->numel, z.block, AH_SHARE_HEAVY, quantize_4bit_blocks, &z);
    }
    return ah_arrays_close(&a);
}

/* Numbers are rounded to one of 65536 places from -1 to 1 first, as bitsandbytes does on the CPU. */
static uint8_t quantized_8bit_of(const struct quantizing *z, float x)
{
    int place = (int)((quantized_clamp(x) + 1) * 0.5f * 65535 + 0.5f);
    float number = -1.0f + 2.0f * (float)place / 65535;
    int first = 0, count = 255;
    while (count > 0) {
        int half = count / 2;
        bool after = z->bounds[first + half] < number;
        first = after ? first + half + 1 : first;
        count = after ? count - half - 1 : half;
    }
    return (uint8_t)first;
}

static void quantize_8bit_blocks(void *context, int64_t begin, int64_t end)
{
    const struct quantizing *z = context;
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * z->block, count = z->numel - first < z->block ? z->numel - first : z->block;
        float largest = quantized_largest(z->x + first, count), reciprocal = 1.0f / largest;
        z->absmax[block] = largest;
        for (int64_t i = 0; i < count; i++)
            z->codes[first + i] = largest > 0 ? quantized_8bit_of(z, z->x[first + i] * reciprocal) : 0;
    }
}

int ah_cpu_quantize_blockwise(struct ah_call *c)
{
    const struct ah_args_quantize_blockwise *arg = ah_args(c, quantize_blockwise);
    struct ah_tensor *x = arg->input.tensor;
    struct ah_arrays a = {0};
    struct quantizing z = {.x = ah_array_in(&a, x), .code = ah_array_as_is(&a, arg->code.tensor), .numel = x->numel,
                           .block = arg->block_size.integer, .codes = ah_tensor_data(c->out[0]),
                           .absmax = ah_tensor_data(c->out[1])};
    if (a.status == 0) {
        for (int i = 0; i < 255; i++)
            z.bounds[i] = 0.5f * (z.code[i] + z.code[i + 1]);
        ah_parallel_units(c->out[1]->numel, z.block, AH_SHARE_HEAVY, quantize_8bit_blocks, &z);
    }
    return ah_arrays_close(&a);
}
