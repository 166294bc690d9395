/* Each tensor is a row of integers; rank 0's rows go to all, and the lowest (place, rank) that differs is agreed on, so
 * that the message is the same everywhere. */
#include "sync/agree.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

enum { DESCRIPTION = 2 + AH_MAX_DIMS };

struct lists {
    struct ah_group *group;
    const char *what, *where;
    int64_t count, *counts; /* this rank's; every rank's */
    int64_t *mine, *first;  /* this rank's rows; rank 0's */
};

static void agree_describe(const struct ah_tensor *tensor, int64_t *out)
{
    memset(out, 0, DESCRIPTION * sizeof *out);
    out[0] = tensor->dtype;
    out[1] = tensor->ndim;
    for (int d = 0; d < tensor->ndim; d++)
        out[2 + d] = tensor->size[d];
}

static int agree_run(const struct lists *l, struct ah_collective call)
{
    call.purpose = AH_FOR_PREPARE;
    call.where = l->where;
    return ah_group_run(l->group, call);
}

static int compare_counts(const struct lists *l)
{
    AH_TRY(agree_run(l, ah_collective_all_gather(l->counts, &l->count, 1, AH_I64)));
    for (int k = 1; k < ah_group_size(l->group); k++)
        if (l->counts[k] != l->counts[0])
            return ah_fail(AH_EMISMATCH, "prepare: rank 0 has %lld %s, rank %d has %lld", (long long)l->counts[0],
                           l->what, k, (long long)l->counts[k]);
    return 0;
}

static int compare_rows(const struct lists *l)
{
    int size = ah_group_size(l->group), rank = ah_group_rank(l->group);
    AH_TRY(agree_run(l, ah_collective_broadcast(l->first, l->count * DESCRIPTION, AH_I64, 0)));
    int64_t differs = INT64_MAX;
    for (int64_t i = l->count - 1; i >= 0; i--)
        if (memcmp(l->mine + i * DESCRIPTION, l->first + i * DESCRIPTION, DESCRIPTION * sizeof *l->mine))
            differs = i * size + rank;
    AH_TRY(agree_run(l, ah_collective_all_reduce(&differs, 1, AH_I64, AH_REDUCE_MIN)));
    if (differs == INT64_MAX)
        return 0;
    int64_t place = differs / size, *shown = l->mine + place * DESCRIPTION, *zero = l->first + place * DESCRIPTION;
    AH_TRY(agree_run(l, ah_collective_broadcast(shown, DESCRIPTION, AH_I64, (int)(differs % size))));
    return ah_fail(AH_EMISMATCH, "prepare: number %lld of the %s is %s %s on rank %d, %s %s on rank 0",
                   (long long)place, l->what, ah_dtype_name((enum ah_dtype)shown[0]),
                   ah_shape_text(shown + 2, (int)shown[1]), (int)(differs % size),
                   ah_dtype_name((enum ah_dtype)zero[0]), ah_shape_text(zero + 2, (int)zero[1]));
}

int ah_agree(struct ah_group *group, const char *what, const char *where, struct ah_tensor **list, int count)
{
    struct lists l = {.group = group, .what = what, .where = where, .count = count};
    int status;
    l.counts = malloc((size_t)ah_group_size(group) * sizeof *l.counts);
    l.mine = calloc((size_t)count + 1, DESCRIPTION * sizeof *l.mine);
    l.first = calloc((size_t)count + 1, DESCRIPTION * sizeof *l.first);
    if (!l.counts || !l.mine || !l.first) {
        status = ah_fail(AH_ENOMEM, "prepare: out of memory");
        goto out;
    }
    for (int i = 0; i < count; i++)
        agree_describe(list[i], l.mine + i * DESCRIPTION);
    memcpy(l.first, l.mine, (size_t)count * DESCRIPTION * sizeof *l.mine);
    AH_TRYGO(compare_counts(&l), out);
    status = compare_rows(&l);
out:
    free(l.counts);
    free(l.mine);
    free(l.first);
    return status;
}
