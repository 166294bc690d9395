/* Sorting ops: each line's values become entries (cpu/index/sort.h), a stable sort of which serves all dtypes and both
 * directions; distinct values, and places in sorted edges. */
#include <stdlib.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/index/index.h"
#include "ops/dispatch/op.h"
#include "cpu/index/sort.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"

int64_t ah_sort_line_start(const struct ah_tensor *tensor, int dim, int64_t line)
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

/* Lines along one dim; the first `keep` entries of each, in order. */
struct lines {
    const struct ah_tensor *x;
    struct ah_tensor *values; /* may be NULL */
    struct ah_tensor *indices;
    struct ah_sort_entry *memory; /* 2 n per thread part, used in turn by `line` ranges */
    int dim;
    int64_t n, keep;
    bool descending;
};

/* Set the first l->keep entries of a line in order, in `memory`, which has room for 2 n, and return them. A few of many
 * values are selected by short keys: the entries of all would be written to memory and read again. */
static const struct ah_sort_entry *sort_entries(const struct lines *l, const void *from, int64_t stride,
                                                struct ah_sort_entry *memory)
{
    enum { LONG = 4096, FEW = 16 };
    if (l->n >= LONG && l->keep <= l->n / FEW && ah_sort_has_short_keys(l->x->dtype)) {
        uint32_t *key = (uint32_t *)(void *)(memory + 2 * l->keep);
        ah_sort_short_keys(key, l->n, from, stride, l->x->dtype);
        ah_sort_smallest_short(key, key + l->n, l->n, l->keep, l->descending, memory);
        ah_sort_entries(memory, memory + l->keep, l->keep);
        return memory;
    }
    ah_sort_keys(memory, l->n, from, stride, l->x->dtype, l->descending);
    if (l->keep < l->n / 4)
        ah_sort_smallest(memory, memory + l->n, l->n, l->keep);
    else
        ah_sort_entries(memory, memory + l->n, l->n);
    return memory;
}

static void sort_line(const struct lines *l, int64_t line, struct ah_sort_entry *memory)
{
    const struct ah_tensor *x = l->x;
    size_t item = ah_dtype_size(x->dtype);
    int64_t xs = x->ndim > 0 ? x->stride[l->dim] : 1,
            os = l->indices->ndim > 0 ? l->indices->stride[l->dim] : 1;
    int64_t first = ah_sort_line_start(l->indices, l->dim, line);
    const char *from =
        (const char *)ah_tensor_data(x) + ah_sort_line_start(x, l->dim, line) * (int64_t)item;
    int64_t *index = (int64_t *)ah_tensor_data(l->indices) + first;
    const struct ah_sort_entry *entry = sort_entries(l, from, xs, memory);
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
    AH_TRY_MEMORY(l->memory, "sort: out of memory");
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

/* Does a sorted entry begin a new value? No nan equals another. */
static inline bool is_new(const struct ah_sort_entry *entry, int64_t i, bool floats, uint64_t nan)
{
    return i == 0 || entry[i].key != entry[i - 1].key || (floats && entry[i].key == nan);
}

int ah_cpu_unique(struct ah_call *c)
{
    const struct ah_args_unique *arg = ah_args(c, unique);
    AH_OWNED struct ah_tensor *x = NULL;
    int64_t found = 0, *counts = NULL;
    int next = 1;
    AH_TRY(ah_contiguous_as(&x, arg->input.tensor, arg->input.tensor->dtype));
    int64_t n = x->numel;
    AH_FREED struct ah_sort_entry *entry = malloc((size_t)(2 * n + 1) * sizeof *entry);
    AH_TRY_MEMORY(entry, "unique: out of memory");
    ah_sort_keys(entry, n, ah_tensor_data(x), 1, x->dtype, false);
    ah_sort_entries(entry, entry + n, n);
    bool floats = ah_dtype_is_float(x->dtype);
    uint64_t nan = x->dtype == AH_F64 ? UINT64_MAX : UINT32_MAX;
    for (int64_t i = 0; i < n; i++)
        found += is_new(entry, i, floats, nan);
    AH_TRY(ah_call_output(c, 0, &found, 1, x->dtype));
    if (arg->return_inverse.flag)
        AH_TRY(ah_call_output(c, next++, x->size, x->ndim, AH_I64));
    if (arg->return_counts.flag) {
        AH_TRY(ah_call_output(c, next, &found, 1, AH_I64));
        counts = ah_tensor_data(c->out[next]);
        memset(counts, 0, (size_t)found * sizeof *counts);
    }
    size_t item = ah_dtype_size(x->dtype);
    int64_t group = -1;
    for (int64_t i = 0; i < n; i++) {
        if (is_new(entry, i, floats, nan)) {
            group++;
            memcpy((char *)ah_tensor_data(c->out[0]) + (size_t)group * item,
                   (const char *)ah_tensor_data(x) + (size_t)entry[i].at * item, item);
        }
        if (arg->return_inverse.flag)
            ((int64_t *)ah_tensor_data(c->out[1]))[entry[i].at] = group;
        if (counts)
            counts[group]++;
    }
    return 0;
}

/* Values looked for in rows of n sorted edges: `edges` and `values` are of one type, per_row values share a row. */
struct search {
    const void *edges, *values;
    struct ah_tensor *out;
    int64_t n, per_row;
    bool right;
};

/* Store the numbers of edges before the values [begin, end). Several searches advance together, without branches: their
 * loads do not wait for each other. */
#define SEARCH(type)                                                                                   \
    static void search_##type(void *context, int64_t begin, int64_t end)                               \
    {                                                                                                  \
        enum { TOGETHER = 16 };                                                                        \
        const struct search *s = context;                                                              \
        for (int64_t i = begin; i < end; i += TOGETHER) {                                              \
            int count = end - i < TOGETHER ? (int)(end - i) : TOGETHER;                                \
            int64_t low[TOGETHER], high[TOGETHER];                                                     \
            const type *edge[TOGETHER], *value = (const type *)s->values + i;                          \
            for (int k = 0; k < count; k++) {                                                          \
                low[k] = 0;                                                                            \
                high[k] = s->n;                                                                        \
                edge[k] = (const type *)s->edges + (i + k) / s->per_row * s->n;                        \
            }                                                                                          \
            for (int64_t length = s->n; length > 0; length /= 2) {                                     \
                for (int k = 0; k < count; k++) {                                                      \
                    int64_t middle = low[k] + (high[k] - low[k]) / 2;                                  \
                    bool open = low[k] < high[k];                                                      \
                    type at = edge[k][open ? middle : 0];                                              \
                    bool before = s->right ? !(at > value[k]) : !(at >= value[k]);                     \
                    low[k] = (open & before) ? middle + 1 : low[k];                                    \
                    high[k] = (open & !before) ? middle : high[k];                                     \
                }                                                                                      \
            }                                                                                          \
            for (int k = 0; k < count; k++) {                                                          \
                if (s->out->dtype == AH_I64)                                                           \
                    ((int64_t *)ah_tensor_data(s->out))[i + k] = low[k];                               \
                else                                                                                   \
                    ((int32_t *)ah_tensor_data(s->out))[i + k] = (int32_t)low[k];                      \
            }                                                                                          \
        }                                                                                              \
    }
SEARCH(int64_t)
SEARCH(float)
SEARCH(double)

int ah_cpu_searchsorted(struct ah_call *c)
{
    const struct ah_args_searchsorted *arg = ah_args(c, searchsorted);
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *edges = NULL, *x = NULL;
    enum ah_dtype of_edges = arg->sorted_sequence.tensor->dtype, of_values = arg->input.tensor->dtype;
    enum ah_dtype dtype = AH_F64;
    if (of_edges == AH_F32 && of_values == AH_F32)
        dtype = AH_F32;
    else if (!ah_dtype_is_float(of_edges) && !ah_dtype_is_float(of_values))
        dtype = AH_I64;
    AH_TRY(ah_contiguous_as(&edges, arg->sorted_sequence.tensor, dtype));
    AH_TRY(ah_contiguous_as(&x, arg->input.tensor, dtype));
    struct search s = {.edges = ah_tensor_data(edges),
                       .values = ah_tensor_data(x),
                       .out = out,
                       .n = edges->size[edges->ndim - 1],
                       .per_row = edges->ndim > 1 ? x->size[x->ndim - 1] : x->numel,
                       .right = arg->right.flag};
    ah_parallel_units(x->numel, 1, AH_SHARE_SORT,
                      dtype == AH_I64 ? search_int64_t : dtype == AH_F32 ? search_float : search_double, &s);
    return 0;
}
