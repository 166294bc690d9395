/* A growing array of events, filled by the allocator's watch. */
#include "base/trace/memory_log.h"

#include <stdlib.h>

#include "base/memory/alloc.h"
#include "base/trace/counters.h"

enum { EVENTS = 1 << 22 }; /* 160 MiB */

static struct ah_memory_log memory_log;
static size_t memory_log_room;

static void memory_log_add(const void *block, int64_t bytes, size_t cached)
{
    if (memory_log.count == memory_log_room) {
        size_t room = memory_log_room ? 2 * memory_log_room : 4096;
        void *grown = room <= EVENTS ? realloc(memory_log.event, room * sizeof *memory_log.event) : NULL;
        if (!grown) {
            memory_log.lost++;
            return;
        }
        memory_log.event = grown;
        memory_log_room = room;
    }
    memory_log.event[memory_log.count++] = (struct ah_memory_event){
        .block = (uintptr_t)block, .bytes = bytes, .cached = cached,
        .op = atomic_load_explicit(&ah_counters->op, memory_order_relaxed),
        .in_backward = atomic_load_explicit(&ah_counters->in_backward, memory_order_relaxed) != 0};
}

void ah_memory_log_start(void)
{
    free(ah_memory_log_stop().event);
    memory_log.live = ah_memory_stats().live;
    ah_block_watch(memory_log_add);
}

struct ah_memory_log ah_memory_log_stop(void)
{
    ah_block_watch(NULL);
    struct ah_memory_log log = memory_log;
    memory_log = (struct ah_memory_log){0};
    memory_log_room = 0;
    return log;
}
