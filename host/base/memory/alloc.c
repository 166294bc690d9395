/* A freed block waits in the list of its size class; large ones are mapped separately. Invariant: a class and its
 * rounded size follow from the requested bytes alone, since a block knows neither; one lock guards all. */
#include "base/memory/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status/status.h"

/* Four classes per power of two from 64 bytes up: at most 25 % of a block is waste. */
enum { CLASS_COUNT = 4 * 40, MIN_BYTES = 64, HUGE_BYTES = 2 << 20 };

struct free_block {
    struct free_block *next;
};

static pthread_mutex_t alloc_lock = PTHREAD_MUTEX_INITIALIZER;
static struct free_block *alloc_cache[CLASS_COUNT];
static struct ah_memory_stats alloc_stats;
static bool (*pressure_collect)(void *);
static void *pressure_context;

static int class_of(size_t bytes, size_t *rounded)
{
    if (bytes <= MIN_BYTES) {
        *rounded = MIN_BYTES;
        return 0;
    }
    int power = 63 - __builtin_clzll(bytes - 1); /* 2^power < bytes <= 2^(power+1) */
    size_t step = (size_t)1 << (power - 2);
    size_t steps = (bytes - 1 - ((size_t)1 << power)) / step + 1;
    *rounded = ((size_t)1 << power) + steps * step;
    return 4 * (power - 6) + (int)steps;
}

size_t ah_block_room(size_t bytes)
{
    size_t rounded = bytes;
    class_of(bytes, &rounded);
    return rounded;
}

/* Large blocks start at a huge page's border and ask for huge pages: the first write to 100 MiB otherwise causes 27,000
 * page faults, a third of the CPU time until the first training step ends. */
static void *map_huge(size_t rounded)
{
    char *start = mmap(NULL, rounded + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t lead = (HUGE_BYTES - (uintptr_t)start % HUGE_BYTES) % HUGE_BYTES;
    if (lead)
        munmap(start, lead);
    if (lead < HUGE_BYTES)
        munmap(start + lead + rounded, HUGE_BYTES - lead);
    madvise(start + lead, rounded, MADV_HUGEPAGE);
    return start + lead;
}

static void *system_alloc(size_t bytes, size_t rounded)
{
    void *block = NULL;
    if (!AH_KEEPS_FREED)
        return posix_memalign(&block, 64, bytes) ? NULL : block;
    if (rounded < HUGE_BYTES)
        return posix_memalign(&block, 64, rounded) ? NULL : block;
    return map_huge(rounded);
}

static void system_free(void *block, size_t rounded)
{
    if (!AH_KEEPS_FREED || rounded < HUGE_BYTES)
        free(block);
    else
        munmap(block, rounded);
}

static void trim_locked(void)
{
    for (int i = 0; i < CLASS_COUNT; i++) {
        size_t rounded = i == 0 ? MIN_BYTES : ((size_t)1 << ((i - 1) / 4 + 6)) / 4 * (size_t)((i - 1) % 4 + 5);
        while (alloc_cache[i]) {
            struct free_block *block = alloc_cache[i];
            alloc_cache[i] = block->next;
            alloc_stats.cached -= rounded;
            system_free(block, rounded);
        }
    }
}

static void *alloc_block(int class, size_t bytes, size_t rounded)
{
    pthread_mutex_lock(&alloc_lock);
    void *block = alloc_cache[class];
    if (block) {
        alloc_cache[class] = alloc_cache[class]->next;
        alloc_stats.cached -= rounded;
    } else {
        block = system_alloc(bytes, rounded);
        alloc_stats.system_calls++;
        if (!block) {
            alloc_stats.retries++;
            trim_locked();
            block = system_alloc(bytes, rounded);
        }
    }
    if (block) {
        alloc_stats.allocations++;
        alloc_stats.live += rounded;
        if (alloc_stats.live > alloc_stats.peak)
            alloc_stats.peak = alloc_stats.live;
    }
    pthread_mutex_unlock(&alloc_lock);
    return block;
}

static void count_failure(void)
{
    pthread_mutex_lock(&alloc_lock);
    alloc_stats.ooms++;
    pthread_mutex_unlock(&alloc_lock);
}

int ah_block_alloc(size_t bytes, void **out)
{
    if (bytes > ((size_t)1 << 45))
        return ah_fail(AH_ENOMEM, "out of memory: a block of %zu bytes was asked for", bytes);
    size_t rounded;
    int class = class_of(bytes, &rounded);
    *out = alloc_block(class, bytes, rounded);
    if (!*out && ah_block_relieve())
        *out = alloc_block(class, bytes, rounded);
    if (!*out)
        count_failure();
    if (!*out)
        return ah_fail(AH_ENOMEM, "out of memory: %zu bytes asked for, %.1f MiB live, %.1f MiB cached", bytes,
                       (double)alloc_stats.live / 1048576, (double)alloc_stats.cached / 1048576);
    return 0;
}

void ah_block_free(void *block, size_t bytes)
{
    if (!block)
        return;
    size_t rounded;
    int class = class_of(bytes, &rounded);
    struct free_block *freed = block;
    pthread_mutex_lock(&alloc_lock);
    alloc_stats.live -= rounded;
    if (AH_KEEPS_FREED) {
        freed->next = alloc_cache[class];
        alloc_cache[class] = freed;
        alloc_stats.cached += rounded;
    } else {
        system_free(block, rounded);
    }
    pthread_mutex_unlock(&alloc_lock);
}

void ah_block_trim(void)
{
    pthread_mutex_lock(&alloc_lock);
    trim_locked();
    pthread_mutex_unlock(&alloc_lock);
}

struct ah_memory_stats ah_memory_stats(void)
{
    pthread_mutex_lock(&alloc_lock);
    struct ah_memory_stats copy = alloc_stats;
    pthread_mutex_unlock(&alloc_lock);
    return copy;
}

void ah_block_on_pressure(bool (*collect)(void *context), void *context)
{
    pressure_collect = collect;
    pressure_context = context;
}

bool ah_block_relieve(void)
{
    return pressure_collect && pressure_collect(pressure_context);
}
