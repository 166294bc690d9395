/* All ranks report a mismatch alike: it names the lowest rank that issued the call and the lowest that differs from it.
 * Ranks in texts are those of the job. */
#include "comm/group/mismatch.h"

#include <time.h>

#include "base/trace/time.h"

static const int64_t witness_ns = 1000000000; /* for ranks that are on their way to the call */
static const int64_t glance_ns = 500000;      /* between two polls for them */

/* The lowest rank that has issued the call, and the lowest that differs from it; false when none differs. */
static bool find_mismatch(struct ah_group *group, uint32_t sequence, int *first, int *other)
{
    *first = -1;
    for (int r = 0; r < group->size; r++) {
        if (!ah_reached(ah_group_counter(group->peer[r], AH_ISSUED), sequence))
            continue;
        if (*first < 0) {
            *first = r;
        } else if (ah_group_call_record(group, r, sequence)->hash !=
                   ah_group_call_record(group, *first, sequence)->hash) {
            *other = r;
            return true;
        }
    }
    return false;
}

/* Wait a moment for ranks to post the call. */
static void await_witnesses(struct ah_group *group, uint32_t sequence)
{
    for (int64_t start = ah_now_ns(); ah_now_ns() - start < witness_ns;) {
        bool expected = false;
        for (int r = 0; r < group->size; r++)
            expected |= !ah_reached(ah_group_counter(group->peer[r], AH_ISSUED), sequence) &&
                        atomic_load(&ah_rank_entry(group->control, group->member[r])->state) == AH_RANK_RUNNING;
        if (!expected)
            return;
        nanosleep(&(struct timespec){.tv_nsec = glance_ns}, NULL);
    }
}

static int mismatch_fail(struct ah_group *group, uint32_t sequence)
{
    char left[256], right[256];
    int a = 0, b = 0;
    await_witnesses(group, sequence);
    find_mismatch(group, sequence, &a, &b);
    const struct ah_call_record *one = ah_group_call_record(group, a, sequence),
                                *two = ah_group_call_record(group, b, sequence);
    return ah_fail(AH_EMISMATCH, "collective #%u differs: rank %d %s at %s; rank %d %s at %s", sequence - group->base,
                   group->member[a], ah_call_record_describe(one, left, sizeof left), one->where, group->member[b],
                   ah_call_record_describe(two, right, sizeof right), two->where);
}

int ah_mismatch_check(struct ah_group *group, uint32_t sequence)
{
    int first, other;
    return find_mismatch(group, sequence, &first, &other) ? mismatch_fail(group, sequence) : 0;
}
