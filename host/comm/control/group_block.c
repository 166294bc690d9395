/* Counters as futex words. A waiter counts itself among the sleepers before it reads the counter a last time, and a
 * writer stores the counter before it reads the number of sleepers; both sequentially consistent, so that one of the
 * two always sees the other. */
#include "comm/control/group_block.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void group_wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ah_notification_notify(struct ah_notification *notification)
{
    atomic_fetch_add(&notification->changes, 1);
    if (atomic_load(&notification->sleepers) && !atomic_load(&notification->attended))
        group_wake(&notification->changes);
}

void ah_notification_sleep(struct ah_notification *notification, uint32_t seen, int64_t limit_ns)
{
    struct timespec limit = {limit_ns / 1000000000, limit_ns % 1000000000};
    atomic_fetch_add(&notification->sleepers, 1);
    if (atomic_load(&notification->changes) == seen)
        syscall(SYS_futex, &notification->changes, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_fetch_sub(&notification->sleepers, 1);
}

void ah_notification_attend(struct ah_notification *notification)
{
    /* Relaxed: a stale `attended` is corrected at the next poll, and the thread does the work meanwhile. */
    atomic_fetch_add_explicit(&notification->visits, 1, memory_order_relaxed);
    if (atomic_load_explicit(&notification->attended, memory_order_relaxed))
        return;
    /* From here on notifications wake no thread, and a rank that leaves wakes naps: a sleeping thread must nap
     * instead. */
    atomic_store(&notification->attended, 1);
    atomic_fetch_add(&notification->changes, 1);
    if (atomic_load(&notification->sleepers))
        group_wake(&notification->changes);
}

void ah_notification_leave(struct ah_notification *notification)
{
    /* Relaxed: this rank attends, or another one does, which leaves itself; the exchange decides. */
    if (atomic_load_explicit(&notification->attended, memory_order_relaxed) &&
        atomic_exchange(&notification->attended, 0))
        group_wake(&notification->attended);
}

bool ah_notification_nap(struct ah_notification *notification, uint32_t *visits)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint32_t now = atomic_load(&notification->visits);
    if (!atomic_load(&notification->attended))
        return false;
    if (now == *visits) {
        atomic_store(&notification->attended, 0);
        return false;
    }
    *visits = now;
    syscall(SYS_futex, &notification->attended, FUTEX_WAIT, 1, &nap, NULL, 0);
    return true;
}

void ah_group_notify(struct ah_group_block *block, enum ah_reader reader)
{
    int64_t distance = atomic_load_explicit(&block->notification, memory_order_relaxed); /* set before the first call */
    if (distance)
        ah_notification_notify((struct ah_notification *)((char *)block + distance) + reader);
}

void ah_group_counter_advance(struct ah_group_block *block, enum ah_counter which, uint32_t value)
{
    atomic_store(&block->counter[which], value);
    if (atomic_load(&block->sleepers))
        group_wake(&block->counter[which]);
    if (which != AH_ROUND)
        ah_group_notify(block, which == AH_SLICED ? AH_PROGRESS : AH_REPLICA);
}

void ah_group_sleep(struct ah_group_block *block, enum ah_counter which, uint32_t seen, int64_t limit_ns)
{
    struct timespec limit = {limit_ns / 1000000000, limit_ns % 1000000000};
    atomic_fetch_add(&block->sleepers, 1);
    if (atomic_load(&block->counter[which]) == seen)
        syscall(SYS_futex, &block->counter[which], FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_fetch_sub(&block->sleepers, 1);
}

void ah_group_wake(struct ah_group_block *block)
{
    if (atomic_load(&block->sleepers))
        for (int c = 0; c < AH_COUNTERS; c++)
            group_wake(&block->counter[c]);
}
