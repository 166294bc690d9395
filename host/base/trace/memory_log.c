/* A growing array of events, filled by the allocator's watch. */
#include "base/trace/memory_log.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory/alloc.h"
#include "base/trace/counters.h"
#include "base/trace/time.h"

enum { EVENTS = 1 << 22 }; /* 256 MiB */

static pthread_mutex_t memory_log_lock = PTHREAD_MUTEX_INITIALIZER; /* after the allocator's */
static struct ah_memory_log memory_log;
static size_t memory_log_room;

static void memory_log_append(const void *block, int64_t bytes, size_t cached)
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
        .block = (uintptr_t)block, .bytes = bytes, .cached = cached, .time_ns = ah_now_ns(),
        .op = atomic_load_explicit(&ah_counters->op, memory_order_relaxed),
        .in_backward = atomic_load_explicit(&ah_counters->in_backward, memory_order_relaxed) != 0};
}

static void memory_log_add(const void *block, int64_t bytes, size_t cached)
{
    pthread_mutex_lock(&memory_log_lock);
    memory_log_append(block, bytes, cached);
    pthread_mutex_unlock(&memory_log_lock);
}

void ah_memory_log_describe(const void *block, const char *tensor, const char *site, const char *module)
{
    enum { RECENT = 64 }; /* other threads, and a collection that the texts caused, may have logged since */
    pthread_mutex_lock(&memory_log_lock);
    size_t least = memory_log.count > RECENT ? memory_log.count - RECENT : 0;
    for (size_t i = memory_log.count; i > least; i--) {
        struct ah_memory_event *event = &memory_log.event[i - 1];
        if (event->block != (uintptr_t)block || event->bytes <= 0)
            continue;
        event->tensor = tensor;
        event->site = site;
        event->module = module;
        break;
    }
    pthread_mutex_unlock(&memory_log_lock);
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
