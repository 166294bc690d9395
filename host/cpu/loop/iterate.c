/* The iterator: dims of size 1 are dropped, the others are ordered by the output's strides and merged; operands that
 * are not dense in the loop's dtype are copied to buffers of a chunk. An input that overlaps the output otherwise than
 * exactly is copied first: loops read and write in any order. */
#include "cpu/loop/iterate.h"

#include <string.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/loop/shape_copy.h"
#include "tensor/overlap.h"
#include "tensor/tensor.h"

enum {
    CHUNK = 512,        /* elements converted at a time: five buffers of doubles fit the first-level cache */
    SHORT_ROW = 48,     /* inner dims shorter than this are gathered several rows at a time */
};

struct side {
    char *data;
    size_t item;
    enum ah_dtype own, loop;
    bool direct;   /* the loop may work on the memory itself where it is dense */
    bool dense;    /* row-major over the whole iteration */
    bool single;   /* one value for the whole iteration */
    int64_t stride[AH_MAX_DIMS];
};

struct plan {
    int ndim, count;
    int64_t size[AH_MAX_DIMS];
    int64_t numel;
    bool scalars, rows; /* rows: run by run along the inner dim; else flat chunks that cross rows */
    struct side side[AH_ITER_OPERANDS];
    ah_loop loop;
    const void *context;
};

static bool iterate_clashes(const struct ah_tensor *out, const struct ah_tensor *input)
{
    return ah_memory_meets(out, input) && !ah_same_memory(out, input);
}

/* Would reading this input in the output's order jump through memory, although a tiled copy would not? */
static bool is_transposed(const struct ah_tensor *out, const struct ah_tensor *input)
{
    int last = input->ndim - 1;
    if (input->numel < 4096 || !ah_same_shape(out, input) || input->stride[last] < 16 || out->stride[last] != 1)
        return false;
    for (int d = 0; d < last; d++)
        if (input->stride[d] == 1 && input->size[d] >= 16)
            return true;
    return false;
}

/* Are its rows so short that to gather them one by one costs more than a copy by columns? */
static bool is_narrow(const struct ah_tensor *tensor)
{
    int last = tensor->ndim - 1;
    return tensor->numel >= 256 && tensor->ndim > 1 && tensor->size[last] > 1 && tensor->size[last] < 4 &&
           tensor->size[last - 1] > 8 && tensor->stride[last - 1] > tensor->size[last];
}

static bool iterate_mergeable(const struct plan *plan, int d)
{
    for (int k = 0; k < plan->count; k++)
        if (plan->side[k].stride[d - 1] != plan->side[k].stride[d] * plan->size[d])
            return false;
    return true;
}

/* Drop dims of size 1, order the rest by the output's strides, merge neighbours. */
static void iterate_simplify(struct plan *plan)
{
    int n = 0;
    for (int d = 0; d < plan->ndim; d++) {
        if (plan->size[d] == 1)
            continue;
        plan->size[n] = plan->size[d];
        for (int k = 0; k < plan->count; k++)
            plan->side[k].stride[n] = plan->side[k].stride[d];
        n++;
    }
    for (int i = 1; i < n; i++) {
        for (int j = i; j > 0 && plan->side[0].stride[j - 1] < plan->side[0].stride[j]; j--) {
            int64_t t = plan->size[j];
            plan->size[j] = plan->size[j - 1];
            plan->size[j - 1] = t;
            for (int k = 0; k < plan->count; k++) {
                int64_t *stride = plan->side[k].stride;
                t = stride[j];
                stride[j] = stride[j - 1];
                stride[j - 1] = t;
            }
        }
    }
    for (int d = n - 1; d > 0; d--) {
        if (!iterate_mergeable(plan, d))
            continue;
        plan->size[d - 1] *= plan->size[d];
        for (int k = 0; k < plan->count; k++)
            plan->side[k].stride[d - 1] = plan->side[k].stride[d];
        n--;
        for (int e = d; e < n; e++) {
            plan->size[e] = plan->size[e + 1];
            for (int k = 0; k < plan->count; k++)
                plan->side[k].stride[e] = plan->side[k].stride[e + 1];
        }
    }
    if (n == 0) {
        plan->size[0] = 1;
        for (int k = 0; k < plan->count; k++)
            plan->side[k].stride[0] = k == 0;
        n = 1;
    }
    plan->ndim = n;
}

static void iterate_classify(struct plan *plan)
{
    for (int k = 0; k < plan->count; k++) {
        struct side *side = &plan->side[k];
        int64_t expected = 1;
        side->dense = side->single = true;
        for (int d = plan->ndim - 1; d >= 0; d--) {
            side->dense = side->dense && side->stride[d] == expected;
            side->single = side->single && side->stride[d] == 0;
            expected *= plan->size[d];
        }
        side->direct = side->own == side->loop;
    }
    plan->rows = plan->ndim == 1 || plan->size[plan->ndim - 1] >= SHORT_ROW;
}

/* The multi-dimensional place of a flat index. */
static void iterate_locate(const struct plan *plan, int64_t flat, int64_t *at)
{
    for (int d = plan->ndim - 1; d >= 0; d--) {
        at[d] = flat % plan->size[d];
        flat /= plan->size[d];
    }
}

static char *iterate_address(const struct plan *plan, const struct side *side, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < plan->ndim; d++)
        offset += at[d] * side->stride[d];
    return side->data + offset * (int64_t)side->item;
}

/* Step to the next row; at[] of the inner dim becomes 0. */
static void next_row(const struct plan *plan, int64_t *at)
{
    at[plan->ndim - 1] = 0;
    for (int d = plan->ndim - 2; d >= 0; d--) {
        if (++at[d] < plan->size[d])
            return;
        at[d] = 0;
    }
}

/* Move n elements that start at flat index `begin` between a strided side and a dense buffer of the loop's dtype. */
static void iterate_move(const struct plan *plan, const struct side *side, int64_t begin, int64_t n, char *buffer,
                         bool out)
{
    int64_t at[AH_MAX_DIMS];
    int64_t inner = plan->size[plan->ndim - 1], stride = side->stride[plan->ndim - 1];
    size_t loop_item = ah_dtype_size(side->loop);
    iterate_locate(plan, begin, at);
    while (n > 0) {
        int64_t length = inner - at[plan->ndim - 1];
        if (length > n)
            length = n;
        char *p = iterate_address(plan, side, at);
        if (out)
            ah_cast(length, p, side->own, stride, buffer, side->loop, 1);
        else
            ah_cast(length, buffer, side->loop, 1, p, side->own, stride);
        buffer += (size_t)length * loop_item;
        n -= length;
        next_row(plan, at);
    }
}

/* A thread's position in its part: the address and the stride of each operand of the next piece. */
struct iter {
    const struct plan *plan;
    int64_t at[AH_MAX_DIMS];      /* of plans by rows: the place of the next element */
    void *data[AH_ITER_OPERANDS];
    int64_t step[AH_ITER_OPERANDS];
    bool filled[AH_ITER_OPERANDS]; /* buffer[k] holds the single element of k */
    bool scatter;                  /* the result goes through buffer[0] */
    _Alignas(64) char buffer[AH_ITER_OPERANDS][CHUNK * sizeof(double)];
};

/* Does any operand go through a buffer, which bounds the length of a piece? */
static bool needs_buffers(const struct plan *plan)
{
    int last = plan->ndim - 1;
    for (int k = 0; k < plan->count; k++) {
        const struct side *side = &plan->side[k];
        bool as_scalar = k > 0 && plan->scalars && (plan->rows ? side->stride[last] == 0 : side->single);
        bool in_place = side->direct && (plan->rows ? side->stride[last] == 1 : side->dense);
        if (!as_scalar && !in_place)
            return true;
    }
    return false;
}

/* An input of one element is converted once per iteration, not per piece. */
static void point_at_single(struct iter *iter, int k)
{
    const struct plan *plan = iter->plan;
    const struct side *side = &plan->side[k];
    iter->step[k] = plan->scalars ? 0 : 1;
    iter->data[k] = iter->buffer[k];
    if (!iter->filled[k])
        ah_cast(plan->scalars ? 1 : CHUNK, iter->buffer[k], side->loop, 1, side->data, side->own, 0);
    iter->filled[k] = true;
}

/* n elements from flat index `begin` of an operand in a plan without rows. */
static void point_at_flat(struct iter *iter, int k, int64_t begin, int64_t n)
{
    const struct side *side = &iter->plan->side[k];
    if (side->direct && side->dense) {
        iter->data[k] = side->data + begin * (int64_t)side->item;
        return;
    }
    iter->data[k] = iter->buffer[k];
    if (k == 0)
        iter->scatter = true;
    else
        iterate_move(iter->plan, side, begin, n, iter->buffer[k], false);
}

/* n elements of an operand within one row. */
static void point_at_row(struct iter *iter, int k, int64_t n)
{
    const struct plan *plan = iter->plan;
    const struct side *side = &plan->side[k];
    int64_t stride = side->stride[plan->ndim - 1];
    char *p = iterate_address(plan, side, iter->at);
    iter->data[k] = side->direct && stride == 1 ? p : iter->buffer[k];
    if (iter->data[k] == p)
        return;
    if (k == 0) {
        iter->scatter = true;
    } else if (stride == 0 && plan->scalars && side->direct) {
        iter->data[k] = p;
        iter->step[k] = 0;
    } else if (stride == 0 && plan->scalars) {
        ah_cast(1, iter->buffer[k], side->loop, 1, p, side->own, 1);
        iter->step[k] = 0;
    } else {
        ah_cast(n, iter->buffer[k], side->loop, 1, p, side->own, stride);
    }
}

static void write_back(struct iter *iter, int64_t begin, int64_t n)
{
    const struct plan *plan = iter->plan;
    const struct side *side = &plan->side[0];
    if (plan->rows)
        ah_cast(n, iterate_address(plan, side, iter->at), side->own, side->stride[plan->ndim - 1], iter->buffer[0],
                side->loop, 1);
    else
        iterate_move(plan, side, begin, n, iter->buffer[0], true);
}

/* Report whether the loop may run on the memory of all operands, row by row. */
static bool iterate_is_in_place(const struct plan *plan)
{
    int last = plan->ndim - 1;
    for (int k = 0; k < plan->count; k++) {
        const struct side *side = &plan->side[k];
        bool as_scalar = k > 0 && plan->scalars && side->stride[last] == 0;
        if (!side->direct || !(as_scalar || side->stride[last] == 1))
            return false;
    }
    return plan->rows && plan->ndim > 1;
}

/* Run the loop over whole rows or parts of them. `advance` has the bytes from a row to the next one where that raises
 * the index along each dim and resets those after it: addresses are sums of numbers stored long before, since reading
 * two numbers in one load right after their stores stalls. */
static void iterate_rows(const struct plan *plan, int64_t begin, int64_t end)
{
    int64_t at[AH_MAX_DIMS], step[AH_ITER_OPERANDS], advance[AH_MAX_DIMS][AH_ITER_OPERANDS];
    int last = plan->ndim - 1;
    void *data[AH_ITER_OPERANDS];
    iterate_locate(plan, begin, at);
    for (int k = 0; k < plan->count; k++) {
        const struct side *side = &plan->side[k];
        int64_t back = 0;
        for (int d = last - 1; d >= 0; d--) {
            advance[d][k] = (side->stride[d] - back) * (int64_t)side->item;
            back += (plan->size[d] - 1) * side->stride[d];
        }
        step[k] = side->stride[last];
        data[k] = iterate_address(plan, side, at);
    }
    for (int64_t n; begin < end; begin += n) {
        n = plan->size[last] - at[last] < end - begin ? plan->size[last] - at[last] : end - begin;
        plan->loop(n, data, step, plan->context);
        for (int k = 0; k < plan->count && at[last]; k++)
            data[k] = (char *)data[k] - at[last] * step[k] * (int64_t)plan->side[k].item;
        at[last] = 0;
        int d = last - 1;
        for (; d > 0 && at[d] == plan->size[d] - 1; d--)
            at[d] = 0;
        at[d]++;
        for (int k = 0; k < plan->count; k++)
            data[k] = (char *)data[k] + advance[d][k];
    }
}

static void iterate_run(void *context, int64_t begin, int64_t end)
{
    if (iterate_is_in_place(context)) {
        iterate_rows(context, begin, end);
        return;
    }
    const struct plan *plan = context;
    struct iter iter;
    int last = plan->ndim - 1;
    bool buffers = needs_buffers(plan);
    iter.plan = plan;
    memset(iter.filled, 0, sizeof iter.filled);
    iterate_locate(plan, begin, iter.at);
    while (begin < end) {
        int64_t n = end - begin;
        if (plan->rows && n > plan->size[last] - iter.at[last])
            n = plan->size[last] - iter.at[last];
        if (buffers && n > CHUNK)
            n = CHUNK;
        iter.scatter = false;
        for (int k = 0; k < plan->count; k++) {
            iter.step[k] = 1;
            if (k > 0 && plan->side[k].single)
                point_at_single(&iter, k);
            else if (plan->rows)
                point_at_row(&iter, k, n);
            else
                point_at_flat(&iter, k, begin, n);
        }
        plan->loop(n, iter.data, iter.step, plan->context);
        if (iter.scatter)
            write_back(&iter, begin, n);
        begin += n;
        if (plan->rows && (iter.at[last] += n) == plan->size[last])
            next_row(plan, iter.at);
    }
}

static void copy_loop(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    const enum ah_dtype *dtype = context;
    ah_cast(n, data[0], dtype[0], 1, data[1], dtype[1], step[1]);
}

int ah_iterate(const struct ah_operand *operand, int count, bool scalars, ah_loop loop, const void *context,
               enum ah_share share)
{
    struct plan plan;
    struct ah_tensor *copy[AH_ITER_OPERANDS] = {NULL};
    const struct ah_tensor *out = operand[0].tensor;
    int status = 0;
    if (out->numel == 0)
        return 0;
    AH_TRY(ah_check_writable(out));
    plan.count = count;
    plan.scalars = scalars;
    plan.loop = loop;
    plan.context = context;
    plan.ndim = out->ndim;
    plan.numel = out->numel;
    memcpy(plan.size, out->size, sizeof plan.size);
    for (int k = 0; k < count; k++) {
        struct ah_tensor *tensor = operand[k].tensor;
        struct side *side = &plan.side[k];
        bool is_copy = loop == copy_loop && out->dtype == tensor->dtype;
        if (k > 0 && !is_copy && is_narrow(tensor)) {
            AH_TRYGO(ah_tensor_empty(&copy[k], tensor->size, tensor->ndim, tensor->dtype, &ah_cpu), done);
            ah_strided_copy(ah_tensor_data(copy[k]), copy[k]->stride, ah_tensor_data(tensor), tensor->stride,
                            tensor->size, tensor->ndim, ah_dtype_size(tensor->dtype));
            tensor = copy[k];
        } else if (k > 0 && tensor->numel > 0 &&
                   (iterate_clashes(out, tensor) || (!is_copy && is_transposed(out, tensor)))) {
            AH_TRYGO(ah_tensor_empty_like(&copy[k], tensor), done);
            AH_TRYGO(ah_copy(copy[k], tensor), done);
            tensor = copy[k];
        }
        side->own = tensor->dtype;
        side->loop = operand[k].dtype;
        side->item = ah_dtype_size(tensor->dtype);
        side->data = ah_tensor_data(tensor);
        ah_broadcast_strides(tensor, out->size, out->ndim, side->stride);
    }
    iterate_simplify(&plan);
    iterate_classify(&plan);
    ah_parallel_units(plan.numel, 1, share, iterate_run, &plan);
done:
    for (int k = 1; k < count; k++)
        ah_tensor_release(copy[k]);
    return status;
}

/* Copying. */

/* One plane out[r][c] = in[c][r]: rows x columns of the output, `from` elements between its input columns. */
struct transpose {
    char *out;
    const char *input;
    size_t item;
    int64_t rows, columns, out_stride, input_stride;
};

enum { TILE = 16 };

/* Transpose a whole tile. */
#define TURN_TILE(type)                                                                                       \
    static inline void turn_tile_##type(type *out, int64_t out_stride, const type *input, int64_t input_stride) \
    {                                                                                                         \
        type tile[TILE][TILE];                                                                                \
        for (int j = 0; j < TILE; j++)                                                                        \
            memcpy(tile[j], input + j * input_stride, sizeof tile[j]);                                        \
        for (int i = 0; i < TILE; i++)                                                                        \
            for (int j = 0; j < TILE; j++)                                                                    \
                out[i * out_stride + j] = tile[j][i];                                                         \
    }
TURN_TILE(uint8_t)
TURN_TILE(uint16_t)
TURN_TILE(uint32_t)
#ifdef __AVX__
static inline void turn_tile_uint64_t(uint64_t *out, int64_t out_stride, const uint64_t *input, int64_t input_stride)
{
    for (int i = 0; i < TILE; i += 4)
        for (int j = 0; j < TILE; j += 4) {
            const double *from = (const double *)(const void *)(input + j * input_stride + i);
            double *to = (double *)(void *)(out + i * out_stride + j);
            __m256d a = _mm256_loadu_pd(from), b = _mm256_loadu_pd(from + input_stride);
            __m256d c = _mm256_loadu_pd(from + 2 * input_stride), d = _mm256_loadu_pd(from + 3 * input_stride);
            __m256d even = _mm256_unpacklo_pd(a, b), odd = _mm256_unpackhi_pd(a, b);
            __m256d even_2 = _mm256_unpacklo_pd(c, d), odd_2 = _mm256_unpackhi_pd(c, d);
            _mm256_storeu_pd(to, _mm256_permute2f128_pd(even, even_2, 0x20));
            _mm256_storeu_pd(to + out_stride, _mm256_permute2f128_pd(odd, odd_2, 0x20));
            _mm256_storeu_pd(to + 2 * out_stride, _mm256_permute2f128_pd(even, even_2, 0x31));
            _mm256_storeu_pd(to + 3 * out_stride, _mm256_permute2f128_pd(odd, odd_2, 0x31));
        }
}
#else
TURN_TILE(uint64_t)
#endif

#define TRANSPOSE(type)                                                                                       \
    static void transpose_##type(const struct transpose *t, int64_t r0, int64_t r1)                            \
    {                                                                                                         \
        type *out = (type *)t->out;                                                                           \
        const type *input = (const type *)t->input;                                                           \
        for (int64_t r = r0; r < r1; r += TILE) {                                                             \
            int64_t height = r1 - r < TILE ? r1 - r : TILE;                                                   \
            for (int64_t c = 0; c < t->columns; c += TILE) {                                                  \
                int64_t width = t->columns - c < TILE ? t->columns - c : TILE;                                \
                if (height == TILE && width == TILE) {                                                        \
                    turn_tile_##type(out + r * t->out_stride + c, t->out_stride,                              \
                                     input + c * t->input_stride + r, t->input_stride);                       \
                } else {                                                                                      \
                    for (int64_t i = 0; i < height; i++)                                                      \
                        for (int64_t j = 0; j < width; j++)                                                   \
                            out[(r + i) * t->out_stride + c + j] = input[(c + j) * t->input_stride + r + i];  \
                }                                                                                             \
            }                                                                                                 \
        }                                                                                                     \
    }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)

static void transpose_rows(void *context, int64_t begin, int64_t end)
{
    const struct transpose *t = context;
    switch (t->item) {
    case 1: transpose_uint8_t(t, begin, end); break;
    case 2: transpose_uint16_t(t, begin, end); break;
    case 4: transpose_uint32_t(t, begin, end); break;
    default: transpose_uint64_t(t, begin, end); break;
    }
}

/* Is this a copy where another dim than the last is dense in the input? Then both sides are read and written in tiles.
 * */
static bool copy_transposed(struct ah_tensor *out, const struct ah_tensor *input)
{
    if (out->dtype != input->dtype || out->ndim < 2 || !ah_same_shape(out, input) || !ah_tensor_is_contiguous(out) ||
        out->storage->data == input->storage->data)
        return false;
    struct plan plan = {.ndim = out->ndim, .count = 2};
    memcpy(plan.size, out->size, sizeof plan.size);
    memcpy(plan.side[0].stride, out->stride, sizeof out->stride);
    memcpy(plan.side[1].stride, input->stride, sizeof input->stride);
    iterate_simplify(&plan);
    int last = plan.ndim - 1, dense = -1;
    for (int d = 0; d < last; d++)
        if (plan.side[1].stride[d] == 1 && plan.size[d] >= 4)
            dense = d;
    if (dense < 0 || plan.side[1].stride[last] == 1 || plan.size[last] < 4)
        return false;
    size_t item = ah_dtype_size(out->dtype);
    struct transpose t = {
        .item = item,
        .rows = plan.size[dense],
        .columns = plan.size[last],
        .out_stride = plan.side[0].stride[dense],
        .input_stride = plan.side[1].stride[last],
    };
    int64_t planes = out->numel / (t.rows * t.columns), at[AH_MAX_DIMS] = {0};
    for (int64_t p = 0; p < planes; p++) {
        int64_t from = 0, to = 0;
        for (int d = 0; d < last; d++) {
            from += at[d] * plan.side[1].stride[d];
            to += at[d] * plan.side[0].stride[d];
        }
        t.out = (char *)ah_tensor_data(out) + (size_t)to * item;
        t.input = (const char *)ah_tensor_data(input) + (size_t)from * item;
        int64_t grain = AH_SHARE_MIDDLE / t.columns / TILE * TILE;
        ah_parallel_for(t.rows, grain > TILE ? grain : TILE, transpose_rows, &t);
        for (int d = last - 1; d >= 0; d--) {
            if (d == dense)
                continue;
            if (++at[d] < plan.size[d])
                break;
            at[d] = 0;
        }
    }
    return true;
}

int ah_copy(struct ah_tensor *out, struct ah_tensor *input)
{
    if (out->numel == 0 || ah_same_memory(out, input))
        return 0;
    if (copy_transposed(out, input))
        return 0;
    enum ah_dtype dtype[2] = {out->dtype, input->dtype};
    return ah_iterate((struct ah_operand[]){{out, out->dtype}, {input, input->dtype}}, 2, true, copy_loop, dtype,
                      AH_SHARE_LIGHT);
}

int ah_contiguous_as(struct ah_tensor **out, struct ah_tensor *input, enum ah_dtype dtype)
{
    if (input->dtype == dtype && ah_tensor_is_contiguous(input)) {
        *out = ah_tensor_retain(input);
        return 0;
    }
    struct ah_tensor *fresh;
    AH_TRY(ah_tensor_empty(&fresh, input->size, input->ndim, dtype, &ah_cpu));
    int status = ah_copy(fresh, input);
    if (status < 0) {
        ah_tensor_release(fresh);
        return status;
    }
    *out = fresh;
    return 0;
}
