/* The handler runs in the thread that read the lost part, on its stack for handlers where it has one. It calls nothing
 * that is not safe in a handler, and reads the list without its lock: the process ends anyway. */
#include "io/mapping_fault.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/process/signals.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct ah_mapping *) first;
static struct sigaction before; /* the handler that was installed earlier */

static void append(char *line, size_t room, const char *text)
{
    size_t length = strlen(line), more = strnlen(text, room - 1 - length);
    memcpy(line + length, text, more);
    line[length + more] = '\0';
}

/* One write, so that no other line gets between. */
static void report(const char *path)
{
    char line[PATH_MAX + 256] = "accelhost: cannot read '";
    append(line, sizeof line, path);
    append(line, sizeof line, "', which was loaded: another program has cut the file since, or its disk failed. ");
    append(line, sizeof line, "Replace such a file by renaming another one over it\n");
    ah_signal_write(line);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    const unsigned char *at = info->si_addr;
    if (info->si_code > 0 && atomic_flag_test_and_set(&reported))
        return; /* another thread writes the line: fail again until it has */
    for (struct ah_mapping *mapping = atomic_load(&first); info->si_code > 0 && mapping; mapping = mapping->next)
        if (at >= mapping->bytes && at < mapping->bytes + mapping->count) {
            report(mapping->path);
            break;
        }
    sigaction(number, &before, NULL);
    if (info->si_code <= 0)
        raise(number); /* sent by a process; otherwise the instruction fails again */
}

static void watch(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGBUS, &action, &before);
}

void ah_mapping_fault_add(struct ah_mapping *mapping)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
    pthread_mutex_lock(&mutex);
    mapping->next = atomic_load(&first);
    atomic_store(&first, mapping);
    pthread_mutex_unlock(&mutex);
}

void ah_mapping_fault_remove(struct ah_mapping *mapping)
{
    pthread_mutex_lock(&mutex);
    if (atomic_load(&first) == mapping)
        atomic_store(&first, mapping->next);
    for (struct ah_mapping *other = atomic_load(&first); other; other = other->next)
        if (other->next == mapping)
            other->next = mapping->next;
    pthread_mutex_unlock(&mutex);
}
