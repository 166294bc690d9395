/* The places of the entries of some ranks in each line along a dim, by selection (cpu/index/sort.h). */
#include <stdlib.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cpu/index/sort.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "ops/dispatch/op.h"

/* For more ranks of a line it is sorted. */
enum { MOST_RANKS = 4 };

struct selection {
    const struct ah_tensor *x, *rank; /* rank is row-major int64 */
    struct ah_tensor *out;
    struct ah_sort_entry *memory; /* 2 n for each part */
    int64_t n, ranks, count, parts;
    int dim;
};

static void select_line(const struct selection *s, int64_t line, struct ah_sort_entry *entry)
{
    size_t item = ah_dtype_size(s->x->dtype);
    int64_t from = ah_sort_line_start(s->x, s->dim, line), first = ah_sort_line_start(s->rank, s->dim, line),
            to = ah_sort_line_start(s->out, s->dim, line);
    bool sorted = s->ranks > MOST_RANKS, short_keys = !sorted && ah_sort_has_short_keys(s->x->dtype);
    const void *data = (const char *)ah_tensor_data(s->x) + from * (int64_t)item;
    uint32_t *key = (uint32_t *)(void *)entry;
    if (short_keys)
        ah_sort_short_keys(key, s->n, data, s->x->stride[s->dim], s->x->dtype);
    else
        ah_sort_keys(entry, s->n, data, s->x->stride[s->dim], s->x->dtype, false);
    if (sorted)
        ah_sort_entries(entry, entry + s->n, s->n);
    for (int64_t k = 0; k < s->ranks; k++) {
        int64_t rank = ((const int64_t *)ah_tensor_data(s->rank))[first + k * s->rank->stride[s->dim]];
        rank = rank < 0 ? 0 : rank < s->n ? rank : s->n - 1;
        int64_t *at = (int64_t *)ah_tensor_data(s->out) + to + k * s->out->stride[s->dim];
        if (short_keys)
            *at = ah_sort_select_short(key, key + s->n, s->n, rank);
        else
            *at = sorted ? entry[rank].at : ah_sort_select(entry, entry + s->n, s->n, rank).at;
    }
}

static void select_parts(void *context, int64_t begin, int64_t end)
{
    const struct selection *s = context;
    for (int64_t part = begin; part < end; part++)
        for (int64_t line = s->count * part / s->parts; line < s->count * (part + 1) / s->parts; line++)
            select_line(s, line, s->memory + part * 2 * s->n);
}

int ah_cpu_argrank(struct ah_call *c)
{
    const struct ah_args_argrank *arg = ah_args(c, argrank);
    struct ah_tensor *x = arg->input.tensor, *rank = NULL;
    struct selection s = {.x = x, .out = c->out[0], .dim = (int)arg->dim.integer};
    if (c->out[0]->numel == 0)
        return 0;
    s.n = x->size[s.dim];
    s.ranks = s.out->size[s.dim];
    s.count = x->numel / s.n;
    s.parts = ah_worth_threads(x->numel, AH_SHARE_SORT) ? ah_num_threads() : 1;
    s.parts = s.parts < s.count ? s.parts : s.count;
    AH_TRY(ah_contiguous_as(&rank, arg->rank.tensor, AH_I64));
    s.rank = rank;
    s.memory = malloc((size_t)s.parts * 2 * (size_t)s.n * sizeof *s.memory);
    int status = s.memory ? 0 : ah_fail(AH_ENOMEM, "argrank: out of memory");
    if (s.memory)
        ah_parallel_for(s.parts, 1, select_parts, &s);
    free(s.memory);
    ah_tensor_release(rank);
    return status;
}
