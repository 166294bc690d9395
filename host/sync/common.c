/* The ranks of a host are neighbours, so what they have of a bucket is one run: the first ranks give each other runs,
 * in a group of their own, and the others of a host wait for theirs. */
#include "sync/common.h"

#include <stdlib.h>

struct ah_common {
    struct ah_group *group, *home, *leaders; /* all; of this host; the first of each. NULL: no leader, or one host */
    struct ah_arena *arena;
    int hosts, *ranks; /* how many ranks a host has, in order */
};

static struct ah_collective called(struct ah_collective call, enum ah_purpose purpose, const char *where)
{
    call.purpose = purpose;
    call.where = where;
    return call;
}

static int count_ranks(struct ah_common *c)
{
    int size = ah_group_size(c->group);
    c->ranks = calloc((size_t)size + 1, sizeof *c->ranks);
    if (!c->ranks)
        return ah_fail(AH_ENOMEM, "prepare: out of memory");
    for (int r = 0; r < size; r++) {
        int host = ah_group_host(c->group, r);
        for (int k = 0; k < r - 1; k++)
            if (host == ah_group_host(c->group, k) && host != ah_group_host(c->group, r - 1))
                return ah_fail(AH_ENOTIMPL, "prepare: the ranks of a host are not neighbours in this group");
        c->hosts += r == 0 || host != ah_group_host(c->group, r - 1);
        c->ranks[c->hosts - 1]++;
    }
    return 0;
}

static int make_groups(struct ah_common *c, const char *where)
{
    int rank = ah_group_rank(c->group);
    AH_TRY(count_ranks(c));
    if (c->hosts == 1) {
        c->home = ah_group_retain(c->group);
        return 0;
    }
    AH_TRY(ah_group_split(&c->home, c->group, ah_group_host(c->group, rank), rank, where));
    return ah_group_split(&c->leaders, c->group, ah_group_rank(c->home) == 0 ? 0 : -1, rank, where);
}

int ah_common_new(struct ah_common **out, struct ah_group *group, size_t bytes, const char *where)
{
    struct ah_common *c = calloc(1, sizeof *c);
    if (!c)
        return ah_fail(AH_ENOMEM, "prepare: out of memory");
    c->group = ah_group_retain(group);
    int status = make_groups(c, where);
    if (status == 0)
        status = ah_arena_common(&c->arena, bytes, c->home, where);
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
    if (c->leaders)
        ah_group_close(c->leaders);
    if (c->home)
        ah_group_close(c->home);
    ah_group_close(c->group);
    free(c->ranks);
    free(c);
}

struct ah_arena *ah_common_arena(struct ah_common *c)
{
    return c->arena;
}

bool ah_common_brings(const struct ah_common *c)
{
    return ah_group_rank(c->home) == 0;
}

int ah_common_fill(struct ah_common *c, const char *where)
{
    if (c->leaders) {
        struct ah_collective call = ah_collective_broadcast(c->arena->memory, (int64_t)c->arena->bytes, AH_U8, 0);
        AH_TRY(ah_group_run(c->leaders, called(call, AH_FOR_PREPARE, where)));
    }
    return ah_group_run(c->home, called(ah_collective_barrier(), AH_FOR_PREPARE, where));
}

/* A bucket's runs, host by host. */
static int give_bucket(struct ah_common *c, const struct ah_bucket *bucket, int64_t *counts, const char *where)
{
    int own = ah_group_rank(c->leaders);
    int64_t slice = (int64_t)(bucket->bytes / ah_dtype_size(bucket->dtype)) / ah_group_size(c->group), before = 0;
    for (int h = 0; h < c->hosts; h++) {
        counts[h] = slice * c->ranks[h];
        before += h < own ? counts[h] : 0;
    }
    char *memory = c->arena->memory + bucket->offset;
    struct ah_collective call =
        ah_collective_all_gather_v(memory, memory + (size_t)before * ah_dtype_size(bucket->dtype), counts, own,
                                   bucket->dtype);
    return ah_group_run(c->leaders, called(call, AH_FOR_STEP, where));
}

int ah_common_exchange(struct ah_common *c, const struct ah_layout *layout, const char *where)
{
    AH_TRY(ah_group_run(c->home, called(ah_collective_barrier(), AH_FOR_STEP, where)));
    if (c->hosts == 1)
        return 0;
    int64_t *counts = c->leaders ? malloc((size_t)c->hosts * sizeof *counts) : NULL;
    if (c->leaders && !counts)
        return ah_fail(AH_ENOMEM, "optimizer:step: out of memory");
    int status = 0;
    for (int b = 0; status == 0 && c->leaders && b < layout->bucket_count; b++)
        status = give_bucket(c, &layout->bucket[b], counts, where);
    free(counts);
    return status < 0 ? status : ah_group_run(c->home, called(ah_collective_barrier(), AH_FOR_STEP, where));
}
