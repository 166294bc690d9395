/* Sorting: every value becomes an unsigned key of the same order, so one stable radix sort serves
 * all dtypes and both directions. nan sorts as the largest value, -0 equals 0, ties keep their
 * order. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "cpu/index.h"
#include "cpu/iterate.h"
#include "cpu/kernels.h"

struct entry {
    uint64_t key;
    int64_t at;
};

static uint64_t float_key(double value)
{
    union { double f; uint64_t u; } v = {value == 0 ? 0 : value};
    if (value != value)
        return UINT64_MAX;
    return v.u >> 63 ? ~v.u : v.u | UINT64_C(1) << 63;
}

/* In 32 bits, so that the radix sort makes half the passes. */
static uint64_t float32_key(float value)
{
    union { float f; uint32_t u; } v = {value == 0 ? 0 : value};
    if (value != value)
        return UINT32_MAX;
    return v.u >> 31 ? ~v.u : v.u | UINT32_C(1) << 31;
}

static void make_keys(struct entry *entry, int64_t n, const void *data, int64_t stride,
                      enum ah_dtype dtype, bool descending)
{
#define KEYS(type, to_key)                                  \
    for (int64_t i = 0; i < n; i++) {                       \
        entry[i].key = to_key(((const type *)data)[i * stride]); \
        entry[i].at = i;                                    \
    }
#define INT_KEY(x) ((uint64_t)(int64_t)(x) ^ UINT64_C(1) << 63)
#define INT32_KEY(x) ((uint32_t)(x) ^ UINT32_C(1) << 31)
#define F16_KEY(x) float32_key(ah_f16_to_f32(x))
#define BF16_KEY(x) float32_key(ah_bf16_to_f32(x))
    switch (dtype) {
    case AH_BOOL:
    case AH_U8: KEYS(uint8_t, ); break;
    case AH_I32: KEYS(int32_t, INT32_KEY); break;
    case AH_I64: KEYS(int64_t, INT_KEY); break;
    case AH_F16: KEYS(uint16_t, F16_KEY); break;
    case AH_BF16: KEYS(uint16_t, BF16_KEY); break;
    case AH_F32: KEYS(float, float32_key); break;
    case AH_F64: KEYS(double, float_key); break;
    case AH_DTYPE_COUNT: break;
    }
#undef KEYS
    uint64_t flip = !descending ? 0 : dtype == AH_I64 || dtype == AH_F64 ? UINT64_MAX : UINT32_MAX;
    for (int64_t i = 0; i < n; i++)
        entry[i].key ^= flip;
}

static void insertion_sort(struct entry *entry, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        struct entry moved = entry[i];
        int64_t k = i;
        for (; k > 0 && entry[k - 1].key > moved.key; k--)
            entry[k] = entry[k - 1];
        entry[k] = moved;
    }
}

/* Stable; `scratch` has room for n. Bytes in which all keys agree cost no pass. */
static void sort_entries(struct entry *entry, struct entry *scratch, int64_t n)
{
    if (n <= 48) {
        insertion_sort(entry, n);
        return;
    }
    struct entry *from = entry, *to = scratch;
    uint64_t all_or = 0, all_and = UINT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        all_or |= entry[i].key;
        all_and &= entry[i].key;
    }
    for (int shift = 0; shift < 64; shift += 8) {
        int64_t place[256] = {0}, sum = 0;
        if (((all_or ^ all_and) >> shift & 0xff) == 0)
            continue;
        for (int64_t i = 0; i < n; i++)
            place[from[i].key >> shift & 0xff]++;
        for (int b = 0; b < 256; b++) {
            int64_t count = place[b];
            place[b] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++)
            to[place[from[i].key >> shift & 0xff]++] = from[i];
        struct entry *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != entry)
        memcpy(entry, from, (size_t)n * sizeof *entry);
}

/* The k smallest of n, sorted, into entry[0..k): a sorted window of the best so far; most values
 * fail against its last. Only for small k. */
static void smallest(struct entry *entry, int64_t n, int64_t k)
{
    insertion_sort(entry, k);
    for (int64_t i = k; i < n; i++) {
        if (entry[i].key >= entry[k - 1].key)
            continue;
        struct entry moved = entry[i];
        int64_t j = k - 1;
        for (; j > 0 && entry[j - 1].key > moved.key; j--)
            entry[j] = entry[j - 1];
        entry[j] = moved;
    }
}

/* Lines along one dim; the first `keep` entries of each, in order. */
struct lines {
    const struct ah_tensor *x;
    struct ah_tensor *values; /* may be NULL */
    struct ah_tensor *indices;
    struct entry *memory; /* 2 n per thread part, taken in turn by `line` ranges */
    int dim;
    int64_t n, keep;
    bool descending;
};

static int64_t line_start(const struct ah_tensor *tensor, int dim, int64_t line)
{
    int64_t at = 0;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        if (d == dim)
            continue;
        at += line % tensor->size[d] * tensor->stride[d];
        line /= tensor->size[d];
    }
    return at;
}

static void sort_line(const struct lines *l, int64_t line, struct entry *entry)
{
    const struct ah_tensor *x = l->x;
    size_t item = ah_dtype_size(x->dtype);
    int64_t xs = x->ndim > 0 ? x->stride[l->dim] : 1,
            os = l->indices->ndim > 0 ? l->indices->stride[l->dim] : 1;
    int64_t first = line_start(l->indices, l->dim, line);
    const char *from =
        (const char *)ah_tensor_data(x) + line_start(x, l->dim, line) * (int64_t)item;
    int64_t *index = (int64_t *)ah_tensor_data(l->indices) + first;
    make_keys(entry, l->n, from, xs, x->dtype, l->descending);
    if (l->keep <= 32 && l->keep < l->n / 4)
        smallest(entry, l->n, l->keep);
    else
        sort_entries(entry, entry + l->n, l->n);
    for (int64_t k = 0; k < l->keep; k++)
        index[k * os] = entry[k].at;
    if (!l->values)
        return;
#define VALUES(type)                                        \
    do {                                                    \
        type *value = (type *)ah_tensor_data(l->values) + first; \
        for (int64_t k = 0; k < l->keep; k++)               \
            value[k * os] = ((const type *)from)[entry[k].at * xs]; \
    } while (0)
    AH_ITEM_TYPES(item, VALUES)
#undef VALUES
}

/* Ranges of lines own disjoint memory: range p of `parts` has the entries from p * 2n on. */
struct part_job {
    const struct lines *lines;
    int64_t count, parts;
};

static void sort_parts(void *context, int64_t begin, int64_t end)
{
    const struct part_job *job = context;
    for (int64_t part = begin; part < end; part++)
        for (int64_t line = job->count * part / job->parts;
             line < job->count * (part + 1) / job->parts; line++)
            sort_line(job->lines, line, job->lines->memory + part * 2 * job->lines->n);
}

static int sort_lines(struct lines *l)
{
    const struct ah_tensor *x = l->x;
    l->n = x->ndim > 0 ? x->size[l->dim] : 1;
    if (x->numel == 0 || l->keep == 0)
        return 0;
    int64_t count = x->numel / l->n, parts = ah_worth_threads(x->numel, AH_SHARE_SORT) ? ah_num_threads() : 1;
    if (parts > count)
        parts = count;
    l->memory = malloc((size_t)parts * 2 * (size_t)l->n * sizeof *l->memory);
    if (!l->memory)
        return ah_fail(AH_ENOMEM, "sort: out of memory");
    struct part_job job = {l, count, parts};
    ah_parallel_for(parts, 1, sort_parts, &job);
    free(l->memory);
    return 0;
}

int ah_cpu_sort(struct ah_call *c)
{
    const struct ah_args_sort *arg = ah_args(c, sort);
    struct lines l = {.x = arg->input.tensor,
                      .values = c->out[0],
                      .indices = c->out[1],
                      .dim = (int)arg->dim.integer,
                      .descending = arg->descending.flag};
    l.keep = l.x->ndim > 0 ? l.x->size[l.dim] : 1;
    return sort_lines(&l);
}

int ah_cpu_argsort(struct ah_call *c)
{
    const struct ah_args_argsort *arg = ah_args(c, argsort);
    struct lines l = {.x = arg->input.tensor,
                      .indices = c->out[0],
                      .dim = (int)arg->dim.integer,
                      .descending = arg->descending.flag};
    l.keep = l.x->ndim > 0 ? l.x->size[l.dim] : 1;
    return sort_lines(&l);
}

int ah_cpu_topk(struct ah_call *c)
{
    const struct ah_args_topk *arg = ah_args(c, topk);
    struct lines l = {.x = arg->input.tensor,
                      .values = c->out[0],
                      .indices = c->out[1],
                      .dim = (int)arg->dim.integer,
                      .keep = arg->k.integer,
                      .descending = arg->largest.flag};
    if (l.x->ndim == 0)
        l.keep = 1; /* the result is 0-dim as well, whatever k */
    return sort_lines(&l);
}

/* Does a sorted entry begin a value of its own? No nan equals another. */
static bool is_new(const struct entry *entry, int64_t i, enum ah_dtype dtype)
{
    uint64_t nan = dtype == AH_F64 ? UINT64_MAX : UINT32_MAX;
    return i == 0 || entry[i].key != entry[i - 1].key || (ah_dtype_is_float(dtype) && entry[i].key == nan);
}

int ah_cpu_unique(struct ah_call *c)
{
    const struct ah_args_unique *arg = ah_args(c, unique);
    struct ah_tensor *x = NULL;
    int64_t found = 0, *counts = NULL;
    int next = 1, status;
    AH_TRY(ah_contiguous_as(&x, arg->input.tensor, arg->input.tensor->dtype));
    int64_t n = x->numel;
    struct entry *entry = malloc((size_t)(2 * n + 1) * sizeof *entry);
    if (!entry) {
        status = ah_fail(AH_ENOMEM, "unique: out of memory");
        goto out;
    }
    make_keys(entry, n, ah_tensor_data(x), 1, x->dtype, false);
    sort_entries(entry, entry + n, n);
    for (int64_t i = 0; i < n; i++)
        found += is_new(entry, i, x->dtype);
    AH_TRYGO(ah_call_output(c, 0, &found, 1, x->dtype), out);
    if (arg->return_inverse.flag)
        AH_TRYGO(ah_call_output(c, next++, x->size, x->ndim, AH_I64), out);
    if (arg->return_counts.flag) {
        AH_TRYGO(ah_call_output(c, next, &found, 1, AH_I64), out);
        counts = ah_tensor_data(c->out[next]);
        memset(counts, 0, (size_t)found * sizeof *counts);
    }
    size_t item = ah_dtype_size(x->dtype);
    int64_t group = -1;
    for (int64_t i = 0; i < n; i++) {
        if (is_new(entry, i, x->dtype)) {
            group++;
            memcpy((char *)ah_tensor_data(c->out[0]) + (size_t)group * item,
                   (const char *)ah_tensor_data(x) + (size_t)entry[i].at * item, item);
        }
        if (arg->return_inverse.flag)
            ((int64_t *)ah_tensor_data(c->out[1]))[entry[i].at] = group;
        if (counts)
            counts[group]++;
    }
out:
    free(entry);
    ah_tensor_release(x);
    return status;
}

/* How many of n sorted edges come before the value. */
#define SEARCH(type)                                                                  \
    static int64_t search_##type(const type *edge, int64_t n, type value, bool right) \
    {                                                                                 \
        int64_t low = 0, high = n;                                                    \
        while (low < high) {                                                          \
            int64_t middle = low + (high - low) / 2;                                  \
            if (right ? !(edge[middle] > value) : !(edge[middle] >= value))           \
                low = middle + 1;                                                     \
            else                                                                      \
                high = middle;                                                        \
        }                                                                             \
        return low;                                                                   \
    }
SEARCH(int64_t)
SEARCH(double)

int ah_cpu_searchsorted(struct ah_call *c)
{
    const struct ah_args_searchsorted *arg = ah_args(c, searchsorted);
    struct ah_tensor *edges = NULL, *x = NULL, *out = c->out[0];
    bool whole = ah_dtype_category(arg->sorted_sequence.tensor->dtype) != AH_CATEGORY_FLOAT &&
                 ah_dtype_category(arg->input.tensor->dtype) != AH_CATEGORY_FLOAT;
    int status;
    AH_TRYGO(ah_contiguous_as(&edges, arg->sorted_sequence.tensor, whole ? AH_I64 : AH_F64), out);
    AH_TRYGO(ah_contiguous_as(&x, arg->input.tensor, whole ? AH_I64 : AH_F64), out);
    int64_t n = edges->size[edges->ndim - 1],
            per_row = edges->ndim > 1 ? x->size[x->ndim - 1] : x->numel;
    for (int64_t i = 0; i < x->numel; i++) {
        int64_t row = i / per_row * n, found;
        if (whole)
            found = search_int64_t((int64_t *)ah_tensor_data(edges) + row, n,
                                   ((int64_t *)ah_tensor_data(x))[i], arg->right.flag);
        else
            found = search_double((double *)ah_tensor_data(edges) + row, n,
                                  ((double *)ah_tensor_data(x))[i], arg->right.flag);
        if (out->dtype == AH_I64)
            ((int64_t *)ah_tensor_data(out))[i] = found;
        else
            ((int32_t *)ah_tensor_data(out))[i] = (int32_t)found;
    }
out:
    ah_tensor_release(edges);
    ah_tensor_release(x);
    return status;
}
