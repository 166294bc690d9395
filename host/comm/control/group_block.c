/* Counters as futex words. A waiter counts itself among the sleepers before it looks at the counter a last time, and
 * who advances stores the counter before it looks at the sleepers; both sequentially consistent, so that one of the
 * two always sees the other. */
#include "comm/control/group_block.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ah_notification_notify(struct ah_notification *news)
{
    atomic_fetch_add(&news->changes, 1);
    if (atomic_load(&news->sleepers) && !atomic_load(&news->attended))
        wake(&news->changes);
}

void ah_notification_sleep(struct ah_notification *news, uint32_t seen, int64_t limit_ns)
{
    struct timespec limit = {limit_ns / 1000000000, limit_ns % 1000000000};
    atomic_fetch_add(&news->sleepers, 1);
    if (atomic_load(&news->changes) == seen)
        syscall(SYS_futex, &news->changes, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_fetch_sub(&news->sleepers, 1);
}

void ah_notification_attend(struct ah_notification *news)
{
    atomic_fetch_add_explicit(&news->visits, 1, memory_order_relaxed);
    if (atomic_load_explicit(&news->attended, memory_order_relaxed))
        return;
    /* From here on news wakes nobody, and who leaves wakes naps: a thread that sleeps must nap instead. */
    atomic_store(&news->attended, 1);
    atomic_fetch_add(&news->changes, 1);
    if (atomic_load(&news->sleepers))
        wake(&news->changes);
}

void ah_notification_leave(struct ah_notification *news)
{
    if (atomic_load_explicit(&news->attended, memory_order_relaxed) && atomic_exchange(&news->attended, 0))
        wake(&news->attended);
}

bool ah_notification_nap(struct ah_notification *news, uint32_t *visits)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint32_t now = atomic_load(&news->visits);
    if (!atomic_load(&news->attended))
        return false;
    if (now == *visits) {
        atomic_store(&news->attended, 0);
        return false;
    }
    *visits = now;
    syscall(SYS_futex, &news->attended, FUTEX_WAIT, 1, &nap, NULL, 0);
    return true;
}

void ah_group_notify(struct ah_group_block *channel, enum ah_reader reader)
{
    int64_t distance = atomic_load_explicit(&channel->news, memory_order_relaxed);
    if (distance)
        ah_notification_notify((struct ah_notification *)((char *)channel + distance) + reader);
}

void ah_group_counter_advance(struct ah_group_block *channel, enum ah_counter which, uint32_t value)
{
    atomic_store(&channel->counter[which], value);
    if (atomic_load(&channel->sleepers))
        wake(&channel->counter[which]);
    if (which != AH_ROUND)
        ah_group_notify(channel, which == AH_SLICED ? AH_PROGRESS : AH_REPLICA);
}

void ah_group_sleep(struct ah_group_block *channel, enum ah_counter which, uint32_t seen, int64_t limit_ns)
{
    struct timespec limit = {limit_ns / 1000000000, limit_ns % 1000000000};
    atomic_fetch_add(&channel->sleepers, 1);
    if (atomic_load(&channel->counter[which]) == seen)
        syscall(SYS_futex, &channel->counter[which], FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_fetch_sub(&channel->sleepers, 1);
}

void ah_group_wake(struct ah_group_block *channel)
{
    if (atomic_load(&channel->sleepers))
        for (int c = 0; c < AH_COUNTERS; c++)
            wake(&channel->counter[c]);
}
