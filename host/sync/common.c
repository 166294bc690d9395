/* The ranks of a host are neighbours, so their part of a bucket is one run: the first ranks send each other runs, in
 * calls of the whole group in which the others neither send nor receive. */
#include "sync/common.h"

#include <stdlib.h>
#include <string.h>

#include "comm/control/control_block.h"

struct ah_common {
    struct ah_group *group;
    struct ah_arena *arena;
    int hosts, mine, *ranks, *first; /* by host in the group's order: its number of ranks, and its first */
};

static struct ah_collective common_called(struct ah_collective call, enum ah_purpose purpose, const char *where)
{
    call.purpose = purpose;
    call.where = where;
    return call;
}

static int count_ranks(struct ah_common *c)
{
    int size = ah_group_size(c->group);
    c->ranks = calloc((size_t)size + 1, sizeof *c->ranks);
    c->first = calloc((size_t)size + 1, sizeof *c->first);
    if (!c->ranks || !c->first)
        return ah_fail(AH_ENOMEM, "prepare: out of memory");
    for (int r = 0; r < size; r++) {
        int host = ah_group_host(c->group, r);
        if (r == 0 || host != ah_group_host(c->group, r - 1)) {
            for (int k = 0; k < r; k++)
                if (host == ah_group_host(c->group, k))
                    return ah_fail(AH_ENOTIMPL, "prepare: the ranks of a host are not neighbours in this group");
            c->first[c->hosts++] = r;
        }
        c->ranks[c->hosts - 1]++;
        if (r == ah_group_rank(c->group))
            c->mine = c->hosts - 1;
    }
    return 0;
}

int ah_common_new(struct ah_common **out, struct ah_group *group, size_t bytes, const char *where)
{
    struct ah_common *c = calloc(1, sizeof *c);
    AH_TRY_MEMORY(c, "prepare: out of memory");
    c->group = ah_group_retain(group);
    int status = count_ranks(c);
    if (status == 0)
        status = ah_arena_common(&c->arena, bytes, group, where);
    if (status < 0) {
        ah_common_free(c);
        return status;
    }
    *out = c;
    return 0;
}

void ah_common_free(struct ah_common *c)
{
    if (!c)
        return;
    ah_arena_release(c->arena);
    ah_group_close(c->group);
    free(c->ranks);
    free(c->first);
    free(c);
}

struct ah_arena *ah_common_arena(struct ah_common *c)
{
    return c->arena;
}

bool ah_common_brings(const struct ah_common *c)
{
    return ah_group_rank(c->group) == c->first[c->mine];
}

/* Elements of type `dtype` from host to host: `count[h]` of them, at `at[h]` of the arena, are sent by host h to all
 * others. In each round a host sends to one and receives from one, so that both runs are moved in place. */
static int send_runs(struct ah_common *c, const int64_t *count, const size_t *at, enum ah_dtype dtype,
                     struct ah_collective how)
{
    size_t size = (size_t)ah_group_size(c->group);
    bool leads = ah_common_brings(c);
    int64_t *counts = malloc(size * size * sizeof *counts);
    int status = counts ? 0 : ah_fail(AH_ENOMEM, "out of memory for the counts of a transfer between hosts");
    for (int round = 1; status == 0 && round < c->hosts; round++) {
        memset(counts, 0, size * size * sizeof *counts);
        for (int g = 0; g < c->hosts; g++)
            counts[(size_t)c->first[g] * size + (size_t)c->first[(g + round) % c->hosts]] = count[g];
        const char *given = c->arena->memory + at[c->mine];
        char *taken = c->arena->memory + at[(c->mine + c->hosts - round) % c->hosts];
        struct ah_collective call =
            ah_collective_all_to_all_v(leads ? taken : NULL, leads ? given : NULL, counts, dtype);
        status = ah_group_run(c->group, common_called(call, how.purpose, how.where));
    }
    free(counts);
    return status;
}

enum { PIECE = 16 << 20 };

int ah_common_fill(struct ah_common *c, const char *where)
{
    struct ah_collective how = common_called(ah_collective_barrier(), AH_FOR_PREPARE, where);
    int64_t count[AH_MAX_RANKS] = {0};
    size_t at[AH_MAX_RANKS] = {0};
    for (size_t done = 0; c->hosts > 1 && done < c->arena->bytes; done += PIECE) {
        count[0] = (int64_t)(c->arena->bytes - done < PIECE ? c->arena->bytes - done : PIECE);
        at[0] = done;
        AH_TRY(send_runs(c, count, at, AH_U8, how));
    }
    return ah_group_run(c->group, how);
}

int ah_common_exchange(struct ah_common *c, const struct ah_layout *layout, const char *where)
{
    struct ah_collective how = common_called(ah_collective_barrier(), AH_FOR_STEP, where);
    AH_TRY(ah_group_run(c->group, how));
    if (c->hosts == 1)
        return 0;
    for (int b = 0; b < layout->bucket_count; b++) {
        const struct ah_bucket *bucket = &layout->bucket[b];
        size_t slice = bucket->bytes / (size_t)ah_group_size(c->group);
        int64_t count[AH_MAX_RANKS];
        size_t at[AH_MAX_RANKS];
        for (int h = 0; h < c->hosts; h++) {
            count[h] = (int64_t)(slice / ah_dtype_size(bucket->dtype)) * c->ranks[h];
            at[h] = bucket->offset + slice * (size_t)c->first[h];
        }
        AH_TRY(send_runs(c, count, at, bucket->dtype, how));
    }
    return ah_group_run(c->group, how);
}
