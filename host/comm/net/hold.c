/* A call's own buffers that are in the segment already are used as they are. */
#include "comm/net/hold.h"

#include <string.h>

static int hold_alloc(const struct ah_holder *h, size_t bytes, void **memory, size_t *held, uint64_t *offset)
{
    AH_TRY(ah_segment_alloc(h->segment, bytes, false, memory));
    *held = bytes;
    *offset = ah_segment_offset(h->segment, *memory, bytes);
    return 0;
}

void ah_hold_release(const struct ah_holder *h, struct ah_hold *hold)
{
    void *memory[] = {hold->copy, hold->landing, hold->partial, hold->counts};
    size_t bytes[] = {hold->copy_bytes, hold->landing_bytes, hold->partial_bytes, hold->counts_bytes};
    for (int i = 0; i < 4; i++)
        if (memory[i])
            ah_segment_free(h->segment, memory[i], bytes[i]);
    *hold = (struct ah_hold){0};
}

int ah_hold_input(const struct ah_holder *h, const struct ah_collective *call, bool copy, struct ah_hold *hold,
                  struct ah_call_arguments *out)
{
    size_t bytes = (size_t)ah_collective_input(call, h->team->size, h->rank) * ah_dtype_size(call->dtype);
    if (!bytes)
        return 0;
    out->offset = copy ? AH_NO_OFFSET : ah_segment_offset(h->segment, call->in, bytes);
    if (out->offset != AH_NO_OFFSET)
        return 0;
    AH_TRY(hold_alloc(h, bytes, &hold->copy, &hold->copy_bytes, &out->offset));
    memcpy(hold->copy, call->in, bytes);
    return 0;
}

/* Does the call receive data from another host? */
static bool takes_from_afar(const struct ah_holder *h, const struct ah_collective *call)
{
    for (int r = 0; r < h->team->size; r++)
        if (h->team->at[r] != h->team->mine && ah_collective_part(call, h->team->size, r, h->rank).count)
            return true;
    return false;
}

static int make_landing(const struct ah_holder *h, const struct ah_collective *call, struct ah_hold *hold,
                        struct ah_call_arguments *out)
{
    size_t bytes = (size_t)ah_team_result(call, h->team->size, h->rank) * ah_dtype_size(call->dtype);
    if (call->kind == AH_ALL_REDUCE || !bytes || !takes_from_afar(h, call))
        return 0;
    out->landing = call->out ? ah_segment_offset(h->segment, call->out, bytes) : AH_NO_OFFSET;
    if (out->landing != AH_NO_OFFSET)
        return 0;
    return hold_alloc(h, bytes, &hold->landing, &hold->landing_bytes, &out->landing);
}

/* Is a host's sum made of something else than the call's elements? */
static bool hold_widens(const struct ah_holder *h, const struct ah_collective *call)
{
    return ah_team_sums(h->team, call) != call->dtype;
}

static int make_partial(const struct ah_holder *h, const struct ah_collective *call, struct ah_hold *hold,
                        struct ah_call_arguments *out)
{
    size_t bytes = (size_t)ah_collective_input(call, h->team->size, h->rank) * ah_team_width(h->team, call);
    bool in_place = call->kind == AH_ALL_REDUCE || h->team->local == 1;
    out->partial = out->offset;
    if (!ah_collective_reduces(call) || h->team->ranks[0] != h->rank || (in_place && !hold_widens(h, call)))
        return 0;
    return hold_alloc(h, bytes, &hold->partial, &hold->partial_bytes, &out->partial);
}

static int write_counts(const struct ah_holder *h, const struct ah_collective *call, struct ah_hold *hold,
                        struct ah_call_arguments *out)
{
    size_t size = (size_t)h->team->size, n = call->kind == AH_ALL_TO_ALL_V ? size * size : size;
    if (!call->counts)
        return 0;
    AH_TRY(hold_alloc(h, n * sizeof *call->counts, &hold->counts, &hold->counts_bytes, &out->counts));
    memcpy(hold->counts, call->counts, n * sizeof *call->counts);
    return 0;
}

int ah_hold_wired(const struct ah_holder *h, const struct ah_collective *call, struct ah_hold *hold,
                  struct ah_call_arguments *out)
{
    AH_TRY(ah_hold_input(h, call, false, hold, out));
    AH_TRY(make_landing(h, call, hold, out));
    AH_TRY(make_partial(h, call, hold, out));
    return write_counts(h, call, hold, out);
}
